"""Barriers step by step: arrivals, parities, and what goes wrong when a phase is missed."""

from __future__ import annotations

import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts.phases import PROGRAMS, Run


def sentences(program: str, **options: str) -> list[str]:
    run = Run(program, **options)
    return [run.sentence(step) for step in range(len(run.events) + 1)]


def test_a_wait_passes_only_after_the_arrival() -> None:
    assert sentences("hand-over", order="1")[1:] == [
        "Step 1 of 4: thread 0 writes item 0.",
        "Step 2 of 4: thread 0 arrives on ready: phase 1 is complete.",
        "Step 3 of 4: thread 1 waits for phase 1 of ready, and it is over.",
        "Step 4 of 4: thread 1 reads item 0. Done: every completion was waited for.",
    ]
    assert Run("hand-over", order="1").events[0].blocked == (1,)


@pytest.mark.parametrize("program", ["arrivals", "copies"])
@pytest.mark.parametrize("order", ["turns", "0", "1", "2"])
def test_two_arrivals_complete_a_phase_of_two(program: str, order: str) -> None:
    run = Run(program, order=order)
    counts = [(e.completions, e.arrivals) for e in run.events if e.op[0] in ("arrive", "land")]
    assert counts == [((0,), (1,)), ((1,), (0,))]
    assert run.ending == "Done: every completion was waited for."


@pytest.mark.parametrize("order", ["turns", "0", "1"])
def test_back_pressure_is_right_in_every_order(order: str) -> None:
    run = Run("queue", order=order)
    assert run.ending == "Done: every completion was waited for."
    assert all(e.late == (-1, -1) for e in run.events)
    assert [e.found for e in run.events if e.op[0] == "read"] == [0, 1, 2]


def test_without_it_the_outcome_is_a_matter_of_who_goes_first() -> None:
    assert Run("eager", order="1").ending == "Done: every completion was waited for."
    wrong = Run("eager", order="0")
    assert [e.late for e in wrong.events][:4] == [(-1,), (-1,), (-1,), (1,)]
    assert wrong.sentence(len(wrong.events)) == (
        "Step 8 of 8: thread 1 reads item 2; item 0 is lost. Thread 1 is stuck: it waits for "
        "phase 2 of ready (parity 1), and phase 4 is under way, of parity 1 too."
    )
    assert wrong.barrier_cells(4).tolist() == [[0, 1, 1, 2, -1, -1, -1, -1]]


def test_a_completion_that_came_twice_looks_like_none() -> None:
    run = Run("eager", picks="0000", order="1")
    assert run.events[3].completions == (2,)
    assert run.events[3].blocked == (1,)  # the parity is what it was before


def test_a_thread_that_misses_a_phase_waits_for_the_wrong_parity() -> None:
    stuck = Run("skipped", order="0").ending
    assert stuck == (
        "Thread 2 is stuck: it waits for phase 1 of go (parity 0), and phase 3 is under way, of "
        "parity 0 too."
    )
    assert Run("skipped").ending == "Done, but thread 2 waited for 1 of the 2 phases of go."


def test_picks_go_first_and_those_who_cannot_go_are_left_out() -> None:
    run = Run("hand-over", picks="1010", order="1")
    assert [e.actor for e in run.events] == [0, 0, 1, 1]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_cells_for_each_actor_and_barrier(program: str) -> None:
    run = Run(program)
    count = len(run.events)
    assert run.actor_cells(count).shape == (len(run.program.actors), count)
    assert run.barrier_cells(count).min() >= 0
    assert (run.actor_cells(0) == -1).all()


def test_unknown_names_are_refused_in_words() -> None:
    with pytest.raises(CourseError, match="'hand-over'"):
        Run("ring")
    with pytest.raises(CourseError, match="'turns'"):
        Run("queue", order="last")
