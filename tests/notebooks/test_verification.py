"""Running the notebooks again fails the cells whose output changed or that raise, no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from course_lib.authoring import Course, build
from course_lib.authoring.verification import verify
from course_lib.diagnostics import CourseError
from tests.authoring import tiny

CLOCK = "import time\n\nprint(time.time_ns())"
CELLS = [
    *tiny.whole(),
    tiny.code("sum", "print(6 * 7)"),
    tiny.code("list", "[1, 2]"),
    tiny.code("word", "print('more')"),
    tiny.code("silent", "y = 1"),
    tiny.code("quiet", "z = 2"),
    tiny.code("clock", CLOCK, tags=["nbval-ignore-output"]),
    tiny.code("watch", f"{CLOCK}\nprint()", tags=["nbval-ignore-output"]),
]


def prints(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


# What is done to the stored notebook, by cell; and whether nbval should fail that cell.
FAULTS: dict[str, tuple[Callable[[Any], object], bool]] = {
    "sum": (lambda cell: cell.update(outputs=[prints("43\n")]), True),
    "list": (lambda cell: cell["outputs"][0]["data"].update({"text/plain": ["[1]"]}), True),
    "word": (lambda cell: cell.update(outputs=[]), True),
    "silent": (lambda cell: cell.update(outputs=[prints("more\n")]), True),
    "quiet": (lambda cell: cell.update(source=["z = 1 / 0"]), True),
    "check-double": (lambda cell: cell.update(outputs=[prints("tiny.double is new\n")]), True),
    "clock": (lambda cell: cell.update(outputs=[prints("0\n")]), False),
    "watch": (lambda cell: cell.update(source=["1 / 0"]), True),
}
Verdicts = dict[tuple[str, str], set[str]]


def damage(path: Path) -> None:
    nb = json.loads(path.read_text())
    for cell in nb["cells"]:
        if cell["id"] in FAULTS:
            FAULTS[cell["id"]][0](cell)
    path.write_text(json.dumps(nb))


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """(folder, chapter) -> ids of the cells that failed: 00_tiny is right, 01_damaged is not."""
    course = tiny.course(tmp_path_factory.mktemp("verified"))
    tiny.write(course.root, *CELLS)
    build(course=course, registry=tiny.registry, say=lambda line: None)
    tiny.write(course.root, *CELLS, name="01_damaged")
    for folder in (course.solutions, course.notebooks):
        shutil.copy(folder / "00_tiny.ipynb", folder / "01_damaged.ipynb")
        damage(folder / "01_damaged.ipynb")
    report = course.root / "report.xml"
    assert verify(course=course, options=[f"--junitxml={report}", "-q"]) == 1
    return failed_cells(report, course)


def failed_cells(report: Path, course: Course) -> Verdicts:
    nb = json.loads((course.solutions / "00_tiny.ipynb").read_text())
    ids = [c["id"] for c in nb["cells"] if c["cell_type"] == "code"]
    failed: Verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = case.get("classname", "").removesuffix(".ipynb").replace("/", ".")
        folder, _, chapter = place.rpartition(".")
        cells = failed.setdefault((folder, chapter), set())
        if case.find("failure") is not None or case.find("error") is not None:
            cells.add(ids[int(case.get("name", "").removeprefix("Cell "))])
    return failed


@pytest.mark.parametrize("folder", ["solutions", "notebooks"])
def test_a_notebook_that_prints_what_is_stored_passes(verdicts: Verdicts, folder: str) -> None:
    assert verdicts[folder, "00_tiny"] == set()


@pytest.mark.parametrize("folder", ["solutions", "notebooks"])
def test_every_fault_fails_its_cell_and_no_other(verdicts: Verdicts, folder: str) -> None:
    assert verdicts[folder, "01_damaged"] == {cell for cell, (_, fails) in FAULTS.items() if fails}


def test_a_chapter_that_is_not_built_is_a_sentence(tmp_path: Path) -> None:
    tiny.write(tmp_path, *tiny.whole())
    with pytest.raises(CourseError, match=r"Not built yet: solutions/00_tiny\.ipynb, notebooks/"):
        verify(course=Course(root=tmp_path))
