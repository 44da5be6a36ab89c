"""The kernels of chapter 11: matrix products by pairs of SMs, and tiles taken while they last.

First the collective MMA alone (`pair_product`), again into the same tensor memory
(`pair_products`), and with scales (`scaled_pair_product`). Then cluster launch control without
any matrix: `double` asks by hand, `total` lets `plgpu.dynamic_scheduling_loop` ask. Last,
`matmul` has both, and three schedules to compare. Each has its NumPy reference beside it.

All of them need a Blackwell GPU (compute capability 10.0).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

PAIR = 2
"""SMs that pool their tensor cores (PTX ISA, tcgen05: CTA pair)."""

MMA_M = 128
"""Rows of the accumulator that a block of a pair holds, of 256 (reference page, collective MMA)."""

SCALED_K = 32
"""Elements along K that share a scale (float8 with float8_e8m0fnu; PTX ISA, block scaling)."""

_SCALE_TILE = (32, 16)
"""128 rows x 4 scales, in the order in which the copy to tensor memory takes them."""


def _halves(axis: int) -> dict[str, Any]:
    """Options of a copy that gives each block of the pair its half, counted along `axis`."""
    return {
        "collective_axes": "pair",
        "leader_tracked": plgpu.CopyPartition.PARTITIONED(axis),
    }


def _whole() -> dict[str, Any]:
    """Options of a copy that gives both blocks of the pair the same."""
    return {"collective_axes": "pair", "leader_tracked": plgpu.CopyPartition.REPLICATED}


_CLUSTER: dict[str, Any] = {"cluster": (PAIR,), "cluster_names": ("pair",)}


def _write(acc_tmem: Any, o_gmem: Any) -> None:
    """This block's half of a product to GMEM, so many columns at a time that registers suffice."""
    width = next(w for w in (128, 64, 32) if acc_tmem.shape[1] % w == 0)
    for first in range(0, acc_tmem.shape[1], width):
        part = pl.ds(first, width)
        o_gmem[:, part] = plgpu.async_load_tmem(acc_tmem.at[:, part])


# ---- one MMA of two SMs ----


