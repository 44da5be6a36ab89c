"""Wrong answers to transforms.tiled_by_hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

Tiles = tuple[int, int, int, int]


def _around(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    """What the notebook gives, around the learner's lines."""

    def tiled_by_hand(x: jax.Array) -> jax.Array:
        tiles = (x.shape[0] // 8, x.shape[1] // 64, 8, 64)

        def kernel(x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any) -> None:
            body(x_gmem, y_gmem, tiles_smem, loaded, tiles)

        scratch: dict[str, Any] = dict(
            tiles_smem=plgpu.SMEM(tiles, x.dtype), loaded=plgpu.Barrier()
        )
        out_type = jax.ShapeDtypeStruct(tiles, x.dtype)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x)

    return tiled_by_hand


def _out(tiles_smem: Any, y_gmem: Any) -> None:
    plgpu.copy_smem_to_gmem(tiles_smem, y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def counts_in_tiles(x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles) -> None:
    for i in range(tiles[0] * tiles[1]):
        mi, ni = i // tiles[1], i % tiles[1]
        part = x_gmem.at[pl.ds(mi, 8), pl.ds(ni, 64)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[mi, ni], loaded)
        plgpu.barrier_wait(loaded)
    _out(tiles_smem, y_gmem)


@_around
def goes_down_first(x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles) -> None:
    """Tiles in column-major order, into places in row-major order."""
    for i in range(tiles[0] * tiles[1]):
        mi, ni = i % tiles[0], i // tiles[0]
        part = x_gmem.at[pl.ds(mi * 8, 8), pl.ds(ni * 64, 64)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[i // tiles[1], i % tiles[1]], loaded)
        plgpu.barrier_wait(loaded)
    _out(tiles_smem, y_gmem)


@_around
def forgets_the_barrier(
    x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles
) -> None:
    for i in range(tiles[0] * tiles[1]):
        mi, ni = i // tiles[1], i % tiles[1]
        part = x_gmem.at[pl.ds(mi * 8, 8), pl.ds(ni * 64, 64)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[mi, ni], loaded)
    plgpu.barrier_wait(loaded)
    _out(tiles_smem, y_gmem)


@_around
def leaves_while_copying(
    x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles
) -> None:
    for i in range(tiles[0] * tiles[1]):
        mi, ni = i // tiles[1], i % tiles[1]
        part = x_gmem.at[pl.ds(mi * 8, 8), pl.ds(ni * 64, 64)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[mi, ni], loaded)
        plgpu.barrier_wait(loaded)
    plgpu.copy_smem_to_gmem(tiles_smem, y_gmem)


@_around
def fills_the_first_row_of_tiles(
    x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles
) -> None:
    for ni in range(tiles[1]):
        part = x_gmem.at[pl.ds(0, 8), pl.ds(ni * 64, 64)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[0, ni], loaded)
        plgpu.barrier_wait(loaded)
    _out(tiles_smem, y_gmem)


@_around
def copies_whole_rows(x_gmem: Any, y_gmem: Any, tiles_smem: Any, loaded: Any, tiles: Tiles) -> None:
    for mi in range(tiles[0]):
        part = x_gmem.at[pl.ds(mi * 8, 8)]
        plgpu.copy_gmem_to_smem(part, tiles_smem.at[mi], loaded)
        plgpu.barrier_wait(loaded)
    _out(tiles_smem, y_gmem)


def reshapes_in_jax(x: jax.Array) -> jax.Array:
    m, n = x.shape
    return x.reshape(m // 8, 8, n // 64, 64).transpose(0, 2, 1, 3)


WRONG = {
    "counts in tiles": Wrong(counts_in_tiles, "value", ("[0, 1, 0, 0]",)),
    "goes down first": Wrong(goes_down_first, "value", ("wrong",)),
    "forgets the barrier": Wrong(forgets_the_barrier, "barrier-overrun", ("loaded",)),
    "leaves while copying": Wrong(leaves_while_copying, "race", ("wait_smem_to_gmem(0)",)),
    "fills the first row of tiles": Wrong(
        fills_the_first_row_of_tiles, "nan", ("tiles_smem", "nobody has written all of it")
    ),
    "copies whole rows": Wrong(copies_whole_rows, "exception", ("shape",)),
    "reshapes in JAX": Wrong(reshapes_in_jax, "means", ("no GPU kernel", "`transpose`")),
}
