"""Variants of the exercises of chapter 00: wider parts, other places, smaller tiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]


def _fill_iota(*, width: int, step: int) -> Varied:
    return Varied(
        statement=(
            f"Return the int32 vector 0, {step}, {2 * step}, ... of blocks * {width} multiples of "
            f"{step}, written by a kernel of `blocks` blocks: each of them writes {width} "
            "consecutive ones."
        ),
        signature=f"fill_iota(*, blocks) -> int32[blocks * {width}]",
        reference=functools.partial(_fill_iota_reference, width=width, step=step),
        edits=(
            (
                "Write the numbers 0, 1, 2, ... with a grid: block 0 writes 0 to 127, block 1 "
                "writes 128 to 255, and so on.",
                f"Write the multiples of {step}, 0, {step}, {2 * step}, ..., with a grid: block 0 "
                f"writes the first {width} of them, up to {step * (width - 1)}, block 1 the next "
                f"{width}, and so on.",
            ),
            ("`jnp.arange(128)`", f"`jnp.arange({width})`"),
            ("0 to 127 in registers", f"0 to {width - 1} in registers"),
            ("(blocks * 128,)", f"(blocks * {width},)"),
        ),
    )


def _fill_iota_reference(*, blocks: int, width: int, step: int) -> Array:
    return step * np.arange(blocks * width, dtype=np.int32)


def _reverse_rows(*, shift: int) -> Varied:
    return Varied(
        statement=(
            f"Return the rows of x in reverse order and moved on by {shift}: row i of x becomes "
            f"row (rows - 1 - i + {shift}) % rows of the result. A kernel with one block per row "
            "copies them, from GMEM to registers and back."
        ),
        reference=functools.partial(_reverse_rows_reference, shift=shift),
        edits=(
            (
                "Return it upside down: row 0 becomes the last row.",
                f"Return it upside down and moved on by {shift}: row `i` becomes row `(rows - 1 - "
                f"i + {shift}) % rows`. In a kernel write `jax.lax.rem(a, b)` for `a % b`.",
            ),
        ),
    )


def _reverse_rows_reference(x: Array, *, shift: int) -> Array:
    return np.roll(x[::-1], shift, axis=0)


def _shift_tiles(*, rows: int, down: int) -> Varied:
    tiles = f"{down} tile{'s' if down > 1 else ''}"
    return Varied(
        statement=(
            f"Return x with every tile of {rows} x 128 elements moved {tiles} down; the tiles that "
            "leave at the bottom come in at the top. A kernel with one block per tile copies them."
        ),
        reference=functools.partial(_shift_tiles_reference, by=rows * down),
        edits=(
            (
                "every tile of 64 x 128 moved one tile to the right; the last column of tiles "
                "comes first.",
                f"every tile of {rows} x 128 moved {tiles} down; the tiles that leave at the "
                "bottom come in at the top.",
            ),
            ("With tiles A\nto F:", "With tiles A\nto H:"),
            (
                "before   A B C      after   C A B\n         D E F              F D E",
                _before_and_after(down),
            ),
        ),
    )


def _before_and_after(down: int) -> str:
    """A picture in text of tiles A to H, in four rows, that move down."""
    before = ("A B", "C D", "E F", "G H")
    after = np.roll(before, down)
    margins = [("before   ", "      after   "), *[(" " * 9, " " * 14)] * 3]
    return "\n".join(
        f"{left}{b}{middle}{a}" for (left, middle), b, a in zip(margins, before, after, strict=True)
    )


def _shift_tiles_reference(x: Array, *, by: int) -> Array:
    return np.roll(x, by, axis=0)


def _double_through_smem(*, factor: int, shift: int) -> Varied:
    return Varied(
        statement=(
            "Take x as parts of 128 elements, one for each block. Part number b of the result is "
            f"{factor} times part number (b + {shift}) % blocks of x. Block b lets the copy engine "
            "bring that part into x_smem, waits for the copy, and writes part b."
        ),
        reference=functools.partial(_double_through_smem_reference, factor=factor, shift=shift),
        edits=(
            (
                "return `2 * x`, with the copy engine bringing each block's 128 elements into "
                "`x_smem`.",
                "take `x` as parts of 128 elements, one for each block. Part number `b` of the "
                f"result is {factor} times part number `(b + {shift}) % blocks` of `x`, where "
                "`blocks` is how many there are. Block `b` lets the copy engine bring that part "
                "into `x_smem`, and writes part `b`.",
            ),
        ),
    )


def _double_through_smem_reference(x: Array, *, factor: int, shift: int) -> Array:
    return np.asarray(factor, x.dtype) * np.roll(x, -128 * shift)


VARIANTS = {
    "fill_iota": Variants({"width": (256, 384, 512), "step": (2, 3, 4, 5, 6, 7)}, _fill_iota),
    "reverse_rows": Variants({"shift": (1, 2, 3, 5, 6)}, _reverse_rows),
    "shift_tiles": Variants({"rows": (16, 32), "down": (1, 2, 3)}, _shift_tiles),
    "double_through_smem": Variants(
        {"factor": (3, 4, 5, 6, 7, 9), "shift": (1, 2, 3)}, _double_through_smem
    ),
}
