"""Honest answers that look unusual keep full marks; with one slip in each, they earn nothing.

All of them are marked as `test_cheats` marks its cheats: traced in the sandbox, read strictly,
run on hidden data. They share one notebook, so their helpers have names of their own.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest

from course_lib.grading.marking import ask, mark_asked
from course_lib.grading.model import ExerciseMark, SourceCell
from course_lib.grading.tracing import Asked
from tests.grading.answers import RUBRIC, SEED, box, solved
from tests.grading.honest import ANSWERS, Honest

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow, pytest.mark.timeout(1200)]


_HELPERS = ("_mirrored", "_on_each_row", "_each_row", "_mirror", "NAME", "AXIS", "LANES")


def with_slip(honest: Honest) -> Honest:
    """The answer with its slip, and with names of its own for its helpers."""

    def edited(text: str) -> str:
        for helper in _HELPERS:
            text = text.replace(helper, f"{helper}_2")
        return text.replace(*honest.slip)

    return dataclasses.replace(
        honest,
        answer=edited(honest.answer),
        above=tuple(map(edited, honest.above)),
        below=tuple(map(edited, honest.below)),
    )


def cells_of(honest: Honest, own: str) -> list[SourceCell]:
    """Its cells, the exercise called `own`, and the check that a chapter has below."""
    sources = (*honest.above, honest.answer, *honest.below)
    cells = [SourceCell(f"{own}-{n}", s, own=True) for n, s in enumerate(sources)]
    home = len(honest.above)
    cells[home] = SourceCell(f"{own}-answer", honest.answer, ("exercise",), own)
    return [*cells, SourceCell(f"{own}-check", "check(...)", ("check",))]


@functools.cache
def marks() -> dict[tuple[str, bool], ExerciseMark]:
    """The marks of all answers, right (True) and with their slips, out of one sandbox."""
    merged = solved("start_here")
    cells, keys = list(merged.cells), []
    asked: list[Asked] = []
    for name, honest in ANSWERS.items():
        for right in (True, False):
            own = f"{honest.exercise}#{len(asked)}"
            cells += cells_of(honest if right else with_slip(honest), own)
            plain = ask(honest.exercise, "", RUBRIC, seed=SEED)
            exercise = dataclasses.replace(plain.exercise, id=own)
            asked.append(dataclasses.replace(plain, exercise=exercise))
            keys.append((name, right))
    merged = dataclasses.replace(merged, cells=tuple(cells))
    return dict(zip(keys, mark_asked(merged, asked, RUBRIC, sandbox=box()), strict=True))


@pytest.mark.parametrize("name", ANSWERS)
def test_an_honest_answer_keeps_full_marks(name: str) -> None:
    mark = marks()[name, True]
    assert (mark.verdict, mark.points) == ("right", RUBRIC.default_points), mark
    assert mark.passed == mark.cases > 0
    assert not mark.flags


@pytest.mark.parametrize("name", ANSWERS)
def test_the_same_answer_with_a_slip_earns_nothing(name: str) -> None:
    assert with_slip(ANSWERS[name]) != ANSWERS[name]
    mark = marks()[name, False]
    assert (mark.verdict, mark.points) == ("wrong", 0), mark
