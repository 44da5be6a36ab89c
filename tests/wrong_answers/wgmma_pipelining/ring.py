"""Wrong answers to wgmma_pipelining.ring."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import wgmma_pipelining as kernels
from tests.wrong_answers import Wrong


def _ring(a, b, slots, *, load_slot, first=0, ahead=-1, wait=True, when=None):
    """The notebook's loop; `load_slot(i, load_i)` is the slot that is refilled."""

    def multiply(acc, tiles):
        for slot in range(tiles.slots):
            tiles.fetch(slot, slot)

        @pl.loop(0, tiles.k_iters)
        def _(i):
            slot = jax.lax.rem(i, tiles.slots)
            if wait:
                plgpu.barrier_wait(tiles.loaded.at[slot])
            plgpu.wgmma(acc, tiles.a_smem.at[slot], tiles.b_smem.at[slot])
            plgpu.wgmma_wait(1)
            load_i = i + tiles.slots + ahead

            @pl.when((i > first) & (load_i < tiles.k_iters) if when is None else when(i, load_i))
            def _refill():
                tiles.fetch(load_i, load_slot(i, load_i))

    return kernels.around(a, b, multiply, slots=slots)


def the_pages_slot(a, b, *, slots):
    """As the page has it: the tiles of load_i into the slot of step i."""
    return _ring(a, b, slots, load_slot=lambda i, load_i: jax.lax.rem(i, slots))


def one_too_far(a, b, *, slots):
    """Refills the slot of this very step, with the tiles that belong there."""
    load_slot = lambda i, load_i: jax.lax.rem(load_i, slots)  # noqa: E731
    return _ring(a, b, slots, load_slot=load_slot, first=-1, ahead=0)


def refills_in_step_0(a, b, *, slots):
    """Nothing has been read yet: slot `slots - 1` is being filled already."""
    load_slot = lambda i, load_i: jax.lax.rem(load_i, slots)  # noqa: E731
    return _ring(a, b, slots, load_slot=load_slot, first=-1, ahead=-1)


def no_wait(a, b, *, slots):
    """Multiplies what may not be there yet."""
    load_slot = lambda i, load_i: jax.lax.rem(load_i, slots)  # noqa: E731
    return _ring(a, b, slots, load_slot=load_slot, wait=False)


def never_stops(a, b, *, slots):
    """Fetches tiles beyond the end of K."""
    load_slot = lambda i, load_i: jax.lax.rem(load_i, slots)  # noqa: E731
    return _ring(a, b, slots, load_slot=load_slot, when=lambda i, load_i: i > 0)


def stops_too_early(a, b, *, slots):
    """The last tiles are never fetched."""
    load_slot = lambda i, load_i: jax.lax.rem(load_i, slots)  # noqa: E731
    last = lambda i, load_i: (i > 0) & (load_i < a.shape[1] // 64 - 1)  # noqa: E731
    return _ring(a, b, slots, load_slot=load_slot, when=last)


WRONG = {
    "the page's slot": Wrong(the_pages_slot, "deadlock", ("loaded", "ring.py")),
    "one too far": Wrong(one_too_far, "mma-operand-overwritten", ("ring.py", "wgmma_wait")),
    "refills in step 0": Wrong(refills_in_step_0, "data-race", ("starts a copy", "ring.py")),
    "no wait": Wrong(no_wait, "mma-operand-not-arrived", ("barrier_wait", "ring.py")),
    "never stops": Wrong(never_stops, "unfinished-copy", ("last copy", "ring.py")),
    "stops too early": Wrong(stops_too_early, "deadlock", ("ring.py",)),
}
