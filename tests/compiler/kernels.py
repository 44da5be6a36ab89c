"""Kernels that the compiler's tests compile."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def spec(*shape: int, dtype=jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def scale(x, *, factor: float = 2.0):
    """Elementwise, through registers only."""

    blocks = x.shape[0] // 128

    @functools.partial(plgpu.kernel, out_type=spec(*x.shape), grid=(blocks,), grid_names=("i",))
    def kernel(x_gmem, o_gmem):
        rows = pl.ds(lax.axis_index("i") * 128, 128)
        o_gmem[rows] = x_gmem[rows] * factor

    return kernel(x)


def scale_through_smem(x):
    """Elementwise, by TMA in and out."""

    @functools.partial(
        plgpu.kernel,
        out_type=spec(*x.shape),
        scratch_types=dict(x_smem=plgpu.SMEM(x.shape, x.dtype), loaded=plgpu.Barrier()),
    )
    def kernel(x_gmem, o_gmem, x_smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        x_smem[...] = x_smem[...] * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    return kernel(x)


def too_many_values(x):
    """Keeps more of x alive at once than there are registers."""

    @functools.partial(plgpu.kernel, out_type=spec(*x.shape))
    def kernel(x_gmem, o_gmem):
        value = x_gmem[...]
        o_gmem[...] = value * jnp.exp(jnp.sum(value))

    return kernel(x)


def twice(x):
    """Two kernels in one function."""
    return scale_through_smem(scale(x))


def no_kernel(x):
    return x + 1
