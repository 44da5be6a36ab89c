"""Kernels that the model of the GPU can run, and that cannot be lowered; and their twins."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

SHAPE = (64, 64)


def adds(*, same_layout: bool) -> Any:
    """x + y, one loaded in WGMMA's layout, the other row by row unless it is the same."""

    def body(x_gmem, y_gmem, o_gmem, x_smem, y_smem, bar):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, bar)
        plgpu.copy_gmem_to_smem(y_gmem, y_smem, bar)
        plgpu.barrier_wait(bar)
        other = plgpu.Layout.WGMMA if same_layout else plgpu.Layout.WG_STRIDED(SHAPE, vec_size=2)
        x = plgpu.layout_cast(x_smem[...], plgpu.Layout.WGMMA)
        y = plgpu.layout_cast(y_smem[...], other)
        o_gmem[...] = x + y

    def f(x, y):
        scratch = [plgpu.SMEM(SHAPE, jnp.float32)] * 2 + [plgpu.Barrier(num_arrivals=2)]
        return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x, y)

    return f


def rows(*, count: int) -> Any:
    """Adds one to `count` elements at a time; 128 lanes want a multiple of 128."""

    def f(x):
        def body(x_gmem, o_gmem):
            @pl.loop(0, x.size // count)
            def _(i):
                o_gmem[pl.ds(i * count, count)] = x_gmem[pl.ds(i * count, count)] + 1

        return plgpu.kernel(body, out_type=x)(x)

    return f


def allocates(*, kib: int) -> Any:
    """Asks for shared memory, and both the model and Mosaic count it."""

    def f(x):
        def body(x_gmem, o_gmem, _):
            o_gmem[...] = x_gmem[...]

        return plgpu.kernel(
            body, out_type=x, scratch_types=[plgpu.SMEM((kib * 256,), jnp.float32)]
        )(x)

    return f


def multiplies(*, n: int) -> Any:
    """A wgmma of `n` columns: a multiple of 8 is asked for."""

    def f(a, b):
        def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, bar):
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, bar)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, bar)
            plgpu.barrier_wait(bar)

            def mma(acc):
                plgpu.wgmma(acc, a_smem, b_smem)
                return acc[...]

            o_gmem[...] = pl.run_scoped(mma, plgpu.ACC((64, n), jnp.float32))

        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((64, n), jnp.float32),
            scratch_types=[
                plgpu.SMEM((64, 64), jnp.float16),
                plgpu.SMEM((64, n), jnp.float16),
                plgpu.Barrier(num_arrivals=2),
            ],
        )(a, b)

    return f
