"""The kernels of chapter 05, each beside its NumPy reference: the copy engine in both directions.

The suffix of a reference names its memory space: `x_gmem`, `x_smem`. A value
without a suffix is a JAX array, hence in registers. `copy` is the one that
reaches the memory's speed. `gather_rows` needs Blackwell.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

MAX_BOX = 256
"""The most elements of a tile along each axis (CUDA Driver API, cuTensorMapEncodeTiled, boxDim)."""

ROW_ALIGNMENT_BYTES = 16
"""Rows of a matrix that is copied in tiles begin at multiples of it (the same, globalStrides)."""

TILE_M = 64
"""Rows of a tile in all kernels but the two copies."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The tile that a block of `copy` copies: 4 KB if the elements have 4 bytes.

    Attributes:
      tile_m: rows of a tile, 1 to 256.
      tile_n: columns of a tile, 1 to 256.

    Raises:
      ValueError: a number with which nothing could run.
    """

    tile_m: int = 4
    tile_n: int = 256

    def __post_init__(self) -> None:
        for name in ("tile_m", "tile_n"):
            if not 1 <= (size := getattr(self, name)) <= MAX_BOX:
                raise ValueError(f"{name}={size} must be between 1 and {MAX_BOX}")

    @property
    def tile(self) -> tuple[int, int]:
        """The shape of a tile."""
        return (self.tile_m, self.tile_n)

    def tiles(self, x: jax.Array) -> tuple[int, int]:
        """Tiles of the matrix `x` along each axis; those at the edges may stick out."""
        m, n = x.shape
        return pl.cdiv(m, self.tile_m), pl.cdiv(n, self.tile_n)


@dataclasses.dataclass(frozen=True)
class RingConfig(Config):
    """How `ring_copy` cuts up its work, and how much of it is under way at a time.

    Attributes:
      tile_m, tile_n: rows and columns of a tile, 1 to 256.
      stages: tiles of SMEM that a block has.
      unread_stores: how many copies out may still be reading their tile when the block
        goes on to refill a slot; the other `stages - unread_stores` slots hold loads.
      blocks_per_sm: how many blocks share an SM; their SMEM has to fit.
      num_sms: the SMs of the GPU; the grid has `num_sms * blocks_per_sm` blocks.

    Raises:
      ValueError: a number with which nothing could run.
    """

    tile_m: int = 64
    stages: int = 3
    unread_stores: int = 1
    blocks_per_sm: int = 1
    num_sms: int = 132

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.unread_stores < self.stages:
            raise ValueError(f"{self.unread_stores=} must be less than {self.stages=}")
        if self.blocks_per_sm < 1 or self.num_sms < 1:
            raise ValueError(f"{self.blocks_per_sm=} and {self.num_sms=} must be at least 1")

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.num_sms * self.blocks_per_sm

    @property
    def lookahead(self) -> int:
        """How many loads are under way when a block begins to wait for the first of them."""
        return self.stages - self.unread_stores


CONFIG = Config()
RING = RingConfig()


def copy(x: jax.Array, *, config: Config = CONFIG) -> jax.Array:
    """A copy of the matrix `x`: GMEM -> SMEM -> GMEM, without a register on the way.

    One block per tile, so small that a dozen or more of them share an SM: while some wait
    for their loads, others store, and the GPU gives each SM its next tile when it is ready.
    Tiles at the edges may stick out: nothing outside of `x` is read or written.

    Raises:
      ValueError: `x` is no matrix, or its rows are no multiple of 16 bytes.
    """
    _check_matrix(x)
    m_tiles, n_tiles = config.tiles(x)

    def body(x_gmem: Any, y_gmem: Any, tile_smem: Any, loaded: Any) -> None:
        mi, ni = jnp.divmod(jax.lax.axis_index("tile"), n_tiles)
        rows = pl.ds(mi * config.tile_m, config.tile_m)
        columns = pl.ds(ni * config.tile_n, config.tile_n)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows, columns], tile_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(tile_smem, y_gmem.at[rows, columns])
        # nobody reads y in this kernel: SMEM may go to the next block as soon as it was read
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    scratch: dict[str, Any] = dict(
        tile_smem=plgpu.SMEM(config.tile, x.dtype), loaded=plgpu.Barrier()
    )
    grid = (m_tiles * n_tiles,)
    kernel = plgpu.kernel(body, out_type=x, grid=grid, grid_names=("tile",), scratch_types=scratch)
    return kernel(x)


def ring_copy(x: jax.Array, *, config: RingConfig = RING) -> jax.Array:
    """The same copy by persistent blocks with a ring of slots each.

    Each block takes every `config.blocks`-th tile, has `config.lookahead` loads under way,
    and waits for a store only when it needs that store's slot again.

    Raises:
      ValueError: `x` is no matrix, or its rows are no multiple of 16 bytes.
    """
    _check_matrix(x)
    m_tiles, n_tiles = config.tiles(x)

    def body(x_gmem: Any, y_gmem: Any, ring_smem: Any, loaded: Any) -> None:
        block = jax.lax.axis_index("block")
        # blocks differ by one step at most; with few tiles some have none
        steps = (m_tiles * n_tiles - block + config.blocks - 1) // config.blocks

        def place(step: Any) -> Any:
            mi, ni = jnp.divmod(block + step * config.blocks, n_tiles)
            rows = pl.ds(mi * config.tile_m, config.tile_m)
            return rows, pl.ds(ni * config.tile_n, config.tile_n)

        def load(step: Any) -> None:
            slot = jax.lax.rem(step, config.stages)
            plgpu.copy_gmem_to_smem(x_gmem.at[place(step)], ring_smem.at[slot], loaded.at[slot])

        for first in range(config.lookahead):
            pl.when(first < steps)(functools.partial(load, jnp.int32(first)))

        @pl.loop(0, steps)
        def _(step: Any) -> None:
            slot = jax.lax.rem(step, config.stages)
            plgpu.barrier_wait(loaded.at[slot])
            plgpu.copy_smem_to_gmem(ring_smem.at[slot], y_gmem.at[place(step)])
            # the next load's slot was last used by the store `unread_stores` steps ago
            plgpu.wait_smem_to_gmem(config.unread_stores, wait_read_only=True)
            pl.when(step + config.lookahead < steps)(lambda: load(step + config.lookahead))

        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        ring_smem=plgpu.SMEM((config.stages, *config.tile), x.dtype),
        loaded=plgpu.Barrier(num_barriers=config.stages),
    )
    kernel = plgpu.kernel(
        body, out_type=x, grid=(config.blocks,), grid_names=("block",), scratch_types=scratch
    )
    return kernel(x)


def copy_reference(x: Array, **_: int) -> Array:
    """`copy` and `ring_copy` in NumPy, whatever the keywords."""
    return x.copy()


def multiply_add(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """x * y + z for three matrices of shape (tiles * 64, n): three copies, one barrier.

    Raises:
      ValueError: shapes or dtypes differ, or the rows are no multiple of 64.
    """
    tiles = _tiles(x, y, z)
    tile = plgpu.SMEM((TILE_M, x.shape[1]), x.dtype)

    def body(
        x_gmem: Any, y_gmem: Any, z_gmem: Any, o_gmem: Any,
        x_smem: Any, y_smem: Any, z_smem: Any, loaded: Any,
    ) -> None:  # fmt: skip
        rows = pl.ds(jax.lax.axis_index("tile") * TILE_M, TILE_M)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded)
        plgpu.copy_gmem_to_smem(y_gmem.at[rows], y_smem, loaded)
        plgpu.copy_gmem_to_smem(z_gmem.at[rows], z_smem, loaded)
        plgpu.barrier_wait(loaded)
        o_gmem[rows] = x_smem[...] * y_smem[...] + z_smem[...]

    scratch: dict[str, Any] = dict(
        x_smem=tile, y_smem=tile, z_smem=tile, loaded=plgpu.Barrier(num_arrivals=3)
    )
    kernel = plgpu.kernel(
        body, out_type=x, grid=(tiles,), grid_names=("tile",), scratch_types=scratch
    )
    return kernel(x, y, z)


def multiply_add_reference(x: Array, y: Array, z: Array) -> Array:
    """`multiply_add` in NumPy."""
    return x * y + z


def triple(x: jax.Array) -> jax.Array:
    """3 * x for x of shape (tiles * 64, n), by one block that sends tiles out of two slots.

    Raises:
      ValueError: `x` is no matrix, or its rows are no multiple of 64.
    """
    tiles = _tiles(x)

    def body(x_gmem: Any, y_gmem: Any, slots_smem: Any) -> None:
        @pl.loop(0, tiles)
        def _(ti: Any) -> None:
            rows = pl.ds(ti * TILE_M, TILE_M)
            slot_smem = slots_smem.at[ti % 2]
            # the tile before last came from this slot; the last one may still be read
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            slot_smem[...] = 3 * x_gmem[rows]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(slot_smem, y_gmem.at[rows])

        plgpu.wait_smem_to_gmem(0)

    slots = plgpu.SMEM((2, TILE_M, x.shape[1]), x.dtype)
    return plgpu.kernel(body, out_type=x, scratch_types=dict(slots_smem=slots))(x)


def triple_reference(x: Array) -> Array:
    """`triple` in NumPy."""
    return np.asarray(3, x.dtype) * x


def sum_and_difference(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(x + y, x - y) for matrices of shape (tiles * 64, n): two tiles leave as one group.

    Raises:
      ValueError: shapes or dtypes differ, or the rows are no multiple of 64.
    """
    tiles = _tiles(x, y)

    def body(x_gmem: Any, y_gmem: Any, s_gmem: Any, d_gmem: Any, s_smem: Any, d_smem: Any) -> None:
        @pl.loop(0, tiles)
        def _(ti: Any) -> None:
            rows = pl.ds(ti * TILE_M, TILE_M)
            x, y = x_gmem[rows], y_gmem[rows]
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            s_smem[ti % 2] = x + y
            d_smem[ti % 2] = x - y
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(s_smem.at[ti % 2], s_gmem.at[rows], commit_group=False)
            plgpu.copy_smem_to_gmem(d_smem.at[ti % 2], d_gmem.at[rows])

        plgpu.wait_smem_to_gmem(0)

    slots = plgpu.SMEM((2, TILE_M, x.shape[1]), x.dtype)
    scratch: dict[str, Any] = dict(s_smem=slots, d_smem=slots)
    return plgpu.kernel(body, out_type=(x, x), scratch_types=scratch)(x, y)


