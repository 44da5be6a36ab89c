"""Wrong and right kernels around what a kernel gives back."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.simulator.litmus.pair import Pair


def _rows(x, *, blocks):
    """x + 1 by `blocks` blocks of 64 rows; the output has 128."""

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((128, 128), jnp.float32),
        grid=(blocks,),
        grid_names=("i",),
    )
    def kernel(x_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("i") * 64, 64)
        y_gmem[rows] = x_gmem[rows] + 1

    return kernel(x)


PAIRS = [
    Pair(
        "unwritten-output",
        functools.partial(_rows, blocks=1),
        functools.partial(_rows, blocks=2),
        (((128, 128), "float32"),),
        ("8192 of the 16384", "y_gmem", "[64, 0]"),
        reference=lambda x: x + 1,
    ),
]
