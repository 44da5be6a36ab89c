"""conda's file asks for what pyproject.toml asks for, and what it asks for can be installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from course_lib.setup_env import ROOT
from tests.packaging.project import PYPROJECT

FILE = yaml.safe_load((ROOT / "environment.yml").read_text())
PIP = next(d["pip"] for d in FILE["dependencies"] if isinstance(d, dict))


def test_it_takes_the_python_of_the_course() -> None:
    wanted = (ROOT / ".python-version").read_text().strip()
    assert f"python={wanted}" in FILE["dependencies"]
    assert "pip" in FILE["dependencies"]


def test_its_pip_section_agrees_with_pyproject() -> None:
    extra = PYPROJECT["project"]["optional-dependencies"]["cuda12"]
    jax, course = PIP
    assert [str(Requirement(jax))] == [str(Requirement(e)) for e in extra]
    assert course == "-e .[cuda12]"


def test_the_course_and_its_cuda_extra_take_the_same_jax() -> None:
    [plain] = [r for r in PYPROJECT["project"]["dependencies"] if Requirement(r).name == "jax"]
    assert Requirement(plain).specifier == Requirement(PIP[0]).specifier


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_its_pip_section_installs_in_a_fresh_environment(tmp_path: Path) -> None:
    """With pip's own resolver and nothing but what the file says, as conda does it."""
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(PIP) + "\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    uv = Path(sys.executable).with_name("uv")
    installer = [str(uv) if uv.exists() else "uv", "pip", "install", "--quiet", "--python", python]
    subprocess.run([*installer, "-r", str(requirements)], cwd=ROOT, check=True)

    # Away from the checkout: the package is found because it was installed.
    def says(*code: str) -> str:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
        command = [python, "-c", "\n".join(code)]
        return subprocess.run(
            command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert says("import course_lib, jax", "print(course_lib.__file__)").startswith(str(ROOT))
    assert "cuda12" in says(
        "from importlib.metadata import distributions",
        "print({d.name for d in distributions() if d.name.startswith('jax-cuda')})",
    )
    assert says("import subprocess, sys", "from course_lib.cli import main", "main(['--version'])")
