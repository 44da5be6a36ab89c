"""Register layouts: who of a warpgroup's 128 threads holds an element, and in which register.

A layout is a tiling of the logical array, and a choice among the axes after it:
which are spread over the 4 warps, which over the 32 lanes of a warp, and which
is the vector that one register holds. All other axes are counted by the number
of the register. `Replicated(n)` in place of an axis: n threads hold the same.

    layout = named("WGMMA")
    held = layout.elements((64, 16))        # [thread, register, element] -> r * 16 + c
    layout.holders((64, 16))[8 * 16 + 9]    # [[thread, register, element]] of element (8, 9)

A *register* here is one vector of `vector_length` elements, as Mosaic GPU counts
them; the hardware's registers have 32 bits, so it may take several of these or a part.
Source: `jax.experimental.mosaic.gpu.fragmented_array`, whose layouts the tests compare.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.layouts.tiling import Array, Shape, Tiling, listed, row_major_strides

__all__ = [
    "CATALOG",
    "LANES",
    "THREADS",
    "WARPS",
    "Entry",
    "Layout",
    "Replicated",
    "Splat",
    "Strided",
    "Tiled",
    "named",
]

WARPS, LANES = 4, 32
THREADS = WARPS * LANES


@dataclasses.dataclass(frozen=True)
class Replicated:
    """`times` warps or lanes hold the same elements."""

    times: int


Dims = tuple[int | Replicated, ...]


class Layout:
    """What all layouts answer."""

    vector_length: int

    def elements(self, shape: Shape) -> Array:
        """The element in each place: int64, shape `(128, registers, vector_length)`.

        An element `(r, c)` is given as its row-major number `r * columns + c`.

        Raises:
          CourseError: the layout does not fit the shape; says what would.
        """
        raise NotImplementedError

    def holders(self, shape: Shape) -> Array:
        """Every place of each element: int64, shape `(size, replication, 3)`.

        The last axis is `thread, register, element of the register`; threads ascend.
        """
        held = self.elements(shape)
        order = np.argsort(held, axis=None, kind="stable").reshape(math.prod(shape), -1)
        return np.stack(np.unravel_index(order, held.shape), axis=-1)

    def replication(self, shape: Shape) -> int:
        """How many threads hold each element."""
        return self.elements(shape).size // math.prod(shape)


@dataclasses.dataclass(frozen=True)
class Tiled(Layout):
    """A layout made of a tiling: `TiledLayout` of Mosaic GPU.

    Attributes:
      tiling: applied to the last axes of the array.
      warp_dims: axes after tiling, as negative numbers, spread over the warps; major first.
      lane_dims: the same over the lanes of a warp.
      vector_dim: the axis whose elements lie together in one register.
    """

    tiling: Tiling
    warp_dims: Dims
    lane_dims: Dims
    vector_dim: int = -1

    @functools.cached_property
    def tile_shape(self) -> Shape:
        """The shape of the first tile after all tiling."""
        base = self.tiling.tiles[0]
        return self.tiling.shape(base)[len(base) :]

    @property
    def vector_length(self) -> int:  # type: ignore[override]
        """Elements in a register."""
        return self.tile_shape[self.vector_dim]

    def register_shape(self, shape: Shape) -> Shape:
        """The axes that the number of the register counts, in row-major order; 1 elsewhere."""
        tiled = list(self.tiling.shape(shape))
        for dim in (*self.warp_dims, *self.lane_dims, self.vector_dim):
            if not isinstance(dim, Replicated):
                tiled[dim] = 1
        return tuple(tiled)

    def elements(self, shape: Shape) -> Array:
        shape = tuple(shape)
        registers = self.register_shape(shape)
        strides = self.tiling.strides(row_major_strides(shape))
        warp = self._offsets(self.warp_dims, strides)
        lane = self._offsets(self.lane_dims, strides)
        place = np.indices(registers, np.int64).reshape(len(registers), -1)
        register = np.array(strides) @ place
        vector = np.arange(self.vector_length) * strides[self.vector_dim]
        thread = (warp[:, None] + lane).reshape(-1)
        return thread[:, None, None] + register[:, None] + vector

    def _offsets(self, dims: Dims, strides: Shape) -> Array:
        """The element that each warp, or each lane, begins at."""
        offsets = np.zeros(1, np.int64)
        for dim in dims:
            if isinstance(dim, Replicated):
                step = np.zeros(dim.times, np.int64)
            else:
                step = np.arange(self.tile_shape[dim]) * strides[dim]
            offsets = (offsets[:, None] + step).reshape(-1)
        return offsets

    def reduce(self, axis: int) -> Tiled:
        """The layout of what a reduction along an axis of the first tile leaves.

        `plgpu.Layout.WGMMA.reduce(1)` gives what a sum along the rows of a WGMMA array has.
        """
        strides = [1] * len(self.tiling.tiles[0])
        strides[axis] = 0
        gone = [s == 0 for s in self.tiling.strides(strides)][-len(self.tile_shape) :]
        tiling = self.tiling.without_axis(axis)
        shift = np.cumsum(gone[::-1])[::-1].tolist()
        vector = self.vector_dim + shift[self.vector_dim]
        if gone[self.vector_dim]:
            tiling, vector = Tiling((*tiling.tiles, (1,))), -1
            shift = [s - 1 for s in shift]

        def moved(dim: int | Replicated) -> int | Replicated:
            if isinstance(dim, Replicated):
                return dim
            return Replicated(self.tile_shape[dim]) if gone[dim] else dim + shift[dim]

        warp, lane = map(moved, self.warp_dims), map(moved, self.lane_dims)
        return Tiled(tiling, tuple(warp), tuple(lane), vector)


@dataclasses.dataclass(frozen=True)
class Strided(Layout):
    """`WG_STRIDED`: the array as one row, dealt to the threads `vector_length` at a time."""

    vector_length: int

    def elements(self, shape: Shape) -> Array:
        size, step = math.prod(shape), THREADS * self.vector_length
        if size % step:
            raise CourseError(
                f"WG_STRIDED with vec_size = {self.vector_length} needs a multiple of {step} "
                f"elements (128 threads x {self.vector_length}); {tuple(shape)} has {size}."
                f"{_fitting_vectors(size)}"
            )
        dealt = np.arange(size, dtype=np.int64).reshape(-1, THREADS, self.vector_length)
        return dealt.swapaxes(0, 1)


@dataclasses.dataclass(frozen=True)
class Splat(Layout):
    """`WG_SPLAT`: one register in every thread stands for all elements, which are equal."""

    vector_length: int = 1

    def elements(self, shape: Shape) -> Array:
        """Of the one register, the first element that it stands for: 0."""
        return np.zeros((THREADS, 1, 1), np.int64)

    def holders(self, shape: Shape) -> Array:
        one = np.zeros((THREADS, 3), np.int64)
        one[:, 0] = np.arange(THREADS)
        return np.broadcast_to(one, (math.prod(shape), THREADS, 3))

    def replication(self, shape: Shape) -> int:
        return THREADS


def _fitting_vectors(size: int) -> str:
    fits = [v for v in (1, 2, 4, 8, 16) if size % (THREADS * v) == 0]
    return f" vec_size = {listed(fits)} would fit." if fits else ""


# ---- the layouts that have names ----


def _tiled(tiles: Iterable[Shape], warp: Dims, lane: Dims, vector: int = -1) -> Tiled:
    return Tiled(Tiling(tuple(tiles)), warp, lane, vector)


_FOUR = Replicated(4)
WGMMA = _tiled(((64, 8), (16, 8), (8, 8), (2,)), (-7,), (-3, -2))
TCGEN05 = _tiled(((128, 8), (32, 8), (8, 8), (2,)), (-7,), (-3, -2))


def _columns(columns: int) -> int:
    if columns < 16 or columns % 16:
        raise CourseError(f"columns = {columns} does not fit: it must be a multiple of 16.")
    return columns


def m64_collective(columns: int) -> Tiled:
    """`TCGEN05_M64_COLLECTIVE(columns)`: one block's half of a 2-block MMA with M = 128."""
    tiles = ((64, _columns(columns)), (32, columns // 2), (8, 8), (2,))
    return _tiled(tiles, (-6, -7), (-3, -2))


def m64_collective_native(columns: int, vector_length: int = 1) -> Tiled:
    """The same in the order of TMEM: a thread holds a part of one row."""
    tiles = ((64, _columns(columns)), (32, columns // 2), (vector_length,))
    return _tiled(tiles, (-4, -5), (-3,))


def tmem_native(vector_length: int = 2) -> Tiled:
    """`TCGEN05_TMEM_NATIVE`: thread `i` holds row `i` of 128."""
    return _tiled(((128, vector_length), (32, vector_length)), (-4,), (-2,))


def mma_lhs(bits: int, m_warps: int = 4) -> Tiled:
    """`MMA_LHS(dtype, m_warps=...)`: the left operand of `mma.sync`, of warps along M and N."""
    per_register, n_warps = max(32 // bits, 1), _n_warps(m_warps)
    k = 8 * per_register
    tiles = ((m_warps * 16, k), (16, k // 2), (8, k // 2), (per_register,))
    return _tiled(tiles, (-7, Replicated(n_warps)), (-3, -2))


def mma_rhs(bits: int, m_warps: int = 4) -> Tiled:
    """`MMA_RHS(dtype, m_warps=...)`: the right operand; neighbours along K share a register."""
    per_register, n_warps = max(32 // bits, 1), _n_warps(m_warps)
    k = 8 * per_register
    tiles = ((k, n_warps * 8), (k // 2, 8), (per_register, 1))
    return _tiled(tiles, (Replicated(m_warps), -5), (-3, -4), -2)


def mma_acc(m_warps: int = 4) -> Tiled:
    """`MMA_ACC(dtype, m_warps=...)`: the accumulator, for any dtype."""
    tiles = ((m_warps * 16, _n_warps(m_warps) * 8), (16, 8), (8, 8), (2,))
    return _tiled(tiles, (-7, -6), (-3, -2))


def _n_warps(m_warps: int) -> int:
    if m_warps not in (1, 2, 4):
        raise CourseError(f"m_warps = {m_warps} does not fit: of 4 warps, 1, 2 or 4 lie along M.")
    return WARPS // m_warps


def fitting_m_warps(name: str, shape: Shape) -> int:
    """The most warps along M with which an `MMA_...` layout covers a shape; 4 if none does."""
    rows = {"MMA_LHS": 16, "MMA_ACC": 16}.get(name, 0)
    columns = {"MMA_RHS": 8, "MMA_ACC": 8}.get(name, 0)

    def fits(warps: int) -> bool:
        down, across = rows * warps, columns * WARPS // warps
        return (not down or shape[-2] % down == 0) and (not across or shape[-1] % across == 0)

    return next((warps for warps in (4, 2, 1) if fits(warps)), 4)


def fitting_swizzle(shape: Shape, bits: int) -> int:
    """The largest swizzle with which SMEM_GMEM_COPY covers a shape; 128 if none does."""
    for swizzle in (128, 64, 32):
        with contextlib.suppress(CourseError):
            smem_gmem_copy(shape, bits, swizzle)
            return swizzle
    return 128


def smem_gmem_copy(shape: Shape, bits: int, swizzle: int) -> Tiled:
    """`SMEM_GMEM_COPY(shape, dtype, swizzle)`: copies tiles `(8, swizzle)` without conflicts.

    Raises:
      CourseError: the tiles cannot be dealt to four warps.
    """
    minor = swizzle * 8 // bits
    rows, columns = Tiling(((8, minor),)).shape(shape)[-4:-2]
    warp = next((w for w in ((4, 1), (2, 2), (1, 4)) if _deals(rows, columns, w)), None)
    if warp is None or (rows % 2 == 0 and rows % 4 and columns % 2):
        raise CourseError(
            f"{shape} makes {rows} x {columns} tiles of (8, {minor}): 4 warps cannot share them "
            "evenly. Take a multiple of 4 tiles."
        )
    lane, vector, steps = _copy_lanes(rows // warp[0], columns // warp[1], bits, swizzle)
    inner = (lane[0] * 8, lane[1] * minor)
    tiles = (
        (warp[0] * inner[0], warp[1] * inner[1]),
        inner,
        (8, minor),
        (8 // steps, minor),
        (vector,),
    )
    return _tiled(tiles, (-9, -8), (-7, -6, -3, -2))


def _deals(rows: int, columns: int, warps: Shape) -> bool:
    return rows % warps[0] == 0 and columns % warps[1] == 0


def _copy_lanes(rows: int, columns: int, bits: int, swizzle: int) -> tuple[Shape, int, int]:
    """Tiles that a warp copies at once, elements a lane copies, steps a tile takes."""
    per_thread = min(16, 8 * swizzle // LANES)
    across, down, scale = 1, 1, 16 // per_thread
    while scale > 1 and columns % 2 == 0:
        scale, across, columns = scale // 2, across * 2, columns // 2
    while scale > 1 and rows % 2 == 0:
        scale, down, rows = scale // 2, down * 2, rows // 2
    vector = per_thread * across * down * 8 // bits
    steps = max(1, 8 * (swizzle * 8 // bits) // (vector * LANES))
    return (down, across), vector, steps


@dataclasses.dataclass(frozen=True)
class Entry:
    """A layout that has a name.

    Attributes:
      make: from a shape and the bits of an element to the layout.
      code: the `plgpu` expression; `{shape}`, `{columns}`, `{vector}`, `{dtype}`, `{warps}`
        and `{swizzle}` are filled in.
      what: in a sentence, what it is for.
      rank: axes of the arrays it is meant for.
    """

    make: Callable[[Shape, int], Layout]
    code: str
    what: str
    rank: int = 2


def _same(layout: Layout) -> Callable[[Shape, int], Layout]:
    return lambda shape, bits: layout


def strided_vector(shape: Shape, bits: int) -> int:
    """The vector that JAX takes for WG_STRIDED: at most 64 bits, and it divides the array."""
    size = math.prod(shape)
    vector = min(64 // bits, size // THREADS)
    while vector > 0 and size % (vector * THREADS):
        vector //= 2
    return max(vector, 1)


_REDUCED = "a vector that a reduction leaves; 4 lanes each hold the same"
CATALOG: dict[str, Entry] = {
    "WGMMA": Entry(_same(WGMMA), "plgpu.Layout.WGMMA", "accumulators and A operands of wgmma"),
    "WGMMA_ROW": Entry(
        _same(WGMMA.reduce(1)), "plgpu.Layout.WGMMA.reduce(1)", f"one value a row: {_REDUCED}", 1
    ),
    "WGMMA_COL": Entry(
        _same(WGMMA.reduce(0)),
        "plgpu.Layout.WGMMA.reduce(0)",
        "one value a column: 4 warps and 8 lanes of each hold the same",
        1,
    ),
    "WGMMA_TRANSPOSED": Entry(
        _same(_tiled(((64, 8), (16, 8), (8, 8), (2, 2), (2, 1)), (-10,), (-6, -3, -5), -2)),
        "plgpu.Layout.WGMMA_TRANSPOSED",
        "WGMMA with pairs of rows in a register, to store into a transposed ref",
    ),
    "_WGMMA_ACC_32BIT": Entry(
        _same(_tiled(((64, 8), (16, 8), (8, 8), (2,), (1,)), (-8,), (-4, -3))),
        "plgpu.Layout._WGMMA_ACC_32BIT",
        "WGMMA with an element a register: what JAX gives 32-bit accumulators",
    ),
    "WGMMA_8BIT": Entry(
        _same(_tiled(((64, 16), (16, 16), (8, 16), (4,)), (-7,), (-3, -2))),
        "plgpu.Layout.WGMMA_8BIT",
        "8-bit A operands of wgmma",
    ),
    "WGMMA_UPCAST_2X": Entry(
        _same(_tiled(((64, 16), (16, 16), (8, 16), (8,), (4,)), (-8,), (-4, -2, -3))),
        "plgpu.Layout.WGMMA_UPCAST_2X",
        "8-bit data that becomes a 16-bit WGMMA array",
    ),
    "WGMMA_UPCAST_4X": Entry(
        _same(_tiled(((64, 32), (16, 32), (8, 32), (8,)), (-7,), (-3, -2))),
        "plgpu.Layout.WGMMA_UPCAST_4X",
        "4-bit data that becomes a 16-bit WGMMA array",
    ),
    "WG_STRIDED": Entry(
        lambda shape, bits: Strided(strided_vector(shape, bits)),
        "plgpu.Layout.WG_STRIDED({shape}, vec_size={vector})",
        "plain arrays: consecutive elements go to consecutive threads",
    ),
    "WG_SPLAT": Entry(
        _same(Splat()), "plgpu.Layout.WG_SPLAT({shape})", "constants: all elements are equal"
    ),
    "TCGEN05": Entry(
        _same(TCGEN05), "plgpu.Layout.TCGEN05", "as WGMMA, but each warp holds 32 rows (Blackwell)"
    ),
    "TCGEN05_ROW": Entry(
        _same(TCGEN05.reduce(1)),
        "plgpu.Layout.TCGEN05.reduce(1)",
        f"one value a row: {_REDUCED}",
        1,
    ),
    "TCGEN05_COL": Entry(
        _same(TCGEN05.reduce(0)),
        "plgpu.Layout.TCGEN05.reduce(0)",
        "one value a column: 4 warps and 8 lanes of each hold the same",
        1,
    ),
    "TCGEN05_TRANSPOSED": Entry(
        _same(_tiled(((128, 8), (32, 8), (8, 8), (2, 2), (2, 1)), (-10,), (-6, -3, -5), -2)),
        "plgpu.Layout.TCGEN05_TRANSPOSED",
        "TCGEN05 with pairs of rows in a register, to store into a transposed ref",
    ),
    "TCGEN05_TMEM_NATIVE": Entry(
        _same(tmem_native()),
        "plgpu.Layout.TCGEN05_TMEM_NATIVE",
        "TMEM's own order: thread i holds row i",
    ),
    "TCGEN05_M64_COLLECTIVE": Entry(
        lambda shape, bits: m64_collective(shape[-1]),
        "plgpu.Layout.TCGEN05_M64_COLLECTIVE({columns})",
        "one block's half of a collective MMA with M = 128",
    ),
    "TCGEN05_M64_COLLECTIVE_NATIVE": Entry(
        lambda shape, bits: m64_collective_native(shape[-1]),
        "plgpu.Layout.TCGEN05_M64_COLLECTIVE_NATIVE({columns})",
        "the same in TMEM's own order",
    ),
    "TMA_INDICES": Entry(
        _same(_tiled(((16,), (4,)), (-2,), (Replicated(32),))),
        "plgpu.Layout.TMA_INDICES",
        "row numbers of a TMA gather: 4 a warp, the same in all its lanes",
        1,
    ),
    "TMA_INDICES_4": Entry(
        _same(_tiled(((4,),), (_FOUR,), (Replicated(32),))),
        "plgpu.Layout.TMA_INDICES_4",
        "row numbers of a TMA gather: the same 4 in every thread",
        1,
    ),
    "SMEM_GMEM_COPY": Entry(
        lambda shape, bits: smem_gmem_copy(shape, bits, fitting_swizzle(shape, bits)),
        "plgpu.Layout.SMEM_GMEM_COPY({shape}, jnp.{dtype}, {swizzle})",
        "copies between GMEM and swizzled tiles, 16 bytes a lane, without conflicts",
    ),
    "MMA_LHS": Entry(
        lambda shape, bits: mma_lhs(bits, fitting_m_warps("MMA_LHS", shape)),
        "plgpu.Layout.MMA_LHS(jnp.{dtype}, m_warps={warps})",
        "left operands of mma.sync (Ampere and later; each warp multiplies on its own)",
    ),
    "MMA_RHS": Entry(
        lambda shape, bits: mma_rhs(bits, fitting_m_warps("MMA_RHS", shape)),
        "plgpu.Layout.MMA_RHS(jnp.{dtype}, m_warps={warps})",
        "right operands of mma.sync: neighbours along K share a register",
    ),
    "MMA_ACC": Entry(
        lambda shape, bits: mma_acc(fitting_m_warps("MMA_ACC", shape)),
        "plgpu.Layout.MMA_ACC(jnp.{dtype}, m_warps={warps})",
        "accumulators of mma.sync",
    ),
}
"""Every `plgpu.Layout` but `TILED`, which is `Tiled` with tiles and axes of your own."""

DTYPES = {4: "int4", 8: "int8", 16: "bfloat16", 32: "float32"}


def named(name: str, shape: Sequence[int] = (128, 128), bits: int = 16) -> Layout:
    """The layout of a name in `CATALOG`, for arrays of a shape.

    Raises:
      CourseError: no such name, or a shape it cannot have.
    """
    if name not in CATALOG:
        raise CourseError(f"layout {name!r} is none of {listed(CATALOG)}.")
    entry, shape = CATALOG[name], tuple(shape)
    if len(shape) < entry.rank:
        raise CourseError(f"{name} is for arrays with {entry.rank} axes; {shape} has {len(shape)}.")
    layout = entry.make(shape, bits)
    if isinstance(layout, Tiled):
        check_fits(name, layout, shape)
    return layout


def check_fits(name: str, layout: Tiled, shape: Shape) -> None:
    """Whether a layout covers a shape.

    Raises:
      CourseError: it does not; names the nearest shapes that it covers.
    """
    base = layout.tiling.tiles[0]
    last = shape[-len(base) :]
    if len(shape) >= len(base) and not any(d % t for d, t in zip(last, base, strict=True)):
        return
    fits = tuple(max(t, -(-d // t) * t) for d, t in zip(last, base, strict=False))
    raise CourseError(
        f"{name} covers arrays in tiles of {base}; {shape} is not a whole number of them. "
        f"The next that is: {fits}."
    )


def code(name: str, shape: Shape, bits: int) -> str:
    """The `plgpu` expression of a named layout for a shape."""
    entry = CATALOG[name]
    return entry.code.format(
        shape=shape,
        columns=shape[-1],
        vector=entry.make(shape, bits).vector_length,
        dtype=DTYPES[bits],
        warps=fitting_m_warps(name, shape),
        swizzle=fitting_swizzle(shape, bits) if "{swizzle}" in entry.code else None,
    )
