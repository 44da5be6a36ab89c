"""The range of JAX versions is said once in pyproject.toml, and in a sentence to who is outside."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from course_lib.diagnostics import CourseError, check_jax, versions
from tests.packaging.project import PYPROJECT


def test_the_range_is_that_of_pyproject() -> None:
    wanted = f"jax>={versions.OLDEST},<{versions.BEYOND}"
    assert wanted in PYPROJECT["project"]["dependencies"]


@pytest.mark.parametrize("version", ["0.11.2", "0.12.0.1", "0.12.9.dev20260101"])
def test_versions_inside(version, monkeypatch) -> None:
    monkeypatch.setattr(versions, "installed_jax", lambda: version)
    check_jax()


@pytest.mark.parametrize("version", ["0.11.1", "0.13", "0.13.0rc1", "1.0"])
def test_versions_outside(version, monkeypatch) -> None:
    monkeypatch.setattr(versions, "installed_jax", lambda: version)
    with pytest.raises(CourseError, match=f"installed JAX is {version}; this course works with"):
        check_jax()


def test_no_jax_at_all(monkeypatch) -> None:
    def none() -> str:
        raise importlib.metadata.PackageNotFoundError("jax")

    monkeypatch.setattr(versions, "installed_jax", none)
    with pytest.raises(CourseError, match="JAX is not installed; this course works with"):
        check_jax()


def test_the_front_door_says_so_before_anything_is_imported() -> None:
    code = (
        "import course_lib; from course_lib.diagnostics import versions\n"
        "versions.installed_jax = lambda: '0.9'\n"
        "try: course_lib.run\n"
        "except course_lib.diagnostics.CourseError as error: print(error)\n"
        "import sys; assert 'jax' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("The installed JAX is 0.9; this course works with jax >= 0.11.2")
