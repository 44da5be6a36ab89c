"""Variants of the exercises of chapter 01: more copies out, smaller buffers, slices and tiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]

_TIMES = {2: "twice", 3: "three times"}
_PARTS = {2: "half", 4: "a quarter"}


def _stage_through_smem(*, whole: int, copies: int) -> Varied:
    return Varied(
        statement=(
            f"Return {whole} - x, {copies} times, one below the other. Each block lets the copy "
            "engine bring its 64 rows of x into buffer_smem, computes in registers, writes the "
            "result into the same buffer, and lets the copy engine bring that to each of its "
            f"{copies} places in y_gmem."
        ),
        signature=(
            f"stage_through_smem(x: float[m, n]) -> float[{copies} * m, n], m a multiple of 64"
        ),
        reference=functools.partial(_stage_reference, whole=whole, copies=copies),
        edits=(
            (
                "Return `1 - x`.",
                f"Return `{whole} - x`, {_TIMES[copies]}, one below the other: `y` has {copies} "
                "times as many rows as `x`.",
            ),
            ("and out from there.", f"and out from there, to {copies} places."),
            (
                "        out_type=x,\n",
                f"        out_type=jax.ShapeDtypeStruct(({copies} * x.shape[0], x.shape[1]), "
                "x.dtype),\n",
            ),
        ),
    )


def _stage_reference(x: Array, *, whole: int, copies: int) -> Array:
    return np.tile(np.asarray(whole, x.dtype) - x, (copies, 1))


def _add_in_one_buffer(*, parts: int, factor: int) -> Varied:
    """The first case has 240 KB for each of `parts` - 1 parts: a larger buffer does not fit."""
    cases = (
        Case((Spec((240 * parts, 128)),) * 2),
        Case((Spec((64, 128)),) * 2),
        Case((Spec((96, 64), "float16"),) * 2),
    )
    return Varied(
        statement=(
            f"Return a + {factor} * b from one block that has SMEM for {_PARTS[parts]} of one "
            f"matrix only, so that it goes through the rows in {parts} parts. Allocate that buffer "
            "and a barrier with pl.run_scoped, once. For each part bring a's rows in and load them "
            "into registers, bring b's rows into the same buffer, multiply and add, and send the "
            "result out through the buffer too."
        ),
        signature=(
            "add_in_one_buffer(a: float[m, n], b: float[m, n]) -> float[m, n], m a multiple of "
            f"{parts}"
        ),
        reference=functools.partial(_add_reference, factor=factor),
        cases=cases,
        edits=(
            (
                "Return `a + b` from a single block, with SMEM for one matrix only.",
                f"Return `a + {factor} * b` from a single block, with SMEM for {_PARTS[parts]} of "
                f"one matrix only: it goes through the rows in {parts} parts of `m // {parts}` "
                "rows.",
            ),
            (
                "Allocate the buffer and a barrier with\n`pl.run_scoped`.",
                "Allocate the buffer and a barrier with\n`pl.run_scoped`, once. For each part:",
            ),
            (
                "Bring `a` in and keep it as a value; bring `b` into the same buffer; add; and "
                "send the sum out through\nthe buffer too.",
                "bring `a`'s rows in and keep them as a value; bring `b`'s rows into the same "
                "buffer; multiply and add; and send the result out through\nthe buffer too.",
            ),
            ("About 13 lines, and all four rows", "About 13 lines and a loop, and all four rows"),
        ),
    )


def _add_reference(a: Array, b: Array, *, factor: int) -> Array:
    return a + np.asarray(factor, b.dtype) * b


def _shift_in_slices(*, rows: int, minus: int) -> Varied:
    return Varied(
        statement=(
            f"Return x - {minus} with its slices of {rows} rows in reverse order: the last slice "
            f"comes first. One block does it, with at most {rows} rows of x in registers at a "
            f"time: a loop in the kernel (pl.loop) reads {rows} rows from GMEM, and writes them "
            "to their place."
        ),
        reference=functools.partial(_shift_reference, rows=rows, minus=minus),
        edits=(
            (
                "Return `x - 2` from one block, with at most 16 rows in registers at a time.",
                f"Return `x - {minus}` with its slices of {rows} rows in reverse order: the last "
                "slice comes first, and its rows stay in their order. One block does it, with at "
                f"most {rows} rows in registers at a time.",
            ),
        ),
    )


def _shift_reference(x: Array, *, rows: int, minus: int) -> Array:
    slices = x.reshape(-1, rows, x.shape[1])[::-1]
    return slices.reshape(x.shape) - np.asarray(minus, x.dtype)


def _sum_of_products(*, columns: int, plus: int) -> Varied:
    return Varied(
        statement=(
            f"a and b are rows of tiles: tile ti is columns ti * {columns} to ti * {columns} + "
            f"{columns - 1}. Return the sum of a_tile * (b_tile + {plus}) over all tiles, from one "
            "block. Let plgpu.emit_pipeline bring the tiles of both into SMEM, keep the running "
            "sum as its carry, and store it."
        ),
        signature=(
            f"sum_of_products(a: float32[m, tiles * {columns}], b: the same) -> float32[m, "
            f"{columns}]"
        ),
        reference=functools.partial(_products_reference, columns=columns, plus=plus),
        edits=(
            ("tiles of 128 columns", f"tiles of {columns} columns"),
            ("`a_tile * b_tile`", f"`a_tile * (b_tile + {plus})`"),
            ("an `m` x 128 matrix", f"an `m` x {columns} matrix"),
            ("tile = (a.shape[0], 128)", f"tile = (a.shape[0], {columns})"),
        ),
        # up to twenty products of about `plus`, the sum of which may be near 0
        atol=1e-4,
    )


def _products_reference(a: Array, b: Array, *, columns: int, plus: int) -> Array:
    products = a.astype(np.float64) * (b.astype(np.float64) + plus)
    return np.asarray(products.reshape(a.shape[0], -1, columns).sum(1).astype(a.dtype))


VARIANTS = {
    "stage_through_smem": Variants(
        {"whole": (2, 3, 4, 5, 6, 7), "copies": (2, 3)}, _stage_through_smem
    ),
    "add_in_one_buffer": Variants({"parts": (2, 4), "factor": (2, 3, 4, 5)}, _add_in_one_buffer),
    "shift_in_slices": Variants({"rows": (4, 8), "minus": (3, 4, 5, 6, 7)}, _shift_in_slices),
    "sum_of_products": Variants({"columns": (32, 64), "plus": (1, 2, 3, 4)}, _sum_of_products),
}
