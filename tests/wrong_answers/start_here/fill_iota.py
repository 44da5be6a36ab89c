"""Wrong answers to start_here.fill_iota."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _launch(body, blocks, *, grid=None, dtype=jnp.int32):
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((blocks * 128,), dtype),
        grid=(blocks if grid is None else grid,),
        grid_names=("block",),
    )()


def same_numbers_in_every_block(*, blocks):
    """Writes to the right place, but forgets that the values depend on the block too."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = jnp.arange(128)

    return _launch(kernel, blocks)


def blocks_overlap(*, blocks):
    """Takes the block's number for its first element."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block")
        y_gmem[pl.ds(start, 128)] = start * 128 + jnp.arange(128)

    return _launch(kernel, blocks)


def one_block_short(*, blocks):
    """Launches too few blocks: nobody writes the end of the vector."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = start + jnp.arange(128)

    return _launch(kernel, blocks, grid=max(blocks - 1, 1))


def counts_from_one(*, blocks):
    """Off by one."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = start + 1 + jnp.arange(128)

    return _launch(kernel, blocks)


def python_slice(*, blocks):
    """start:stop with a start that only the running kernel knows."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[start : start + 128] = start + jnp.arange(128)

    return _launch(kernel, blocks)


def floats(*, blocks):
    """The right numbers in the wrong dtype."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = (start + jnp.arange(128)).astype(jnp.float32)

    return _launch(kernel, blocks, dtype=jnp.float32)


def forgot_the_call(*, blocks):
    """Returns the kernel instead of what it computes."""

    def kernel(y_gmem):
        start = jax.lax.axis_index("block") * 128
        y_gmem[pl.ds(start, 128)] = start + jnp.arange(128)

    return functools.partial(_launch, kernel, blocks)


def not_a_kernel(*, blocks):
    """Plain JAX."""
    return jnp.arange(blocks * 128, dtype=jnp.int32)


WRONG = {
    "same numbers in every block": Wrong(
        same_numbers_in_every_block, "value", ("elements 0 to 127 is repeated",)
    ),
    "blocks overlap": Wrong(blocks_overlap, "race", ("Two blocks", "fill_iota.py")),
    "one block short": Wrong(one_block_short, "value", ("[256]", "elements 256 to 383")),
    "counts from one": Wrong(counts_from_one, "value", ("[0] is 1, should be 0", "off by")),
    "a Python slice": Wrong(python_slice, "exception", ("Tracer", "fill_iota.py")),
    "floats": Wrong(floats, "dtype", ("float32", "int32")),
    "forgot the call": Wrong(forgot_the_call, "outputs", ("a function",)),
    "not a kernel": Wrong(not_a_kernel, "means", ("no GPU kernel", "iota")),
}
