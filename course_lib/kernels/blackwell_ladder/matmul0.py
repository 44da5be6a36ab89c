"""Step 0, one slot: copy a tile of A and one of B, wait, multiply, wait, and again.

The accumulator stays in TMEM for all of K; registers see it once, at the end.
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
    """Tile sizes in elements.

    Attributes:
      tile_m: rows of the result per block: 128, the lanes of TMEM.
      tile_n: columns of it: columns of TMEM.
      tile_k: how much of K the slot holds; 64 elements fill the 128-byte swizzle.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    m_iters, n_iters, k_iters = count_tiles(a, b, tile_m, tile_n, tile_k)

    def kernel(
        a_gmem: Any,
        b_gmem: Any,
        o_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        o_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        rows = pl.ds(lax.axis_index("m") * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        @pl.loop(0, k_iters)
        def _step(ki: Any) -> None:
            ks = pl.ds(ki * tile_k, tile_k)
            plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem, loaded)
            plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, accumulate=ki > 0)
            plgpu.barrier_wait(done)  # the next copy overwrites what the MMA reads

        o_smem[...] = plgpu.async_load_tmem(acc_tmem).astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=dict(
            a_smem=plgpu.SMEM((tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((tile_m, tile_n), a.dtype),
            acc_tmem=plgpu.TMEM((tile_m, tile_n), jnp.float32),
            loaded=plgpu.Barrier(num_arrivals=2),
            done=plgpu.Barrier(orders_tensor_core=True),
        ),
    )(a, b)
