"""What the sandbox is asked to do with an exercise, and which of its cases a compiler sees."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from course_lib.exercises import all_exercises, get
from course_lib.exercises.registry import Case, Spec
from course_lib.grading.marking import ask
from course_lib.grading.tracing import Asked, to_lower
from course_lib.grading.tracing_child import _in_a_process
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


def spins(seconds: float, folder: Path) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    (folder / "done").touch()


def waits(seconds: float, folder: Path) -> None:
    time.sleep(seconds)
    (folder / "done").touch()


@pytest.mark.parametrize(
    ("limits", "work", "seconds", "done"),
    [
        ((0.5, 60.0), waits, 1.5, True),  # a busy machine is nobody's fault
        ((0.5, 60.0), spins, 0.01, True),
        ((0.5, 60.0), spins, 50.0, False),
        ((0.5, 1.0), waits, 50.0, False),
    ],
)
def test_processor_time_and_time_by_the_clock_are_limited_apart(
    tmp_path: Path, limits: tuple[float, float], work: object, seconds: float, done: bool
) -> None:
    assert callable(work)
    _in_a_process(limits, work, seconds, tmp_path)
    assert (tmp_path / "done").exists() is done
    assert (tmp_path / "too-long").exists() is not done
