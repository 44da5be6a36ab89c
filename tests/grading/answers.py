"""Submissions for tests: a chapter's own solutions, and other answers in their place."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.authoring.source import Course, find_sources, read_chapter
from course_lib.exercises import get
from course_lib.grading.marking import ask, mark_asked, mark_submission
from course_lib.grading.model import ExerciseMark, Merged, Rubric, SourceCell
from course_lib.grading.sandbox import Sandbox

SEED = 20_260_930
WRONG_ANSWERS = Path(__file__).parents[1] / "wrong_answers"
RUBRIC = Rubric(default_points=10.0)
# A wrong answer's module as a cell: what it imports of the tests comes with it.
_WRONG = """
import dataclasses as _d
@_d.dataclass
class Wrong:
    fn: object
    fault: str
    says: tuple = ()
"""


@functools.cache
def solved(chapter: str) -> Merged:
    """The chapter with the course's own answers; `chapter` is a title or a number."""
    (source,) = find_sources(Course(), [chapter])
    chapter_ = read_chapter(source)
    cells = tuple(SourceCell(c.id, c.text, tuple(c.tags), c.exercise or "") for c in chapter_.code)
    return Merged("a student", chapter_.name, cells)


def answered(exercise: str, source: str) -> Merged:
    """The solved chapter with another text in the cell of one exercise."""
    merged = solved(exercise.split(".")[0])
    cells = tuple(
        dataclasses.replace(c, source=source) if c.exercise == exercise else c for c in merged.cells
    )
    return dataclasses.replace(merged, cells=cells)


def wrong_answer(exercise: str, name: str) -> str:
    """The text of a cell with one of an exercise's wrong answers."""
    return f"{wrong_answers_cell(exercise)}\n{taken(exercise, name)}\n"


def wrong_answers_cell(exercise: str) -> str:
    """The text of a cell with all wrong answers of an exercise, for `taken`."""
    chapter, file = exercise.split(".")
    text = (WRONG_ANSWERS / chapter / f"{file}.py").read_text(encoding="utf-8")
    text = text.replace("from __future__ import annotations\n", "")
    return text.replace("from tests.wrong_answers import Wrong\n", _WRONG)


def taken(exercise: str, name: str) -> str:
    """A cell that answers with one of the wrong answers that a cell above has."""
    return f"{get(exercise).function} = WRONG[{name!r}].fn"


def mark_all(
    chapter: str, answers: Mapping[str, tuple[str, str]], *, above: Sequence[str] = ()
) -> dict[str, ExerciseMark]:
    """The marks of many answers to a chapter's exercises, by label, out of one sandbox.

    `answers` are `(exercise id, cell)`. Each is asked for as an exercise of its own, with a cell
    of its own behind the chapter's; between these are the cells `above`, a student's own.
    """
    merged = solved(chapter)
    asked, cells = [], list(merged.cells)
    cells += [SourceCell(f"own-{n}", text, own=True) for n, text in enumerate(above)]
    for number, (exercise_id, source) in enumerate(answers.values()):
        plain = ask(exercise_id, "", RUBRIC, seed=SEED)
        own = f"{exercise_id}#{number}"
        asked.append(
            dataclasses.replace(plain, exercise=dataclasses.replace(plain.exercise, id=own))
        )
        cells.append(SourceCell(f"cell-{number}", source, ("exercise",), own))
    merged = dataclasses.replace(merged, cells=tuple(cells))
    marks = mark_asked(merged, asked, RUBRIC, sandbox=box())
    return dict(zip(answers, marks, strict=True))


@functools.cache
def box() -> Sandbox:
    """The sandbox of this test run."""
    return Sandbox.probe()


def mark(merged: Merged, exercise: str, *, seed: int = SEED) -> ExerciseMark:
    """The mark of one exercise."""
    [found] = mark_submission(merged, RUBRIC, seed=seed, sandbox=box(), exercises=[exercise])
    return found
