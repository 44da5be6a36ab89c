"""Wrong answers to barriers.sum_of_products."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

SPEC = plgpu.BlockSpec((64, 128), lambda ti: (ti, 0))
TILE = jax.ShapeDtypeStruct((64, 128), jnp.float32)


def _run(a, b, *, step=None, start=(32, 128), write=True, specs=(SPEC, SPEC), tiles=None, **more):
    """The notebook's frame with the solution; what differs is an argument."""
    options = dict(max_concurrent_steps=3, wg_axis="thread", num_compute_wgs=2, memory_registers=40)

    def kernel(a_gmem, b_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("thread") * 32, 32)

        def multiply(indices, a_smem, b_smem, total):
            total = total + (step or _product)(a_smem, b_smem, rows)
            plgpu.commit_smem()
            return total

        def compute(pipeline):
            total = pipeline(jnp.zeros(start, jnp.float32))
            if write:
                y_gmem[rows if start[0] == 32 else ...] = total

        pipeline = plgpu.emit_pipeline_warp_specialized(
            multiply,
            grid=(tiles or a.shape[0] // 64,),
            in_specs=list(specs),
            compute_context=compute,
            **(options | more),
        )
        pipeline(a_gmem, b_gmem)

    return plgpu.kernel(kernel, out_type=TILE, num_threads=3, thread_name="thread")(a, b)


def _product(a_smem, b_smem, rows):
    return a_smem[rows] * b_smem[rows]


def whole_tiles(a, b):
    """Both threads compute all rows, and both write them."""
    return _run(a, b, start=(64, 128), step=lambda a_smem, b_smem, rows: a_smem[...] * b_smem[...])


def one_compute_thread(a, b):
    """num_compute_wgs=1: the memory thread would be thread 1, and thread 2 has no part in it."""
    return _run(a, b, num_compute_wgs=1)


def adds(a, b):
    """a + b."""
    return _run(a, b, step=lambda a_smem, b_smem, rows: a_smem[rows] + b_smem[rows])


def first_rows_only(a, b):
    """Both read rows 0 to 31."""
    return _run(a, b, step=lambda a_smem, b_smem, rows: a_smem[:32] * b_smem[:32])


def stays_at_the_first_tile(a, b):
    """An index map that ignores the step."""
    still = plgpu.BlockSpec((64, 128), lambda ti: (0, 0))
    return _run(a, b, specs=(SPEC, still))


def in_elements(a, b):
    """An index map in elements: all tiles but the first lie outside, and are zeros."""
    far = plgpu.BlockSpec((64, 128), lambda ti: (ti * 64, 0))
    return _run(a, b, specs=(far, far))


def eight_tiles(a, b):
    """The number of tiles of the first shape."""
    return _run(a, b, tiles=8)


def never_stored(a, b):
    """The sum is nobody's."""
    return _run(a, b, write=False)


def unspecialized(a, b):
    """emit_pipeline, in one thread of three."""

    def kernel(a_gmem, b_gmem, y_gmem):
        def multiply(indices, a_smem, b_smem, total):
            total = total + a_smem[...] * b_smem[...]
            plgpu.commit_smem()
            return total

        pipeline = plgpu.emit_pipeline(
            multiply,
            grid=(a.shape[0] // 64,),
            in_specs=[SPEC, SPEC],
            max_concurrent_steps=3,
            init_carry=jnp.zeros((64, 128), jnp.float32),
        )
        y_gmem[...] = pipeline(a_gmem, b_gmem)

    return plgpu.kernel(kernel, out_type=TILE)(a, b)


WRONG = {
    "whole tiles": Wrong(whole_tiles, "race", ("y_gmem",)),
    "one compute thread": Wrong(
        one_compute_thread, "deadlock", ("thread 2 waits for 256 registers", "504 registers")
    ),
    "adds": Wrong(adds, "value", ("[0, 0]",)),
    "first rows only": Wrong(first_rows_only, "value", ("[32, 0]",)),
    "stays at the first tile": Wrong(stays_at_the_first_tile, "exception", ("grid",)),
    "in elements": Wrong(in_elements, "value", ("[0, 0]",)),
    "eight tiles": Wrong(eight_tiles, "value", ("2 shapes right before",)),
    "never stored": Wrong(never_stored, "nan", ("Nobody writes",)),
    "unspecialized": Wrong(unspecialized, "means", ("plgpu.set_max_registers",)),
}
