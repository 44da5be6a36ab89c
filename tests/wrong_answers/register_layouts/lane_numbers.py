"""Wrong answers to register_layouts.lane_numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

Formula = Callable[[Any, Any], Any]


def _answer(formula: Formula) -> Callable[..., jax.Array]:
    """The right answer, but for the formula from row and column to lane."""

    def lane_numbers(*, m: int, n: int) -> jax.Array:
        def kernel(lane_gmem: Any) -> None:
            wgmma = plgpu.Layout.WGMMA
            row = plgpu.broadcasted_iota(jnp.int32, (m, n), 0, layout=wgmma)
            column = plgpu.broadcasted_iota(jnp.int32, (m, n), 1, layout=wgmma)
            lane_gmem[...] = formula(row, column)

        return plgpu.kernel(kernel, out_type=jax.ShapeDtypeStruct((m, n), jnp.int32))()

    return lane_numbers


def from_two_vectors(*, m: int, n: int) -> jax.Array:
    """Has no layout to begin with: jnp.arange on both axes, broadcast against each other."""

    def kernel(lane_gmem: Any) -> None:
        row, column = jnp.arange(m)[:, None], jnp.arange(n)[None, :]
        lane_gmem[...] = row % 64 // 16 * 32 + row % 8 * 4 + column % 8 // 2

    return plgpu.kernel(kernel, out_type=jax.ShapeDtypeStruct((m, n), jnp.int32))()


def _within_the_warp(row: Any, column: Any) -> Any:
    return row % 8 * 4 + column % 8 // 2


def _warps_of_8_rows(row: Any, column: Any) -> Any:
    return row // 8 % 4 * 32 + row % 8 * 4 + column % 8 // 2


def _warps_do_not_repeat(row: Any, column: Any) -> Any:
    return row // 16 * 32 + row % 8 * 4 + column % 8 // 2


def _columns_do_not_repeat(row: Any, column: Any) -> Any:
    return row % 64 // 16 * 32 + row % 8 * 4 + column // 2


def _no_pairs(row: Any, column: Any) -> Any:
    return row % 64 // 16 * 32 + row % 8 * 4 + column % 4


def _strided(row: Any, column: Any) -> Any:
    return row % 64 // 16 * 32 + column % 8 // 2 * 8 + row % 8


WRONG = {
    "the lane within the warp": Wrong(
        _answer(_within_the_warp), "value", ("Element [16, 0] is 0, should be 32",)
    ),
    "warps of 8 rows": Wrong(
        _answer(_warps_of_8_rows), "value", ("Element [8, 0] is 32, should be 0",)
    ),
    "warps do not repeat": Wrong(
        _answer(_warps_do_not_repeat), "value", ("m=128, n=24", "Element [64, 0] is 128")
    ),
    "columns do not repeat": Wrong(
        _answer(_columns_do_not_repeat), "value", ("Element [0, 8] is 4, should be 0",)
    ),
    "no pairs": Wrong(_answer(_no_pairs), "value", ("Element [0, 1] is 1, should be 0",)),
    "down before along": Wrong(_answer(_strided), "value", ("Element [0, 2] is 8, should be 1",)),
    "from two vectors": Wrong(from_two_vectors, "layout", ("lane_numbers.py",)),
}
