"""Step 9, ping-pong: two warpgroups, two tiles; while one writes out, the other multiplies.

Each warpgroup computes whole tiles of its own, every second one of its block. One
thread copies for both, into one ring, tile after tile: it never waits for a tile to
end, and the order of the slots is the order in which the two take turns.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.matmul_ladder.shapes import count_tiles, num_sms, require_multiple


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of slots is.

    Attributes:
      tile_m: rows of a tile of the result, a multiple of 64; one warpgroup computes it.
      tile_n: columns of it, a multiple of 8, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots, at least 2.
      epi_tile_n: columns of a piece of the result on its way out; tile_n is a multiple of it.
      grid_minor_dim: the axis that the snake's bands cut, 0 (M) or 1 (N).
      grid_tile_width: how many tiles wide a band is.
      num_sms: how many blocks to launch; None is one per SM.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    max_concurrent_steps: int = 4
    epi_tile_n: int = 64
    grid_minor_dim: int = 0
    grid_tile_width: int = 8
    num_sms: int | None = None


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    epi_tile_n, slots = config.epi_tile_n, config.max_concurrent_steps
    require_multiple(tile_n=(tile_n, epi_tile_n))
    m_iters, n_iters, k_iters = count_tiles(a, b, tile_m, tile_n, tile_k)
    blocks = min(config.num_sms or num_sms(), m_iters * n_iters)

    def tiles(work: Any) -> None:
        """`work(local_index, rows, cols)` for each tile of this block."""

        @plgpu.nd_loop((m_iters * n_iters,), collective_axes="sm")
        def _tile(loop: plgpu.NDLoopInfo) -> None:
            mi, ni = plgpu.planar_snake(
                loop.index[0], (m_iters, n_iters), config.grid_minor_dim, config.grid_tile_width
            )
            work(loop.local_index, pl.ds(mi * tile_m, tile_m), pl.ds(ni * tile_n, tile_n))

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

        def copy_tile(local_index: Any, rows: Any, cols: Any) -> None:
            taker = lax.rem(local_index, 2)

            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(local_index * k_iters + ki, slots)
                plgpu.barrier_wait(consumed.at[slot])
                ks, barrier = pl.ds(ki * tile_k, tile_k), loaded.at[taker * slots + slot]
                plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot], barrier)
                plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem.at[slot], barrier)

        def multiply_tile(local_index: Any, acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                number = local_index * k_iters + ki
                slot = lax.rem(number, slots)
                plgpu.barrier_wait(loaded.at[wg * slots + slot])
                plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading

                @pl.when(ki > 0)
                def _release() -> None:
                    plgpu.barrier_arrive(consumed.at[lax.rem(number - 1, slots)])

            plgpu.wgmma_wait(0)
            plgpu.barrier_arrive(consumed.at[lax.rem(local_index * k_iters + k_iters - 1, slots)])
            return acc[...]

        def compute_tile(local_index: Any, rows: Any, cols: Any) -> None:
            @pl.when(lax.rem(local_index, 2) == wg)
            def _mine() -> None:
                acc = pl.run_scoped(
                    lambda acc: multiply_tile(local_index, acc),
                    plgpu.ACC((tile_m, tile_n), jnp.float32),
                ).astype(o_smem.dtype)
                for i in range(tile_n // epi_tile_n):
                    piece = slice(i * epi_tile_n, (i + 1) * epi_tile_n)
                    # Of the two buffers, the one written two pieces ago must have been read.
                    plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                    o_smem[wg, i % 2] = acc[:, piece]
                    plgpu.commit_smem()  # the TMA unit is to see what this thread has written
                    plgpu.copy_smem_to_gmem(
                        o_smem.at[wg, i % 2], o_gmem.at[rows, cols].at[:, piece]
                    )

        def compute() -> None:
            plgpu.set_max_registers(232, action="increase")

            @pl.when(wg == 0)
            def _all_slots_are_free() -> None:
                for slot in range(slots):
                    plgpu.barrier_arrive(consumed.at[slot])

            tiles(compute_tile)
            plgpu.wait_smem_to_gmem(0)

        def copy() -> None:
            plgpu.set_max_registers(40, action="decrease")
            tiles(copy_tile)
            for slot in range(slots):  # nobody leaves while a barrier is still to complete
                plgpu.barrier_wait(consumed.at[slot])

        lax.cond(wg < 2, compute, copy)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(blocks,),
        grid_names=("sm",),
        num_threads=3,
        thread_name="wg",
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((2, 2, tile_m, epi_tile_n), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=2 * slots),
            consumed=plgpu.Barrier(num_barriers=slots),
        ),
    )(a, b)
