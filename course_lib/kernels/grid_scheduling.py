"""The kernels of chapter 02: a matmul whose blocks may run in any order, and who ran when.

`matmul` multiplies matrices without the TensorCore, tile by tile, as sums of
outer products. That is slow, and exactly right for this chapter: every block
reads one tile row of A and one tile column of B, as in any matmul, and which
block computes which tile is all that its `Config` changes. The product is the
same under every one of them.

`schedule` runs the same loop and writes down who computed what.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from course_lib.layouts import grid

Array = np.ndarray[Any, Any]

TILE = 64
"""Rows and columns of a tile. A warpgroup's layout (`plgpu.Layout.WGMMA`) has 64 rows."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Which block computes which tile.

    Attributes:
      order: "row-major", "tiled" or "snake", as in `layouts.grid.Order`.
      tile_width: `mt` of the tiled grid, or the width of the snake's bands.
      grid_minor_dim: the axis that the snake's bands cut, 0 (M) or 1 (N).
      num_sms: how many persistent blocks to launch; None launches one block per tile.
    """

    order: str = "row-major"
    tile_width: int = 1
    grid_minor_dim: int = 0
    num_sms: int | None = None

    def tiles(self, m_tiles: int, n_tiles: int) -> Array:
        """The order in NumPy: the tile `(mi, ni)` of each step, int64[tiles, 2]."""
        order = grid.Order(self.order, self.tile_width, self.grid_minor_dim)
        return order.tiles(m_tiles, n_tiles)


def multiply_tile(a_gmem: Any, b_gmem: Any, c_gmem: Any, mi: Any, ni: Any) -> None:
    """Inside a kernel: writes tile `(mi, ni)` of A @ B, of 64 x 64 float32.

    For every k, it adds column k of A's tile row times row k of B's tile column.
    """
    rows, columns = pl.ds(mi * TILE, TILE), pl.ds(ni * TILE, TILE)

    def add_outer_product(k: jax.Array, acc: jax.Array) -> jax.Array:
        # Layouts say which lane holds which element (chapter 04): a column and a row
        # of this tile have to lie where the lanes that hold the tile can use them.
        by_row, by_column = plgpu.Layout.WGMMA.reduce(1), plgpu.Layout.WGMMA.reduce(0)
        # optimized=False: neither holds whole 32-byte pieces per warp
        a_column = plgpu.load(a_gmem.at[rows, k], layout=by_row, optimized=False)
        b_row = plgpu.load(b_gmem.at[k, columns], layout=by_column, optimized=False)
        return acc + a_column[:, None] * b_row[None, :]

    acc = plgpu.layout_cast(jnp.zeros((TILE, TILE), jnp.float32), plgpu.Layout.WGMMA)
    c_gmem[rows, columns] = jax.lax.fori_loop(0, a_gmem.shape[1], add_outer_product, acc)


def matmul(a: jax.Array, b: jax.Array, *, config: Config = Config()) -> jax.Array:
    """A @ B in the order of `config`: (M, K) and (K, N) float32 to (M, N) float32.

    Raises:
      ValueError: the shapes do not fit together, or are no multiple of the tile.
      CourseError: `config` does not fit the number of tiles.
    """
    m_tiles, n_tiles = _count_tiles(a, b)

    def kernel(a_gmem: Any, b_gmem: Any, c_gmem: Any) -> None:
        def work(mi: Any, ni: Any, _block: Any) -> None:
            multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni)

        _for_each_tile(work, (m_tiles, n_tiles), config)

    out_type = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32)
    return _launch(kernel, out_type, (m_tiles, n_tiles), config)(a, b)


def matmul_reference(a: Array, b: Array) -> Array:
    """`matmul` in NumPy, summed in float64."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def schedule(m_tiles: int, n_tiles: int, *, config: Config = Config()) -> jax.Array:
    """int32[m_tiles, n_tiles]: the index in the grid of the block that computes each tile."""

    def kernel(block_gmem: Any) -> None:
        def work(mi: Any, ni: Any, block: Any) -> None:
            block_gmem[mi, ni] = block

        _for_each_tile(work, (m_tiles, n_tiles), config)

    out_type = jax.ShapeDtypeStruct((m_tiles, n_tiles), jnp.int32)
    return _launch(kernel, out_type, (m_tiles, n_tiles), config)()


