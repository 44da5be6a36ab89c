"""Wrong answers to wgmma_pipelining.ping_pong."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import wgmma_pipelining as kernels
from tests.wrong_answers import Wrong


def _ping_pong(
    a, b, slots, *, step_of=None, barrier=None, release=1, last=True, first=True, wait=1
):
    """The notebook's function; `release` is how many steps later a slot is released."""

    def multiply(acc, number, wg, turns):
        def step_number(ki):
            return step_of(number, ki, turns) if step_of else number * turns.k_iters + ki

        @pl.loop(0, turns.k_iters)
        def _(ki):
            step = step_number(ki)
            slot = jax.lax.rem(step, slots)
            own = barrier(wg, slot) if barrier else wg * slots + slot
            plgpu.barrier_wait(turns.loaded.at[own])
            plgpu.wgmma(acc, turns.a_smem.at[slot], turns.b_smem.at[slot])
            plgpu.wgmma_wait(wait)

            @pl.when(ki >= (release if first else 0))
            def _release():
                plgpu.barrier_arrive(turns.consumed.at[jax.lax.rem(step - release + slots, slots)])

        plgpu.wgmma_wait(0)
        if last:
            final = jax.lax.rem(step_number(turns.k_iters - 1), slots)
            plgpu.barrier_arrive(turns.consumed.at[final])

    return kernels.ping_pong(a, b, multiply, slots=slots)


def begins_at_slot_0(a, b, *, slots):
    """The ring does not begin anew with each tile."""
    return _ping_pong(a, b, slots, step_of=lambda number, ki, turns: ki)


def counts_its_own_tiles(a, b, *, slots):
    """Half of the tiles are the other one's, and they have slots, too."""
    own = lambda number, ki, turns: jax.lax.div(number, 2) * turns.k_iters + ki  # noqa: E731
    return _ping_pong(a, b, slots, step_of=own)


def the_others_barrier(a, b, *, slots):
    """Waits for the copies of the other warpgroup."""
    return _ping_pong(a, b, slots, barrier=lambda wg, slot: (1 - wg) * slots + slot)


def keeps_the_last_slot(a, b, *, slots):
    """The copying thread never gets it back."""
    return _ping_pong(a, b, slots, last=False)


def releases_too_early(a, b, *, slots):
    """Releases the slot that its wgmma still reads."""
    return _ping_pong(a, b, slots, release=0, last=False)


def releases_a_slot_it_never_had(a, b, *, slots):
    """In its first step there is no step before."""
    return _ping_pong(a, b, slots, first=False)


WRONG = {
    "begins at slot 0": Wrong(begins_at_slot_0, "deadlock", ("ping_pong.py",)),
    "counts its own tiles": Wrong(counts_its_own_tiles, "deadlock", ("ping_pong.py",)),
    "the other's barrier": Wrong(the_others_barrier, "deadlock", ("ping_pong.py",)),
    "keeps the last slot": Wrong(keeps_the_last_slot, "deadlock", ("loaded", "ping_pong.py")),
    "releases too early": Wrong(
        releases_too_early, "mma-operand-overwritten", ("wgmma_wait", "ping_pong.py")
    ),
    "releases a slot it never had": Wrong(
        releases_a_slot_it_never_had, "barrier-overrun", ("consumed", "ping_pong.py")
    ),
}
