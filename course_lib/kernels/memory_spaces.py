"""The kernels of chapter 01, each beside its NumPy reference, and the chapter's arithmetic.

The suffix of a reference names its memory space: `x_gmem`, `x_smem`. A value
without a suffix (`x`) is a JAX array, hence in registers. Except for the two
`shift_*` kernels all of them move data with the copy engine (TMA); only
`through_all_spaces` needs Blackwell.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

LANES = 128
"""CUDA lanes of a Pallas thread: one warpgroup, 4 warps of 32 (PTX ISA, "warpgroup")."""

SMEM_BYTES_PER_BLOCK = 227 * 1024
"""The most SMEM that one block can have on compute capability 9.0 and 10.0, in bytes.

NVIDIA Hopper and Blackwell Tuning Guides, "Unified Shared Memory/L1/Texture Cache":
228 KB per SM, of which CUDA keeps 1 KB per block.
"""

REGISTERS_PER_SM = 64 * 1024
"""32-bit registers of an SM (Hopper and Blackwell Tuning Guides, "Occupancy")."""

MAX_REGISTERS_PER_LANE = 255
"""The most registers that one CUDA lane can have (the same guides, "Occupancy")."""


@dataclasses.dataclass(frozen=True)
class Config:
    """How much a block holds at a time.

    Attributes:
      tile_m: rows of a tile, where tiles lie below each other.
      tile_n: columns of a tile, where tiles lie side by side.
      max_concurrent_steps: how many tiles a pipeline keeps in SMEM at once.
    """

    tile_m: int = 64
    tile_n: int = 128
    max_concurrent_steps: int = 2

    def tiles(self, x: jax.Array | jax.ShapeDtypeStruct) -> int:
        """How many tiles of `tile_m` rows the matrix `x` holds.

        Raises:
          ValueError: `x` is not a matrix, or its rows are no multiple of `tile_m`.
        """
        if len(x.shape) != 2:
            raise ValueError(f"{x.shape=} must have two axes")
        if x.shape[0] % self.tile_m:
            raise ValueError(f"{x.shape=} must have a multiple of {self.tile_m} rows")
        return int(x.shape[0] // self.tile_m)


CONFIG = Config()


def smem_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes that `plgpu.SMEM(shape, dtype)` takes."""
    return math.prod(shape) * jnp.dtype(dtype).itemsize


def registers_per_lane(shape: tuple[int, ...], dtype: Any) -> int:
    """32-bit registers that each of the 128 lanes needs to hold one value of `shape`.

    16-bit elements are packed, two to a register.
    """
    return math.ceil(math.prod(shape) * jnp.dtype(dtype).itemsize / LANES / 4)


def square_through_smem(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """x * x for x of shape (tiles * tile_m, n): GMEM -> SMEM -> registers -> SMEM -> GMEM.

    One block per tile.

    Raises:
      ValueError: the rows of `x` are no multiple of `tile_m`.
    """
    tiles = config.tiles(x)
    tile = plgpu.SMEM((config.tile_m, x.shape[1]), x.dtype)

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * config.tile_m, config.tile_m)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        x = x_smem[...]
        y_smem[...] = x * x
        # the copy engine reads SMEM through its own proxy: it sees committed writes only
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(x_smem=tile, y_smem=tile, loaded=plgpu.Barrier())
    kernel = plgpu.kernel(
        body, out_type=x, grid=(tiles,), grid_names=("tile",), scratch_types=scratch
    )
    return kernel(x)


def square_through_smem_reference(x: Array) -> Array:
    """`square_through_smem` in NumPy."""
    return x * x


def stage_through_smem(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """1 - x for x of shape (tiles * tile_m, n), through one SMEM buffer per block.

    Raises:
      ValueError: the rows of `x` are no multiple of `tile_m`.
    """
    tiles = config.tiles(x)

    def body(x_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * config.tile_m, config.tile_m)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)
        plgpu.barrier_wait(loaded)
        buffer_smem[...] = 1 - buffer_smem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        buffer_smem=plgpu.SMEM((config.tile_m, x.shape[1]), x.dtype), loaded=plgpu.Barrier()
    )
    kernel = plgpu.kernel(
        body, out_type=x, grid=(tiles,), grid_names=("tile",), scratch_types=scratch
    )
    return kernel(x)


