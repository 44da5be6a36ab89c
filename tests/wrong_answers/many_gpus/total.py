"""Wrong answers to many_gpus.total."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

SEMAPHORE = plgpu.SemaphoreType.REGULAR


def _total(x, *, wait=True, value=None, scratch=False, signal_first=False, who=None):
    """The notebook's frame."""
    blocks = x.shape[0]

    def kernel(x_gmem, y_gmem, parts_gmem, *semaphore):
        block = jax.lax.axis_index("block")
        done = semaphore[0] if scratch else pl.get_global(SEMAPHORE)
        if signal_first:
            pl.semaphore_signal(done)
        parts_gmem[block] = jnp.exp(x_gmem[block])
        if not signal_first:
            pl.semaphore_signal(done)

        @pl.when(block == (blocks - 1 if who is None else who))
        def last():
            if wait:
                pl.semaphore_wait(done, value=blocks if value is None else value(blocks))
            total = parts_gmem[0]
            for b in range(1, blocks):
                total = total + parts_gmem[b]
            y_gmem[...] = total

    y, _ = plgpu.kernel(
        kernel,
        out_type=(jax.ShapeDtypeStruct(x.shape[1:], x.dtype), x),
        grid=(blocks,),
        grid_names=("block",),
        scratch_types=[SEMAPHORE] if scratch else [],
    )(x)
    return y


def no_wait(x):
    """Signals, and nobody waits."""
    return _total(x, wait=False)


def waits_for_one(x):
    """Waits for one signal; there are as many as blocks."""
    return _total(x, value=lambda blocks: 1)


def a_semaphore_each(x):
    """A semaphore of the scratch: each block has one of its own."""
    return _total(x, scratch=True)


def waits_for_too_many(x):
    """Counts the block that waits twice."""
    return _total(x, value=lambda blocks: blocks + 1)


def signals_too_early(x):
    """Says that it is done, and then does it."""
    return _total(x, signal_first=True)


WRONG = {
    "no wait": Wrong(
        no_wait, "race", ("block 3 reads parts_gmem[0, 0:128]", "a semaphore (pl.get_global)")
    ),
    "waits for one": Wrong(waits_for_one, "race", ("Two blocks touch parts_gmem",)),
    "a semaphore each": Wrong(a_semaphore_each, "deadlock", ("is at 1", "to reach 4")),
    "waits for too many": Wrong(waits_for_too_many, "deadlock", ("is at 4", "to reach 5")),
    "signals too early": Wrong(signals_too_early, "race", ("block 0 writes parts_gmem",)),
}
