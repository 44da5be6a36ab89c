"""Step 2, a tiled epilogue: the result leaves TMEM piece by piece.

Only one piece at a time is in registers, and two in SMEM, so a block's tile can be
twice as wide: each slot of A is multiplied with twice as much of B.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.matmul_ladder.shapes import count_tiles, require_multiple

TMA_WARP = 0
MMA_WARP = 1


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of slots is.

    Attributes:
      tile_m: rows of the result per block: 128, the lanes of TMEM.
      tile_n: columns of it: columns of TMEM.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots.
      epi_tile_n: columns of a piece of the result on its way out; tile_n is a multiple of it.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    max_concurrent_steps: int = 4
    epi_tile_n: int = 64


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    epi_tile_n = config.epi_tile_n
    require_multiple(tile_n=(tile_n, epi_tile_n))
    m_iters, n_iters, k_iters = count_tiles(a, b, tile_m, tile_n, tile_k)
    slots = min(config.max_concurrent_steps, k_iters)

    def kernel(
        a_gmem: Any,
        b_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        o_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        consumed: Any,
        done: Any,
    ) -> None:
        rows = pl.ds(lax.axis_index("m") * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        def copy_all() -> None:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot, ks = lax.rem(ki, slots), pl.ds(ki * tile_k, tile_k)

                @pl.when(ki >= slots)
                def _wait_until_free() -> None:
                    plgpu.barrier_wait(consumed.at[slot])

                plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot], loaded.at[slot])
                plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem.at[slot], loaded.at[slot])

            for slot in range(slots):  # nobody leaves before the last arrival
                plgpu.barrier_wait(consumed.at[slot])

        def multiply_all() -> None:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.tcgen05_mma(
                    acc_tmem,
                    a_smem.at[slot],
                    b_smem.at[slot],
                    consumed.at[slot],
                    accumulate=ki > 0,
                )

            plgpu.tcgen05_commit_arrive(done)

        @plgpu.warp_map
        def _per_warp(warp: Any) -> None:
            pl.when(warp == TMA_WARP)(copy_all)
            pl.when(warp == MMA_WARP)(multiply_all)

        plgpu.barrier_wait(done)
        for i in range(tile_n // epi_tile_n):
            piece = pl.ds(i * epi_tile_n, epi_tile_n)
            # Of the two buffers, the one written two pieces ago must have been read.
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            o_smem[i % 2] = plgpu.async_load_tmem(acc_tmem.at[:, piece]).astype(o_smem.dtype)
            plgpu.commit_smem()  # the TMA unit is to see what this thread has written
            plgpu.copy_smem_to_gmem(o_smem.at[i % 2], o_gmem.at[rows, cols].at[:, piece])

        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((2, tile_m, epi_tile_n), a.dtype),
            acc_tmem=plgpu.TMEM((tile_m, tile_n), jnp.float32),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            consumed=plgpu.Barrier(num_barriers=slots, orders_tensor_core=True),
            done=plgpu.Barrier(orders_tensor_core=True),
        ),
    )(a, b)