def stage_through_smem_reference(x: Array) -> Array:
    """`stage_through_smem` in NumPy."""
    return np.asarray(1, x.dtype) - x


def sum_halves(x: jax.Array) -> jax.Array:
    """x[:m] + x[m:] for x of shape (2 * m, n), with one run_scoped buffer per half.

    One block. The two scopes follow each other, so they take the same SMEM.

    Raises:
      ValueError: `x` is not a matrix with an even number of rows.
    """
    if len(x.shape) != 2 or x.shape[0] % 2:
        raise ValueError(f"{x.shape=} must have two axes, the first of them even")
    half = (x.shape[0] // 2, x.shape[1])

    def body(x_gmem: Any, y_gmem: Any) -> None:
        def load(part_gmem: Any) -> jax.Array:
            def scope(part_smem: Any, loaded: Any) -> jax.Array:
                plgpu.copy_gmem_to_smem(part_gmem, part_smem, loaded)
                plgpu.barrier_wait(loaded)
                part = part_smem[...]
                # the next scope's copy writes this memory: let it see that it was read
                plgpu.commit_smem()
                return part

            buffer = plgpu.SMEM(half, x.dtype)
            return pl.run_scoped(scope, part_smem=buffer, loaded=plgpu.Barrier())

        upper = load(x_gmem.at[pl.ds(0, half[0])])
        lower = load(x_gmem.at[pl.ds(half[0], half[0])])
        y_gmem[...] = upper + lower

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(half, x.dtype))(x)


def sum_halves_reference(x: Array) -> Array:
    """`sum_halves` in NumPy."""
    upper, lower = np.split(x, 2)
    return upper + lower


