"""The solution functions can be had without running their chapter."""

from __future__ import annotations

import traceback
from pathlib import Path

import cloudpickle
import pytest

from course_lib.authoring.solutions import exercise_cells, solution_function
from course_lib.authoring.source import Course, read_chapter
from course_lib.diagnostics import CourseError
from tests.authoring import tiny
from tests.authoring.tiny import check_cell, code, exercise

SETUP = f"""\
import math as m

import does_not_exist_anywhere

FACTOR = 1
FACTOR += 1
UNUSED = does_not_exist_anywhere.nothing()


def scaled(x):
    return m.floor(FACTOR * x)


{tiny.CHECK}"""

SOLUTION = """\
def double(x):
    ### BEGIN SOLUTION
    if x is None:
        raise ValueError("nothing to double")
    return scaled(x)
    ### END SOLUTION


print("this line would run", double(None))"""


def chapter(root: Path, *cells: str) -> Path:
    return tiny.write(root, *(cells or (code("setup", SETUP), exercise(SOLUTION), check_cell())))


def test_only_what_the_function_needs_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    double = solution_function(read_chapter(chapter(tmp_path)), "tiny.double", "double")
    assert double(3) == 6
    assert capsys.readouterr().out == ""


def test_the_function_travels_to_another_process(tmp_path: Path) -> None:
    double = solution_function(read_chapter(chapter(tmp_path)), "tiny.double", "double")
    assert cloudpickle.loads(cloudpickle.dumps(double))(4) == 8


def test_its_lines_are_those_of_the_source(tmp_path: Path) -> None:
    path = chapter(tmp_path)
    double = solution_function(read_chapter(path), "tiny.double", "double")
    with pytest.raises(ValueError, match="nothing to double") as caught:
        double(None)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == str(path)
    assert last.line == 'raise ValueError("nothing to double")'


def test_a_later_definition_of_the_name_does_not_count(tmp_path: Path) -> None:
    later = code("later", "def scaled(x):\n    return 0")
    path = chapter(tmp_path, code("setup", SETUP), exercise(SOLUTION), check_cell(), later)
    assert solution_function(read_chapter(path), "tiny.double", "double")(3) == 6


def test_what_cannot_be_defined_is_said(tmp_path: Path) -> None:
    text = (
        "def double(x=does_not_exist):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION"
    )
    path = chapter(tmp_path, code("setup", tiny.CHECK), exercise(text), check_cell())
    with pytest.raises(CourseError, match=r'"tiny\.double" cannot be defined, NameError'):
        solution_function(read_chapter(path), "tiny.double", "double")
    whole = read_chapter(chapter(tmp_path))
    with pytest.raises(CourseError, match='no function called "triple"'):
        solution_function(whole, "tiny.double", "triple")
    with pytest.raises(CourseError, match=r'no cell for the exercise "tiny\.triple"'):
        solution_function(whole, "tiny.triple", "triple")


def test_the_exercise_cells_of_a_chapter_by_id(tmp_path: Path) -> None:
    chapter(tmp_path)
    cells = exercise_cells("tiny", course=Course(root=tmp_path))
    assert {i: c.id for i, c in cells.items()} == {"tiny.double": "double"}
