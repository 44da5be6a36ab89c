"""Step 7, a snake through the tiles: what runs at the same time shares tiles of A and B.

132 blocks at work on a compact patch of the result read fewer different bytes than
on two long rows of it, and more of them come from the L2 cache (chapter 02).
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
      tile_m: rows of the result per warpgroup, a multiple of 64; a block has twice as many.
      tile_n: columns of it, a multiple of 8, at most 256.
      tile_k: how much of K a slot holds; 64 elements fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots, at least 2.
      epi_tile_n: columns of a piece of the result on its way out; tile_n is a multiple of it.
      grid_minor_dim: the axis that the snake's bands cut, 0 (M) or 1 (N).
      grid_tile_width: how many tiles wide a band is.
      num_sms: how many blocks to launch; None is one per SM.
    """

    tile_m: int = 64
    tile_n: int = 256
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
    epi_tile_n = config.epi_tile_n
    require_multiple(tile_n=(tile_n, epi_tile_n))
    m_iters, n_iters, k_iters = count_tiles(a, b, 2 * tile_m, tile_n, tile_k)
    blocks = min(config.num_sms or num_sms(), m_iters * n_iters)

    def make_pipeline(step: Any, compute: Any) -> Any:
        a_tile, b_tile = (2 * tile_m, tile_k), (tile_k, tile_n)
        return plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(k_iters,),
            in_specs=[
                plgpu.BlockSpec(a_tile, lambda ki: (0, ki)),
                plgpu.BlockSpec(b_tile, lambda ki: (ki, 0)),
            ],
            max_concurrent_steps=config.max_concurrent_steps,
            compute_context=compute,
            wg_axis="wg",
            num_compute_wgs=2,
            memory_registers=40,
        )

    def kernel(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        wg = lax.axis_index("wg")
        wg_rows = pl.ds(wg * tile_m, tile_m)

        def step(_index: Any, a_smem: Any, b_smem: Any, acc: Any) -> Any:
            plgpu.wgmma(acc, a_smem.at[wg_rows], b_smem)
            plgpu.wgmma_wait(0)  # the slot is released right after this step
            return acc

        def all_tiles(allocations: Any) -> None:
            @plgpu.nd_loop((m_iters * n_iters,), collective_axes="sm")
            def _tile(loop: plgpu.NDLoopInfo) -> None:
                mi, ni = plgpu.planar_snake(
                    loop.index[0],
                    (m_iters, n_iters),
                    config.grid_minor_dim,
                    config.grid_tile_width,
                )
                rows, cols = pl.ds(mi * 2 * tile_m, 2 * tile_m), pl.ds(ni * tile_n, tile_n)

                def compute(pipeline: Any) -> None:
                    def mma_body(acc: Any) -> jax.Array:
                        pipeline(acc)
                        return acc[...]

                    acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
                    acc = acc.astype(o_smem.dtype)
                    for i in range(tile_n // epi_tile_n):
                        piece = slice(i * epi_tile_n, (i + 1) * epi_tile_n)
                        # Of the two buffers, the one written two pieces ago must have been read.
                        plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                        o_smem[wg, i % 2] = acc[:, piece]
                        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
                        plgpu.copy_smem_to_gmem(
                            o_smem.at[wg, i % 2], o_gmem.at[rows, cols].at[wg_rows, piece]
                        )

                make_pipeline(step, compute)(
                    a_gmem.at[rows], b_gmem.at[:, cols], allocations=allocations
                )

        # Allocated once: all threads would meet at an allocation inside the loop.
        allocations = make_pipeline(step, lambda _: None).get_allocations(a_gmem, b_gmem)
        pl.run_scoped(all_tiles, allocations, collective_axes="wg")
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(blocks,),
        grid_names=("sm",),
        num_threads=3,
        thread_name="wg",
        scratch_types=dict(o_smem=plgpu.SMEM((2, 2, tile_m, epi_tile_n), a.dtype)),
    )(a, b)
