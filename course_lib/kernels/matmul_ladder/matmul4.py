"""Step 4, warp specialization: a third Pallas thread only issues copies.

The two that multiply never meet each other any more: each waits for the copies of a
slot and says when it is done with it. `emit_pipeline_warp_specialized` also moves
registers (`setmaxnreg`) from the thread that copies to those that multiply.
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

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        wg = lax.axis_index("wg")
        rows = pl.ds(lax.axis_index("m") * 2 * tile_m, 2 * tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)
        wg_rows = pl.ds(wg * tile_m, tile_m)

        def step(_index: Any, a_smem: Any, b_smem: Any, acc: Any) -> Any:
            plgpu.wgmma(acc, a_smem.at[wg_rows], b_smem)
            plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading
            return acc

        def compute(pipeline: Any) -> None:
            def mma_body(acc: Any) -> jax.Array:
                pipeline(acc)
                return acc[...]

            acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
            o_smem[wg] = acc.astype(o_smem.dtype)
            plgpu.commit_smem()  # the TMA unit is to see what this thread has written
            plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[rows, cols].at[wg_rows])
            plgpu.wait_smem_to_gmem(0)

        a_tile, b_tile = (2 * tile_m, tile_k), (tile_k, tile_n)
        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(k_iters,),
            in_specs=[
                plgpu.BlockSpec(a_tile, lambda ki: (0, ki), delay_release=1),
                plgpu.BlockSpec(b_tile, lambda ki: (ki, 0), delay_release=1),
            ],
            max_concurrent_steps=config.max_concurrent_steps,
            compute_context=compute,
            wg_axis="wg",
            num_compute_wgs=2,
            memory_registers=40,
        )(a_gmem.at[rows], b_gmem.at[:, cols])

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        num_threads=3,
        thread_name="wg",
        scratch_types=dict(o_smem=plgpu.SMEM((2, tile_m, tile_n), a.dtype)),
    )(a, b)
