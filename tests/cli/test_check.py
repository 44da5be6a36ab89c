"""`course check NN`: a verdict for each exercise of the learner's notebook, without opening it."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.authoring import Course
from course_lib.chapter_check import check_chapter
from course_lib.diagnostics import CourseError

SOLUTION = Course().solutions / "00_start_here.ipynb"


def solved() -> Any:
    return nbformat.read(SOLUTION, as_version=4)


def exercise_cells(nb: Any) -> list[Any]:
    return [c for c in nb.cells if c.metadata.get("exercise")]


def without_most_given_cells(nb: Any) -> Any:
    """The imports and the exercises alone: pictures and demonstrations take time."""
    setup = next(c for c in nb.cells if c.cell_type == "code")
    nb.cells = [setup, *exercise_cells(nb), nbformat.v4.new_code_cell("1 / 0")]
    return nb


def check(nb: Any, workspace: Path) -> tuple[bool, str]:
    copy = workspace / "00_start_here.ipynb"
    nbformat.write(nb, copy)
    before = copy.read_bytes()
    said: list[str] = []
    right = check_chapter(copy, workspace=workspace, say=said.append)
    assert copy.read_bytes() == before, "the learner's file was touched"
    return right, "\n".join(said)


def test_a_solved_chapter_is_right(tmp_path: Path) -> None:
    nb = without_most_given_cells(solved())
    names = [c.metadata.exercise for c in exercise_cells(nb)]
    right, said = check(nb, tmp_path)
    assert right
    assert f"[1 of {len(names)}] {names[0]} ..." in said
    assert all(f"{name}: correct" in said for name in names)
    assert f"{len(names)} of {len(names)} right" in said
    kept = json.loads((tmp_path / ".course" / "progress.json").read_text())["exercises"]
    assert all(kept[name]["done"] for name in names)


def test_what_nobody_reads_counts_as_no_prediction_shown(tmp_path: Path) -> None:
    """Else a learner who checks first would find all questions answered for the tally."""
    nb = without_most_given_cells(solved())
    told = nbformat.v4.new_code_cell('from course_lib import reveal\nreveal("start_here.a", 1)')
    nb.cells = [nb.cells[0], told, exercise_cells(nb)[0]]
    right, _ = check(nb, tmp_path)
    assert right
    kept = json.loads((tmp_path / ".course" / "progress.json").read_text())
    assert kept["exercises"]
    assert kept["predictions"] == {}


def test_each_exercise_gets_its_own_verdict(tmp_path: Path) -> None:
    nb = without_most_given_cells(solved())
    right, wrong, broken, *_ = exercise_cells(nb)
    wrong.source = wrong.source.replace("def ", "def unfinished_", 1)
    broken.source = "x = ("
    nb.cells = [nb.cells[0], right, wrong, broken]
    outcome, said = check(nb, tmp_path)
    assert not outcome
    assert f"{right.metadata.exercise}: correct" in said
    assert f"{wrong.metadata.exercise}: CourseError" in said
    assert f"{broken.metadata.exercise}: its cell ends in an error: SyntaxError" in said
    assert "1 of 3 right" in said


def test_a_cell_that_never_ends_is_a_sentence(tmp_path: Path) -> None:
    nb = without_most_given_cells(solved())
    nb.cells[0].source = "while True: pass"
    nbformat.write(nb, tmp_path / "mine.ipynb")
    with pytest.raises(CourseError, match="did not end within 3 s"):
        check_chapter(tmp_path / "mine.ipynb", workspace=tmp_path, cell_timeout_s=3)


@pytest.mark.parametrize("text", ["", "{}", "not a notebook"])
def test_a_file_that_is_no_notebook_is_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.ipynb").write_text(text)
    with pytest.raises(CourseError, match=r"mine\.ipynb"):
        check_chapter(tmp_path / "mine.ipynb", workspace=tmp_path)


def test_a_notebook_without_exercises_is_a_sentence(tmp_path: Path) -> None:
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "mine.ipynb")
    with pytest.raises(CourseError, match="has no exercise"):
        check_chapter(tmp_path / "mine.ipynb", workspace=tmp_path)