def sum_and_difference_reference(x: Array, y: Array) -> tuple[Array, Array]:
    """`sum_and_difference` in NumPy."""
    return x + y, x - y


def difference(x: jax.Array) -> jax.Array:
    """y[i] = x[i] - x[i - 1], y[0] = x[0], for a matrix of any number of rows.

    Row -1 and what sticks out at the end are zeros, by the copy engine.

    Raises:
      ValueError: `x` is no matrix, or its rows are no multiple of 16 bytes.
    """
    _check_matrix(x)
    tile = plgpu.SMEM((TILE_M, x.shape[1]), x.dtype)

    def body(x_gmem: Any, y_gmem: Any, here_smem: Any, above_smem: Any, loaded: Any) -> None:
        start = jax.lax.axis_index("tile") * TILE_M
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(start, TILE_M)], here_smem, loaded)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(start - 1, TILE_M)], above_smem, loaded)
        plgpu.barrier_wait(loaded)
        here_smem[...] = here_smem[...] - above_smem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(here_smem, y_gmem.at[pl.ds(start, TILE_M)])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        here_smem=tile, above_smem=tile, loaded=plgpu.Barrier(num_arrivals=2)
    )
    grid = (pl.cdiv(x.shape[0], TILE_M),)
    kernel = plgpu.kernel(body, out_type=x, grid=grid, grid_names=("tile",), scratch_types=scratch)
    return kernel(x)


