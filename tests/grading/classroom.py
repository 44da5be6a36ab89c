"""A class that does not exist: notebooks as students hand them in, made from what was given out."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_lib.authoring.regions import learners_text
from course_lib.authoring.source import Course, read_chapter
from course_lib.grading.records import ChapterRecord, ExerciseRecord, StudentRecord
from course_lib.grading.release import Release, unreleased
from course_lib.grading.tasks import Task

CHAPTER = "05_asynchronous_copies"
TRIPLE = "asynchronous_copies.triple"
SECRET = "0123456789abcdef"


@functools.cache
def release(*chapters: str) -> Release:
    """The course's own chapters, as if they had been given out."""
    return unreleased(chapters or (CHAPTER,), SECRET)


@functools.cache
def solutions(chapter: str = CHAPTER) -> dict[str, str]:
    """The text of each exercise's cell with its solution in it, without the markers."""
    found = read_chapter(Course().solutions / f"{chapter}.md").exercises
    return {c.exercise: without_markers(c.text) for c in found}


def without_markers(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(x for x in lines if "### BEGIN SOLUTION" not in x and "### END" not in x)


def stub(chapter: str, exercise: str) -> str:
    found = read_chapter(Course().solutions / f"{chapter}.md").exercises
    return next(learners_text(c.text) for c in found if c.exercise == exercise)


def handed_in(answers: Mapping[str, str] | None = None, *, chapter: str = CHAPTER) -> NotebookNode:
    """A notebook with some answers in it; by default with all of the course's solutions."""
    notebook = copy.deepcopy(release(chapter).skeletons[chapter])
    wanted = solutions(chapter) if answers is None else answers
    for cell in notebook.cells:
        if cell.metadata.get("exercise") in wanted:
            cell.source = wanted[cell.metadata["exercise"]]
    return notebook


def cell(notebook: NotebookNode, cell_id: str) -> NotebookNode:
    return next(c for c in notebook.cells if c.id == cell_id)


def exercise_cell(notebook: NotebookNode, exercise: str = TRIPLE) -> NotebookNode:
    return next(c for c in notebook.cells if c.metadata.get("exercise") == exercise)


def own_cell(source: str, cell_id: str = "mine", kind: str = "code") -> NotebookNode:
    from nbformat import from_dict

    data: dict[str, Any] = {"cell_type": kind, "id": cell_id, "metadata": {}, "source": source}
    return from_dict(data | ({"outputs": [], "execution_count": None} if kind == "code" else {}))


def to_bytes(notebook: NotebookNode) -> bytes:
    return json.dumps(notebook).encode()


def hand_in(folder: Path, student: str, data: bytes | NotebookNode, chapter: str = CHAPTER) -> Path:
    """Puts a student's file into the folder of submissions."""
    path = folder / student / f"{chapter}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else to_bytes(data))
    return path


def grade_by_name(task: Task) -> StudentRecord:
    """A grader that costs nothing: two exercises, marked by the student's name."""
    if "crash" in task.student:
        raise RuntimeError("a grader that crashes")
    right = "right" in task.student
    wrong = ExerciseRecord(TRIPLE, 0.0, 1.0, "wrong", "value", ("<b>Element</b> [0, 3] differs.",))
    answers = (
        ExerciseRecord(TRIPLE, 1.0, 1.0, "right") if right else wrong,
        ExerciseRecord("asynchronous_copies.ring_copy", 0.0, 1.0, "not-done", "not-done"),
    )
    received = task.sheets[0].received if task.sheets else ""
    chapter = ChapterRecord(CHAPTER, answers, received=received)
    return StudentRecord(task.student, task.key, (chapter,), task.problems, task.lms_id)
