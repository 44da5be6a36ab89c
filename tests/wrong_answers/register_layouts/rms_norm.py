"""Wrong answers to register_layouts.rms_norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

WGMMA = plgpu.Layout.WGMMA
Body = Callable[[Any, Any], None]


def _answer(body: Body) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The frame of the exercise around `body`, which has the block's buffer and w."""

    def rms_norm(x: jax.Array, w: jax.Array) -> jax.Array:
        def kernel(x_gmem: Any, w_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
            rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
            plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)
            plgpu.barrier_wait(loaded)
            body(buffer_smem, w_gmem)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])
            plgpu.wait_smem_to_gmem(0)

        return plgpu.kernel(
            kernel,
            out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0] // 64,),
            grid_names=("tile",),
            scratch_types={
                "buffer_smem": plgpu.SMEM((64, x.shape[1]), x.dtype),
                "loaded": plgpu.Barrier(),
            },
        )(x, w)

    return rms_norm


def _scale(x: jax.Array) -> jax.Array:
    return jax.lax.rsqrt(jnp.mean(x * x, axis=1) + 1e-6)


def _w_per_row(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    w = plgpu.load(w_gmem, layout=WGMMA.reduce(1), optimized=False)
    buffer_smem[...] = x * _scale(x)[:, None] * w[None, :]


def _w_strided(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    w = plgpu.load(w_gmem, layout=plgpu.Layout.WG_STRIDED(w_gmem.shape, vec_size=1))
    buffer_smem[...] = x * _scale(x)[:, None] * w[None, :]


def _forgets_w(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    buffer_smem[...] = x * _scale(x)[:, None]


def _sum_for_mean(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    w = plgpu.load(w_gmem, layout=WGMMA.reduce(0), optimized=False)
    scale = jax.lax.rsqrt(jnp.sum(x * x, axis=1) + 1e-6)
    buffer_smem[...] = x * scale[:, None] * w[None, :]


def _divides_by_the_square(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    w = plgpu.load(w_gmem, layout=WGMMA.reduce(0), optimized=False)
    scale = 1 / (jnp.mean(x * x, axis=1) + 1e-6)
    buffer_smem[...] = x * scale[:, None] * w[None, :]


def _uses_the_reference(buffer_smem: Any, w_gmem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA)
    buffer_smem[...] = x * _scale(x)[:, None] * w_gmem


WRONG = {
    "w in the layout of rows": Wrong(_answer(_w_per_row), "layout", ("rms_norm.py",)),
    "w strided": Wrong(_answer(_w_strided), "layout", ("rms_norm.py",)),
    "forgets w": Wrong(_answer(_forgets_w), "value", ("are wrong",)),
    "a sum for the mean": Wrong(_answer(_sum_for_mean), "value", ("0.08838",)),
    "divides by the square": Wrong(_answer(_divides_by_the_square), "value", ("are wrong",)),
    "multiplies by a ref": Wrong(_answer(_uses_the_reference), "exception", ("rms_norm.py",)),
}