def add_in_one_buffer(a: jax.Array, b: jax.Array) -> jax.Array:
    """a + b for two matrices of one shape, with SMEM for one of them only. One block.

    Raises:
      ValueError: shapes or dtypes differ.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"{a.shape=}, {a.dtype=} must equal {b.shape=}, {b.dtype=}")

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
        def scope(buffer_smem: Any, loaded: Any) -> None:
            plgpu.copy_gmem_to_smem(a_gmem, buffer_smem, loaded)
            plgpu.barrier_wait(loaded)
            a = buffer_smem[...]
            # a is in registers now; committed, so that the next copy does not overtake the read
            plgpu.commit_smem()
            plgpu.copy_gmem_to_smem(b_gmem, buffer_smem, loaded)
            plgpu.barrier_wait(loaded)
            buffer_smem[...] = a + buffer_smem[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(buffer_smem, y_gmem)
            plgpu.wait_smem_to_gmem(0)

        buffer = plgpu.SMEM(a.shape, a.dtype)
        pl.run_scoped(scope, buffer_smem=buffer, loaded=plgpu.Barrier())

    return plgpu.kernel(body, out_type=a)(a, b)


def add_in_one_buffer_reference(a: Array, b: Array) -> Array:
    """`add_in_one_buffer` in NumPy."""
    return a + b


def largest_of_tiles(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """The elementwise maximum over the tiles of x: (tiles * tile_m, n) -> (tile_m, n).

    One block; `plgpu.emit_pipeline` brings one tile after the other into SMEM.

    Raises:
      ValueError: the rows of `x` are no multiple of `tile_m`.
    """
    tiles = config.tiles(x)
    tile = (config.tile_m, x.shape[1])

    def body(x_gmem: Any, y_gmem: Any) -> None:
        def step(indices: tuple[jax.Array], x_smem: Any, largest: jax.Array) -> jax.Array:
            largest = jnp.maximum(largest, x_smem[...])
            # the pipeline's next copy writes this slot: let it see that it was read
            plgpu.commit_smem()
            return largest

        pipeline = plgpu.emit_pipeline(
            step,
            grid=(tiles,),
            in_specs=[plgpu.BlockSpec(tile, lambda ti: (ti, 0))],
            max_concurrent_steps=config.max_concurrent_steps,
            init_carry=jnp.full(tile, -jnp.inf, x.dtype),
        )
        y_gmem[...] = pipeline(x_gmem)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(tile, x.dtype))(x)


def largest_of_tiles_reference(x: Array, *, tile_m: int = CONFIG.tile_m) -> Array:
    """`largest_of_tiles` in NumPy."""
    return np.asarray(x.reshape(-1, tile_m, x.shape[1]).max(0))


def sum_of_products(a: jax.Array, b: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """The sum of a_tile * b_tile over the tiles of two wide matrices: (m, tiles * n) -> (m, n).

    One block; the tiles are `tile_n` columns wide and lie side by side.

    Raises:
      ValueError: shapes differ, or the columns are no multiple of `tile_n`.
    """
    if a.shape != b.shape or len(a.shape) != 2 or a.shape[1] % config.tile_n:
        raise ValueError(
            f"{a.shape=} and {b.shape=} must be equal, with a multiple of {config.tile_n} columns"
        )
    tile = (a.shape[0], config.tile_n)

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
        def step(indices: Any, a_smem: Any, b_smem: Any, total: jax.Array) -> jax.Array:
            total = total + a_smem[...] * b_smem[...]
            plgpu.commit_smem()
            return total

        spec = plgpu.BlockSpec(tile, lambda ti: (0, ti))
        pipeline = plgpu.emit_pipeline(
            step,
            grid=(a.shape[1] // config.tile_n,),
            in_specs=[spec, spec],
            max_concurrent_steps=config.max_concurrent_steps,
            init_carry=jnp.zeros(tile, a.dtype),
        )
        y_gmem[...] = pipeline(a_gmem, b_gmem)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(tile, a.dtype))(a, b)


def sum_of_products_reference(a: Array, b: Array, *, tile_n: int = CONFIG.tile_n) -> Array:
    """`sum_of_products` in NumPy, added up in float64."""
    products = a.astype(np.float64) * b.astype(np.float64)
    return products.reshape(a.shape[0], -1, tile_n).sum(1).astype(a.dtype)


def shift_whole(x: jax.Array) -> jax.Array:
    """x - 2, the whole matrix as one value in the registers of one Pallas thread. No SMEM."""

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = x_gmem[...] - 2

    return kernel(x)


def shift_in_slices(x: jax.Array, *, rows: int = 16) -> jax.Array:
    """x - 2, as `shift_whole`, `rows` rows at a time: fewer registers for the same work.

    Raises:
      ValueError: the rows of `x` are no multiple of `rows`.
    """
    if x.shape[0] % rows:
        raise ValueError(f"{x.shape=} must have a multiple of {rows} rows")

    @functools.partial(plgpu.kernel, out_type=x)
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        @pl.loop(0, x.shape[0] // rows)
        def _slice(i: jax.Array) -> None:
            part = pl.ds(i * rows, rows)
            y_gmem[part] = x_gmem[part] - 2

    return kernel(x)


def shift_reference(x: Array) -> Array:
    """`shift_whole` and `shift_in_slices` in NumPy."""
    return x - np.asarray(2, x.dtype)


def through_all_spaces(x: jax.Array) -> jax.Array:
    """x + 1 for x of shape (128, n): GMEM, SMEM, registers, TMEM and all the way back.

    One block. Needs Blackwell's TMEM, whose references have 128 or 64 rows.
    """
    scratch: dict[str, Any] = dict(
        buffer_smem=plgpu.SMEM(x.shape, x.dtype),
        x_tmem=plgpu.TMEM(x.shape, x.dtype),
        loaded=plgpu.Barrier(),
    )

    @functools.partial(plgpu.kernel, out_type=x, scratch_types=scratch)
    def kernel(x_gmem: Any, y_gmem: Any, buffer_smem: Any, x_tmem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, buffer_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_store_tmem(x_tmem, buffer_smem[...])
        plgpu.commit_tmem()
        buffer_smem[...] = plgpu.async_load_tmem(x_tmem) + 1
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    return kernel(x)


def through_all_spaces_reference(x: Array) -> Array:
    """`through_all_spaces` in NumPy."""
    return x + np.asarray(1, x.dtype)