def difference_reference(x: Array) -> Array:
    """`difference` in NumPy."""
    return x - np.concatenate([np.zeros_like(x[:1]), x[:-1]])


def gather_rows(x: jax.Array, indices: jax.Array) -> jax.Array:
    """x[indices] for a matrix `x` and int32[tiles * 64] `indices`. Needs Blackwell.

    Raises:
      ValueError: `x` is no matrix, or there are not whole tiles of indices.
    """
    _check_matrix(x)
    if len(indices.shape) != 1 or indices.shape[0] % TILE_M:
        raise ValueError(f"{indices.shape=} must be one axis with a multiple of {TILE_M} elements")

    def body(x_gmem: Any, indices_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any) -> None:
        part = pl.ds(jax.lax.axis_index("tile") * TILE_M, TILE_M)
        # the copy engine takes four indices per instruction: each warp has its own
        indices = plgpu.load(
            indices_gmem.at[part], layout=plgpu.Layout.TMA_INDICES, optimized=False
        )
        plgpu.copy_gmem_to_smem(x_gmem.at[indices], rows_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        rows_smem=plgpu.SMEM((TILE_M, x.shape[1]), x.dtype), loaded=plgpu.Barrier()
    )
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((indices.shape[0], x.shape[1]), x.dtype),
        grid=(indices.shape[0] // TILE_M,),
        grid_names=("tile",),
        scratch_types=scratch,
    )
    return kernel(x, indices)


def gather_rows_reference(x: Array, indices: Array) -> Array:
    """`gather_rows` in NumPy."""
    return x[indices]


def _check_matrix(x: jax.Array) -> None:
    if len(x.shape) != 2:
        raise ValueError(f"{x.shape=} must have two axes")
    if x.shape[1] * jnp.dtype(x.dtype).itemsize % ROW_ALIGNMENT_BYTES:
        raise ValueError(f"a row of {x.shape=}, {x.dtype=} is no multiple of 16 bytes")


def _tiles(*arrays: jax.Array) -> int:
    """How many tiles of `TILE_M` rows each of the equal matrices has."""
    first = arrays[0]
    _check_matrix(first)
    if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
        raise ValueError(f"shapes and dtypes differ: {', '.join(map(_named, arrays))}")
    if first.shape[0] % TILE_M:
        raise ValueError(f"{first.shape=} must have a multiple of {TILE_M} rows")
    return int(first.shape[0] // TILE_M)


def _named(array: jax.Array) -> str:
    return f"{array.dtype}{list(array.shape)}"
