"""Wrong answers to register_layouts.rows_plus_columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

WGMMA = plgpu.Layout.WGMMA
Body = Callable[[Any, Any, Any], None]


def _answer(body: Body) -> Callable[[jax.Array], jax.Array]:
    """The frame of the exercise around `body`."""

    def rows_plus_columns(x: jax.Array) -> jax.Array:
        vector = jax.ShapeDtypeStruct(x.shape[:1], x.dtype)
        scratch = {"sums_smem": plgpu.SMEM(vector.shape, x.dtype)}
        return plgpu.kernel(body, out_type=vector, scratch_types=scratch)(x)

    return rows_plus_columns


def _adds_at_once(x_gmem: Any, y_gmem: Any, sums_smem: Any) -> None:
    x = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
    y_gmem[...] = jnp.sum(x, axis=1) + jnp.sum(x, axis=0)


def _casts(x_gmem: Any, y_gmem: Any, sums_smem: Any) -> None:
    x = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
    rows = plgpu.layout_cast(jnp.sum(x, axis=1), WGMMA.reduce(0))
    y_gmem[...] = rows + jnp.sum(x, axis=0)


def _reads_first(x_gmem: Any, y_gmem: Any, sums_smem: Any) -> None:
    x = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
    columns = jnp.sum(x, axis=0) + sums_smem[...]
    sums_smem[...] = jnp.sum(x, axis=1)
    y_gmem[...] = columns


def _rows_twice(x_gmem: Any, y_gmem: Any, sums_smem: Any) -> None:
    x = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
    sums_smem[...] = jnp.sum(x, axis=1)
    y_gmem[...] = sums_smem[...] + jnp.sum(x, axis=1)


def _two_stores(x_gmem: Any, y_gmem: Any, sums_smem: Any) -> None:
    """GMEM as the place to change the layout: the second store replaces the first."""
    x = plgpu.load(x_gmem, layout=WGMMA, optimized=False)
    y_gmem[...] = jnp.sum(x, axis=1)
    y_gmem[...] = jnp.sum(x, axis=0)


def in_jax(x: jax.Array) -> jax.Array:
    return x.sum(0) + x.sum(1)


WRONG = {
    "adds them at once": Wrong(_answer(_adds_at_once), "layout", ("reduce_sum",)),
    "casts one to the other": Wrong(_answer(_casts), "layout", ("reduce_sum",)),
    "reads before it stores": Wrong(_answer(_reads_first), "nan", ("sums_smem",)),
    "the rows twice": Wrong(_answer(_rows_twice), "value", ("[0]",)),
    "the second store replaces the first": Wrong(_answer(_two_stores), "value", ("[0]",)),
    "in JAX": Wrong(in_jax, "means", ("no GPU kernel",)),
}
