"""Wrong answers to register_layouts.softmax_rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

WGMMA = plgpu.Layout.WGMMA


def _answer(body: Callable[[Any], None]) -> Callable[[jax.Array], jax.Array]:
    """The frame of the exercise around `body`, which works on the block's buffer."""

    def softmax_rows(x: jax.Array) -> jax.Array:
        def kernel(x_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
            rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
            plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)
            plgpu.barrier_wait(loaded)
            body(buffer_smem)
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
        )(x)

    return softmax_rows


def _without_a_layout(buffer_smem: Any) -> None:
    x = buffer_smem[...].astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=1)[:, None])
    buffer_smem[...] = (e / jnp.sum(e, axis=1)[:, None]).astype(buffer_smem.dtype)


def _over_columns(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=0)[None, :])
    buffer_smem[...] = (e / jnp.sum(e, axis=0)[None, :]).astype(buffer_smem.dtype)


def _without_the_maximum(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x)
    buffer_smem[...] = (e / jnp.sum(e, axis=1)[:, None]).astype(buffer_smem.dtype)


def _without_the_division(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=1)[:, None])
    jnp.sum(e, axis=1)
    buffer_smem[...] = e.astype(buffer_smem.dtype)


def _without_the_dtype(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=1)[:, None])
    buffer_smem[...] = e / jnp.sum(e, axis=1)[:, None]


def _broadcast_as_columns(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=1))
    buffer_smem[...] = (e / jnp.sum(e, axis=1)[:, None]).astype(buffer_smem.dtype)


def _one_total(buffer_smem: Any) -> None:
    x = plgpu.load(buffer_smem, layout=WGMMA).astype(jnp.float32)
    e = jnp.exp(x - jnp.max(x, axis=1)[:, None])
    buffer_smem[...] = (e / jnp.sum(jnp.sum(e, axis=1))).astype(buffer_smem.dtype)


def in_jax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=1)


WRONG = {
    "no layout": Wrong(_answer(_without_a_layout), "layout", ("reduce_max",)),
    "over columns": Wrong(_answer(_over_columns), "value", ("are wrong",)),
    "without the maximum": Wrong(
        _answer(_without_the_maximum), "means", ("values are right", "reduce_max")
    ),
    "without the division": Wrong(_answer(_without_the_division), "value", ("are wrong",)),
    "without the dtype": Wrong(
        _answer(_without_the_dtype), "exception", ("bfloat16", "astype(ref.dtype)")
    ),
    "broadcast the wrong way": Wrong(
        _answer(_broadcast_as_columns), "exception", ("(64, 128)", "(64,)")
    ),
    "one total for all rows": Wrong(_answer(_one_total), "value", ("are wrong",)),
    "in JAX": Wrong(in_jax, "means", ("no GPU kernel",)),
}
