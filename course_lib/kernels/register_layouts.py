"""The kernels of chapter 04: who holds what, reductions, and ways from one layout to another.

A value of a kernel lies in the registers of a Pallas thread's 128 lanes, and its
layout says which lane holds which element. All kernels but `add_one` and
`fill_like` name a layout. They use no TensorCore: a layout called WGMMA says where elements
lie, and does not need the instruction that it is named after.

Loads from GMEM in a tiled layout say `optimized=False`: JAX 0.11 asks for that
whatever the dtype, JAX 0.12 where a warp does not read whole sectors of 32 bytes.

Only `softmax_rows`, `row_argmax` and `rms_norm` have more than one block.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from course_lib.layouts import registers

Array = np.ndarray[Any, Any]

TILE_M = 64
"""Rows that WGMMA's layout deals out at a time: 16 to each of the four warps."""

EPSILON = 1e-6
"""What `rms_norm` adds to the mean of squares, so that a row of zeros stays finite."""


def registers_per_lane(layout: str, shape: tuple[int, ...], bits: int) -> int:
    """32-bit registers that each lane needs for a value of `shape` in a named layout.

    Unlike bytes / 128 lanes / 4 bytes it counts what several lanes hold alike.

    Args:
      layout: a name of `course_lib.layouts.registers.CATALOG` ("WGMMA_ROW").
      shape: of the value.
      bits: of an element.

    Raises:
      CourseError: the layout does not cover the shape.
    """
    held = registers.named(layout, shape, bits).elements(shape)
    return math.ceil(held.shape[1] * held.shape[2] * bits / 32)


def _check_rows(x: jax.Array, *, multiple: int = TILE_M) -> None:
    if len(x.shape) != 2 or x.shape[0] % multiple:
        raise ValueError(f"{x.shape=} must have two axes, and a multiple of {multiple} rows")


# ---- who holds what ----


def lane_numbers(*, m: int, n: int) -> jax.Array:
    """int32[m, n]: which of the 128 lanes holds each element in WGMMA's layout. One block.

    PTX ISA, wgmma, "Register Fragments": the accumulator D of m64nNk16.

    Raises:
      ValueError: m is no multiple of 64, or n none of 8.
    """
    if m % TILE_M or n % 8:
        raise ValueError(f"{m=} must be a multiple of {TILE_M}, and {n=} one of 8")

    @functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((m, n), jnp.int32))
    def kernel(lane_gmem: Any) -> None:
        wgmma = plgpu.Layout.WGMMA
        row = plgpu.broadcasted_iota(jnp.int32, (m, n), 0, layout=wgmma)
        column = plgpu.broadcasted_iota(jnp.int32, (m, n), 1, layout=wgmma)
        warp = row % 64 // 16
        lane_gmem[...] = warp * 32 + row % 8 * 4 + column % 8 // 2

    return kernel()


def lane_numbers_reference(*, m: int, n: int) -> Array:
    """`lane_numbers` by the layout's own definition."""
    holders = registers.named("WGMMA", (m, n)).holders((m, n))
    return holders[:, 0, 0].reshape(m, n).astype(np.int32)


def add_one(x: jax.Array) -> jax.Array:
    """x + 1 in one block, without a word about layouts."""

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = x_gmem[...] + 1

    return kernel(x)


def fill_like(x: jax.Array) -> jax.Array:
    """An array like x, full of threes: a value in WG_SPLAT's layout. One block, x is not read."""

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(_x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = jnp.full(x.shape, 3.0, x.dtype)

    return kernel(x)


def add_mixed(a: jax.Array, b: jax.Array) -> jax.Array:
    """a + b for two matrices, of which only the second is loaded with a layout. One block."""

    @functools.partial(plgpu.kernel, out_type=a)
    def kernel(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
        a = plgpu.load(a_gmem, optimized=False)
        b = plgpu.load(b_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        y_gmem[...] = a + b

    return kernel(a, b)


# ---- reductions ----


def subtract_row_max(x: jax.Array) -> jax.Array:
    """x minus the largest element of its row, for float32[m, n], m a multiple of 64. One block.

    Raises:
      ValueError: `x` is not a matrix of such a shape.
    """
    _check_rows(x)

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        x = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        largest = jnp.max(x, axis=1)
        y_gmem[...] = x - largest[:, None]

    return kernel(x)


def subtract_column_max(x: jax.Array) -> jax.Array:
    """x minus the largest element of its column, as `subtract_row_max`. One block.

    Raises:
      ValueError: `x` is not a matrix with a multiple of 64 rows.
    """
    _check_rows(x)

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        x = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        largest = jnp.max(x, axis=0)
        y_gmem[...] = x - largest[None, :]

    return kernel(x)


def softmax_rows(x: jax.Array) -> jax.Array:
    """softmax over each row of x, (tiles * 64, n): GMEM -> SMEM -> registers -> SMEM -> GMEM.

    One block per 64 rows; computes in float32 whatever the dtype of `x`.

    Raises:
      ValueError: `x` is not a matrix with a multiple of 64 rows.
    """
    _check_rows(x)

    def kernel(x_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * TILE_M, TILE_M)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)
        plgpu.barrier_wait(loaded)
        x = plgpu.load(buffer_smem, layout=plgpu.Layout.WGMMA).astype(jnp.float32)
        largest = jnp.max(x, axis=1)
        e = jnp.exp(x - largest[:, None])
        total = jnp.sum(e, axis=1)
        buffer_smem[...] = (e / total[:, None]).astype(buffer_smem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    return _over_tiles(kernel, x)(x)


def softmax_rows_reference(x: Array) -> Array:
    """`softmax_rows` in NumPy, in float64."""
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).astype(x.dtype)


def row_argmax(x: jax.Array) -> jax.Array:
    """int32[tiles * 64]: in which column each row of x has its largest element, the first one.

    One block per 64 rows of x, which is (tiles * 64, n). Mosaic GPU cannot lower
    jnp.argmax: the columns that hold the maximum keep their number, and the least of
    the numbers is the result.

    Raises:
      ValueError: `x` is not a matrix with a multiple of 64 rows.
    """
    _check_rows(x)
    m, n = x.shape

    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * TILE_M, TILE_M)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        x = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA)
        column = plgpu.broadcasted_iota(jnp.int32, (TILE_M, n), 1, layout=plgpu.Layout.WGMMA)
        largest = jnp.max(x, axis=1)
        candidates = jnp.where(x == largest[:, None], column, n)
        y_gmem[rows] = jnp.min(candidates, axis=1)

    out_type = jax.ShapeDtypeStruct((m,), jnp.int32)
    return _over_tiles(kernel, x, out_type=out_type, buffer="x_smem")(x)


