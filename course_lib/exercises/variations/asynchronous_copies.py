"""Variants of the exercises of chapter 05: other arithmetic, other places, more slots."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]

_FACTORS = (2, 3, 4, 5, 6, 7, 8, 9)
_NUMBERS = {3: "three", 4: "four"}
# Products of a few times a normal number: the last bit of a float32 of 30 is 2e-6.
_ATOL = 1e-5


def _multiply_add(*, a: int, b: int) -> Varied:
    return Varied(
        statement=(
            f"Return {a} * x * y + {b} * z. Each block starts three copies, of its 64 rows of x, y "
            "and z, that all arrive on the barrier `loaded`; it waits once and stores the result "
            "to "
            "o_gmem from registers. Allocate `loaded` so that one wait is enough."
        ),
        reference=functools.partial(_multiply_add_reference, a=a, b=b),
        edits=(("Return `x * y + z`.", f"Return `{a} * x * y + {b} * z`."),),
        atol=_ATOL,
    )


def _multiply_add_reference(x: Array, y: Array, z: Array, *, a: int, b: int) -> Array:
    return np.asarray(a, x.dtype) * x * y + np.asarray(b, x.dtype) * z


def _triple(*, factor: int, slots: int) -> Varied:
    return Varied(
        statement=(
            f"Return {factor} * x from one block that goes through x in tiles of 64 rows, in a "
            "loop "
            f"that stays a loop. Load a tile from x_gmem straight into registers, write {factor} "
            f"times it into slots_smem[ti % {slots}], and let the copy engine take it to y_gmem. "
            f"When you write into a slot, the copies of the {slots - 1} tiles before may still be "
            "reading the others: wait for no more than you must, and for reading only."
        ),
        reference=functools.partial(_times, factor=factor),
        edits=(
            (
                "Return `3 * x` from one block, with two slots.",
                f"Return `{factor} * x` from one block, with {_NUMBERS[slots]} slots.",
            ),
            (
                "3 times the tile into slot `ti % 2`",
                f"{factor} times the tile into slot `ti % {slots}`",
            ),
            ("plgpu.SMEM((2, 64, x.shape[1])", f"plgpu.SMEM(({slots}, 64, x.shape[1])"),
        ),
    )


def _times(x: Array, *, factor: int) -> Array:
    return np.asarray(factor, x.dtype) * x


def _sum_and_difference(*, a: int, b: int) -> Varied:
    return Varied(
        statement=(
            f"Return {a} * x + y and x - {b} * y from one block, tile by tile: each step sends two "
            "tiles out, from s_smem[ti % 2] and d_smem[ti % 2], as one group. Wait as in `triple`. "
            "The loop's head, and what is read from GMEM, is given."
        ),
        reference=functools.partial(_sum_and_difference_reference, a=a, b=b),
        edits=(("Return `x + y` and `x - y`.", f"Return `{a} * x + y` and `x - {b} * y`."),),
        atol=_ATOL,
    )


def _sum_and_difference_reference(x: Array, y: Array, *, a: int, b: int) -> tuple[Array, Array]:
    return np.asarray(a, x.dtype) * x + y, x - np.asarray(b, x.dtype) * y


def _difference(*, above: int, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Return y[i] = x[i] - {factor} * x[i - {above}], where rows above the first count as "
            "zeros, for a matrix of any number of rows. Each block copies two tiles of 64 rows "
            "into "
            f"SMEM, one of which begins {above} rows earlier; what lies outside of x arrives as "
            "zeros. Send the result out with the copy engine, which leaves out what would lie "
            "outside of y."
        ),
        reference=functools.partial(_difference_reference, above=above, factor=factor),
        edits=(
            (
                "return `y[i] = x[i] - x[i - 1]`, and `y[0] = x[0]`, for any number of rows.",
                f"return `y[i] = x[i] - {factor} * x[i - {above}]`, where rows above the first "
                "count "
                "as zeros, for any number of rows.",
            ),
            (
                "rows that begin one row earlier: row -1 for the first block.",
                f"rows that begin {above} rows earlier: from row -{above} on for the first block.",
            ),
        ),
        atol=_ATOL,
    )


def _difference_reference(x: Array, *, above: int, factor: int) -> Array:
    padded = np.concatenate([np.zeros((above, x.shape[1]), x.dtype), x])
    return x - np.asarray(factor, x.dtype) * padded[: x.shape[0]]


def _gather_rows(*, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Return {factor} * x[indices]: row i of the result is {factor} times row indices[i] "
            "of "
            "x. Each block takes 64 of the indices, gathers their rows into rows_smem with one "
            "copy, "
            "multiplies them there, and sends them to y_gmem with the copy engine."
        ),
        reference=functools.partial(_gather_rows_reference, factor=factor),
        edits=(
            (
                "`part` of the result.",
                f"`part` of the result. Multiply the rows by {factor} while they are in "
                "`rows_smem`.",
            ),
        ),
    )


def _gather_rows_reference(x: Array, indices: Array, *, factor: int) -> Array:
    return np.asarray(factor, x.dtype) * x[indices]


def _ring_copy(*, shift: int) -> Varied:
    return Varied(
        statement=(
            f"Move the tiles of x through a ring of `stages` slots: tile t of x becomes tile (t + "
            f"{shift}) % tiles of y, where `tiles` is how many there are. Two blocks share the "
            "tiles; place(step), load(step) and steps are given. Keep `ahead` loads under way, and "
            "let `unread` copies out still be reading when you refill a slot. x may have so few "
            "rows that a block has fewer steps than `ahead`."
        ),
        reference=functools.partial(_ring_copy_reference, shift=shift),
        edits=(
            (
                "Write it. `place`,",
                f"Write it, with one change: tile `t` of `x` becomes tile `(t + {shift}) % tiles` "
                "of "
                "`y`, where `tiles` is how many tiles of 64 rows there are. `place`,",
            ),
        ),
    )


def _ring_copy_reference(x: Array, *, shift: int, **_: int) -> Array:
    return np.roll(x, 64 * shift, axis=0)


VARIANTS = {
    "multiply_add": Variants({"a": _FACTORS, "b": _FACTORS}, _multiply_add),
    "triple": Variants({"factor": (5, 6, 7, 9, 10, 11), "slots": (3, 4)}, _triple),
    "sum_and_difference": Variants({"a": _FACTORS, "b": _FACTORS}, _sum_and_difference),
    "difference": Variants({"above": (2, 3, 5, 7), "factor": (2, 3, 4, 5)}, _difference),
    "gather_rows": Variants({"factor": _FACTORS}, _gather_rows),
    # odd: the smallest case has two tiles, which an even shift leaves where they are
    "ring_copy": Variants({"shift": (1, 3, 5)}, _ring_copy),
}
