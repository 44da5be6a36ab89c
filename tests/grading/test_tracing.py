"""What the sandbox is asked to do with an exercise, and which of its cases a compiler sees."""

from __future__ import annotations

import pytest

from course_lib.exercises import all_exercises, get
from course_lib.exercises.registry import Case, Spec
from course_lib.grading.marking import ask
from course_lib.grading.tracing import Asked, to_lower
from tests.grading.answers import RUBRIC, SEED

COPY = get("start_here.reverse_rows")


def asked(*drawn: Case) -> Asked:
    """An exercise with its own cases, and these behind them."""
    return Asked(COPY, (*COPY.cases, *drawn), seed=1, around=frozenset())


@pytest.mark.parametrize(
    ("drawn", "more"),
    [
        ((), []),
        ((Case((Spec((64, 128), "float32"),)),), []),  # a dtype that is among those shown
        ((Case((Spec((64, 128), "float16"),)),), [0]),
        ((Case((Spec((8, 128), "float16"),)), Case((Spec((4, 128), "float16"),))), [0]),
    ],
)
def test_a_compiler_sees_what_is_shown_and_each_dtype(
    drawn: tuple[Case, ...], more: list[int]
) -> None:
    shown = len(COPY.cases)
    assert {a.dtype for c in COPY.cases for a in c.args} == {"float32"}
    assert to_lower(asked(*drawn)) == [*range(shown), *(shown + n for n in more)]


def test_of_every_exercise_all_that_is_shown_is_seen_and_hidden_ones_are_few() -> None:
    for exercise in all_exercises():
        if exercise.program is None:
            one = ask(exercise.id, "", RUBRIC, seed=SEED)
            numbers = to_lower(one)
            assert numbers[: len(exercise.cases)] == list(range(len(exercise.cases)))
            assert len(numbers) <= len(one.cases)