def pair_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b` by one collective MMA: a (256, k), b (k, n), both float16; the result is float32.

    Each of the two blocks holds half of the rows of a, half of the columns of b, and its rows of
    the result, all n columns of it. Stacked, the two accumulators are the product. n is a multiple
    of 32 and at most 256, k a multiple of 16.

    Raises:
      ValueError: the shapes are not those of one collective MMA.
    """
    n, k = _check_pair(a, b)

    def body(
        a_gmem: Any,
        b_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        block = jax.lax.axis_index("pair")
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded, **_halves(0))
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded, **_halves(1))

        @pl.when(block == 0)
        def leader() -> None:
            plgpu.barrier_wait(loaded)
            plgpu.tcgen05_mma(
                acc_tmem, a_smem, b_smem, done, accumulate=False, collective_axis="pair"
            )

        plgpu.barrier_wait(done)
        _write(acc_tmem, o_gmem.at[pl.ds(block * MMA_M, MMA_M)])

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((PAIR * MMA_M, n), jnp.float32),
        **_CLUSTER,
        scratch_types={
            "a_smem": plgpu.SMEM((MMA_M, k), a.dtype),
            "b_smem": plgpu.SMEM((k, n // PAIR), b.dtype),
            "acc_tmem": plgpu.TMEM((MMA_M, n), jnp.float32, collective=True),
            "loaded": plgpu.Barrier(num_arrivals=2),
            "done": plgpu.Barrier(orders_tensor_core=True),
        },
    )(a, b)


def pair_product_reference(a: Array, b: Array) -> Array:
    """`pair_product` in NumPy."""
    return a.astype(np.float32) @ b.astype(np.float32)


def _check_pair(a: Any, b: Any) -> tuple[int, int]:
    """`(n, k)` of a product that one collective MMA can do: JAX wants 16 columns per block."""
    (m, k), (k2, n) = a.shape, b.shape[-2:]
    if m != PAIR * MMA_M or k != k2:
        raise ValueError(f"{a.shape=} and {b.shape=} must be (256, k) and (k, n)")
    if n % 32 or n > 256:
        raise ValueError(f"{n=} must be a multiple of 32 of at most 256: each block holds half")
    return n, k


# ---- and again, into the same tensor memory ----


def pair_products(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b[i]` for each i, one after the other, in one accumulator: b is (count, k, n).

    Before the leader starts the next MMA, both blocks have to be done with the accumulator: the
    page's "reusing TMEM for collective MMA".

    Raises:
      ValueError: the shapes are not those of a collective MMA.
    """
    n, k = _check_pair(a, b)

    def body(
        a_gmem: Any,
        b_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        done: Any,
        read: Any,
    ) -> None:
        block = jax.lax.axis_index("pair")
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded.at[0], **_halves(0))

        @pl.loop(0, b.shape[0])
        def product(i: Any) -> None:
            plgpu.copy_gmem_to_smem(b_gmem.at[i], b_smem, loaded.at[1], **_halves(1))

            @pl.when(block == 0)
            def leader() -> None:
                pl.when(i == 0)(lambda: plgpu.barrier_wait(loaded.at[0]))
                plgpu.barrier_wait(loaded.at[1])
                plgpu.tcgen05_mma(
                    acc_tmem, a_smem, b_smem, done, accumulate=False, collective_axis="pair"
                )

            plgpu.barrier_wait(done)
            _write(acc_tmem, o_gmem.at[i, pl.ds(block * MMA_M, MMA_M)])
            plgpu.wait_load_tmem()
            plgpu.barrier_arrive(read)  # this block is done with the accumulator ...
            plgpu.barrier_wait(read)  # ... and so is the other one

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((b.shape[0], PAIR * MMA_M, n), jnp.float32),
        **_CLUSTER,
        scratch_types={
            "a_smem": plgpu.SMEM((MMA_M, k), a.dtype),
            "b_smem": plgpu.SMEM((k, n // PAIR), b.dtype),
            "acc_tmem": plgpu.TMEM((MMA_M, n), jnp.float32, collective=True),
            "loaded": plgpu.Barrier(num_barriers=2),
            "done": plgpu.Barrier(orders_tensor_core=True),
            "read": plgpu.ClusterBarrier(collective_axes=("pair",), orders_tensor_core=True),
        },
    )(a, b)


def pair_products_reference(a: Array, b: Array) -> Array:
    """`pair_products` in NumPy."""
    product: Array = a.astype(np.float32) @ b.astype(np.float32)
    return product


# ---- with scales ----


def scaled_pair_product(
    a: jax.Array, b: jax.Array, a_scales: jax.Array, b_scales: jax.Array
) -> jax.Array:
    """`(a * its scales) @ (b * its scales).T` by one collective MMA.

    The tensor core of each block multiplies its own rows of a with all rows of b, so it needs the
    scales of its own rows of a, and those of all of b: A's are copied in halves, B's whole.

    Args:
      a: (256, k) float8_e4m3fn. b: (n, k) of the same dtype, n = 128 or 256.
      a_scales: (2, k / 128, 32, 16) float8_e8m0fnu, as `packed_scales` arranges (256, k / 32).
      b_scales: (n / 128, k / 128, 32, 16).

    Returns:
      (256, n) float32.

    Raises:
      ValueError: the shapes do not fit together.
    """
    (m, k), n = a.shape, b.shape[0]
    tiles = k // (4 * SCALED_K)
    if m != PAIR * MMA_M or b.shape[1] != k or n not in (128, 256) or k % (4 * SCALED_K):
        raise ValueError(f"{a.shape=} and {b.shape=} must be (256, k) and (n, k), k % 128 == 0")
    for name, given, rows in (("a_scales", a_scales, m), ("b_scales", b_scales, n)):
        if given.shape != (rows // 128, tiles, *_SCALE_TILE):
            raise ValueError(f"{name}.shape={given.shape} must be {(rows // 128, tiles, 32, 16)}")

    return scaled_product(
        a, b, a_scales, b_scales, load=_load_scaled, loaded=plgpu.Barrier(num_arrivals=4)
    )


def _load_scaled(sources: Any, targets: Any, loaded: Any) -> None:
    parts = (_halves(0), _halves(0), _halves(0), _whole())
    for source, target, part in zip(sources, targets, parts, strict=True):
        plgpu.copy_gmem_to_smem(source, target, loaded, **part)


def scaled_product(
    a: jax.Array,
    b: jax.Array,
    a_scales: jax.Array,
    b_scales: jax.Array,
    *,
    load: Callable[[Any, Any, Any], None],
    loaded: Any,
) -> jax.Array:
    """`scaled_pair_product` with loads of one's own.

    Args:
      a, b, a_scales, b_scales: as there.
      load: called by both blocks with the four refs in GMEM, the four in SMEM, and the barrier.
      loaded: the barrier that the leader waits for.
    """
    (m, k), n = a.shape, b.shape[0]
    tiles = k // (4 * SCALED_K)

    def body(
        a_gmem: Any,
        b_gmem: Any,
        as_gmem: Any,
        bs_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        as_smem: Any,
        bs_smem: Any,
        acc_tmem: Any,
        as_tmem: Any,
        bs_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        block = jax.lax.axis_index("pair")
        targets = (a_smem, b_smem, as_smem, bs_smem)
        load((a_gmem, b_gmem, as_gmem, bs_gmem), targets, loaded)

        @pl.when(block == 0)
        def leader() -> None:
            plgpu.barrier_wait(loaded)
            plgpu.async_copy_scales_to_tmem(as_smem, as_tmem, collective_axis="pair")
            plgpu.async_copy_scales_to_tmem(bs_smem, bs_tmem, collective_axis="pair")
            plgpu.tcgen05_mma(
                acc_tmem,
                a_smem,
                b_smem.transpose((1, 0)),
                done,
                a_scale=as_tmem,
                b_scale=bs_tmem,
                accumulate=False,
                collective_axis="pair",
            )

        plgpu.barrier_wait(done)
        _write(acc_tmem, o_gmem.at[pl.ds(block * MMA_M, MMA_M)])

    tmem_scales = functools.partial(
        plgpu.TMEM, layout=plgpu.TMEMLayout.SCALES_LAYOUT, collective=True
    )
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.float32),
        **_CLUSTER,
        scratch_types={
            "a_smem": plgpu.SMEM((MMA_M, k), a.dtype),
            "b_smem": plgpu.SMEM((n // PAIR, k), b.dtype),
            "as_smem": plgpu.SMEM((1, tiles, *_SCALE_TILE), a_scales.dtype),
            "bs_smem": plgpu.SMEM(b_scales.shape, b_scales.dtype),
            "acc_tmem": plgpu.TMEM((MMA_M, n), jnp.float32, collective=True),
            "as_tmem": tmem_scales((MMA_M, k // SCALED_K), a_scales.dtype),
            "bs_tmem": tmem_scales((n, k // SCALED_K), b_scales.dtype),
            "loaded": loaded,
            "done": plgpu.Barrier(orders_tensor_core=True),
        },
    )(a, b, a_scales, b_scales)


def quantized(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float8_e4m3fn values and their packed scales: a power of two for each 32 elements of a row.

    x is (rows, k), float32, rows and k multiples of 128. The largest of the 32 becomes at most 448,
    the largest float8_e4m3fn (OCP Microscaling Formats, MXFP8).
    """
    rows, k = x.shape
    blocks = x.reshape(rows, k // SCALED_K, SCALED_K)
    _, exponent = jnp.frexp(jnp.abs(blocks).max(-1, keepdims=True) / 448)
    scale = jnp.ldexp(jnp.float32(1), exponent)
    values = (blocks / scale).reshape(rows, k).astype(jnp.float8_e4m3fn)
    return values, packed_scales(scale[..., 0].astype(jnp.float8_e8m0fnu))


def mx_product_reference(a: Array, b: Array) -> Array:
    """`a @ b.T` of what `quantized` leaves of float32 a and b, in NumPy."""
    parts = [tuple(map(np.asarray, quantized(jnp.asarray(x)))) for x in (a, b)]
    (qa, sa), (qb, sb) = parts
    return scaled_pair_product_reference(qa, qb, sa, sb)


def packed_scales(scales: Any) -> Any:
    """Scales (rows, k / 32) in the order of the copy to tensor memory: 128 rows x 4 at a time.

    Row r of 128 goes to line r % 32, and there to the r // 32th group of four (PTX ISA, tcgen05
    scale factor layout, "1x").
    """
    rows, count = scales.shape
    tiles = scales.reshape(rows // 128, 4, 32, count // 4, 4).transpose(0, 3, 2, 1, 4)
    return tiles.reshape(rows // 128, count // 4, *_SCALE_TILE)


def scaled_pair_product_reference(a: Array, b: Array, a_scales: Array, b_scales: Array) -> Array:
    """`scaled_pair_product` in NumPy, float64; the scales are packed, as for the kernel."""
    return (_scaled(a, a_scales) @ _scaled(b, b_scales).T).astype(np.float32)


def _scaled(values: Array, packed: Array) -> Array:
    rows, k = values.shape
    scales = packed.reshape(rows // 128, k // 128, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    each = scales.reshape(rows, k // SCALED_K).astype(np.float64)
    result: Array = values.astype(np.float64) * np.repeat(each, SCALED_K, axis=1)
    return result


# ---- cluster launch control ----


def double(x: jax.Array) -> jax.Array:
    """2 * x, a row per tile: each block asks for the next row by hand, two slots in turn.

    What `plgpu.dynamic_scheduling_loop` does for a block of one Pallas thread. x is (tiles, 128).
    """
    tiles = x.shape[0]

    def body(x_gmem: Any, y_gmem: Any, answers: Any, answered: Any) -> None:
        def tile(carry: Any) -> Any:
            i, _, step = carry
            slot = jax.lax.rem(step, 2)
            plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])  # asks ...
            y_gmem[i] = 2 * x_gmem[i]  # ... works in the meantime ...
            plgpu.barrier_wait(answered.at[slot])  # ... and has the answer
            (following,), success = plgpu.query_cluster_cancel(answers.at[slot], ("tile",))
            plgpu.commit_smem()  # the answer was read: the slot may be filled again
            return following, success, step + 1

        first = (jax.lax.axis_index("tile"), True, jnp.int32(0))
        jax.lax.while_loop(lambda carry: carry[1], tile, first)

    return plgpu.kernel(
        body,
        out_type=x,
        grid=(tiles,),
        grid_names=("tile",),
        scratch_types={
            "answers": plgpu.TryClusterCancelResult(2),
            "answered": plgpu.Barrier(num_barriers=2),
        },
    )(x)


def double_reference(x: Array) -> Array:
    """`double` in NumPy."""
    return 2 * x


def add_both(x: jax.Array) -> jax.Array:
    """x + 1 for x of (tiles, 2, 128): the two blocks of a cluster take half a tile each.

    Both get the same answer to each request, since `cluster_axes` names their axis.
    """

    def body(x_gmem: Any, y_gmem: Any) -> None:
        @plgpu.dynamic_scheduling_loop(grid_names=("tile",), cluster_axes=("pair",))
        def tile(info: Any) -> None:
            part = info.index[0], jax.lax.axis_index("pair")
            y_gmem[part] = x_gmem[part] + 1

    return plgpu.kernel(body, out_type=x, grid=(x.shape[0],), grid_names=("tile",), **_CLUSTER)(x)


def add_both_reference(x: Array) -> Array:
    """`add_both` in NumPy."""
    return x + 1


def tiles_by_cluster(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """x + 1 as in `add_both`, and how many tiles each cluster computed.

    Entry i of the second result belongs to the cluster that was launched for tile i; it is 0 if
    that launch was cancelled. How the tiles are spread depends on who is fast; the sum does not.
    """
    tiles = x.shape[0]

    def body(x_gmem: Any, y_gmem: Any, count_gmem: Any) -> None:
        block = jax.lax.axis_index("pair")

        @plgpu.dynamic_scheduling_loop(
            grid_names=("tile",), cluster_axes=("pair",), init_carry=jnp.int32(0)
        )
        def computed(info: Any, carry: Any) -> Any:
            (i,) = info.index
            y_gmem[i, block] = x_gmem[i, block] + 1
            pl.when(block == 0)(lambda: _put(count_gmem, i, jnp.int32(0)))
            return carry + 1

        pl.when(block == 0)(lambda: _put(count_gmem, jax.lax.axis_index("tile"), computed))

    return plgpu.kernel(
        body,
        out_type=(x, jax.ShapeDtypeStruct((tiles,), jnp.int32)),
        grid=(tiles,),
        grid_names=("tile",),
        **_CLUSTER,
    )(x)


def total(counts: jax.Array) -> jax.Array:
    """The sum of a vector of int32, as a vector of one: by a kernel, with scalars."""

    def body(counts_gmem: Any, total_gmem: Any) -> None:
        def add(i: Any, so_far: Any) -> Any:
            return so_far + counts_gmem[i]

        total_gmem[0] = jax.lax.fori_loop(0, counts.shape[0], add, jnp.int32(0))

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((1,), jnp.int32))(counts)


def tiles_by_cluster_reference(x: Array) -> tuple[Array, Array]:
    """`x + 1`, and the `total` of the counts of `tiles_by_cluster`, in NumPy."""
    return x + 1, np.array([len(x)], np.int32)


def _put(ref: Any, i: Any, value: Any) -> None:
    ref[i] = value


# ---- both: the matrix product ----

_TMA_WARP, _MMA_WARP = 0, 1
_MAIN, _EPILOGUE = 0, 1
SCHEDULES = ("blocks", "persistent", "dynamic")


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and who computes which tile.

    Attributes:
      tile_m: rows of the result per block: 128. A pair's tile is twice as high.
      tile_n: columns of B that a block loads, at most 128. A pair's tile is twice as wide.
      tile_k: how much of K a slot holds; 64 float16 fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots.
      epilogue_tile_n: columns that the epilogue stores at a time.
      schedule: "blocks" (a cluster per tile), "persistent" (`num_clusters` of them take turns) or
        "dynamic" (each takes the next tile while there are any).
      num_clusters: of a persistent kernel. A B200 has room for 74 pairs.
      grid_minor_dim, grid_tile_width: of `plgpu.planar_snake`.
      triangular: whether A is lower triangular, zero above its diagonal: tiles of A that are all
        zero are neither loaded nor multiplied, and so the tiles of the result take different times.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    max_concurrent_steps: int = 4
    epilogue_tile_n: int = 64
    schedule: str = "dynamic"
    num_clusters: int = 74
    grid_minor_dim: int = 0
    grid_tile_width: int = 1
    triangular: bool = False


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` by pairs of SMs: loads, MMAs and the epilogue of the tile before run side by side.

    Thread 0's warps 0 and 1 keep the TMA unit and, in the leader, the tensor core busy. Thread 1
    stores what is done. Two accumulators take turns, so nobody waits for the other's tile.

    Args:
      a: (m, k), float16 or bfloat16. b: (k, n), of the same dtype.
      config: the tile sizes and the schedule.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile, or there is no such schedule.
    """
    config = config or Config()
    work = _Work.of(a, b, config)

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, **scratch: Any) -> None:
        tile = functools.partial(compute_tile, work, a_gmem, b_gmem, o_gmem, scratch)
        steps, tiles = for_each_tile(work, tile)
        drain(work, scratch, steps, tiles)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(work.clusters,),
        grid_names=("tile",),
        **_CLUSTER,
        num_threads=2,
        thread_name="thread",
        scratch_types=_scratch(work, a.dtype),
    )(a, b)


def matmul_reference(a: Array, b: Array) -> Array:
    """`matmul` in NumPy, float32."""
    return pair_product_reference(a, b)


@dataclasses.dataclass(frozen=True)
class _Work:
    """A product cut into tiles of pairs: `m` x `n` of them, at most `k` steps each."""

    config: Config
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, a: Any, b: Any, config: Config) -> _Work:
        (m, k), (k2, n) = a.shape, b.shape
        if k != k2:
            raise ValueError(f"a has {k} columns and b has {k2} rows; they must be equal")
        if config.schedule not in SCHEDULES:
            raise ValueError(f"{config.schedule=} must be one of {SCHEDULES}")
        if config.triangular and m != k:
            raise ValueError(f"a triangular {a.shape=} must be square")
        tile = (PAIR * config.tile_m, PAIR * config.tile_n, config.tile_k)
        for name, size, step in zip("mnk", (m, n, k), tile, strict=True):
            if size % step:
                raise ValueError(f"{name}={size} must be divisible by {step}")
        if tile[1] % config.epilogue_tile_n:
            raise ValueError(f"{tile[1]} must be divisible by {config.epilogue_tile_n=}")
        return cls(config, m // tile[0], n // tile[1], k // tile[2])

    @property
    def tile_m(self) -> int:
        return PAIR * self.config.tile_m

    @property
    def tile_n(self) -> int:
        return PAIR * self.config.tile_n

    @property
    def clusters(self) -> int:
        """How many clusters are launched."""
        tiles = self.m * self.n
        if self.config.schedule == "persistent":
            return min(tiles, self.config.num_clusters)
        return tiles

    def place(self, i: Any) -> tuple[Any, Any]:
        """Row and column, in tiles, of tile number `i`."""
        width = self.config.grid_tile_width
        mi, ni = plgpu.planar_snake(i, (self.m, self.n), self.config.grid_minor_dim, width)
        return mi, ni

    def steps(self, mi: Any) -> Any:
        """How many steps along K a tile of row `mi` takes."""
        if not self.config.triangular:
            return jnp.int32(self.k)
        return (mi + 1) * (self.tile_m // self.config.tile_k)


def _scratch(work: _Work, dtype: Any) -> dict[str, Any]:
    config, slots = work.config, work.config.max_concurrent_steps
    return {
        "a_smem": plgpu.SMEM((slots, config.tile_m, config.tile_k), dtype),
        "b_smem": plgpu.SMEM((slots, config.tile_k, config.tile_n), dtype),
        "o_smem": plgpu.SMEM((2, config.tile_m, config.epilogue_tile_n), dtype),
        "acc_tmem": plgpu.TMEM((config.tile_m, 2 * work.tile_n), jnp.float32, collective=True),
        "loaded": plgpu.Barrier(num_arrivals=2, num_barriers=slots),
        "consumed": plgpu.Barrier(num_barriers=slots, orders_tensor_core=True),
        "computed": plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
        "stored": plgpu.ClusterBarrier(
            collective_axes=("pair",), num_barriers=2, orders_tensor_core=True
        ),
    }


def for_each_tile(work: _Work, tile: Callable[..., Any]) -> Any:
    """Calls `tile(i, number, carry)` for each tile of this cluster; the last carry.

    `i` is the tile, `number` counts this cluster's own tiles from 0. The carry is the steps along
    K and the tiles so far.
    """
    none = (jnp.int32(0), jnp.int32(0))
    if work.config.schedule == "blocks":
        return tile(jax.lax.axis_index("tile"), jnp.int32(0), none)
    loop = {
        "persistent": functools.partial(plgpu.nd_loop, (work.m * work.n,), collective_axes="tile"),
        "dynamic": functools.partial(
            plgpu.dynamic_scheduling_loop,
            grid_names=("tile",),
            thread_axis="thread",
            cluster_axes=("pair",),
        ),
    }[work.config.schedule]

    @loop(init_carry=none)  # type: ignore[arg-type]
    def last(info: Any, carry: Any) -> Any:
        return tile(info.index[0], info.local_index, carry)

    return last


def compute_tile(
    work: _Work,
    a_gmem: Any,
    b_gmem: Any,
    o_gmem: Any,
    scratch: dict[str, Any],
    i: Any,
    number: Any,
    carry: Any,
) -> Any:
    """One tile of the result; all threads of both blocks call it."""
    before, tiles = carry
    mi, ni = work.place(i)
    steps = work.steps(mi)
    thread, block = jax.lax.axis_index("thread"), jax.lax.axis_index("pair")
    slot = jax.lax.rem(number, 2)
    acc = scratch["acc_tmem"].at[:, pl.ds(slot * work.tile_n, work.tile_n)]

    @pl.when(thread == _MAIN)
    def main() -> None:
        @plgpu.warp_map
        def each(warp: Any) -> None:
            # The leader's MMA needs the accumulator. The other block's loads wait too, although
            # they do not: its barrier would complete twice before anybody had looked.
            @pl.when((warp == jnp.where(block == 0, _MMA_WARP, _TMA_WARP)) & (number >= 2))
            def accumulator_free() -> None:
                plgpu.barrier_wait(scratch["stored"].at[slot])

            @pl.when(warp == _TMA_WARP)
            def load_all() -> None:
                load_tiles(work, a_gmem, b_gmem, scratch, (mi, ni), before, steps)

            @pl.when((warp == _MMA_WARP) & (block == 0))
            def multiply_all() -> None:
                multiply(work, scratch, acc, before, steps)
                plgpu.tcgen05_commit_arrive(scratch["computed"].at[slot], collective_axis="pair")

    @pl.when(thread == _EPILOGUE)
    def epilogue() -> None:
        plgpu.barrier_wait(scratch["computed"].at[slot])
        rows = pl.ds((mi * PAIR + block) * work.config.tile_m, work.config.tile_m)
        out = o_gmem.at[rows, pl.ds(ni * work.tile_n, work.tile_n)]
        store_tile(work, scratch["o_smem"], acc, out, lambda: _release(scratch["stored"].at[slot]))

    return before + steps, tiles + 1


def load_tiles(
    work: _Work,
    a_gmem: Any,
    b_gmem: Any,
    scratch: dict[str, Any],
    place: tuple[Any, Any],
    before: Any,
    steps: Any,
) -> None:
    """Keeps the slots filled, with this block's halves."""
    tile_k, slots = work.config.tile_k, work.config.max_concurrent_steps
    rows = pl.ds(place[0] * work.tile_m, work.tile_m)
    cols = pl.ds(place[1] * work.tile_n, work.tile_n)

    @pl.loop(0, steps)
    def step(ki: Any) -> None:
        slot, ks = jax.lax.rem(before + ki, slots), pl.ds(ki * tile_k, tile_k)
        free = scratch["consumed"].at[slot]
        pl.when(before + ki >= slots)(lambda: plgpu.barrier_wait(free))
        loaded = scratch["loaded"].at[slot]
        a_smem, b_smem = scratch["a_smem"].at[slot], scratch["b_smem"].at[slot]
        plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem, loaded, **_halves(0))
        plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem, loaded, **_halves(1))


def multiply(work: _Work, scratch: dict[str, Any], acc: Any, before: Any, steps: Any) -> None:
    """The leader's MMAs for both blocks."""

    @pl.loop(0, steps)
    def step(ki: Any) -> None:
        slot = jax.lax.rem(before + ki, work.config.max_concurrent_steps)
        plgpu.barrier_wait(scratch["loaded"].at[slot])
        plgpu.tcgen05_mma(
            acc,
            scratch["a_smem"].at[slot],
            scratch["b_smem"].at[slot],
            scratch["consumed"].at[slot],
            accumulate=ki > 0,
            collective_axis="pair",
        )


def store_tile(work: _Work, o_smem: Any, acc: Any, out: Any, release: Callable[[], None]) -> None:
    """This block's half of the accumulator to GMEM, some columns at a time."""
    width = work.config.epilogue_tile_n
    pieces = work.tile_n // width
    for piece in range(pieces):
        cols = pl.ds(piece * width, width)
        values = plgpu.async_load_tmem(acc.at[:, cols]).astype(o_smem.dtype)
        if piece == pieces - 1:
            release()
        plgpu.wait_smem_to_gmem(1, wait_read_only=True)  # the copy before the last has been read
        o_smem[piece % 2] = values
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem.at[piece % 2], out.at[:, cols])


def _release(stored: Any) -> None:
    plgpu.wait_load_tmem()  # the accumulator has been read, and may be overwritten
    plgpu.barrier_arrive(stored)


def drain(work: _Work, scratch: dict[str, Any], steps: Any, tiles: Any) -> None:
    """Waits for what nobody has waited for: each completion needs a wait before the end."""
    thread, block = jax.lax.axis_index("thread"), jax.lax.axis_index("pair")
    slots = work.config.max_concurrent_steps

    @pl.when(thread == _MAIN)
    def main() -> None:
        @plgpu.warp_map
        def each(warp: Any) -> None:
            @pl.when(warp == _TMA_WARP)
            def slots_free() -> None:
                @pl.loop(jnp.maximum(steps - slots, 0), steps)
                def slot(s: Any) -> None:
                    plgpu.barrier_wait(scratch["consumed"].at[jax.lax.rem(s, slots)])

            @pl.when(warp == jnp.where(block == 0, _MMA_WARP, _TMA_WARP))
            def accumulators_free() -> None:
                @pl.loop(jnp.maximum(tiles - 2, 0), tiles)
                def slot(t: Any) -> None:
                    plgpu.barrier_wait(scratch["stored"].at[jax.lax.rem(t, 2)])

    @pl.when(thread == _EPILOGUE)
    def epilogue() -> None:
        plgpu.wait_smem_to_gmem(0)
