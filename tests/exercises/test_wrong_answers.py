"""Every exercise of every chapter: its solution is accepted, its wrong answers are rejected.

A rejection must name the fault that the answer really has, in few lines.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_lib import setup_env
from course_lib.authoring import solution_functions
from course_lib.compiler import ToolchainMissing, toolchain
from course_lib.exercises import FAULTS, all_exercises, get, judge
from course_lib.exercises.verdict import MAX_LINES
from course_lib.mojo import Answer
from course_lib.simulator.rules import RULES
from tests.wrong_answers import Wrong

pytestmark = pytest.mark.two_jax

FOLDER = Path(__file__).parents[1] / "wrong_answers"
IDS = [e.id for e in all_exercises()]
LEAST = 3


@functools.cache
def _compiler_fits() -> bool:
    try:
        toolchain.find()
    except ToolchainMissing:
        return False
    return True


def skip_without_its_compiler(exercise_id: str) -> None:
    """The toolchain is made for one jax; the other one cannot ask what the compiler makes of it."""
    exercise = get(exercise_id)
    if (exercise.expects or exercise.program) and not _compiler_fits():
        pytest.skip("this jax has no compiler that fits it")
    if exercise.program and not setup_env.mojo_has_wheels():
        pytest.skip("this system has no Mojo")


@functools.cache
def wrong_answers(exercise_id: str) -> dict[str, Wrong]:
    return dict(importlib.import_module(f"tests.wrong_answers.{exercise_id}").WRONG)


def files() -> set[str]:
    return {f"{p.parent.name}.{p.stem}" for p in FOLDER.glob("*/*.py") if p.stem != "__init__"}


@functools.cache
def solutions(chapter: str) -> dict[str, Callable[..., Any] | Answer]:
    return solution_functions([chapter])


def test_every_exercise_has_its_file_of_wrong_answers_and_every_file_its_exercise():
    assert files() == set(IDS)


@pytest.mark.parametrize("exercise_id", IDS)
def test_an_exercise_has_enough_wrong_answers_of_different_kinds(exercise_id):
    wrong = wrong_answers(exercise_id)
    assert len(wrong) >= LEAST
    assert len({w.fn for w in wrong.values()}) == len(wrong)
    assert len({w.fault for w in wrong.values()}) > 1
    silent = [name for name, w in wrong.items() if not w.says and w.fault != "not-done"]
    assert silent == [], "say what the verdict must contain: an element, a call, a line"


@pytest.mark.parametrize(
    ("exercise_id", "name"),
    [(i, name) for i in IDS if i in files() for name in wrong_answers(i)],
    ids=lambda value: value.replace(" ", "-"),
)
def test_a_wrong_answer_is_rejected_and_its_fault_named(exercise_id, name):
    skip_without_its_compiler(exercise_id)
    wrong = wrong_answers(exercise_id)[name]
    verdict = judge(exercise_id, wrong.fn, native=False)
    text = str(verdict)
    assert not verdict.ok, "it was accepted"
    assert wrong.fault in (verdict.fault, verdict.rule), text
    joined = " ".join(text.split())
    assert [part for part in wrong.says if part not in joined] == [], text
    assert len(text.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("exercise_id", IDS)
def test_the_solution_is_accepted(exercise_id):
    skip_without_its_compiler(exercise_id)
    exercise = get(exercise_id)
    solution = solutions(exercise.chapter)[exercise_id]
    count = len(exercise.cases)
    shapes = f"{count} shape{'s' * (count > 1)}"
    verdict = judge(exercise_id, solution)
    if exercise.program is not None:  # what it says besides depends on the machine
        assert str(verdict).startswith(f"{exercise_id}: correct [checked: it compiles"), verdict
        return
    assert str(verdict) == f"{exercise_id}: correct on {shapes}."


@pytest.mark.parametrize("exercise_id", IDS)
def test_hints_grow_and_do_not_repeat_each_other(exercise_id):
    assert len(set(get(exercise_id).hints)) == 3


def test_faults_of_wrong_answers_are_those_that_a_verdict_can_have():
    used = {w.fault for i in files() for w in wrong_answers(i).values()}
    assert used <= set(FAULTS) | set(RULES)
