"""The kernels of chapter 03, each beside its NumPy reference.

All of them bring a matrix into SMEM with the copy engine (TMA). They differ in how
it lies there: row by row, in tiles, in tiles with a swizzle, or with two axes changed.
A `Config` names the transforms; without one, layout inference chooses them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

TILE_ROWS = 8
"""Rows of a swizzle atom (PTX ISA, "Shared Memory Layout" of wgmma and of tensor maps)."""

SWIZZLES = (128, 64, 32)
"""The widths, in bytes, that a swizzle can have (`plgpu.SwizzleTransform`)."""

ROWS, COLUMNS = 64, 128
"""The matrix of bfloat16 whose addresses `addresses` computes."""

BLOCK = 64
"""Rows and columns of the blocks that `transposed` and `product` work on."""


@dataclasses.dataclass(frozen=True)
class Config:
    """How a buffer in SMEM is laid out.

    Attributes:
      tile: rows and columns of the TilingTransform, in elements; None for none.
      swizzle: width of the SwizzleTransform in bytes (128, 64 or 32); None for none.
    """

    tile: tuple[int, int] | None = None
    swizzle: int | None = None

    @property
    def transforms(self) -> tuple[Any, ...]:
        """What `plgpu.SMEM` takes as `transforms=`; empty where layout inference is to choose."""
        tiling = () if self.tile is None else (_tiling(self.tile),)
        swizzle = () if self.swizzle is None else (_swizzle(self.swizzle),)
        return (*tiling, *swizzle)


AUTOMATIC = Config()

# JAX's transforms lack a method that its types ask for
_tiling: Any = plgpu.TilingTransform
_swizzle: Any = plgpu.SwizzleTransform


def mma_transforms(shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    """The transforms that an operand of a matrix product needs: the widest swizzle that fits.

    Args:
      shape: of the operand's buffer, two axes.
      dtype: of its elements.

    Returns:
      a TilingTransform of 8 rows by as many elements as the swizzle has bytes for, and the
      SwizzleTransform (reference page, "Memory space of A and B operands").

    Raises:
      ValueError: the rows are no multiple of 8, or the width of a row is no multiple of 32 bytes.
    """
    if len(shape) != 2 or shape[0] % TILE_ROWS:
        raise ValueError(f"{shape=} must have two axes, the first a multiple of {TILE_ROWS}")
    itemsize = jnp.dtype(dtype).itemsize
    swizzle = plgpu.find_swizzle(shape[1] * itemsize * 8)
    if swizzle not in SWIZZLES:
        raise ValueError(f"rows of {shape[1] * itemsize} bytes must be a multiple of 32 bytes")
    tile = (TILE_ROWS, swizzle // itemsize)
    return _tiling(tile), _swizzle(swizzle)


def tiled_by_hand(x: jax.Array, *, tile: tuple[int, int] = (8, 64)) -> jax.Array:
    """What a TilingTransform puts into memory: (m, n) -> (m // 8, n // 64, 8, 64).

    One block. A buffer with an axis for each number of a tile's place, and one copy per tile.

    Raises:
      ValueError: tiles do not divide the matrix.
    """
    (m, n), (rows, columns) = x.shape, tile
    if m % rows or n % columns:
        raise ValueError(f"{x.shape=} must be a multiple of {tile=}")
    tiles = (m // rows, n // columns, rows, columns)

    def body(x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any) -> None:
        @pl.loop(0, tiles[0] * tiles[1])
        def _tile(i: jax.Array) -> None:
            mi, ni = i // tiles[1], i % tiles[1]
            part_gmem = x_gmem.at[pl.ds(mi * rows, rows), pl.ds(ni * columns, columns)]
            plgpu.copy_gmem_to_smem(part_gmem, tiles_smem.at[mi, ni], loaded)
            plgpu.barrier_wait(loaded)

        plgpu.copy_smem_to_gmem(tiles_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(tiles_smem=plgpu.SMEM(tiles, x.dtype), loaded=plgpu.Barrier())
    kernel = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct(tiles, x.dtype), scratch_types=scratch
    )
    return kernel(x)


def tiled_reference(x: Array, *, tile: tuple[int, int] = (8, 64)) -> Array:
    """`tiled_by_hand` in NumPy: a reshape and a transpose."""
    (m, n), (rows, columns) = x.shape, tile
    return x.reshape(m // rows, rows, n // columns, columns).transpose(0, 2, 1, 3)


def through_smem(x: jax.Array, *, config: Config = AUTOMATIC) -> jax.Array:
    """x, through one SMEM buffer and back. One block; whatever the transforms, the same x."""

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype, transforms=config.transforms), loaded=plgpu.Barrier()
    )
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def through_smem_reference(x: Array) -> Array:
    """`through_smem` in NumPy."""
    return x.copy()


def doubled(x: jax.Array, *, config: Config = AUTOMATIC) -> jax.Array:
    """2 * x for x of shape (64 * i, 8 * j), loaded from SMEM and stored there in WGMMA's layout.

    One block. Each access of SMEM is one of those that make bank conflicts without a swizzle.
    """

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_smem[...] = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA) * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(y_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    buffer = plgpu.SMEM(x.shape, x.dtype, transforms=config.transforms)
    scratch: dict[str, Any] = dict(x_smem=buffer, y_smem=buffer, loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def doubled_reference(x: Array) -> Array:
    """`doubled` in NumPy."""
    return x * np.asarray(2, x.dtype)


def loads(x: jax.Array, *, times: int, config: Config = AUTOMATIC) -> jax.Array:
    """times * x: loads x from SMEM in WGMMA's layout `times` times, whatever the conflicts cost.

    One block, to be timed. `optimized=False` allows loads with bank conflicts.
    """

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)

        def step(_: jax.Array, total: jax.Array) -> jax.Array:
            # a fence, else the compiler would load once and for all
            plgpu.commit_smem()
            return total + plgpu.load(x_smem, layout=plgpu.Layout.WGMMA, optimized=False)

        zeros = plgpu.layout_cast(jnp.zeros(x.shape, x.dtype), plgpu.Layout.WGMMA)
        y_smem[...] = jax.lax.fori_loop(0, times, step, zeros)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(y_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype, transforms=config.transforms),
        y_smem=plgpu.SMEM(x.shape, x.dtype),
        loaded=plgpu.Barrier(),
    )
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def loads_reference(x: Array, *, times: int) -> Array:
    """`loads` in NumPy: exact where `times` is a small power of two."""
    return x * np.asarray(times, x.dtype)


def addresses(row: jax.Array, column: jax.Array, *, swizzle: int) -> jax.Array:
    """The byte address of elements of a tiled and swizzled buffer, from its start.

    Args:
      row, column: uint32 vectors of one length; taken modulo `ROWS` and `COLUMNS`.
      swizzle: 128, 64 or 32 bytes. The buffer is bfloat16, in tiles of (8, swizzle // 2).
    """
    width = swizzle // 2  # elements: two bytes each

    def body(row_gmem: Any, column_gmem: Any, address_gmem: Any) -> None:
        r, c = row_gmem[...] % ROWS, column_gmem[...] % COLUMNS
        tile = r // TILE_ROWS * (COLUMNS // width) + c // width
        in_tile = r % TILE_ROWS * width + c % width
        address = 2 * (tile * TILE_ROWS * width + in_tile)
        address_gmem[...] = address ^ (((address >> 7) & (swizzle // 16 - 1)) << 4)

    return plgpu.kernel(body, out_type=row)(row, column)


def addresses_reference(row: Array, column: Array, *, swizzle: int) -> Array:
    """`addresses` by the course's layout model, which knows nothing of this module."""
    from course_lib.layouts.smem import SmemRef
    from course_lib.layouts.tiling import Tiling

    tiles = Tiling(((TILE_ROWS, swizzle // 2),))
    ref = SmemRef(shape=(ROWS, COLUMNS), bits=16, tiling=tiles, swizzle=swizzle)
    index = np.stack([row % ROWS, column % COLUMNS], axis=-1).astype(np.int64)
    return ref.byte_offset(index).astype(row.dtype)


def chosen(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x through SMEM with `mma_transforms`, and what those are: tile rows, columns, swizzle.

    The fourth number is 1 if a matrix with four rows fewer is refused, else 0.
    """
    tiling, swizzle = mma_transforms(x.shape, x.dtype)
    refused = 0
    try:
        mma_transforms((x.shape[0] - 4, x.shape[1]), x.dtype)
    except ValueError:
        refused = 1

    def body(x_gmem: Any, y_gmem: Any, chosen_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        for i, number in enumerate((*tiling.tiling, swizzle.swizzle, refused)):
            chosen_gmem[i] = number
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype, transforms=(tiling, swizzle)), loaded=plgpu.Barrier()
    )
    out_type = (x, jax.ShapeDtypeStruct((4,), jnp.int32))
    kernel = plgpu.kernel(body, out_type=out_type, scratch_types=scratch)
    copy, numbers = kernel(x)
    return copy, numbers


def chosen_reference(x: Array) -> tuple[Array, Array]:
    """`chosen` in NumPy: the widest swizzle whose bytes divide a row's, and the refusal."""
    swizzle = next(s for s in SWIZZLES if x.shape[1] * x.dtype.itemsize % s == 0)
    refused = int((x.shape[0] - 4) % TILE_ROWS > 0)
    numbers = (TILE_ROWS, swizzle // x.dtype.itemsize, swizzle, refused)
    return x.copy(), np.asarray(numbers, np.int32)


def window(x: jax.Array, *, first: int, rows: int = 64, config: Config = AUTOMATIC) -> jax.Array:
    """`rows` rows of x from row `first` on, through SMEM. One block.

    With a tile in `config`, `first` has to be a multiple of the tile's rows. Left to layout
    inference, the tile is made to fit `first`.
    """
    shape = (rows, x.shape[1])

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(first, rows)], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_smem[...] = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(y_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(shape, x.dtype, transforms=config.transforms),
        y_smem=plgpu.SMEM(shape, x.dtype),
        loaded=plgpu.Barrier(),
    )
    out_type = jax.ShapeDtypeStruct(shape, x.dtype)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)


def window_reference(x: Array, *, first: int, rows: int = 64) -> Array:
    """`window` in NumPy."""
    return x[first : first + rows].copy()


def swap_axes(x: jax.Array) -> jax.Array:
    """(m, heads, n) -> (heads, m, n): the copy out goes through a transposed ref. One block."""
    m, heads, n = x.shape

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem.transpose((1, 0, 2)), y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(x_smem=plgpu.SMEM(x.shape, x.dtype), loaded=plgpu.Barrier())
    out_type = jax.ShapeDtypeStruct((heads, m, n), x.dtype)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)


def swap_axes_reference(x: Array) -> Array:
    """`swap_axes` in NumPy."""
    return x.transpose(1, 0, 2)


def transposed(x: jax.Array) -> jax.Array:
    """x.T for x of shape (64 * i, 64 * j), a block per 64 x 64; free of bank conflicts.

    The copy engine cannot change which axis comes last, so lanes do: they load in WGMMA's
    layout and store through a transposed ref in WGMMA_TRANSPOSED. Layout inference gives
    both buffers tiles and a swizzle.

    Raises:
      ValueError: `x` is no multiple of 64 x 64.
    """
    m, n = x.shape
    if m % BLOCK or n % BLOCK:
        raise ValueError(f"{x.shape=} must be a multiple of {BLOCK} x {BLOCK}")

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("mi") * BLOCK, BLOCK)
        columns = pl.ds(jax.lax.axis_index("ni") * BLOCK, BLOCK)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows, columns], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        block = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA)
        block = plgpu.layout_cast(block, plgpu.Layout.WGMMA_TRANSPOSED)
        y_smem.transpose((1, 0))[...] = block
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[columns, rows])
        plgpu.wait_smem_to_gmem(0)

    buffer = plgpu.SMEM((BLOCK, BLOCK), x.dtype)
    scratch: dict[str, Any] = dict(x_smem=buffer, y_smem=buffer, loaded=plgpu.Barrier())
    launch: dict[str, Any] = dict(grid=(m // BLOCK, n // BLOCK), grid_names=("mi", "ni"))
    out_type = jax.ShapeDtypeStruct((n, m), x.dtype)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch, **launch)(x)


def transposed_reference(x: Array) -> Array:
    """`transposed` in NumPy."""
    return x.T.copy()


def product(
    a: jax.Array, b: jax.Array, *, config: Config = AUTOMATIC, transpose_a: bool = False
) -> jax.Array:
    """a @ b in float32 for (64, k) and (k, n) of 16 bits: one wgmma of one block.

    Needs Hopper. `config` has the transforms of both operands.

    Args:
      a: (64, k), or (k, 64) with `transpose_a`: then the TensorCore reads it transposed.
      b: (k, n).
      config: the transforms of both operands.
      transpose_a: whether to multiply a.T.
    """
    m = a.shape[1] if transpose_a else a.shape[0]
    out_type = jax.ShapeDtypeStruct((m, b.shape[1]), jnp.float32)

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem.transpose((1, 0)) if transpose_a else a_smem, b_smem)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(out_type.shape, out_type.dtype))

    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype, transforms=config.transforms),
        b_smem=plgpu.SMEM(b.shape, b.dtype, transforms=config.transforms),
        loaded=plgpu.Barrier(num_arrivals=2),
    )
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(a, b)


def product_reference(a: Array, b: Array, *, transpose_a: bool = False) -> Array:
    """`product` in NumPy, added up in float64."""
    left = a.T if transpose_a else a
    return (left.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
