"""The kernels of chapter 09: blocks of a cluster that share memory, and loads.

A cluster is a few blocks that run at the same time on SMs that are close to each other. They
reach each other's SMEM (`plgpu.cluster_ref`), one copy can bring a tile to all of them
(`collective_axes`), and a `plgpu.ClusterBarrier` lets them wait for each other. Each kernel has
its NumPy reference beside it.

Sources: reference page, "Using CUDA block clusters", "ClusterBarrier", "Collective copies"; PTX
ISA, "Cluster of Cooperative Thread Arrays", "mapa", "cp.async.bulk.tensor" (.multicast::cluster).
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
from jax import lax

Array = np.ndarray[Any, Any]

PORTABLE_CLUSTER = 8
"""The most blocks of a cluster that every GPU with clusters can run (CUDA Programming Guide,
"Thread Block Clusters"; PTX ISA, "Cluster of Cooperative Thread Arrays")."""


# ---- who is who ----


def who() -> jax.Array:
    """10 * cluster + rank for 3 clusters of 2 blocks: shape (3, 2), int32."""

    def kernel(y_gmem: Any) -> None:
        cluster, rank = lax.axis_index("group"), lax.axis_index("cluster")
        y_gmem[cluster, rank] = 10 * cluster + rank

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((3, 2), jnp.int32),
        grid=(3,),
        grid_names=("group",),
        cluster=(2,),
        cluster_names=("cluster",),
    )()


def who_reference() -> Array:
    """`who` in NumPy."""
    return 10 * np.arange(3, dtype=np.int32)[:, None] + np.arange(2, dtype=np.int32)


# ---- blocks that reach each other's SMEM ----


def rotate(x: jax.Array) -> jax.Array:
    """y[i] = x[i - 1] for x of shape (blocks, rows, n): each block reads the tile of another.

    Block 0 reads the last one's. Each puts its own tile into its own SMEM first.

    Raises:
      ValueError: `x` asks for more blocks than a cluster has.
    """
    blocks = _cluster_size(x.shape[0])

    def kernel(x_gmem: Any, y_gmem: Any, tile_smem: Any, ready: Any) -> None:
        rank = lax.axis_index("cluster")
        tile_smem[...] = x_gmem[rank]
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        before = plgpu.cluster_ref(tile_smem, {"cluster": lax.rem(rank + blocks - 1, blocks)})
        y_gmem[rank] = before[...]
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)  # a block's SMEM ends with it, so none goes before all have read

    return plgpu.kernel(
        kernel,
        out_type=x,
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=dict(
            tile_smem=plgpu.SMEM(x.shape[1:], x.dtype),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )(x)


def rotate_reference(x: Array) -> Array:
    """`rotate` in NumPy."""
    return np.roll(x, 1, axis=0)


def smooth(x: jax.Array) -> jax.Array:
    """y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3 for x of shape (blocks, rows, n), in a circle.

    Raises:
      ValueError: `x` asks for more blocks than a cluster has.
    """
    blocks = _cluster_size(x.shape[0])

    def kernel(x_gmem: Any, y_gmem: Any, tile_smem: Any, ready: Any) -> None:
        rank = lax.axis_index("cluster")
        tile_smem[...] = x_gmem[rank]
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        total = tile_smem[...]
        for step in (1, blocks - 1):
            other = plgpu.cluster_ref(tile_smem, {"cluster": lax.rem(rank + step, blocks)})
            total = total + other[...]
        y_gmem[rank] = total / 3
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)

    return plgpu.kernel(
        kernel,
        out_type=x,
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=dict(
            tile_smem=plgpu.SMEM(x.shape[1:], x.dtype),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )(x)


def smooth_reference(x: Array) -> Array:
    """`smooth` in NumPy, in float64."""
    wide = x.astype(np.float64)
    return ((np.roll(wide, 1, axis=0) + wide + np.roll(wide, -1, axis=0)) / 3).astype(x.dtype)


def swap(x: jax.Array) -> jax.Array:
    """y[0] = 2 * x[1] and y[1] = 2 * x[0], for x of shape (2, rows, n): sent, not fetched.

    Each block stores from its registers into the other one's SMEM, and the bytes count on the
    other one's barrier (PTX ISA, "st.async").

    Args:
      x: float32, rows a multiple of 64, n of 32.

    Raises:
      ValueError: `x` does not fit.
    """
    if x.shape[0] != 2 or x.shape[1] % 64 or x.shape[2] % 32:
        raise ValueError(f"{x.shape=} must be (2, 64 * i, 32 * j)")

    def kernel(x_gmem: Any, y_gmem: Any, tile_smem: Any, came: Any) -> None:
        rank = lax.axis_index("cluster")
        tile = plgpu.load(x_gmem.at[rank], layout=plgpu.Layout.WGMMA, optimized=False)
        plgpu.async_store_smem(
            tile * 2, tile_smem, came, cluster_idx=1 - rank, cluster_dim="cluster"
        )
        plgpu.barrier_wait(came)
        y_gmem[rank] = tile_smem[...]

    return plgpu.kernel(
        kernel,
        out_type=x,
        cluster=(2,),
        cluster_names=("cluster",),
        scratch_types=dict(tile_smem=plgpu.SMEM(x.shape[1:], x.dtype), came=plgpu.Barrier()),
    )(x)


def swap_reference(x: Array) -> Array:
    """`swap` in NumPy."""
    return x[::-1] * np.asarray(2, x.dtype)


def normalize(x: jax.Array, *, blocks: int = 4) -> jax.Array:
    """Each row of x divided by its root mean square; a cluster has 64 rows of it.

    Each block of the cluster has its share of the columns in registers, and reads the others'
    sums of squares from their SMEM. So `x` is read from GMEM once.

    Args:
      x: (m, n), float32, m a multiple of 64, n of 8 * blocks.
      blocks: of a cluster.

    Raises:
      ValueError: `x` does not fit, or there is no such cluster.
    """
    m, n = x.shape
    columns = n // _cluster_size(blocks)
    if m % 64 or n % (8 * blocks):
        raise ValueError(f"{x.shape=} must be multiples of (64, {8 * blocks})")

    def kernel(x_gmem: Any, y_gmem: Any, part_smem: Any, ready: Any) -> None:
        rows = pl.ds(lax.axis_index("rows") * 64, 64)
        cols = pl.ds(lax.axis_index("cluster") * columns, columns)
        tile = plgpu.load(x_gmem.at[rows, cols], layout=plgpu.Layout.WGMMA, optimized=False)
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        total = jnp.zeros_like(part_smem[...])
        for block in range(blocks):
            total = total + plgpu.cluster_ref(part_smem, {"cluster": block})[...]
        plgpu.barrier_arrive(ready)
        scale = lax.rsqrt(total / n)
        y_gmem[rows, cols] = tile * lax.broadcast_in_dim(scale, tile.shape, (0,))
        plgpu.barrier_wait(ready)  # all have read: now this block, and its SMEM, may end

    return plgpu.kernel(
        kernel,
        out_type=x,
        grid=(m // 64,),
        grid_names=("rows",),
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=dict(
            part_smem=plgpu.SMEM((64,), x.dtype),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )(x)


def normalize_reference(x: Array, *, blocks: int = 4) -> Array:
    """`normalize` in NumPy, in float64."""
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True))).astype(x.dtype)


# ---- copies that go to all blocks of a cluster ----


def broadcast(x: jax.Array, *, blocks: int = 2) -> jax.Array:
    """`blocks` copies of the vector x: one collective copy, and each block writes a row.

    The example of the reference page, "Using CUDA block clusters".
    """

    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes="cluster")
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem.at[lax.axis_index("cluster")])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((blocks, *x.shape), x.dtype),
        cluster=(_cluster_size(blocks),),
        cluster_names=("cluster",),
        scratch_types=dict(x_smem=plgpu.SMEM(x.shape, x.dtype), loaded=plgpu.Barrier()),
    )(x)


def broadcast_reference(x: Array, *, blocks: int = 2) -> Array:
    """`broadcast` in NumPy."""
    return np.stack([x] * blocks)


def scale_own(x: jax.Array, own: jax.Array) -> jax.Array:
    """x * own[i] for each i: a tile that all blocks of the cluster need, and one of their own.

    The example of the reference page, "Collective copies".

    Args:
      x: (rows, n).
      own: (blocks, rows, n).
    """
    blocks = _cluster_size(own.shape[0])

    def kernel(
        x_gmem: Any, own_gmem: Any, y_gmem: Any, x_smem: Any, own_smem: Any, loaded: Any
    ) -> None:
        rank = lax.axis_index("cluster")
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes="cluster")
        plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_gmem[rank] = x_smem[...] * own_smem[...]

    tile = plgpu.SMEM(x.shape, x.dtype)
    return plgpu.kernel(
        kernel,
        out_type=own,
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=dict(x_smem=tile, own_smem=tile, loaded=plgpu.Barrier(num_arrivals=2)),
    )(x, own)


def scale_own_reference(x: Array, own: Array) -> Array:
    """`scale_own` in NumPy."""
    return x * own


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """How `distances` brings the tiles that every block needs.

    Attributes:
      blocks: of a cluster; 1 is no cluster.
      slots: tiles that may be in SMEM at a time, at least 2.
      lag: how many steps after it was read a slot is filled again, fewer than slots. The blocks
        of a cluster may be as far apart; the tiles on their way are slots - lag.
    """

    blocks: int = 2
    slots: int = 4
    lag: int = 1


def distances(q: jax.Array, x: jax.Array, *, config: StreamConfig | None = None) -> jax.Array:
    """sum over t of |x[t] - q[i]| for each i: every block needs all tiles of x.

    Args:
      q: (queries, rows, n), a tile per block; rows and queries are multiples of config.blocks.
      x: (tiles, rows, n).
      config: the size of a cluster and of the ring.

    Returns:
      As q.

    Raises:
      ValueError: the ring does not suit, or `q` does not fit.
    """
    config = config or StreamConfig()
    slots, lag, tiles = config.slots, config.lag, x.shape[0]
    if not 1 <= lag < slots:
        raise ValueError(f"{lag=} must be at least 1, and smaller than {slots=}")

    def step(
        ti: Any, total: Any, query: Any, x_smem: Any, loaded: Any, consumed: Any, fetch: Any
    ) -> Any:
        slot = lax.rem(ti, slots)
        plgpu.barrier_wait(loaded.at[slot])
        total = total + jnp.abs(x_smem[slot] - query)
        plgpu.commit_smem()

        @pl.when(ti + slots < tiles)
        def _done() -> None:
            if consumed is not None:
                plgpu.barrier_arrive(consumed.at[slot])

        refill_ti = ti - lag + slots  # into the slot that was read `lag` steps ago

        @pl.when((ti >= lag) & (refill_ti < tiles))
        def _refill() -> None:
            refill_slot = lax.rem(refill_ti, slots)
            if consumed is not None:  # the copy writes into all blocks of the cluster
                plgpu.barrier_wait(consumed.at[refill_slot])
            fetch(refill_ti, refill_slot)

        return total

    shared = plgpu.ClusterBarrier(collective_axes=("cluster",), num_barriers=slots)
    consumed = shared if config.blocks > 1 else None
    return stream(q, x, step=step, consumed=consumed, blocks=config.blocks, slots=slots)


def stream(
    q: jax.Array,
    x: jax.Array,
    *,
    step: Callable[..., Any],
    consumed: Any,
    blocks: int,
    slots: int,
) -> jax.Array:
    """The frame of `distances`: a ring of slots that the blocks of a cluster fill together.

    Args:
      q: (queries, rows, n), a tile per block.
      x: (tiles, rows, n), of which all blocks see all tiles.
      step: `step(ti, total, query, x_smem, loaded, consumed, fetch)` returns the new total;
        `fetch(ti, slot)` starts the collective copy of tile `ti`.
      consumed: a barrier per slot, or None.
      blocks: of a cluster; 1 is no cluster.
      slots: of the ring.

    Raises:
      ValueError: there are too few slots, or `q` does not fit.
    """
    blocks = _cluster_size(blocks)
    tiles, rows, n = x.shape
    if not 2 <= slots <= tiles:
        raise ValueError(f"{slots=} must be at least 2, and at most the {tiles} tiles of x")
    if q.shape[0] % blocks or rows % blocks:
        raise ValueError(f"{q.shape=} must have multiples of {blocks=} in its first two axes")
    shared = "cluster" if blocks > 1 else None

    def kernel(
        q_gmem: Any, x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any, consumed: Any = None
    ) -> None:
        mine = lax.axis_index("group") * blocks + lax.axis_index("cluster")
        query = q_gmem[mine]

        def fetch(ti: Any, slot: Any) -> None:
            plgpu.copy_gmem_to_smem(
                x_gmem.at[ti], x_smem.at[slot], loaded.at[slot], collective_axes=shared
            )

        def one(ti: Any, total: Any) -> Any:
            return step(ti, total, query, x_smem, loaded, consumed, fetch)

        for slot in range(slots):
            fetch(slot, slot)
        y_gmem[mine] = lax.fori_loop(0, tiles, one, jnp.zeros((rows, n), q.dtype))

    ring = plgpu.SMEM((slots, rows, n), x.dtype)
    scratch: dict[str, Any] = dict(x_smem=ring, loaded=plgpu.Barrier(num_barriers=slots))
    return plgpu.kernel(
        kernel,
        out_type=q,
        grid=(q.shape[0] // blocks,),
        grid_names=("group",),
        cluster=(blocks,),
        cluster_names=("cluster",),
        scratch_types=scratch if consumed is None else {**scratch, "consumed": consumed},
    )(q, x)


def distances_reference(q: Array, x: Array, *, config: StreamConfig | None = None) -> Array:
    """`distances` in NumPy, summed in float64."""
    wide = np.abs(x.astype(np.float64)[:, None] - q.astype(np.float64)[None])
    return wide.sum(axis=0).astype(q.dtype)


# ---- a matrix product in clusters of any shape ----


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, the ring of slots, and the cluster.

    Attributes:
      tile_m: rows of the result per block, a multiple of 64.
      tile_n: columns of it, a multiple of 8, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      slots: how many steps of K may be in SMEM at a time, at least 2.
      cluster_m: blocks above each other in a cluster: they share the tiles of B.
      cluster_n: blocks beside each other in a cluster: they share the tiles of A.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    slots: int = 4
    cluster_m: int = 2
    cluster_n: int = 2


def bytes_per_step(config: Config, *, itemsize: int = 2) -> int:
    """How many bytes a block of `matmul` brings from L2 in one step of K.

    Of a tile that several blocks need, each brings its share.

    Args:
      config: tiles and cluster.
      itemsize: bytes of an element of A and B.
    """
    a_tile = config.tile_m * config.tile_k // config.cluster_n
    b_tile = config.tile_k * config.tile_n // config.cluster_m
    return (a_tile + b_tile) * itemsize


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` by `wgmma`, in clusters of cluster_m x cluster_n blocks that share their loads.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: tiles and cluster.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of what a cluster computes, or K has fewer steps
        than slots.
    """
    config = config or Config()
    share_a = "cluster_n" if config.cluster_n > 1 else None
    share_b = "cluster_m" if config.cluster_m > 1 else None

    def fetch(a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded, collective_axes=share_a)
        plgpu.copy_gmem_to_smem(b_tile, b_smem, loaded, collective_axes=share_b)

    def before_refill(consumed: Any) -> None:
        plgpu.barrier_arrive(consumed)  # the copies write into other blocks, too
        plgpu.barrier_wait(consumed)

    if not (share_a or share_b):
        return product(a, b, fetch=fetch, config=config)
    axes = ("cluster_m", "cluster_n")  # the blocks of its column, and those of its row
    consumed = plgpu.ClusterBarrier(collective_axes=axes, num_barriers=config.slots)
    return product(a, b, fetch=fetch, before_refill=before_refill, consumed=consumed, config=config)


