"""Every exercise of every Pallas chapter, marked: solutions earn everything, wrong answers do not.

They are marked as a class is: traced in the sandbox, read strictly, run on hidden data. A chapter
is a test of its own, so that several processes can share the work.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence

import pytest

from course_lib.authoring.source import Course
from course_lib.compiler import ToolchainMissing, toolchain
from course_lib.exercises import all_exercises, get
from course_lib.grading.model import ExerciseMark
from tests.grading.answers import RUBRIC, mark_all, solved, taken, wrong_answers_cell
from tests.wrong_answers import Wrong

pytestmark = pytest.mark.needs("bubblewrap")

SOLUTION = "the course's solution"
CHAPTERS = tuple(p.stem[3:] for p in sorted(Course().solutions.glob("[01]?_*.md")))
QUICK = ("start_here.fill_iota", "grid_scheduling.snake")
FULL = RUBRIC.default_points


def exercises(chapter: str) -> list[str]:
    """The ids of a chapter's exercises."""
    return [e.id for e in all_exercises() if e.chapter == chapter]


def can_be_marked(exercise_id: str) -> bool:
    """Whether what an exercise asks of the compiled code can be looked at on this machine."""
    if not get(exercise_id).expects:
        return True
    try:
        toolchain.find()
    except ToolchainMissing:
        return False
    return True


def wrong_answers(exercise_id: str) -> Mapping[str, Wrong]:
    found: Mapping[str, Wrong] = importlib.import_module(f"tests.wrong_answers.{exercise_id}").WRONG
    return found


def marked(exercise_id: str) -> dict[str, ExerciseMark]:
    """The marks of an exercise's solution and of all of its wrong answers, by label."""
    chapter = exercise_id.split(".")[0]
    texts = {SOLUTION: next(c.source for c in solved(chapter).cells if c.exercise == exercise_id)}
    texts |= {name: taken(exercise_id, name) for name in wrong_answers(exercise_id)}
    answers = {f"{exercise_id}: {name}": (exercise_id, text) for name, text in texts.items()}
    return mark_all(chapter, answers, above=[wrong_answers_cell(exercise_id)])


def complaints(exercise_id: str, marks: Mapping[str, ExerciseMark]) -> Iterator[str]:
    """What is wrong with the marks that `marked(exercise_id)` has, a sentence each."""
    solution = marks[f"{exercise_id}: {SOLUTION}"]
    if (solution.verdict, solution.points) != ("right", FULL) or solution.flags:
        yield f"{exercise_id}: its solution is not accepted: {solution}"
    if not solution.passed == solution.cases > 0:
        yield f"{exercise_id}: its solution passes {solution.passed} of {solution.cases} cases"
    for name, wrong in wrong_answers(exercise_id).items():
        label = f"{exercise_id}: {name}"
        yield from (f"{label}: {said}" for said in _about(marks[label], wrong))


def _about(mark: ExerciseMark, wrong: Wrong) -> Iterator[str]:
    """What is wrong with the mark of a wrong answer."""
    if mark.points >= FULL or mark.verdict == "right":
        yield f"it is accepted, and should be {wrong.fault}; flags: {mark.flags}"
    if mark.points != RUBRIC.earned(mark.exercise, mark.verdict):
        yield f"{mark.verdict} earns {mark.points}, which is not what the rubric says"
    # A part of the points is for right values and an error that the hardware may make wrong:
    # the very one that the answer was written to have.
    faults = {mark.fault, mark.finding.rule if mark.finding else ""}
    if mark.verdict == "right-with-errors" and wrong.fault not in faults:
        yield f"it earns a part for {mark.fault}, and should be {wrong.fault}: {mark.finding}"


def complaints_about(exercise_ids: Sequence[str]) -> list[str]:
    """What is wrong with the marks of some exercises."""
    return [said for e in exercise_ids for said in complaints(e, marked(e))]


@pytest.mark.parametrize("exercise_id", QUICK)
def test_of_two_exercises_what_is_right_earns_all_and_nothing_else_does(exercise_id: str) -> None:
    assert complaints_about([exercise_id]) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_is_right_earns_all_and_nothing_else_does(chapter: str) -> None:
    chosen = [e for e in exercises(chapter) if e not in QUICK and can_be_marked(e)]
    assert complaints_about(chosen) == []


def test_every_chapter_is_there() -> None:
    assert len(CHAPTERS) == 15
    assert all(map(exercises, CHAPTERS))
    assert set(QUICK) < {e for c in CHAPTERS for e in exercises(c)}
