"""Step 11, even waves: as few blocks as the waves allow.

2048 tiles take 132 blocks 16 waves, the last of them half empty; they take 128 blocks
as many. The four SMs without work leave their power to the clock of the others: under
such a load, power is what limits the clock.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.matmul_ladder.shapes import (
    check_operands,
    even_blocks,
    num_sms,
    require_multiple,
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of slots is.

    Attributes:
      tile_m: rows of the result per warpgroup, a multiple of 64; a block has twice as many.
      tile_n: columns of it, a multiple of 64, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots, at least 2.
      epi_tile_n: columns of a piece of the result on its way out; tile_n is a multiple of it.
      grid_minor_dim: the axis that the snake's bands cut, 0 (M) or 1 (N).
      grid_tile_width: how many tiles wide a band is.
      cluster_m: how many blocks above each other share B by multicast.
      num_sms: for how many SMs to launch blocks at most; None is all there are.
    """

    tile_m: int = 64
    tile_n: int = 256
    tile_k: int = 64
    max_concurrent_steps: int = 4
    epi_tile_n: int = 64
    grid_minor_dim: int = 0
    grid_tile_width: int = 8
    cluster_m: int = 1
    num_sms: int | None = None


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

    Raises:
      ValueError: m is no multiple of 8, n of 64, or k of tile_k; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_k, epi_tile_n = config.tile_m, config.tile_k, config.epi_tile_n
    slots, cluster_m = config.max_concurrent_steps, config.cluster_m
    m, n, k_iters = check_operands(a, b, 8, 64, tile_k)
    # Where the result is a single piece wide, Mosaic GPU drops that axis of the copy out: a
    # piece beyond it would land on it instead of nowhere.
    tile_n = min(config.tile_n, n)
    require_multiple(tile_n=(tile_n, epi_tile_n))
    m_iters, n_iters = pl.cdiv(m, cluster_m * 2 * tile_m), pl.cdiv(n, tile_n)
    clusters = even_blocks(m_iters * n_iters, (config.num_sms or num_sms()) // cluster_m)

    def tiles(work: Any) -> None:
        """`work(number, row, col)` for each tile of this block: its number, and where it begins."""

        @plgpu.nd_loop((m_iters * n_iters,), collective_axes="cluster_grid")
        def _tile(loop: plgpu.NDLoopInfo) -> None:
            mi, ni = plgpu.planar_snake(
                loop.index[0], (m_iters, n_iters), config.grid_minor_dim, config.grid_tile_width
            )
            mi = mi * cluster_m + lax.axis_index("cluster")
            work(loop.local_index, mi * 2 * tile_m, ni * tile_n)

    def kernel(
        a_gmem: Any,
        b_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        o_smem: Any,
        loaded: Any,
        consumed: Any,
    ) -> None:
        wg = lax.axis_index("wg")
        wg_rows = pl.ds(wg * tile_m, tile_m)

        def copy_tile(number: Any, row: Any, col: Any) -> None:
            rows, cols = pl.ds(row, 2 * tile_m), pl.ds(col, tile_n)

            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(number * k_iters + ki, slots)
                plgpu.barrier_wait(consumed.at[slot])
                ks = pl.ds(ki * tile_k, tile_k)
                plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot], loaded.at[slot])
                plgpu.copy_gmem_to_smem(
                    b_gmem.at[ks, cols],
                    b_smem.at[slot],
                    loaded.at[slot],
                    collective_axes="cluster" if cluster_m > 1 else None,
                )

        def compute_tile(number: Any, row: Any, col: Any) -> None:
            def mma_body(acc: Any) -> jax.Array:
                @pl.loop(0, k_iters)
                def _step(ki: Any) -> None:
                    slot = lax.rem(number * k_iters + ki, slots)
                    plgpu.barrier_wait(loaded.at[slot])
                    plgpu.wgmma(acc, a_smem.at[slot, wg_rows], b_smem.at[slot])
                    plgpu.wgmma_wait(0)  # the other warpgroup's wgmma keeps the tensor core busy
                    plgpu.barrier_arrive(consumed.at[slot])

                return acc[...]

            acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
            acc = acc.astype(o_smem.dtype)
            rows = pl.ds(row + wg * tile_m, tile_m)
            for i in range(tile_n // epi_tile_n):
                # Of the two buffers, the one written two pieces ago must have been read.
                plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                o_smem[wg, i % 2] = acc[:, i * epi_tile_n : (i + 1) * epi_tile_n]
                plgpu.commit_smem()  # the TMA unit is to see what this thread has written
                cols = pl.ds(col + i * epi_tile_n, epi_tile_n)
                plgpu.copy_smem_to_gmem(o_smem.at[wg, i % 2], o_gmem.at[rows, cols])

        def compute() -> None:
            plgpu.set_max_registers(232, action="increase")
            for slot in range(slots):  # at first, all slots are free
                plgpu.barrier_arrive(consumed.at[slot])
            tiles(compute_tile)
            plgpu.wait_smem_to_gmem(0)

        def copy() -> None:
            plgpu.set_max_registers(40, action="decrease")

            def one_warp() -> None:
                @pl.when(lax.axis_index("warp") == 0)
                def _first() -> None:
                    tiles(copy_tile)
                    for slot in range(slots):  # nobody leaves before the last arrival
                        plgpu.barrier_wait(consumed.at[slot])

            pl.kernel(one_warp, out_type=(), mesh=plgpu.WarpMesh(axis_name="warp"))()

        lax.cond(wg < 2, compute, copy)

    consumed = (
        plgpu.ClusterBarrier(collective_axes=("cluster",), num_arrivals=2, num_barriers=slots)
        if cluster_m > 1
        else plgpu.Barrier(num_arrivals=2, num_barriers=slots)
    )
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(clusters,),
        grid_names=("cluster_grid",),
        cluster=(cluster_m,),
        cluster_names=("cluster",),
        num_threads=3,
        thread_name="wg",
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, 2 * tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((2, 2, tile_m, epi_tile_n), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            consumed=consumed,
        ),
    )(a, b)
