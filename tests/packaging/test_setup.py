"""The set-up: nothing twice, nothing half, the right packages, and a sentence where it cannot."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib import setup_env
from course_lib.setup_env import ROOT, Environment, SetupError, ensure, environment


class Machine:
    """A checkout in a folder of its own, with an installer that only takes notes.

    Attributes:
      installed: the arguments of every installation so far.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.installed: list[tuple[str, ...]] = []
        for name in ("requirements.lock", "requirements-cuda12.lock", "requirements-dev.lock"):
            (root / name).write_text(f"# {name}\n")
        (root / "pyproject.toml").write_text("[project]\n")
        monkeypatch.setattr(setup_env, "_install", self._install)
        monkeypatch.setattr(setup_env, "_uv", lambda env, log: ["uv"])
        monkeypatch.setattr(setup_env, "has_nvidia_gpu", lambda: False)

    def _install(self, uv: list[str], env: Environment, *arguments: str) -> None:
        self.installed.append(arguments)
        [site] = env.folder.glob("lib/python3*/site-packages")
        name = "mosaic_gpu_hands_on-0.dist-info" if "-e" in arguments else "numpy-2.dist-info"
        (site / name).mkdir(exist_ok=True)

    def set_up(self, what: str = "lab", accel: str = "auto") -> int:
        """Sets up; how many installations that took."""
        before = len(self.installed)
        env = environment(what, accel=accel, root=self.root)
        ensure(env, root=self.root, log=lambda sentence: None)
        assert env.python.exists()
        return len(self.installed) - before

    @property
    def site(self) -> Path:
        [site] = self.root.glob(".venv/lib/python3*/site-packages")
        return site


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_second_set_up_does_nothing(machine: Machine) -> None:
    assert machine.set_up() == 2  # the lock, then the checkout
    assert machine.set_up() == 0


def test_packages_come_with_hashes_and_the_checkout_without(machine: Machine) -> None:
    machine.set_up()
    packages, checkout = machine.installed
    assert packages == ("--require-hashes", "-r", str(machine.root / "requirements.lock"))
    assert checkout == ("--no-deps", "--no-build-isolation", "-e", str(machine.root))


def test_the_tests_add_the_developers_tools_once(machine: Machine) -> None:
    machine.set_up("lab")
    assert machine.set_up("test") == 1
    assert str(machine.root / "requirements-dev.lock") in machine.installed[-1]
    assert machine.set_up("test") == 0
    assert machine.set_up("lab") == 0


def _change_lock(machine: Machine) -> None:
    (machine.root / "requirements.lock").write_text("# newer\n")


def _change_project(machine: Machine) -> None:
    (machine.root / "pyproject.toml").write_text("[project]\nname = 'x'\n")


def _interrupt(machine: Machine) -> None:
    (machine.root / ".venv" / "course-stamp.json").unlink()


def _garble_stamp(machine: Machine) -> None:
    (machine.root / ".venv" / "course-stamp.json").write_text("{")


def _lose_package(machine: Machine) -> None:
    (machine.site / "numpy-2.dist-info").rmdir()


def _lose_python(machine: Machine) -> None:
    python = machine.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(machine.root / "a-python-that-was-removed")


def _lose_everything(machine: Machine) -> None:
    shutil.rmtree(machine.root / ".venv")
    (machine.root / ".venv").mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _change_lock,
        _change_project,
        _interrupt,
        _garble_stamp,
        _lose_package,
        _lose_python,
        _lose_everything,
    ],
)
def test_what_is_stale_or_broken_is_mended(
    damage: Callable[[Machine], None], machine: Machine
) -> None:
    machine.set_up()
    damage(machine)
    assert machine.set_up() >= 1
    assert machine.set_up() == 0


def test_a_checkout_that_was_moved_gets_a_new_environment(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.set_up()
    (machine.site / "left_over").touch()
    stamp = machine.root / ".venv" / "course-stamp.json"
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"root": "elsewhere"}))
    assert machine.set_up() == 2
    assert not (machine.site / "left_over").exists()


def test_a_gpu_brings_cuda_and_auto_keeps_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env, "has_nvidia_gpu", lambda: True)
    machine.set_up()
    assert str(machine.root / "requirements-cuda12.lock") in machine.installed[0]
    monkeypatch.setattr(setup_env, "has_nvidia_gpu", lambda: False)
    assert machine.set_up() == 0  # a card that is away today is no reason to install anew


def test_asking_for_the_cpu_takes_cuda_out(machine: Machine) -> None:
    machine.set_up(accel="cuda12")
    (machine.site / "left_over").touch()
    assert machine.set_up(accel="cpu") == 2
    assert not (machine.site / "left_over").exists()
    assert str(machine.root / "requirements.lock") in machine.installed[-2]


def test_asking_for_cuda_adds_it(machine: Machine) -> None:
    machine.set_up(accel="cpu")
    assert machine.set_up(accel="cuda12") == 1
    assert machine.set_up(accel="cuda12") == 0


def test_a_failing_installation_leaves_no_stamp(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(uv: list[str], env: Environment, *arguments: str) -> None:
        raise SetupError("no network")

    monkeypatch.setattr(setup_env, "_install", fail)
    with pytest.raises(SetupError):
        machine.set_up()
    monkeypatch.setattr(setup_env, "_install", machine._install)
    assert machine.set_up() == 2


def _setup(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs tools/setup where the only Python is a fake one that says it is 3.9."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit\nexit 1\n')
    old.chmod(0o755)
    for tool in ("sh", "dirname", "cat"):
        found = shutil.which(tool)
        assert found
        (tmp_path / tool).symlink_to(found)
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), **variables}
    command = [str(ROOT / "tools" / "setup"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_a_machine_whose_python_is_too_old_is_told_so(tmp_path: Path) -> None:
    said = _setup(tmp_path, "lab")
    assert said.returncode == 1
    assert said.stderr.startswith("The course needs Python 3.12 or newer, and this machine has")
    assert "Python 3.9.1" in said.stderr


def test_a_python_that_was_named_and_is_too_old_is_told_so(tmp_path: Path) -> None:
    said = _setup(tmp_path, "lab", PYTHON="python3")
    assert said.returncode == 1
    assert said.stderr == "PYTHON=python3 is not a Python 3.12 or newer; the course needs one.\n"


def test_the_python_that_is_named_is_taken(tmp_path: Path) -> None:
    said = _setup(tmp_path, "--python", PYTHON=sys.executable)
    assert os.path.samefile(said.stdout.strip(), sys.executable)


def test_pyenvs_python_is_found_without_pyenv_on_the_path(tmp_path: Path) -> None:
    wanted = (ROOT / ".python-version").read_text().strip()
    python = tmp_path / "pyenv" / "versions" / f"{wanted}.9" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    said = _setup(tmp_path, "--python", PYENV_ROOT=str(tmp_path / "pyenv"))
    assert said.returncode == 0, said.stderr
    assert os.path.samefile(said.stdout.strip(), sys.executable)


@pytest.mark.needs("make")
def test_make_alone_says_what_to_do() -> None:
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0
    assert "make lab" in said.stdout
    assert "make test" in said.stdout
