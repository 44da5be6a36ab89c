"""A tiny course that has been built once: running a notebook takes seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from course_lib.authoring import build
from course_lib.authoring.source import Course
from tests.authoring import tiny

AROUND = """\
import hashlib
import os
import sys
from pathlib import Path

from course_lib.authoring import cell_ids_by_source, source_sha

print("model only:", os.environ["COURSE_MODEL_ONLY"], os.environ["JAX_PLATFORMS"])
print("python:", hashlib.sha256(sys.executable.encode()).hexdigest())
print("folder:", Path.cwd().name in ("solutions", "notebooks"))
print("id:", cell_ids_by_source()[source_sha(In[-1])])"""

CLOCK = "import time\n\nprint(time.time_ns())"
LIBRARY_USE = "def later():\n    from course_lib import tool\n\n    return tool"


def cells() -> list[str]:
    """A tiny chapter that looks around, with a cell that prints something else every time."""
    return [
        *tiny.whole(),
        tiny.code("around", AROUND),
        tiny.code("clock", CLOCK, tags=["nbval-ignore-output"]),
        tiny.code("library", LIBRARY_USE),
    ]


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A built course, shared by all tests: to be copied, not to be changed."""
    course = tiny.course(tmp_path_factory.mktemp("built"))
    (course.library / "tool.py").write_text("VALUE = 1\n")
    (course.library / "other.py").write_text("VALUE = 2\n")
    tiny.write(course.root, *cells())
    build(course=course, registry=tiny.registry, say=lambda line: None)
    return course


@pytest.fixture
def built(built_once: Course, tmp_path: Path) -> Course:
    """A built course of the test's own."""
    shutil.copytree(built_once.root, tmp_path / "course")
    root = tmp_path / "course"
    return Course(root=root, library=root / "course_lib")
