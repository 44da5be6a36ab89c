"""Variants of the exercises of chapter 04: other layouts, masks, a centre, another broadcast."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case
from course_lib.exercises.variations import Variants, Varied
from course_lib.layouts import registers

Array = np.ndarray[Any, Any]

# By the number of rows of which each warp holds a quarter: the layout, how it differs from
# WGMMA, and of what the number of columns is a multiple.
_LAYOUTS = {
    64: ("WGMMA_8BIT", "a lane has four neighbouring columns of a row where WGMMA has two", 16),
    128: ("TCGEN05", "each warp has 32 rows where WGMMA has 16", 8),
}


def _lane_numbers(*, rows: int, right: int) -> Varied:
    layout, difference, unit = _LAYOUTS[rows]
    asked = f"{right} column{'s' if right > 1 else ''} further to the right"
    return Varied(
        statement=(
            "Return an m x n matrix of int32 with, for each element, the number of the lane (0 to "
            f"127) that holds its neighbour {asked} in the layout {layout}, as if the matrix went "
            f"on, from one block. The layout deals out {rows} rows at a time and is as WGMMA, but "
            f"{difference}. The kernel has every element's row and column, as two arrays in that "
            "layout."
        ),
        signature=f"lane_numbers(*, m, n) -> int32[m, n], m a multiple of {rows}, n of {unit}",
        reference=functools.partial(_lane_numbers_reference, layout=layout, right=right),
        cases=tuple(
            Case((), {"m": m * rows, "n": n * 16}) for m, n in ((1, 2), (2, 3), (3, 1), (1, 4))
        ),
        edits=(
            (
                "Write the formula as a kernel: return",
                "Which lane would a lane have to ask for a neighbour of its element? Write the "
                "formula as a kernel, for another layout: return",
            ),
            (
                "with, for each element, the lane (0 to 127) that holds it in\nWGMMA's layout.",
                "with, for each element, the lane (0 to 127) that holds its neighbour "
                f"{asked} in `{layout}`, as if the matrix went on. That layout deals out {rows} "
                f"rows at a time and is as WGMMA, but {difference}. `m` is a multiple of {rows}, "
                f"`n` of {unit}.",
            ),
            ("        wgmma = plgpu.Layout.WGMMA\n", f"        layout = plgpu.Layout.{layout}\n"),
            ("layout=wgmma", "layout=layout"),
        ),
    )


def _lane_numbers_reference(*, m: int, n: int, layout: str, right: int) -> Array:
    shape = (m, n + 16)
    holders = registers.named(layout, shape).holders(shape)
    lanes = holders[:, 0, 0].reshape(shape)[:, right : right + n]
    return np.asarray(lanes.astype(np.int32))


def _softmax_rows(*, scale: int, sink: int) -> Varied:
    return Varied(
        statement=(
            f"Return the softmax of each row of {scale} * x, with one more element, {sink}, that "
            "counts in the total and is not part of the result: exp(z - largest) / total, where z "
            f"is {scale} * x, largest the largest element of z's row, and total the row's sum of "
            f"the exps plus exp({sink} - largest). Each block has 64 rows. Load in WGMMA's layout, "
            "compute in float32, store in the dtype of x."
        ),
        reference=functools.partial(_softmax_reference, scale=scale, sink=sink),
        edits=(
            (
                "`exp(x - largest) / total`, where `largest` is the row's largest element, and "
                "`total` the\nrow's sum of the exps.",
                f"`exp(z - largest) / total`, where `z` is `{scale} * x`, `largest` the largest "
                "element of `z`'s row, and `total` the\nrow's sum of the exps plus "
                f"`exp({sink} - largest)`: as if each row had one more element, {sink}, that is "
                "not part of the result.",
            ),
        ),
    )


def _softmax_reference(x: Array, *, scale: int, sink: int) -> Array:
    z = scale * x.astype(np.float64)
    largest = z.max(1, keepdims=True)
    e = np.exp(z - largest)
    total = e.sum(1, keepdims=True) + np.exp(sink - largest)
    return np.asarray((e / total).astype(x.dtype))


def _row_argmax(*, step: int, offset: int) -> Varied:
    return Varied(
        statement=(
            "Return, for each row of x, the column of the largest of those elements whose column "
            f"leaves a remainder of {offset} when divided by {step}; of several equal ones, the "
            "last. Each block has 64 rows, in x_smem. The kernel has the column numbers too, as a "
            "matrix. jnp.argmax has no CUDA form: use jnp.max and jnp.where."
        ),
        reference=functools.partial(_row_argmax_reference, step=step, offset=offset),
        edits=(
            (
                "the *column* of its largest element.",
                "the *column* of its largest element, but look only at columns whose number "
                f"leaves a remainder of {offset} when divided by {step}.",
            ),
            (
                "If the largest element comes twice in a row, the first one counts.",
                "If the largest of these comes twice in a row, the last one counts.",
            ),
        ),
    )


def _row_argmax_reference(x: Array, *, step: int, offset: int) -> Array:
    columns = np.arange(offset, x.shape[1], step)[::-1]
    found = x.astype(np.float64)[:, columns].argmax(1)
    return np.asarray(columns[found].astype(np.int32))


def _rms_norm(*, plus: int, under: int) -> Varied:
    return Varied(
        statement=(
            f"Return c * scale * (w + {plus}): c is x minus the mean of its row, scale is one "
            f"number per row, 1 / sqrt(mean of the squares of c's row + {under}), and w has one "
            "number per column. Each block has 64 rows, in buffer_smem. Load w from GMEM in the "
            "layout that its broadcast needs."
        ),
        reference=functools.partial(_rms_norm_reference, plus=plus, under=under),
        edits=(
            (
                "The exercise is RMS norm, from language models: `x * scale * w`, where",
                "The exercise is a layer norm, from language models: "
                f"`c * scale * (w + {plus})`, where `c` is `x` minus the mean of its row,",
            ),
            (
                "`1 / sqrt(mean of the row's squares + 1e-6)`",
                f"`1 / sqrt(mean of the squares of c's row + {under})`",
            ),
        ),
    )


def _rms_norm_reference(x: Array, w: Array, *, plus: int, under: int) -> Array:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(1, keepdims=True) + under)
    return np.asarray((centred * scale * (w.astype(np.float64) + plus)).astype(x.dtype))


def _rows_plus_columns(*, factor: int, axis: int) -> Varied:
    index = "ij"[axis]
    return Varied(
        statement=(
            f"Return y with y[i, j] = {factor} * x[i, j] + s[{index}] for a square matrix, from "
            f"one block: s lies along axis {axis} of y, and s[k] is the sum of row k plus the sum "
            "of column k. Row sums and column sums have different layouts: send one of the two "
            "through the SMEM that the kernel has."
        ),
        signature="rows_plus_columns(x: float32[n, n]) -> float32[n, n], n a multiple of 64",
        reference=functools.partial(_rows_plus_columns_reference, factor=factor, axis=axis),
        edits=(
            (
                "Make it work: send one of the two vectors through `sums_smem`.",
                "Make it work, and go on: with `s[k]` for the sum of row `k` plus the sum of "
                f"column `k`, return `y[i, j] = {factor} * x[i, j] + s[{index}]`. Send one of the "
                "two vectors through `sums_smem`; which one, depends on where `s` has to lie.",
            ),
            ("ShapeDtypeStruct((n,), x.dtype)", "ShapeDtypeStruct((n, n), x.dtype)"),
        ),
    )


def _rows_plus_columns_reference(x: Array, *, factor: int, axis: int) -> Array:
    wide = x.astype(np.float64)
    s = np.expand_dims(wide.sum(1) + wide.sum(0), 1 - axis)
    return np.asarray((factor * wide + s).astype(x.dtype))


VARIANTS = {
    "lane_numbers": Variants({"rows": (64, 128), "right": (1, 2, 3, 5)}, _lane_numbers),
    "softmax_rows": Variants({"scale": (2, 3, 4), "sink": (1, 2, 3)}, _softmax_rows),
    "row_argmax": Variants({"step": (3, 4, 5, 7), "offset": (0, 1, 2)}, _row_argmax),
    "rms_norm": Variants({"plus": (1, 2, 3, 4), "under": (1, 2, 3)}, _rms_norm),
    "rows_plus_columns": Variants({"factor": (2, 3, 4, 5), "axis": (0, 1)}, _rows_plus_columns),
}