def row_argmax_reference(x: Array) -> Array:
    """`row_argmax` in NumPy."""
    return x.astype(np.float64).argmax(1).astype(np.int32)


def rms_norm(x: jax.Array, w: jax.Array) -> jax.Array:
    """x / sqrt(mean of the row's squares) * w, for x of (tiles * 64, n) and w of (n,).

    One block per 64 rows. A value per row and a value per column meet in one product.

    Raises:
      ValueError: `x` is not a matrix with a multiple of 64 rows, or `w` has another width.
    """
    _check_rows(x)
    if w.shape != x.shape[1:]:
        raise ValueError(f"{w.shape=} must be the columns of {x.shape=}")

    def kernel(x_gmem: Any, w_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * TILE_M, TILE_M)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)
        plgpu.barrier_wait(loaded)
        x = plgpu.load(buffer_smem, layout=plgpu.Layout.WGMMA)
        w = plgpu.load(w_gmem, layout=plgpu.Layout.WGMMA.reduce(0), optimized=False)
        scale = jax.lax.rsqrt(jnp.mean(x * x, axis=1) + EPSILON)
        buffer_smem[...] = x * scale[:, None] * w[None, :]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    return _over_tiles(kernel, x)(x, w)


def rms_norm_reference(x: Array, w: Array) -> Array:
    """`rms_norm` in NumPy, in float64."""
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + EPSILON)
    return (wide * scale * w).astype(x.dtype)


def _over_tiles(
    kernel: Any, x: jax.Array, *, out_type: Any = None, buffer: str = "buffer_smem"
) -> Any:
    """`kernel` on one block per 64 rows of `x`, with SMEM for them and a barrier."""
    return plgpu.kernel(
        kernel,
        out_type=out_type or jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // TILE_M,),
        grid_names=("tile",),
        scratch_types={
            buffer: plgpu.SMEM((TILE_M, x.shape[1]), x.dtype),
            "loaded": plgpu.Barrier(),
        },
    )


# ---- from one layout to another ----


def change_layout(x: jax.Array) -> jax.Array:
    """x minus the largest element of its row: loaded as WG_STRIDED, reduced as WGMMA. One block.

    The way between the two layouts is SMEM, row-major: what suits WG_STRIDED there
    does not suit WGMMA, so the load has to be told that it may be slow.

    Raises:
      ValueError: `x` is not a matrix with a multiple of 64 rows.
    """
    _check_rows(x)
    strided = plgpu.Layout.WG_STRIDED(x.shape, vec_size=2)
    scratch = {"x_smem": plgpu.SMEM(x.shape, x.dtype)}

    @functools.partial(plgpu.kernel, out_type=x, scratch_types=scratch)
    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any) -> None:
        x_smem[...] = plgpu.load(x_gmem, layout=strided)
        x = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA, optimized=False)
        y_gmem[...] = x - jnp.max(x, axis=1)[:, None]

    return kernel(x)


def subtract_row_max_reference(x: Array) -> Array:
    """`subtract_row_max` and `change_layout` in NumPy."""
    return x - x.max(1, keepdims=True)


def subtract_column_max_reference(x: Array) -> Array:
    """`subtract_column_max` in NumPy."""
    return x - x.max(0, keepdims=True)


def rows_plus_columns(x: jax.Array) -> jax.Array:
    """The sum of row i plus the sum of column i, for float32[n, n]: float32[n]. One block.

    The row sums come out in WGMMA.reduce(1), the column sums in WGMMA.reduce(0): the
    former go through SMEM, and are loaded in the layout of the latter.

    Raises:
      ValueError: `x` is not a square matrix with a multiple of 64 rows.
    """
    _check_rows(x)
    if x.shape[0] != x.shape[1]:
        raise ValueError(f"{x.shape=} must be square")
    n = x.shape[0]
    out_type = jax.ShapeDtypeStruct((n,), x.dtype)
    scratch = {"rows_smem": plgpu.SMEM((n,), x.dtype)}

    @functools.partial(plgpu.kernel, out_type=out_type, scratch_types=scratch)
    def kernel(x_gmem: Any, y_gmem: Any, rows_smem: Any) -> None:
        x = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        rows_smem[...] = jnp.sum(x, axis=1)
        y_gmem[...] = rows_smem[...] + jnp.sum(x, axis=0)

    return kernel(x)


def rows_plus_columns_reference(x: Array) -> Array:
    """`rows_plus_columns` in NumPy, summed in float64."""
    wide = x.astype(np.float64)
    return (wide.sum(1) + wide.sum(0)).astype(x.dtype)
