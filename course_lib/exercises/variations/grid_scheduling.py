"""Variants of the exercises of chapter 02: other grids, other bands, tiles dealt out by column."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels.grid_scheduling import TILE, matmul_reference

Array = np.ndarray[Any, Any]

# By the place of the axis "n" in the grid.
_GRIDS = {0: "(n, m // mt, mt)", 2: "(m // mt, mt, n)"}
_NAMES = {0: '("n", "m_outer", "m_inner")', 2: '("m_outer", "m_inner", "n")'}


def _tiled_product(*, n_axis: int, shift: int) -> Varied:
    return Varied(
        statement=(
            "Return the product of a and b and, for every tile, the index in the grid of the "
            f"block that computed it. The grid is {_GRIDS[n_axis]}: the tile columns are axis "
            f"{n_axis}, the bands of mt tile rows and the rows within a band the other two. Band "
            f"number outer begins {shift} * outer columns further to the right: a block with "
            f"index j on the axis of columns has tile column (j + {shift} * outer) % n."
        ),
        reference=functools.partial(_tiled_product_reference, n_axis=n_axis, shift=shift),
        edits=(
            ("(m // mt, n, mt)", _GRIDS[n_axis]),
            (
                "`mi` and `ni` say which tile this block computes.",
                "`mi` and `ni` say which tile this block computes. Band number `outer` begins "
                f"`{shift} * outer` columns further to the right: with `j` for the index on the "
                f'axis `"n"`, `ni` is `(j + {shift} * outer) % n`.',
            ),
            ('("m_outer", "n", "m_inner")', _NAMES[n_axis]),
        ),
    )


def _tiled_product_reference(
    a: Array, b: Array, *, mt: int, n_axis: int, shift: int
) -> tuple[Array, Array]:
    m, n = a.shape[0] // TILE, b.shape[1] // TILE
    # by outer, inner, j: the block's number, and below the tile that it computes
    outer, inner, j = np.indices((m // mt, mt, n))
    down = outer * mt + inner
    blocks = np.empty((m, n), np.int32)
    blocks[down, (j + shift * outer) % n] = j * m + down if n_axis == 0 else down * n + j
    return matmul_reference(a, b), blocks


def _snake(*, period: int, first: int) -> Varied:
    bands = ", ".join(str(first + n * period) for n in range(3))
    cases = tuple(
        Case((), {"m": m, "n": n, "width": width})
        for m, n, width in ((6, 3, 2), (8, 4, 1), (9, 5, 3), (10, 2, 2), (6, 4, 1))
    )
    return Varied(
        statement=(
            "Return, for every tile of an m x n grid, its place in the snake's order, written by "
            "a kernel of m * n blocks: block i writes i to the i-th tile. The snake walks bands "
            "of `width` tile rows, down each column of a band. A band goes from right to left if "
            f"its number leaves a remainder of {first} when divided by {period} (bands {bands}, "
            "...). `width` divides m."
        ),
        reference=functools.partial(_snake_reference, period=period, first=first),
        cases=cases,
        edits=(
            ("Write it once yourself", "Write one like it yourself"),
            (
                "and bands 1, 3, 5, ... from right to left.",
                "and from right to left where a band's number leaves a remainder of "
                f"{first} when divided by {period}: bands {bands}, ...",
            ),
        ),
    )


def _snake_reference(*, m: int, n: int, width: int, period: int, first: int) -> Array:
    band, along, within = np.indices((m // width, n, width))
    place = (band * n + along) * width + within
    column = np.where(band % period == first, n - 1 - along, along)
    out = np.empty((m, n), np.int32)
    out[band * width + within, column] = place
    return out


def _persistent_product(*, weight: int) -> Varied:
    return Varied(
        statement=(
            f"Return the product of a and b and, for every tile, step * {weight} + block: the "
            "index of the block that computed it, and which of that block's own tiles it was, "
            "counted from 0. Launch num_sms blocks, whatever the number of tiles; each of them "
            "loops over its share of the m x n tiles with plgpu.nd_loop. The tiles are dealt out "
            "column by column: down the first column of tiles, then down the second, and so on."
        ),
        reference=functools.partial(_persistent_reference, weight=weight),
        edits=(
            (
                "Return the product and, for each tile, the block that computed it, as in "
                "exercise 1.",
                "Deal them out column by column: down the first column of tiles, then down the "
                f"second, and so on. Return the product and, for each tile, `step * {weight} + "
                "block`: which block computed it, and which of that block's own tiles it was, "
                "counted from 0.",
            ),
        ),
    )


def _persistent_reference(a: Array, b: Array, *, num_sms: int, weight: int) -> tuple[Array, Array]:
    mi, ni = np.indices((a.shape[0] // TILE, b.shape[1] // TILE))
    step, block = np.divmod(ni * mi.shape[0] + mi, num_sms)
    return matmul_reference(a, b), (step * weight + block).astype(np.int32)


VARIANTS = {
    "tiled_product": Variants({"n_axis": (0, 2), "shift": (2, 3, 5)}, _tiled_product),
    "snake": Variants({"period": (3, 4), "first": (0, 2)}, _snake),
    "persistent_product": Variants({"weight": (10, 20, 50, 100, 1000)}, _persistent_product),
}
