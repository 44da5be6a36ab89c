"""The toolchain is found, fits, or is asked for in a sentence that names the command."""

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from course_lib.compiler import ToolchainMissing, compile_for, toolchain
from tests.compiler.kernels import scale, spec

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-toolchain.lock"


def plugin(
    folder: Path, version: str, *, flavour: str = "cuda13", parts=("pjrt", "plugin")
) -> Path:
    """A folder of packages that looks as if it held a CUDA plugin and its tools."""
    for part in parts:
        info = folder / f"jax_{flavour}_{part}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: jax-{flavour}-{part}\nVersion: {version}\n")
    return folder


def tools(folder: Path) -> Path:
    programs = folder / "nvidia" / "cu13" / "bin"
    programs.mkdir(parents=True)
    for name in ("ptxas", "nvdisasm"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} of {folder.name}\n")
        (programs / name).chmod(0o755)
    return folder


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TOOLCHAIN", str(tmp_path / "toolchain"))
    monkeypatch.setattr(toolchain, "has_wheels", lambda: True)
    return tmp_path / "toolchain"


def test_the_installed_one_fits():
    found = toolchain.find()
    assert importlib.metadata.version("jaxlib") in found.version
    for program in (found.ptxas, found.nvdisasm):
        assert (
            "release"
            in subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        )


def test_none_at_all(own_folder, tmp_path):
    with pytest.raises(ToolchainMissing, match=r"not installed\. Run `make toolchain`"):
        toolchain.find(site=tmp_path / "site", jaxlib="0.12.0.1")


def test_one_for_another_jaxlib(own_folder, tmp_path):
    plugin(own_folder, "0.12.0.1")
    with pytest.raises(ToolchainMissing) as caught:
        toolchain.find(site=tmp_path / "site", jaxlib="0.11.2")
    message = str(caught.value)
    assert "made for jaxlib 0.12.0.1, and this Python has jaxlib 0.11.2" in message
    assert "make toolchain" in message


def test_half_a_plugin_is_none(own_folder, tmp_path):
    plugin(own_folder, "0.12.0.1", parts=("pjrt",))
    with pytest.raises(ToolchainMissing, match="not installed"):
        toolchain.find(site=tmp_path / "site", jaxlib="0.12.0.1")


def test_its_own_folder_goes_on_the_workers_path(own_folder, tmp_path):
    tools(plugin(own_folder, "0.12.0.1"))
    found = toolchain.find(site=tmp_path / "site", jaxlib="0.12.0.1")
    assert found.path == (str(own_folder),)
    assert found.ptxas.startswith(str(own_folder))
    assert "ptxas of toolchain" in found.version


@pytest.mark.parametrize("flavour", ["cuda12", "cuda13"])
def test_a_plugin_of_the_environment_wins_and_stays_alone(own_folder, tmp_path, flavour):
    """Beside jax[cuda12] a second plugin would claim the same name."""
    tools(plugin(own_folder, "0.12.0.1"))
    site = plugin(tmp_path / "site", "0.11.2", flavour=flavour)
    found = toolchain.find(site=site, jaxlib="0.11.2")
    assert found.path == ()
    assert found.ptxas.startswith(str(own_folder))  # the folder lends its tools
    tools(site)
    assert toolchain.find(site=site, jaxlib="0.11.2").ptxas.startswith(str(site))


def test_a_plugin_without_its_tools(own_folder, tmp_path, monkeypatch):
    plugin(own_folder, "0.12.0.1")
    monkeypatch.setattr(shutil, "which", lambda *args, **options: None)
    with pytest.raises(ToolchainMissing, match=r"There is no `ptxas`.*make toolchain"):
        toolchain.find(site=tmp_path / "site", jaxlib="0.12.0.1")


def test_systems_that_have_no_wheels(own_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(toolchain, "has_wheels", lambda: False)
    monkeypatch.setattr(toolchain.platform, "system", lambda: "Darwin")
    with pytest.raises(ToolchainMissing, match="for Linux only, and this is Darwin"):
        toolchain.find(site=tmp_path / "site")
    toolchain.install()
    assert "recorded listing" in capsys.readouterr().out
    assert not own_folder.exists()


def test_a_call_without_it_says_so(own_folder):
    with pytest.raises(ToolchainMissing, match="make toolchain"):
        compile_for(scale, spec(1024, 128))


def test_installing_what_is_up_to_date_does_nothing(own_folder, monkeypatch, capsys):
    own_folder.mkdir()
    (own_folder / "lock.sha256").write_text(hashlib.sha256(LOCK.read_bytes()).hexdigest())
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail("it installs"))
    toolchain.install()
    assert "up to date" in capsys.readouterr().out


def test_a_download_that_breaks_leaves_the_old_folder(own_folder, monkeypatch):
    own_folder.mkdir()
    (own_folder / "old").touch()

    def breaks(command, **options):
        target = Path(command[command.index("--target") + 1])
        target.mkdir()
        (target / "half").touch()
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", breaks)
    with pytest.raises(subprocess.CalledProcessError):
        toolchain.install()
    assert [f.name for f in own_folder.parent.iterdir() if f.is_dir()] == ["toolchain"]
    assert (own_folder / "old").exists()


def test_a_whole_download_takes_its_place(own_folder, monkeypatch):
    own_folder.mkdir()
    (own_folder / "old").touch()
    commands = []

    def installs(command, **options):
        commands.append(command)
        Path(command[command.index("--target") + 1]).mkdir()

    monkeypatch.setattr(subprocess, "run", installs)
    toolchain.install()
    assert not (own_folder / "old").exists()
    assert (own_folder / "lock.sha256").exists()
    [command] = commands
    assert {"--require-hashes", "--no-deps"} <= set(command)


def test_the_lock_is_for_the_locked_jaxlib():
    [plugin_version] = re.findall(r"^jax-cuda13-pjrt==(\S+)", LOCK.read_text(), re.MULTILINE)
    runtime = (ROOT / "requirements.lock").read_text()
    assert re.findall(r"^jaxlib==(\S+)", runtime, re.MULTILINE) == [plugin_version]


def test_the_notebooks_process_never_sees_it():
    code = "import jax, course_lib.compiler; print(jax.devices()[0].platform)"
    env = {"JAX_PLATFORMS": "", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.split() == ["cpu"], done.stderr
    assert "cuda" not in str(sys.path).lower()
    assert isinstance(jnp.zeros(1), jax.Array)