def product(
    a: jax.Array,
    b: jax.Array,
    *,
    fetch: Callable[..., None],
    before_refill: Callable[[Any], None] | None = None,
    consumed: Any = None,
    config: Config,
) -> jax.Array:
    """The frame of `matmul`: a ring of slots, whose copies and hand-overs the caller writes.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      fetch: starts the copies of one step: `fetch(a_tile, b_tile, a_smem, b_smem, loaded)`, with
        the block's tiles in GMEM, the slot in SMEM, and its barrier, which takes two arrivals.
      before_refill: is called before a slot is filled again, with its barrier of `consumed`.
      consumed: a barrier per slot, or None.
      config: tiles and cluster.

    Raises:
      ValueError: as `matmul`.
    """
    tile_m, tile_n, tile_k, slots = config.tile_m, config.tile_n, config.tile_k, config.slots
    m_iters, n_iters, k_iters = _iterations(a, b, config)

    def kernel(
        a_gmem: Any, b_gmem: Any, c_gmem: Any,
        a_smem: Any, b_smem: Any, c_smem: Any, loaded: Any, consumed: Any = None,
    ) -> None:  # fmt: skip
        mi = lax.axis_index("m") * config.cluster_m + lax.axis_index("cluster_m")
        ni = lax.axis_index("n") * config.cluster_n + lax.axis_index("cluster_n")
        rows, cols = pl.ds(mi * tile_m, tile_m), pl.ds(ni * tile_n, tile_n)

        def fill(ki: Any, slot: Any) -> None:
            ks = pl.ds(ki * tile_k, tile_k)
            tiles = a_gmem.at[rows, ks], b_gmem.at[ks, cols]
            fetch(*tiles, a_smem.at[slot], b_smem.at[slot], loaded.at[slot])

        def all_steps(acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading
                refill_ki = ki - 1 + slots  # into the slot of the step before

                @pl.when((ki > 0) & (refill_ki < k_iters))
                def _refill() -> None:
                    refill_slot = lax.rem(refill_ki, slots)
                    if before_refill is not None:
                        before_refill(consumed.at[refill_slot])
                    fill(refill_ki, refill_slot)

            return acc[...]

        for slot in range(slots):
            fill(slot, slot)
        acc = pl.run_scoped(all_steps, plgpu.ACC((tile_m, tile_n), jnp.float32))
        c_smem[...] = acc.astype(c_smem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(c_smem, c_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM((slots, tile_m, tile_k), a.dtype),
        b_smem=plgpu.SMEM((slots, tile_k, tile_n), a.dtype),
        c_smem=plgpu.SMEM((tile_m, tile_n), a.dtype),
        loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
    )
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        cluster=(config.cluster_m, config.cluster_n),
        cluster_names=("cluster_m", "cluster_n"),
        scratch_types=scratch if consumed is None else {**scratch, "consumed": consumed},
    )(a, b)


def matmul_reference(a: Array, b: Array, *, config: Config | None = None) -> Array:
    """`matmul` in NumPy, in float32, rounded to the dtype of `a`."""
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


def _iterations(a: jax.Array, b: jax.Array, config: Config) -> tuple[int, int, int]:
    """How many clusters there are along M and N, and how many steps along K."""
    (m, k), (k2, n) = a.shape, b.shape
    _cluster_size(config.cluster_m * config.cluster_n)
    tile_m, tile_n = config.tile_m * config.cluster_m, config.tile_n * config.cluster_n
    if k != k2:
        raise ValueError(f"a has {k} columns and b has {k2} rows; they must be equal")
    for name, size, tile in (("m", m, tile_m), ("n", n, tile_n), ("k", k, config.tile_k)):
        if size % tile:
            raise ValueError(f"{name}={size} must be divisible by {tile}")
    if not 2 <= config.slots <= k // config.tile_k:
        raise ValueError(f"{config.slots=} must be at least 2, and {k=} hold as many tiles")
    return m // tile_m, n // tile_n, k // config.tile_k


def _cluster_size(blocks: int) -> int:
    """The same number, if every GPU with clusters can run a cluster of so many blocks."""
    if not 1 <= blocks <= PORTABLE_CLUSTER:
        raise ValueError(f"a cluster has 1 to {PORTABLE_CLUSTER} blocks, not {blocks}")
    return blocks
