"""On a user's machine a test may be skipped with a sentence; on CI no CPU test may."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.setup_env import ROOT

TESTS = """
import pytest
from tests import conftest

conftest.PROGRAMS["nonesuch"] = (("no-such-program",), "nonesuch-package")

@pytest.mark.needs("nonesuch")
def test_program(): pass

@pytest.mark.skip(reason="not in the mood")
def test_mood(): pass

@pytest.mark.gpu
@pytest.mark.skip(reason="needs an NVIDIA GPU")
def test_gpu(): pass

def test_jax(): pytest.skip("this jax has no such function")

@pytest.mark.xfail(strict=True)
def test_known(): assert False
"""


def _outcomes(folder: Path, *, ci: str) -> dict[str, str]:
    """What became of each test above, and the text of the whole run under ""."""
    (folder / "test_them.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    env = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:xdist",
        "-v",
        "-rs",
    ]
    said = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True).stdout
    lines = [line.split() for line in said.splitlines() if line.startswith("test_them.py::")]
    return {"": said} | {line[0].split("::test_")[1]: line[1] for line in lines}


def test_on_a_users_machine_they_are_skipped(tmp_path: Path) -> None:
    found = _outcomes(tmp_path, ci="")
    said = found.pop("")
    assert found == dict.fromkeys(["program", "mood", "gpu", "jax"], "SKIPPED") | {"known": "XFAIL"}
    assert "needs nonesuch (Debian and Ubuntu: apt-get install nonesuch-package)" in said


@pytest.mark.parametrize("ci", ["true", "1"])
def test_on_ci_they_fail(ci: str, tmp_path: Path) -> None:
    found = _outcomes(tmp_path, ci=ci)
    said = found.pop("")
    assert found == {
        "program": "ERROR",
        "mood": "ERROR",
        "gpu": "SKIPPED",
        "jax": "SKIPPED",
        "known": "XFAIL",
    }
    assert "skipped, which no CPU test may be on CI: not in the mood" in said
