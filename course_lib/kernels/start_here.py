"""The kernels of chapter 00, each beside its NumPy reference.

Every kernel is a function from arrays to arrays around one `plgpu.kernel`. They
need no TensorCore; only `double_through_smem` needs the copy engine (TMA). One
block runs one Pallas thread: a warpgroup of 128 CUDA lanes, which is why shapes
are multiples of 128 elements.
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

LANES = 128
"""CUDA lanes of a warpgroup, hence of a Pallas thread (PTX ISA, "warpgroup": 4 warps of 32)."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """How much of a matrix one block works on, in elements.

    Attributes:
      m: rows.
      n: columns, a multiple of the 128 lanes.
    """

    m: int = 64
    n: int = LANES

    def count(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """How many tiles there are along each axis of a matrix of `shape`.

        Raises:
          ValueError: `shape` is not two-dimensional or is no multiple of the tile.
        """
        if len(shape) != 2:
            raise ValueError(f"{shape=} must have two axes")
        m, n = shape
        if m % self.m or n % self.n:
            raise ValueError(f"{shape=} must be a multiple of the tile ({self.m}, {self.n})")
        return m // self.m, n // self.n


TILE = Tile()


def fill(value: float) -> jax.Array:
    """float32[128], every element `value`. One block."""

    @functools.partial(plgpu.kernel, out_type=jax.ShapeDtypeStruct((LANES,), jnp.float32))
    def kernel(y_gmem: Any) -> None:
        y_gmem[...] = jnp.full((LANES,), value, jnp.float32)

    return kernel()


def fill_reference(value: float) -> Array:
    """`fill` in NumPy."""
    return np.full(LANES, value, np.float32)


def block_numbers(*, blocks: int) -> jax.Array:
    """int32[blocks * 128]: every element holds the number of the block that wrote it."""

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((blocks * LANES,), jnp.int32),
        grid=(blocks,),
        grid_names=("block",),
    )
    def kernel(y_gmem: Any) -> None:
        block = jax.lax.axis_index("block")
        y_gmem[pl.ds(block * LANES, LANES)] = jnp.full((LANES,), block)

    return kernel()


def block_numbers_reference(*, blocks: int) -> Array:
    """`block_numbers` in NumPy."""
    return np.repeat(np.arange(blocks, dtype=np.int32), LANES)


def fill_iota(*, blocks: int) -> jax.Array:
    """int32[blocks * 128]: 0, 1, 2, ...; each block writes 128 of them."""

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((blocks * LANES,), jnp.int32),
        grid=(blocks,),
        grid_names=("block",),
    )
    def kernel(y_gmem: Any) -> None:
        start = jax.lax.axis_index("block") * LANES
        y_gmem[pl.ds(start, LANES)] = start + jnp.arange(LANES)

    return kernel()


def fill_iota_reference(*, blocks: int) -> Array:
    """`fill_iota` in NumPy."""
    return np.arange(blocks * LANES, dtype=np.int32)


def add_one(x: jax.Array) -> jax.Array:
    """x + 1 for x of shape (n * 128,), one block per 128 elements.

    The first kernel of JAX's reference page. GMEM -> registers -> GMEM, no SMEM.

    Raises:
      ValueError: the length of `x` is no multiple of 128.
    """
    blocks = _blocks(x)

    @functools.partial(plgpu.kernel, out_type=x, grid=(blocks,), grid_names=("block",))
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        part = pl.ds(jax.lax.axis_index("block") * LANES, LANES)
        y_gmem[part] = x_gmem[part] + 1

    return kernel(x)


def add_one_reference(x: Array) -> Array:
    """`add_one` in NumPy."""
    return x + np.ones((), x.dtype)


def reverse_rows(x: jax.Array) -> jax.Array:
    """The rows of x, of shape (rows, 128), in reverse order; one block per row."""
    rows = x.shape[0]

    @functools.partial(plgpu.kernel, out_type=x, grid=(rows,), grid_names=("row",))
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1 - row] = x_gmem[row]

    return kernel(x)


def reverse_rows_reference(x: Array) -> Array:
    """`reverse_rows` in NumPy."""
    return x[::-1].copy()


def tile_numbers(*, m: int, n: int, tile: Tile = TILE) -> jax.Array:
    """int32[m, n]: every element holds the number of the block that wrote it, row by row.

    Raises:
      ValueError: (m, n) is no multiple of the tile.
    """
    m_tiles, n_tiles = tile.count((m, n))

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.int32),
        grid=(m_tiles, n_tiles),
        grid_names=("mi", "ni"),
    )
    def kernel(y_gmem: Any) -> None:
        mi, ni = jax.lax.axis_index("mi"), jax.lax.axis_index("ni")
        here = (pl.ds(mi * tile.m, tile.m), pl.ds(ni * tile.n, tile.n))
        y_gmem[here] = jnp.full((tile.m, tile.n), mi * n_tiles + ni)

    return kernel()


def tile_numbers_reference(*, m: int, n: int, tile: Tile = TILE) -> Array:
    """`tile_numbers` in NumPy."""
    m_tiles, n_tiles = tile.count((m, n))
    numbers = np.arange(m_tiles * n_tiles, dtype=np.int32).reshape(m_tiles, n_tiles)
    return np.kron(numbers, np.ones((tile.m, tile.n), np.int32))


def shift_tiles(x: jax.Array, *, tile: Tile = TILE) -> jax.Array:
    """x with every tile moved one tile to the right; the last column of tiles comes first.

    Raises:
      ValueError: the shape of `x` is no multiple of the tile.
    """
    m_tiles, n_tiles = tile.count(x.shape)

    @functools.partial(plgpu.kernel, out_type=x, grid=(m_tiles, n_tiles), grid_names=("mi", "ni"))
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        mi, ni = jax.lax.axis_index("mi"), jax.lax.axis_index("ni")
        rows = pl.ds(mi * tile.m, tile.m)
        to = jax.lax.rem(ni + 1, n_tiles)
        y_gmem[rows, pl.ds(to * tile.n, tile.n)] = x_gmem[rows, pl.ds(ni * tile.n, tile.n)]

    return kernel(x)


def shift_tiles_reference(x: Array, *, tile: Tile = TILE) -> Array:
    """`shift_tiles` in NumPy."""
    return np.roll(x, tile.n, axis=1)


def double_through_smem(x: jax.Array) -> jax.Array:
    """2 * x for x of shape (n * 128,); the copy engine brings each part into SMEM first.

    Raises:
      ValueError: the length of `x` is no multiple of 128.
    """
    blocks = _blocks(x)

    @functools.partial(
        plgpu.kernel,
        out_type=x,
        grid=(blocks,),
        grid_names=("block",),
        scratch_types=dict(x_smem=plgpu.SMEM((LANES,), x.dtype), loaded=plgpu.Barrier()),
    )
    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        part = pl.ds(jax.lax.axis_index("block") * LANES, LANES)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        # the call above only starts the copy: SMEM holds the data once the barrier says so
        plgpu.barrier_wait(loaded)
        y_gmem[part] = x_smem[...] * 2

    return kernel(x)


def double_through_smem_reference(x: Array) -> Array:
    """`double_through_smem` in NumPy."""
    return x * np.asarray(2, x.dtype)


def _blocks(x: jax.Array) -> int:
    """How many blocks of 128 elements a vector holds."""
    if x.ndim != 1 or x.shape[0] % LANES:
        raise ValueError(f"{x.shape=} must be one axis, a multiple of {LANES}")
    return int(x.shape[0] // LANES)
