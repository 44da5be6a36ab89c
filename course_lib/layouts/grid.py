"""Grid order: which output tile is computed when, what a wave of blocks reads, and from where.

All of it is about `C = A @ B`, cut into `m` x `n` output tiles. The block that
computes tile `(mi, ni)` reads tile row `mi` of A (all of it, over the loop along
K) and tile column `ni` of B, and writes tile `(mi, ni)` of C.

An *order* is an array of shape `(tiles, 2)`: its row `i` is the tile `(mi, ni)`
of the i-th block of the grid. CUDA does not promise that blocks start in the
order of the grid; recent GPUs are seen to do so, and so does this module. A
*wave* is `concurrent` consecutive tiles, those that are computed at the same time.

    order = Order("tiled", width=4).tiles(8, 16)
    first = waves(order, concurrent=16)[0]
    footprint(first)                        # Footprint(a_rows=4, b_columns=4, c_tiles=16)

`layouts.mjs` holds the same functions in JavaScript; JAX's own
`plgpu.planar_snake` and `plgpu.nd_loop` are the third witness (tests/explorer).
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from course_lib.diagnostics import CourseError

__all__ = [
    "KINDS",
    "MAX_REQUESTS",
    "Assignment",
    "Footprint",
    "Matmul",
    "Order",
    "Quantization",
    "Residency",
    "Traffic",
    "assign_dynamic",
    "assign_static",
    "check_cluster",
    "clustered",
    "footprint",
    "l2_contents",
    "l2_traffic",
    "persistent",
    "planar_snake",
    "quantization",
    "residency",
    "row_major",
    "tile_costs",
    "tiled",
    "total",
    "waves",
]

Tiles = npt.NDArray[np.int64]
"""Tiles `(mi, ni)`, one a row: int64, shape `(tiles, 2)`."""

KINDS = ("row-major", "tiled", "snake")

MAX_CLUSTER = 8
"""Blocks of a cluster on every GPU that has clusters (CUDA Programming Guide, "Thread Block
Clusters": the portable size)."""

MAX_REQUESTS = 2_000_000
"""What `l2_traffic` steps through at most: 2 requests per tile and step along K."""


# ---- orders ----


@dataclasses.dataclass(frozen=True)
class Order:
    """How the index of a block becomes the tile that it computes.

    Attributes:
      kind: "row-major": grid `(m, n)`, `ni` fastest.
        "tiled": grid `(m // width, n, width)`, see `tiled`.
        "snake": `plgpu.planar_snake(i, (m, n), minor_dim, width)`, see `planar_snake`.
      width: the `mt` of "tiled", the `tile_width` of "snake"; unused by "row-major".
      minor_dim: along which axis "snake" cuts its bands, 0 (M) or 1 (N).
    """

    kind: str = "row-major"
    width: int = 1
    minor_dim: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CourseError(f"order {self.kind!r} is none of {_listed(map(repr, KINDS))}.")
        _at_least_one("width", self.width)
        if self.minor_dim not in (0, 1):
            raise CourseError(
                f"minor_dim = {self.minor_dim} is not an axis of the output: use 0 to cut bands "
                "of tile rows (along M), 1 for bands of tile columns (along N)."
            )

    def tiles(self, m: int, n: int) -> Tiles:
        """The order of `m` x `n` output tiles.

        Raises:
          CourseError: a size below 1, or a width of "tiled" that does not divide `m`.
        """
        if self.kind == "row-major":
            return row_major(m, n)
        if self.kind == "tiled":
            return tiled(m, n, mt=self.width)
        return planar_snake(m, n, minor_dim=self.minor_dim, tile_width=self.width)

    def __str__(self) -> str:
        if self.kind == "row-major":
            return "row-major"
        if self.kind == "tiled":
            return f"tiled, mt = {self.width}"
        return f"planar_snake, minor_dim = {self.minor_dim}, tile_width = {self.width}"


def row_major(m: int, n: int) -> Tiles:
    """Grid `(m, n)`: the last axis varies fastest, so a whole tile row comes before the next."""
    _sizes(m, n)
    mi, ni = np.divmod(np.arange(m * n), n)
    return np.stack([mi, ni], axis=1)


def tiled(m: int, n: int, *, mt: int) -> Tiles:
    """Grid `(m // mt, n, mt)`: bands of `mt` tile rows, down each column of a band first.

    In the kernel `mi = axis_index(0) * mt + axis_index(2)` and `ni = axis_index(1)`.
    The same as `plgpu.nd_loop((m, n), tiling=(mt, 1), ...)`.

    Raises:
      CourseError: `mt` does not divide `m`; names the values that do.
    """
    _sizes(m, n)
    _at_least_one("mt", mt)
    if m % mt:
        fits = _listed(str(d) for d in range(1, m + 1) if m % d == 0)
        lost = f"the last {m % mt} of {m}" if mt < m else f"all {m}"
        raise CourseError(
            f"mt = {mt} does not divide the {m} tile rows: the grid (m // mt, n, mt) would leave "
            f"out {lost}. What divides {m}: {fits}."
        )
    outer, ni, inner = np.unravel_index(np.arange(m * n), (m // mt, n, mt))
    return np.stack([outer * mt + inner, ni], axis=1)


def planar_snake(m: int, n: int, *, minor_dim: int, tile_width: int) -> Tiles:
    """`plgpu.planar_snake(i, (m, n), minor_dim, tile_width)` for every `i`.

    Cuts axis `minor_dim` into bands of `tile_width` tiles (the last may be narrower)
    and walks along the other axis, across the band at each step; every other band is
    walked backwards, so that it begins where the one before ended.
    """
    _sizes(m, n)
    _at_least_one("tile_width", tile_width)
    minor_size, major_size = (m, n) if minor_dim == 0 else (n, m)
    i = np.arange(m * n)
    band, within = np.divmod(i, tile_width * major_size)
    full_bands, last_width = divmod(minor_size, tile_width)
    width = np.where(band < full_bands, tile_width, last_width)
    major, across = np.divmod(within, width)
    major = np.where(band % 2 == 0, major, major_size - 1 - major)
    minor = band * tile_width + across
    return np.stack([minor, major] if minor_dim == 0 else [major, minor], axis=1)


def clustered(order: Order, m: int, n: int, *, cluster: tuple[int, int]) -> Tiles:
    """The order of `m` x `n` output tiles whose blocks come in clusters.

    The grid counts clusters, so `order` deals out *clusters*, of which there are
    `m // cluster[0]` x `n // cluster[1]`. The blocks of a cluster start together; here they
    follow each other, row by row.

    Args:
      order: in which order the clusters come; its `width` counts clusters.
      m, n: output tile rows and columns.
      cluster: blocks of a cluster above each other (along M), and beside each other (along N).

    Raises:
      CourseError: the clusters do not fill the grid, or have more than `MAX_CLUSTER` blocks.
    """
    check_cluster(m, n, cluster)
    down, across = cluster
    first = order.tiles(m // down, n // across)[:, None] * (down, across)
    return (first + row_major(down, across)).reshape(-1, 2)


def check_cluster(m: int, n: int, cluster: tuple[int, int]) -> None:
    """Whether `m` x `n` tiles are a whole number of clusters of this size.

    Raises:
      CourseError: they are not, or a cluster has more than `MAX_CLUSTER` blocks.
    """
    _sizes(m, n)
    down, across = cluster
    for name, size, tiles, axis in (
        ("cluster_m", down, m, "rows"),
        ("cluster_n", across, n, "columns"),
    ):
        _at_least_one(name, size)
        if tiles % size:
            fits = _listed(str(d) for d in range(1, MAX_CLUSTER + 1) if tiles % d == 0)
            raise CourseError(
                f"{name} = {size} does not divide the {tiles} tile {axis}: no cluster is ever "
                f"incomplete. What divides {tiles}: {fits}."
            )
    if down * across > MAX_CLUSTER:
        raise CourseError(
            f"A cluster of {down} x {across} has {down * across} blocks: {MAX_CLUSTER} are the "
            "most that every GPU with clusters takes."
        )


# ---- waves, and who computes what ----


def waves(order: Tiles, *, concurrent: int) -> list[Tiles]:
    """The order cut into waves of `concurrent` tiles; the last may be smaller."""
    _at_least_one("concurrent", concurrent)
    return [order[i : i + concurrent] for i in range(0, len(order), concurrent)]


def persistent(count: int, *, num_sms: int) -> npt.NDArray[np.int64]:
    """Who computes the i-th of `count` tiles under `plgpu.nd_loop` over `num_sms` blocks.

    Returns:
      int64, shape `(count, 2)`: the block's `axis_index`, and its `loop_info.local_index`.
    """
    _at_least_one("num_sms", num_sms)
    step, block = np.divmod(np.arange(count), num_sms)
    return np.stack([block, step], axis=1)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """What it costs that the last wave is not full, if every tile takes equally long.

    Attributes:
      tiles: how many tiles there are.
      concurrent: how many are computed at a time.
      waves: how many waves that makes.
      last: tiles in the last wave.
    """

    tiles: int
    concurrent: int
    waves: int
    last: int

    @property
    def busy(self) -> float:
        """The share of block slots with work, 0 to 1."""
        return self.tiles / (self.waves * self.concurrent)


def quantization(tiles: int, *, concurrent: int) -> Quantization:
    """How many waves `tiles` make, and how full the last one is."""
    _at_least_one("tiles", tiles)
    _at_least_one("concurrent", concurrent)
    full, rest = divmod(tiles, concurrent)
    return Quantization(tiles, concurrent, full + bool(rest), rest or concurrent)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """Who computes each tile and from when to when, all of shape `(tiles,)`.

    Attributes:
      worker: the block (of a persistent kernel) or the SM.
      start, end: in the unit of the costs.
    """

    worker: npt.NDArray[np.int64]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    @property
    def makespan(self) -> float:
        """When the last tile is done."""
        return float(self.end.max())


def assign_static(costs: Sequence[float], *, workers: int, blocks: int = 1) -> Assignment:
    """A persistent kernel: worker `w` computes tiles `w`, `w + workers`, ..., at any cost.

    With clusters of `blocks` (workers in a row), a cluster goes on as a whole, to the next
    `blocks` tiles, when all of its blocks are done.

    Raises:
      CourseError: a number below 1, or workers or tiles that are no whole number of clusters.
    """
    return _in_clusters(costs, workers, blocks, dynamic=False)


def assign_dynamic(costs: Sequence[float], *, workers: int, blocks: int = 1) -> Assignment:
    """Each tile, in order, goes to the worker that is free first (of several, the lowest).

    This is how the hardware hands out the blocks of an ordinary launch, and what
    `plgpu.dynamic_scheduling_loop` (Blackwell) does for a persistent kernel. With clusters of
    `blocks`, it is that many tiles at a time, to the cluster that is free first.

    Raises:
      CourseError: as `assign_static`.
    """
    return _in_clusters(costs, workers, blocks, dynamic=True)


def _in_clusters(costs: Sequence[float], workers: int, blocks: int, *, dynamic: bool) -> Assignment:
    if blocks == 1:
        return _assign(costs, workers, dynamic=dynamic)
    for name, count in (("blocks at a time", workers), ("tiles", len(costs))):
        if count % blocks:
            raise CourseError(f"{count} {name} are no whole number of clusters of {blocks}.")
    slowest = [max(costs[i : i + blocks]) for i in range(0, len(costs), blocks)]
    whole = _assign(slowest, workers // blocks, dynamic=dynamic)
    rank = np.tile(np.arange(blocks), len(slowest))
    begin = np.repeat(whole.start, blocks)
    worker = np.repeat(whole.worker, blocks) * blocks + rank
    return Assignment(worker, begin, begin + np.array(costs, np.float64))


def _assign(costs: Sequence[float], workers: int, *, dynamic: bool) -> Assignment:
    _at_least_one("workers", workers)
    _at_least_one("the number of tiles", len(costs))
    free = [(0.0, w) for w in range(workers)]  # a heap: (free from, worker)
    free_at = [0.0] * workers
    who, start = [], []
    for i, cost in enumerate(costs):
        if cost < 0:
            raise CourseError(f"cost {cost} of tile {i} is negative: a tile takes 0 or more.")
        worker = heapq.heappop(free)[1] if dynamic else i % workers
        who.append(worker)
        start.append(free_at[worker])
        free_at[worker] += cost
        heapq.heappush(free, (free_at[worker], worker))
    begin = np.array(start, np.float64)
    return Assignment(np.array(who, np.int64), begin, begin + np.array(costs, np.float64))


def tile_costs(count: int, *, spread: int) -> list[float]:
    """What `count` tiles cost: 1 to `1 + spread / 100`, well mixed, the same at every call."""
    if spread < 0:
        raise CourseError(f"spread = {spread} is negative: 0 stands for tiles that cost the same.")
    mixed = np.arange(1, count + 1, dtype=np.uint64)
    for factor, shift in ((2654435761, 15), (2246822519, 13)):
        mixed = mixed * np.uint64(factor) % np.uint64(2**32)
        mixed ^= mixed >> np.uint64(shift)
    costs: list[float] = (1 + spread / 100 * (mixed / 2**32)).tolist()
    return costs


# ---- how many blocks share an SM ----

SM_SMEM_BYTES, BLOCK_SMEM_BYTES, RESERVED_BYTES = 228 * 1024, 227 * 1024, 1024
SM_THREADS, SM_BLOCKS, SM_REGISTERS, BLOCK_THREADS = 2048, 32, 65536, 1024
"""Of compute capability 9.0 and 10.0: CUDA C++ Programming Guide, "Technical Specifications per
Compute Capability". The system takes 1 KiB of shared memory for each block."""
_REGISTERS_AT_ONCE = 256  # what a warp's registers are handed out in


@dataclasses.dataclass(frozen=True)
class Residency:
    """How many blocks an SM holds at a time (its occupancy, in blocks), and what allows no more.

    Attributes:
      blocks: 1 to 32.
      limit: "shared memory", "threads", "registers" or "blocks".
    """

    blocks: int
    limit: str


def residency(*, smem_bytes: int = 0, threads: int = 128, registers: int = 0) -> Residency:
    """How many blocks fit on an SM of a Hopper or datacenter Blackwell GPU.

    Args:
      smem_bytes: shared memory of a block.
      threads: CUDA threads (lanes) of a block: 128 for each Pallas thread.
      registers: of a lane, as `ptxas` reports them; 0 where they are not known.

    Raises:
      CourseError: not even one block fits; says what would.
    """
    for name, value, most in (
        ("smem_bytes", smem_bytes, BLOCK_SMEM_BYTES),
        ("threads", threads, BLOCK_THREADS),
        ("registers", registers, 255),
    ):
        if not 0 <= value <= most or (name == "threads" and not value):
            raise CourseError(f"{name} = {value} does not fit: a block has up to {most:,}.")
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    fits = {
        "shared memory": SM_SMEM_BYTES // (smem_bytes + RESERVED_BYTES),
        "threads": SM_THREADS // (32 * warps),
        "blocks": SM_BLOCKS,
    }
    if registers:
        fits["registers"] = SM_REGISTERS // (of_warp * warps)
    limit = min(fits, key=lambda name: (fits[name], name == "blocks"))
    if not fits[limit]:
        raise CourseError(
            f"A block of {threads} lanes with {registers} registers each does not fit: an SM has "
            f"{SM_REGISTERS:,} registers."
        )
    return Residency(fits[limit], limit)


# ---- what a wave reads ----


@dataclasses.dataclass(frozen=True)
class Footprint:
    """The distinct parts of A, B and C that some blocks touch.

    Attributes:
      a_rows: tile rows of A, each `tile_m` x K elements.
      b_columns: tile columns of B, each K x `tile_n` elements.
      c_tiles: tiles of C, each `tile_m` x `tile_n` elements.
    """

    a_rows: int
    b_columns: int
    c_tiles: int

    @property
    def inputs(self) -> int:
        """Distinct tile rows of A and tile columns of B together."""
        return self.a_rows + self.b_columns


def footprint(tiles: Tiles) -> Footprint:
    """What the blocks of these output tiles touch, each part counted once."""
    return Footprint(
        a_rows=len(np.unique(tiles[:, 0])),
        b_columns=len(np.unique(tiles[:, 1])),
        c_tiles=len(np.unique(tiles, axis=0)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matmul:
    """The sizes of `C = A @ B` in tiles, of a tile in elements, of an element in bytes.

    Attributes:
      m, n, k: output tile rows, output tile columns, steps along K.
      tile_m, tile_n, tile_k: elements of a tile along each of them.
      itemsize: bytes of an element of A and of B.
      out_itemsize: bytes of an element of C.
    """

    m: int
    n: int
    k: int = 1
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    itemsize: int = 2
    out_itemsize: int = 2

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _at_least_one(field.name, getattr(self, field.name))

    @property
    def a_tile_bytes(self) -> int:
        """One tile of A, `tile_m` x `tile_k`: what a block reads of A in a step along K."""
        return self.tile_m * self.tile_k * self.itemsize

    @property
    def b_tile_bytes(self) -> int:
        """One tile of B, `tile_k` x `tile_n`: what a block reads of B in a step along K."""
        return self.tile_k * self.tile_n * self.itemsize

    @property
    def c_tile_bytes(self) -> int:
        """One tile of C, `tile_m` x `tile_n`."""
        return self.tile_m * self.tile_n * self.out_itemsize

    @property
    def a_bytes(self) -> int:
        """All of A."""
        return self.m * self.k * self.a_tile_bytes

    @property
    def b_bytes(self) -> int:
        """All of B."""
        return self.k * self.n * self.b_tile_bytes

    @property
    def c_bytes(self) -> int:
        """All of C."""
        return self.m * self.n * self.c_tile_bytes

    def input_bytes(self, touched: Footprint) -> int:
        """The bytes of A and B in a footprint, each part counted once."""
        rows = touched.a_rows * self.a_tile_bytes
        return self.k * (rows + touched.b_columns * self.b_tile_bytes)


# ---- the L2 model ----


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What some blocks asked the L2 cache for, in tiles of A and B, and where it came from.

    Attributes:
      hits: tiles that were in the cache.
      compulsory: tiles never read before: no cache of any size would have held them.
      capacity: tiles read before and evicted since: a larger cache would have held them.
      hit_bytes, compulsory_bytes, capacity_bytes: the same in bytes.
      written_bytes: bytes of C written.
    """

    hits: int = 0
    compulsory: int = 0
    capacity: int = 0
    hit_bytes: int = 0
    compulsory_bytes: int = 0
    capacity_bytes: int = 0
    written_bytes: int = 0

    @property
    def requests(self) -> int:
        """Tiles asked for."""
        return self.hits + self.misses

    @property
    def misses(self) -> int:
        """Tiles that had to come from HBM."""
        return self.compulsory + self.capacity

    @property
    def request_bytes(self) -> int:
        """Bytes that the cache sends to the SMs, wherever it had them from."""
        return self.hit_bytes + self.hbm_read_bytes

    @property
    def hbm_read_bytes(self) -> int:
        """Bytes read from HBM."""
        return self.compulsory_bytes + self.capacity_bytes

    def __add__(self, other: Traffic) -> Traffic:
        mine, yours = dataclasses.astuple(self), dataclasses.astuple(other)
        return Traffic(*(a + b for a, b in zip(mine, yours, strict=True)))


def total(traffic: Sequence[Traffic]) -> Traffic:
    """The sum of several waves' traffic."""
    return sum(traffic, Traffic())


class _Lru:
    """A fully associative cache of `capacity` bytes that evicts what was used longest ago."""

    def __init__(self, capacity_bytes: int):
        self._free = capacity_bytes
        self._held: collections.OrderedDict[Any, int] = collections.OrderedDict()

    def contents(self) -> Iterable[Any]:
        """What is held, that used longest ago first."""
        return self._held.keys()

    def hit(self, key: Any, size: int) -> bool:
        """Whether `key` is held; it is afterwards, if `size` bytes fit at all."""
        held = key in self._held
        if held:
            self._held.move_to_end(key)
            return True
        self._held[key] = size
        self._free -= size
        while self._free < 0:
            _, evicted = self._held.popitem(last=False)
            self._free += evicted
        return False


def l2_traffic(
    matmul: Matmul,
    wave_list: Sequence[Tiles],
    *,
    l2_bytes: int,
    count_c: bool = False,
    blocks: int = 1,
) -> tuple[Traffic, ...]:
    """What each wave asks the L2 cache for, and how much of it comes from HBM.

    The model, and what it leaves out:

    - The cache holds whole tiles of A and B and evicts the least recently used one
      (LRU). A real L2 works on 32-byte sectors, in two partitions, and NVIDIA does
      not publish how it evicts.
    - The blocks of a wave walk along K in step: at step `ki` each in turn asks for
      tile `(mi, ki)` of A, then for tile `(ki, ni)` of B. Real blocks drift apart.
    - A tile that one block asked for is there for the next. (Really it is on its
      way, and the second request waits for it.)
    - With `count_c`, the tiles of C that a wave writes take room in the cache at the
      end of the wave.
    - A cluster of `blocks` (tiles in a row, see `clustered`) asks once for a tile that
      several of its blocks need: they load it together, each its share, and each share
      goes to all of them.

    Args:
      matmul: the sizes.
      wave_list: as from `waves`.
      l2_bytes: the cache's capacity, 0 for none. An H200 has 50 MiB.
      count_c: whether what is written takes room.
      blocks: the blocks of a cluster; 1 for none.

    Returns:
      One `Traffic` a wave.

    Raises:
      CourseError: a negative capacity, or more than `MAX_REQUESTS` requests.
    """
    cache = _checked_cache(matmul, wave_list, l2_bytes)
    seen: set[Any] = set()
    return tuple(
        _wave_traffic(matmul, tiles, cache, seen, count_c=count_c, blocks=blocks)
        for tiles in wave_list
    )


def l2_contents(
    matmul: Matmul,
    wave_list: Sequence[Tiles],
    *,
    l2_bytes: int,
    count_c: bool = False,
    blocks: int = 1,
) -> tuple[list[int], list[int]]:
    """What the L2 cache of `l2_traffic` holds after the last of these waves.

    Returns:
      How many of the `k` tiles of each tile row of A (a list of length `m`) and of
      each tile column of B (of length `n`) are held.
    """
    cache = _checked_cache(matmul, wave_list, l2_bytes)
    seen: set[Any] = set()
    for tiles in wave_list:
        _wave_traffic(matmul, tiles, cache, seen, count_c=count_c, blocks=blocks)
    held = collections.Counter(key[:2] for key in cache.contents())
    of_a = [held[0, mi] for mi in range(matmul.m)]
    return of_a, [held[1, ni] for ni in range(matmul.n)]


def _checked_cache(matmul: Matmul, wave_list: Sequence[Tiles], l2_bytes: int) -> _Lru:
    tiles = sum(map(len, wave_list))
    if l2_bytes < 0:
        raise CourseError(f"l2_bytes = {l2_bytes} is negative: 0 stands for no cache.")
    requests = 2 * tiles * matmul.k
    if requests > MAX_REQUESTS:
        raise CourseError(
            f"{tiles} output tiles with k = {matmul.k} steps make {requests:,} requests; the "
            f"model steps through {MAX_REQUESTS:,} at most. Take k <= "
            f"{max(1, MAX_REQUESTS // (2 * tiles))} with a larger tile_k, or fewer tiles."
        )
    return _Lru(l2_bytes)


def _wave_traffic(
    matmul: Matmul, tiles: Tiles, cache: _Lru, seen: set[Any], *, count_c: bool, blocks: int
) -> Traffic:
    sizes = (matmul.a_tile_bytes, matmul.b_tile_bytes)
    count = dict.fromkeys(itertools.product(("hit", "compulsory", "capacity"), (0, 1)), 0)
    pairs = [(int(mi), int(ni)) for mi, ni in tiles]
    asked = [
        request
        for first in range(0, len(pairs), blocks)
        for request in _requests(pairs[first : first + blocks])
    ]
    for ki, (operand, index) in itertools.product(range(matmul.k), asked):
        key = (operand, index, ki)
        if cache.hit(key, sizes[operand]):
            count["hit", operand] += 1
        else:
            count["capacity" if key in seen else "compulsory", operand] += 1
            seen.add(key)
    if count_c:
        for pair in pairs:
            cache.hit(("c", *pair), matmul.c_tile_bytes)

    def in_bytes(what: str) -> int:
        return sum(count[what, operand] * sizes[operand] for operand in (0, 1))

    return Traffic(
        hits=count["hit", 0] + count["hit", 1],
        compulsory=count["compulsory", 0] + count["compulsory", 1],
        capacity=count["capacity", 0] + count["capacity", 1],
        hit_bytes=in_bytes("hit"),
        compulsory_bytes=in_bytes("compulsory"),
        capacity_bytes=in_bytes("capacity"),
        written_bytes=len(pairs) * matmul.c_tile_bytes,
    )


def _requests(cluster: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """What the blocks of a cluster ask for in a step along K, each once: (operand, index)."""
    return dict.fromkeys((operand, pair[operand]) for pair in cluster for operand in (0, 1))


# ---- errors in the reader's words ----


def _sizes(m: int, n: int) -> None:
    _at_least_one("m", m)
    _at_least_one("n", n)


def _at_least_one(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise CourseError(f"{name} = {value!r} does not fit: it must be a whole number from 1 up.")


def _listed(words: Any) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else str(last)
