"""Wrong answers to wgmma_pipelining.delay_release."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import wgmma_pipelining as kernels
from tests.wrong_answers import Wrong


def _pipelined(a, b, slots, *, delays, wait, b_tile=lambda ki: (ki, 0), steps=0):
    """The notebook's pipeline; `delays` are those of A and B."""

    def multiply(acc, tiles):
        def step(indices, a_smem, b_smem):
            plgpu.wgmma(acc, a_smem, b_smem)
            if wait is not None:
                plgpu.wgmma_wait(wait)

        plgpu.emit_pipeline(
            step,
            grid=(tiles.k_iters + steps,),
            in_specs=[
                plgpu.BlockSpec((128, 64), lambda ki: (0, ki), delay_release=delays[0]),
                plgpu.BlockSpec((64, 128), b_tile, delay_release=delays[1]),
            ],
            max_concurrent_steps=slots,
        )(tiles.a_gmem, tiles.b_gmem)

    return kernels.around(a, b, multiply)


def no_delay(a, b, *, slots, unfinished):
    """Releases the slot that wgmma still reads."""
    return _pipelined(a, b, slots, delays=(0, 0), wait=unfinished)


def one_of_two(a, b, *, slots, unfinished):
    """Thinks of A, and forgets B."""
    return _pipelined(a, b, slots, delays=(unfinished, 0), wait=unfinished)


def always_one(a, b, *, slots, unfinished):
    """A delay of one is not possible with one slot, and not needed with nothing unfinished."""
    return _pipelined(a, b, slots, delays=(1, 1), wait=unfinished)


def one_more(a, b, *, slots, unfinished):
    """One slot is kept longer than needed; with two slots there is none for it."""
    return _pipelined(a, b, slots, delays=(unfinished + 1,) * 2, wait=unfinished)


def a_slot_for_each_unfinished(a, b, *, slots, unfinished):
    """Adds slots where it should keep them; a case's SMEM has no room for one more."""
    return _pipelined(a, b, slots + unfinished, delays=(unfinished,) * 2, wait=unfinished)


def a_step_too_few(a, b, *, slots, unfinished):
    """The last tiles of K are missing."""
    return _pipelined(a, b, slots, delays=(unfinished,) * 2, wait=unfinished, steps=-1)


def tiles_of_b_along_n(a, b, *, slots, unfinished):
    """The index map of A, for B."""
    swapped = lambda ki: (0, ki)  # noqa: E731
    return _pipelined(a, b, slots, delays=(unfinished,) * 2, wait=unfinished, b_tile=swapped)


WRONG = {
    "no delay": Wrong(no_delay, "mma-operand-overwritten", ("delay_release", "delay_release.py")),
    "one of two": Wrong(one_of_two, "mma-operand-overwritten", ("pipeline_input_1",)),
    "always one": Wrong(always_one, "exception", ("max_concurrent_steps",)),
    "one more": Wrong(one_more, "exception", ("max_concurrent_steps",)),
    "a slot for each unfinished": Wrong(
        a_slot_for_each_unfinished, "too-much-smem", ("slots=5", "pipeline_input_0")
    ),
    "a step too few": Wrong(a_step_too_few, "value", ("[0, 0]",)),
    "tiles of B along N": Wrong(tiles_of_b_along_n, "value", ("[0, 0]",)),
}
