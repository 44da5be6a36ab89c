"""Wrong answers to flash_attention.ping_pong."""

from __future__ import annotations

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import flash_attention as kernels
from tests.wrong_answers import Wrong


def _begin(wg, turn):
    @pl.when(wg == 1)
    def _first():
        plgpu.barrier_arrive(turn.at[0])


def _products(wg, turn, issue):
    plgpu.barrier_wait(turn.at[wg])
    issue()
    plgpu.barrier_arrive(turn.at[1 - wg])


def _end(wg, turn):
    @pl.when(wg == 0)
    def _last():
        plgpu.barrier_wait(turn.at[0])


def _nothing(wg, turn):
    pass


def _run(q, k, v, *, begin=_begin, products=_products, end=_end):
    return kernels.attend_in_turns(q, k, v, begin=begin, products=products, end=end)


def nobody_begins(q, k, v):
    """Both wait for a turn that nobody has passed on."""
    return _run(q, k, v, begin=_nothing)


def both_begin(q, k, v):
    """Each warpgroup gives itself the first turn."""

    def begin(wg, turn):
        plgpu.barrier_arrive(turn.at[wg])

    return _run(q, k, v, begin=begin)


def the_last_turn_is_left(q, k, v):
    """Warpgroup 1 passes on a turn that nobody takes."""
    return _run(q, k, v, end=_nothing)


def passes_the_turn_on_first(q, k, v):
    """Tells the other before it has issued anything."""

    def products(wg, turn, issue):
        plgpu.barrier_wait(turn.at[wg])
        plgpu.barrier_arrive(turn.at[1 - wg])
        issue()

    return _run(q, k, v, products=products)


def never_waits(q, k, v):
    """Arrives only."""

    def products(wg, turn, issue):
        issue()
        plgpu.barrier_arrive(turn.at[1 - wg])

    return _run(q, k, v, products=products)


def waits_for_the_others_turn(q, k, v):
    """The two barriers mixed up."""

    def products(wg, turn, issue):
        plgpu.barrier_wait(turn.at[1 - wg])
        issue()
        plgpu.barrier_arrive(turn.at[wg])

    return _run(q, k, v, products=products)


def both_wait_at_the_end(q, k, v):
    """Warpgroup 1 waits for a turn that never comes."""

    def end(wg, turn):
        plgpu.barrier_wait(turn.at[wg])

    return _run(q, k, v, end=end)


def without_turns(q, k, v):
    """Just issues."""
    return _run(q, k, v, begin=_nothing, products=lambda wg, turn, issue: issue(), end=_nothing)


def warpgroup_1_begins(q, k, v):
    """In turns, but the other one first."""

    def begin(wg, turn):
        @pl.when(wg == 0)
        def _first():
            plgpu.barrier_arrive(turn.at[1])

    def end(wg, turn):
        @pl.when(wg == 1)
        def _last():
            plgpu.barrier_wait(turn.at[1])

    return _run(q, k, v, begin=begin, end=end)


WRONG = {
    "nobody begins": Wrong(nobody_begins, "deadlock", ("turn[0]", "wait for ever")),
    "both begin": Wrong(both_begin, "barrier-overrun", ("turn",)),
    "the last turn is left": Wrong(the_last_turn_is_left, "barrier-unwaited", ("turn[0]",)),
    "passes the turn on first": Wrong(passes_the_turn_on_first, "data-race", ("diary_smem",)),
    "never waits": Wrong(never_waits, "barrier-overrun", ("turn[1]",)),
    "waits for the other's turn": Wrong(
        waits_for_the_others_turn, "barrier-skipped-phase", ("turn",)
    ),
    "both wait at the end": Wrong(both_wait_at_the_end, "deadlock", ("turn[1]",)),
    "without turns": Wrong(without_turns, "data-race", ("diary_smem",)),
    "warpgroup 1 begins": Wrong(
        warpgroup_1_begins, "value", ("output 2 of 2", "is 10, should be 5")
    ),
}
