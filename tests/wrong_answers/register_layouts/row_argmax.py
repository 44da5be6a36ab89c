"""Wrong answers to register_layouts.row_argmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

WGMMA = plgpu.Layout.WGMMA
Body = Callable[[Any, Any, int], Any]


def _answer(body: Body) -> Callable[[jax.Array], jax.Array]:
    """The frame of the exercise around `body`, from x and the column numbers to the result."""

    def row_argmax(x: jax.Array) -> jax.Array:
        m, n = x.shape

        def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
            rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
            plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded)
            plgpu.barrier_wait(loaded)
            x = plgpu.load(x_smem, layout=WGMMA)
            column = plgpu.broadcasted_iota(jnp.int32, (64, n), 1, layout=WGMMA)
            y_gmem[rows] = body(x, column, n)

        return plgpu.kernel(
            kernel,
            out_type=jax.ShapeDtypeStruct((m,), jnp.int32),
            grid=(m // 64,),
            grid_names=("tile",),
            scratch_types={
                "x_smem": plgpu.SMEM((64, n), x.dtype),
                "loaded": plgpu.Barrier(),
            },
        )(x)

    return row_argmax


def _argmax(x: Any, column: Any, n: int) -> Any:
    return jnp.argmax(x, axis=1).astype(jnp.int32)


def _the_last_one(x: Any, column: Any, n: int) -> Any:
    return jnp.max(jnp.where(x == jnp.max(x, axis=1)[:, None], column, -1), axis=1)


def _the_others_win(x: Any, column: Any, n: int) -> Any:
    return jnp.min(jnp.where(x == jnp.max(x, axis=1)[:, None], column, 0), axis=1)


def _over_columns(x: Any, column: Any, n: int) -> Any:
    return jnp.min(jnp.where(x == jnp.max(x, axis=0)[None, :], column, n), axis=1)


def _by_index(x: Any, column: Any, n: int) -> Any:
    largest = jnp.max(x, axis=1)
    return jnp.min(jnp.where(x == largest, column, n), axis=1)


def _the_value(x: Any, column: Any, n: int) -> Any:
    return jnp.max(x, axis=1).astype(jnp.int32)


WRONG = {
    "jnp.argmax": Wrong(_answer(_argmax), "lowering", ("argmax",)),
    "the last of equal ones": Wrong(
        _answer(_the_last_one), "value", ("bfloat16[512, 256] (2 shapes right before)",)
    ),
    "the others bid zero": Wrong(_answer(_the_others_win), "value", ("is 0, should be",)),
    "the largest of the column": Wrong(_answer(_over_columns), "value", ("are wrong",)),
    "no broadcast": Wrong(_answer(_by_index), "exception", ("(64, 128)", "(64,)")),
    "the value, not its place": Wrong(_answer(_the_value), "value", ("are wrong",)),
}
