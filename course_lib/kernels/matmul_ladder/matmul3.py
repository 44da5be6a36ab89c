"""Step 3, two warpgroups and a bigger tile: 128x256 per block, 64x256 per Pallas thread.

The accumulator of 128x256 float32 does not fit the registers of one warpgroup. Two
hold half each and share the tile of B, so a byte of SMEM is multiplied more often.
Each copies half of every slot, and refills it when both are done with it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.matmul_ladder.shapes import count_tiles


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of slots is.

    Attributes:
      tile_m: rows of the result per warpgroup, a multiple of 64; a block has twice as many.
      tile_n: columns of it, a multiple of 8, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots, at least 2.
    """

    tile_m: int = 64
    tile_n: int = 256
    tile_k: int = 64
    max_concurrent_steps: int = 3


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    m_iters, n_iters, k_iters = count_tiles(a, b, 2 * tile_m, tile_n, tile_k)
    slots = min(config.max_concurrent_steps, k_iters)

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
        rows = pl.ds((lax.axis_index("m") * 2 + wg) * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        def fetch(ki: Any, slot: Any) -> None:
            ks = pl.ds(ki * tile_k, tile_k)
            plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot, wg], loaded.at[slot])
            half = pl.ds(wg * (tile_k // 2), tile_k // 2)
            plgpu.copy_gmem_to_smem(
                b_gmem.at[ks, cols].at[half], b_smem.at[slot, half], loaded.at[slot]
            )

        def mma_body(acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.wgmma(acc, a_smem.at[slot, wg], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading
                refill_ki = ki + slots - 1

                @pl.when((ki > 0) & (refill_ki < k_iters))
                def _refill() -> None:
                    refill_slot = lax.rem(refill_ki, slots)
                    # Half of B is the other warpgroup's to read, so both must be done.
                    plgpu.barrier_arrive(consumed.at[refill_slot])
                    plgpu.barrier_wait(consumed.at[refill_slot])
                    fetch(refill_ki, refill_slot)

            return acc[...]

        for slot in range(slots):
            fetch(slot, slot)
        acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
        o_smem[wg] = acc.astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        num_threads=2,
        thread_name="wg",
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, 2, tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((2, tile_m, tile_n), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=4, num_barriers=slots),
            consumed=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
        ),
    )(a, b)