def schedule_reference(m_tiles: int, n_tiles: int, *, config: Config = Config()) -> Array:
    """`schedule` in NumPy."""
    tiles = config.tiles(m_tiles, n_tiles)
    block = np.arange(len(tiles), dtype=np.int32)
    out = np.empty((m_tiles, n_tiles), np.int32)
    out[tiles[:, 0], tiles[:, 1]] = block % config.num_sms if config.num_sms else block
    return out


def _launch(kernel: Any, out_type: Any, tiles: tuple[int, int], config: Config) -> Any:
    config.tiles(*tiles)  # complains about what does not fit
    m_tiles, n_tiles = tiles
    if config.num_sms is not None:
        shape: dict[str, int] = {"sm": config.num_sms}
    elif config.order == "row-major":
        shape = {"m": m_tiles, "n": n_tiles}
    elif config.order == "tiled":
        mt = config.tile_width
        shape = {"m_outer": m_tiles // mt, "n": n_tiles, "m_inner": mt}
    else:
        shape = {"i": m_tiles * n_tiles}
    return plgpu.kernel(
        kernel, out_type=out_type, grid=tuple(shape.values()), grid_names=tuple(shape)
    )


def _for_each_tile(
    work: Callable[[Any, Any, Any], None], tiles: tuple[int, int], config: Config
) -> None:
    """Inside a kernel: `work(mi, ni, block)` for every tile that is this block's."""
    if config.num_sms is not None:
        _loop(work, tiles, config)
        return
    index = jax.lax.axis_index
    n_tiles = tiles[1]
    if config.order == "row-major":
        work(index("m"), index("n"), index("m") * n_tiles + index("n"))
    elif config.order == "tiled":
        mt = config.tile_width
        block = (index("m_outer") * n_tiles + index("n")) * mt + index("m_inner")
        work(index("m_outer") * mt + index("m_inner"), index("n"), block)
    else:
        mi, ni = plgpu.planar_snake(index("i"), tiles, config.grid_minor_dim, config.tile_width)
        work(mi, ni, index("i"))


def _loop(work: Callable[[Any, Any, Any], None], tiles: tuple[int, int], config: Config) -> None:
    """Inside a persistent kernel: this block's share of the tiles."""
    block = jax.lax.axis_index("sm")
    if config.order == "snake":

        @plgpu.nd_loop((tiles[0] * tiles[1],), collective_axes="sm")
        def _(info: plgpu.NDLoopInfo) -> None:
            (i,) = info.index
            mi, ni = plgpu.planar_snake(i, tiles, config.grid_minor_dim, config.tile_width)
            work(mi, ni, block)

        return
    tiling = (config.tile_width, 1) if config.order == "tiled" else None

    @plgpu.nd_loop(tiles, collective_axes="sm", tiling=tiling)
    def _(info: plgpu.NDLoopInfo) -> None:
        mi, ni = info.index
        work(mi, ni, block)


def _count_tiles(a: jax.Array, b: jax.Array) -> tuple[int, int]:
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        raise ValueError(f"{a.shape=} and {b.shape=} do not fit: {k} columns against {k2} rows")
    if m % TILE or n % TILE:
        raise ValueError(f"{m=} and {n=} must be multiples of {TILE}")
    return m // TILE, n // TILE


# ---- what the exercises ask for ----


def tiled_product_reference(a: Array, b: Array, *, mt: int) -> tuple[Array, Array]:
    """The product, and which block of the grid `(m // mt, n, mt)` computes each tile."""
    shape = (a.shape[0] // TILE, b.shape[1] // TILE)
    return matmul_reference(a, b), schedule_reference(*shape, config=Config("tiled", mt))


def snake_reference(*, m: int, n: int, width: int) -> Array:
    """int32[m, n]: the place of each tile in the snake's order, bands of `width` tile rows."""
    return schedule_reference(m, n, config=Config("snake", width, 0))


def persistent_product_reference(a: Array, b: Array, *, num_sms: int) -> tuple[Array, Array]:
    """The product, and which of `num_sms` persistent blocks computes each tile."""
    shape = (a.shape[0] // TILE, b.shape[1] // TILE)
    return matmul_reference(a, b), schedule_reference(*shape, config=Config(num_sms=num_sms))
