"""Tilings: how a logical array is cut into tiles, of tiles, of tiles.

One level of tiling splits each of the last `len(tile)` axes into a number of
tiles and a place within the tile, and moves all places to the end:
`(128, 128)` tiled by `(8, 64)` becomes `(16, 2, 8, 64)`. Several levels apply
one after the other, each to the axes at the end. It is the notation of XLA's
tiled layouts, of `plgpu.TilingTransform` (one level) and of Mosaic GPU's
`TiledLayout` (several).

All functions take whole index arrays: the last axis of an index array runs over
the axes of the logical array.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from course_lib.diagnostics import CourseError

__all__ = ["Array", "Shape", "Tiling", "listed", "row_major_strides"]

Shape = tuple[int, ...]
Array = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Levels of tiles, the outermost first; none at all leaves an array as it is.

    Raises:
      CourseError: a size below 1, or a level with more axes than the one before.
    """

    tiles: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        for tile in self.tiles:
            if not tile or any(d < 1 for d in tile):
                raise CourseError(f"tile {tile} does not fit: each size must be 1 or more.")
        for outer, inner in itertools.pairwise(self.tiles):
            if len(inner) > len(outer):
                raise CourseError(
                    f"tile {inner} has more axes than {outer}, which it is to cut further."
                )

    def shape(self, shape: Sequence[int]) -> Shape:
        """The shape after tiling.

        Raises:
          CourseError: a tile that does not divide; says which sizes would.
        """
        shape = tuple(shape)
        for tile in self.tiles:
            _check_divides(tile, shape)
            rank = len(shape) - len(tile)
            outer = (d // t for d, t in zip(shape[rank:], tile, strict=True))
            shape = (*shape[:rank], *outer, *tile)
        return shape

    def strides(self, strides: Sequence[int]) -> Shape:
        """What a step along each axis after tiling is, given the steps before it."""
        strides = tuple(strides)
        for tile in self.tiles:
            rank = len(strides) - len(tile)
            outer = (s * t for s, t in zip(strides[rank:], tile, strict=True))
            strides = (*strides[:rank], *outer, *strides[rank:])
        return strides

    def index(self, index: Array) -> Array:
        """Logical indices, `[..., rank]`, as indices after tiling."""
        for tile in self.tiles:
            rank = index.shape[-1] - len(tile)
            last = index[..., rank:]
            index = np.concatenate([index[..., :rank], last // tile, last % tile], axis=-1)
        return index

    def logical(self, index: Array) -> Array:
        """The inverse of `index`."""
        for tile in reversed(self.tiles):
            inner = index.shape[-1] - len(tile)
            outer = inner - len(tile)
            last = index[..., outer:inner] * tile + index[..., inner:]
            index = np.concatenate([index[..., :outer], last], axis=-1)
        return index

    def without_axis(self, axis: int) -> Tiling:
        """The tiling of the array that is left when an axis of the first tile is reduced away."""
        tiles = []
        last_rank = len(self.tiles[0])
        for tile in self.tiles:
            axis -= last_rank - len(tile)
            last_rank = len(tile)
            if axis >= 0:
                tile = tile[:axis] + tile[axis + 1 :]
            if not tile:
                break
            tiles.append(tile)
        return Tiling(tuple(tiles))


def row_major_strides(shape: Sequence[int]) -> Shape:
    """Elements between neighbours along each axis, the last axis being contiguous."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def listed(words: Iterable[object], *, word: str = "or") -> str:
    """`1, 2 or 4`."""
    *most, last = map(str, words)
    return f"{', '.join(most)} {word} {last}" if most else last


def _check_divides(tile: Shape, shape: Shape) -> None:
    if len(tile) > len(shape):
        raise CourseError(
            f"tile {tile} has {len(tile)} axes and the array {shape} only {len(shape)}: "
            "a tile covers the last axes of the array."
        )
    first = len(shape) - len(tile)
    for axis, (size, t) in enumerate(zip(shape[first:], tile, strict=True), start=first):
        if size % t:
            fits = [d for d in range(1, size + 1) if size % d == 0]
            raise CourseError(
                f"tile {tile} does not divide the shape {shape}: {t} does not divide the {size} "
                f"of axis {axis}. What does: {listed(fits)}."
            )
