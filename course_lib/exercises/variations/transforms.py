"""Variants of the exercises of chapter 03: other tiles, another buffer, other rules."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import transforms as kernels
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import Tiling

Array = np.ndarray[Any, Any]


def _cases(*specs: tuple[tuple[int, ...], str]) -> tuple[Case, ...]:
    return tuple(Case((Spec(shape, dtype),)) for shape, dtype in specs)


def _tiled_by_hand(*, rows: int, columns: int) -> Varied:
    return Varied(
        statement=(
            "Fill tiles_smem, which has an axis for a tile's row of tiles, one for its column of "
            f"tiles, and two for the elements in the tile: one copy per tile of {rows} x {columns}."
            f" Then send the whole buffer to y_gmem. That is the order in which "
            f"TilingTransform(({rows}, {columns})) stores x."
        ),
        signature=(
            f"tiled_by_hand(x: float[m, n]) -> float[m // {rows}, n // {columns}, {rows}, "
            f"{columns}]"
        ),
        reference=functools.partial(kernels.tiled_reference, tile=(rows, columns)),
        cases=_cases(
            ((2 * rows, 2 * columns), "bfloat16"),
            ((rows, 3 * columns), "float16"),
            ((4 * rows, columns), "float32"),
        ),
        edits=(
            ("tile `(mi, ni)`: 8 x 64 elements", f"tile `(mi, ni)`: {rows} x {columns} elements"),
            ("(m // 8, n // 64, 8, 64)", f"(m // {rows}, n // {columns}, {rows}, {columns})"),
        ),
    )


def _addresses(*, columns: int, base: int) -> Varied:
    return Varied(
        statement=(
            f"A buffer of 64 x {columns} bfloat16 has TilingTransform((8, swizzle // 2)) and "
            f"SwizzleTransform(swizzle), and begins at byte {base} of SMEM. Compute the byte "
            "address in SMEM of element (r, c), for whole vectors of r and c."
        ),
        signature=(
            "addresses(row: uint32[n], column: uint32[n], *, swizzle: int) -> uint32[n], "
            f"row modulo 64 and column modulo {columns}"
        ),
        reference=functools.partial(_addresses_reference, columns=columns, base=base),
        edits=(
            (
                "A buffer of 64 x 128 bfloat16 is tiled",
                f"A buffer of 64 x {columns} bfloat16, which begins at byte {base} of SMEM, is "
                "tiled",
            ),
            (
                "At which byte, counted from the start of the buffer, does",
                "At which byte of SMEM does",
            ),
            ("column_gmem[...] % 128", f"column_gmem[...] % {columns}"),
        ),
    )


def _addresses_reference(
    row: Array, column: Array, *, swizzle: int, columns: int, base: int
) -> Array:
    """The byte address in SMEM, by the course's layout model; `base` is a multiple of 1024."""
    tiles = Tiling(((8, swizzle // 2),))
    ref = SmemRef(shape=(64, columns), bits=16, tiling=tiles, swizzle=swizzle)
    index = np.stack([row % 64, column % columns], axis=-1).astype(np.int64)
    return (base + ref.byte_offset(index)).astype(row.dtype)


def _chosen(*, rows: int, widest: int) -> Varied:
    return Varied(
        statement=(
            "Write mma_transforms(shape, dtype): the pair of TilingTransform((8, columns)) and "
            "SwizzleTransform(swizzle), with the widest swizzle that divides the bytes of a row, "
            f"but none of more than {widest} bytes, and as many columns as it has room for. If the "
            f"number of rows is no multiple of {rows}, raise a ValueError. The kernel around it "
            "moves x through a buffer with these transforms, and writes down what they are, and "
            "whether a matrix with eight rows fewer was refused."
        ),
        reference=functools.partial(_chosen_reference, rows=rows, widest=widest),
        cases=_cases(
            ((2 * rows, 128), "bfloat16"),
            ((rows, 96), "float16"),
            ((rows, 24), "float32"),
            ((rows, 96), "int8"),
            ((2 * rows, 32), "float32"),
        ),
        edits=(
            (
                "`(TilingTransform, SwizzleTransform)`. If",
                "`(TilingTransform, SwizzleTransform)`, with the widest swizzle that fits, but "
                "none "
                f"of more than {widest} bytes. If",
            ),
            ("rows is no multiple of 8,", f"rows is no multiple of {rows},"),
            ("a matrix with four rows fewer, and", "a matrix with eight rows fewer, and"),
            ("where a matrix with four rows fewer has", "where a matrix with eight rows fewer has"),
            ("(x.shape[0] - 4, x.shape[1])", "(x.shape[0] - 8, x.shape[1])"),
        ),
    )


def _chosen_reference(x: Array, *, rows: int, widest: int) -> tuple[Array, Array]:
    row_bytes = x.shape[1] * x.dtype.itemsize
    swizzle = next(s for s in (128, 64, 32) if s <= widest and row_bytes % s == 0)
    refused = int((x.shape[0] - 8) % rows > 0)
    numbers = (8, swizzle // x.dtype.itemsize, swizzle, refused)
    return x.copy(), np.asarray(numbers, np.int32)


def _swap_axes(*, skip: int) -> Varied:
    return Varied(
        statement=(
            f"Leave out the first {skip} tokens of x and return the rest with its first two axes "
            f"swapped: y[h, m] is x[m + {skip}, h]. One block brings that part of x into x_smem "
            "and "
            "sends it out again; one of the two copies goes through a transposed ref, so that no "
            "lane touches the data."
        ),
        signature=f"swap_axes(x: float[m, heads, n]) -> float[heads, m - {skip}, n]",
        reference=functools.partial(_swap_axes_reference, skip=skip),
        edits=(
            (
                "Return `x` with its first two axes swapped, and",
                f"Leave out the first {skip} tokens, return the rest of `x` with its first two "
                "axes "
                "swapped, and",
            ),
            ("ShapeDtypeStruct((heads, m, n)", f"ShapeDtypeStruct((heads, m - {skip}, n)"),
            ("plgpu.SMEM(x.shape, x.dtype)", f"plgpu.SMEM((m - {skip}, heads, n), x.dtype)"),
        ),
    )


def _swap_axes_reference(x: Array, *, skip: int) -> Array:
    return x[skip:].transpose(1, 0, 2)


def _transposed(*, factor: int) -> Varied:
    return Varied(
        statement=(
            f"Return {factor} * x.T. Block (mi, ni) takes the 64 x 64 at that place: a copy into "
            "x_smem, a load in plgpu.Layout.WGMMA, the multiplication, a layout_cast to "
            "WGMMA_TRANSPOSED (float32 cannot do without it), a store into the transposed y_smem, "
            "and a copy out to the mirrored place."
        ),
        reference=functools.partial(_transposed_reference, factor=factor),
        edits=(
            ("Return `x.T`.", f"Return `{factor} * x.T`."),
            ("load in WGMMA's layout, cast,", "load in WGMMA's layout, multiply, cast,"),
        ),
    )


def _transposed_reference(x: Array, *, factor: int) -> Array:
    return np.asarray(factor, x.dtype) * x.T


VARIANTS = {
    "tiled_by_hand": Variants({"rows": (4, 16, 32), "columns": (32, 128)}, _tiled_by_hand),
    "addresses": Variants(
        {"columns": (192, 256, 320), "base": tuple(1024 * n for n in range(1, 10))}, _addresses
    ),
    "chosen": Variants({"rows": (16, 32, 64), "widest": (64, 128)}, _chosen),
    "swap_axes": Variants({"skip": (2, 3, 4, 5, 6)}, _swap_axes),
    "transposed": Variants({"factor": (-9, -7, -5, -3, 3, 5, 6, 7, 9)}, _transposed),
}
