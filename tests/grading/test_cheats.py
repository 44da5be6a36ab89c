"""None of the cheats earns anything that it should not, and none harms the marks of others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import pytest

from course_lib.grading import tracing
from course_lib.grading.marking import mark_submission
from course_lib.grading.model import ExerciseMark, Merged
from tests.grading.answers import RUBRIC, SEED, answered, box, solved
from tests.grading.cheating import CHEATS, SLOW_CHEATS, TRACES, Cheat, papers

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow, pytest.mark.timeout(1200)]


def handed_in(paper: Mapping[str, Cheat]) -> Merged:
    """A submission with all cheats of a paper, and right answers for the rest."""
    first = next(iter(paper.values()))
    merged = solved(first.exercise.split(".")[0])
    sources = {c.exercise: c.source for c in paper.values()}
    cells = tuple(
        dataclasses.replace(c, source=sources.get(c.exercise, c.source)) if c.exercise else c
        for c in merged.cells
    )
    return dataclasses.replace(merged, cells=cells)


@functools.cache
def marks_of(names: tuple[str, ...]) -> dict[str, ExerciseMark]:
    """The marks of a paper's cheats, by their names; its right answers are looked at as well."""
    every = {**CHEATS, **SLOW_CHEATS}
    paper = {n: every[n] for n in names}
    wanted = sorted({c.exercise for c in paper.values()})
    marks = mark_submission(handed_in(paper), RUBRIC, seed=SEED, sandbox=box(), exercises=wanted)
    by_exercise = {m.exercise: m for m in marks}
    return {n: by_exercise[c.exercise] for n, c in paper.items()}


PAPERS = {name: tuple(paper) for paper in papers(CHEATS) for name in paper}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_earns_nothing(name: str) -> None:
    mark = marks_of(PAPERS[name])[name]
    assert mark.points == 0, mark
    assert mark.verdict in ("wrong", "wrong-means", "refused"), mark
    assert [p for p in TRACES if p.exists()] == []


def test_there_are_enough_of_them() -> None:
    assert len(CHEATS) + len(SLOW_CHEATS) >= 40


def test_what_hangs_costs_its_own_exercise_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FIRST_S", 10)
    paper = dict(SLOW_CHEATS)
    merged = handed_in(paper)
    marks = mark_submission(merged, RUBRIC, seed=SEED, sandbox=box())
    assert [m.fault for m in marks] == ["timeout", "timeout", "", ""]
    assert [m.points for m in marks] == [0, 0, 10, 10]


def test_who_kills_the_parent_costs_their_own_exercise_only() -> None:
    merged = answered("start_here.reverse_rows", CHEATS["killing the parent"].source)
    marks = mark_submission(merged, RUBRIC, seed=SEED, sandbox=box())
    assert [m.points for m in marks] == [10, 0, 10, 10]
    assert marks[1].fault == "crash"
