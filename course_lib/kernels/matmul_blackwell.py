"""Matrix products on Blackwell's tensor cores: `tcgen05`, by one SM and by pairs of SMs.

The accumulator lives in tensor memory (TMEM). One warp keeps the TMA unit
busy, one keeps the tensor core busy, and the whole block stores the result.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

_TMA_WARP = 0
_MMA_WARP = 1


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of SMEM slots is.

    Attributes:
      tile_m: rows of the result per block: 128.
      tile_n: columns of B that a block loads, a multiple of 8: at most 512, or 128 in a pair.
      tile_k: how much of K a slot holds; 64 float16 fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    max_concurrent_steps: int = 4


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` by `tcgen05`, one tile of the result per block.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: the tile sizes.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile.
    """
    return _matmul(a, b, config or Config(), pair=False)


def matmul_collective(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` like `matmul`, by the tensor cores of two SMs that share each tile of B.

    Each block of a pair holds its own rows of A and of the result and half of the
    columns of B. The first block, the leader, issues the MMA for both.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: the tile sizes of one block; a pair's tile is twice as high and as wide.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of a pair's tile.
    """
    return _matmul(a, b, config or Config(), pair=True)


def _matmul(a: jax.Array, b: jax.Array, config: Config, *, pair: bool) -> jax.Array:
    blocks = 2 if pair else 1
    tile_m, tile_n, tile_k = config.tile_m * blocks, config.tile_n * blocks, config.tile_k
    slots = config.max_concurrent_steps
    m_iters, n_iters, k_iters = _iterations(a, b, (tile_m, tile_n, tile_k))
    axis = "pair" if pair else None

    def split(dim: int) -> Any:
        """Each block of a pair receives its half of the slice, counted from 0 along `dim`."""
        return plgpu.CopyPartition.PARTITIONED(dim) if pair else None

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
        mi, ni, block = lax.axis_index("m"), lax.axis_index("n"), lax.axis_index("pair")
        rows, cols = pl.ds(mi * tile_m, tile_m), pl.ds(ni * tile_n, tile_n)

        def load(ki: Any) -> None:
            slot, ks = lax.rem(ki, slots), pl.ds(ki * tile_k, tile_k)

            @pl.when(ki >= slots)
            def _wait_until_free() -> None:
                plgpu.barrier_wait(consumed.at[slot])

            for source, target, dim in (
                (a_gmem.at[rows, ks], a_smem, 0),
                (b_gmem.at[ks, cols], b_smem, 1),
            ):
                plgpu.copy_gmem_to_smem(
                    source,
                    target.at[slot],
                    loaded.at[slot],
                    collective_axes=axis,
                    leader_tracked=split(dim),
                )

        def mma(ki: Any) -> None:
            slot = lax.rem(ki, slots)
            plgpu.barrier_wait(loaded.at[slot])
            plgpu.tcgen05_mma(
                acc_tmem,
                a_smem.at[slot],
                b_smem.at[slot],
                consumed.at[slot],
                accumulate=ki > 0,
                collective_axis=axis,
            )

        @plgpu.warp_map
        def _per_warp(warp: Any) -> None:
            @pl.when(warp == _TMA_WARP)
            def _load_all() -> None:
                pl.loop(0, k_iters)(load)
                # Each completion has its wait: the barriers' memory is used again after the scope.
                for ki in range(max(0, k_iters - slots), k_iters):
                    plgpu.barrier_wait(consumed.at[ki % slots])

            @pl.when((warp == _MMA_WARP) & (block == 0))
            def _multiply_all() -> None:
                pl.loop(0, k_iters)(mma)
                plgpu.tcgen05_commit_arrive(done, collective_axis=axis)

        plgpu.barrier_wait(done)
        o_smem[...] = plgpu.async_load_tmem(acc_tmem).astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        own_rows = pl.ds((mi * blocks + block) * config.tile_m, config.tile_m)
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[own_rows, cols])
        plgpu.wait_smem_to_gmem(0)
        plgpu.wait_load_tmem()

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        cluster=(blocks,),
        cluster_names=("pair",),
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, config.tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, config.tile_n), b.dtype),
            o_smem=plgpu.SMEM((config.tile_m, tile_n), a.dtype),
            acc_tmem=plgpu.TMEM((config.tile_m, tile_n), jnp.float32, collective=pair),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            consumed=plgpu.Barrier(num_barriers=slots, orders_tensor_core=True),
            done=plgpu.Barrier(orders_tensor_core=True),
        ),
    )(a, b)


def _iterations(a: jax.Array, b: jax.Array, tile: tuple[int, int, int]) -> tuple[int, int, int]:
    """How many tiles there are along M, N and K."""
    (m, k), (k2, n) = a.shape, b.shape
    if k != k2:
        raise ValueError(f"a has {k} columns and b has {k2} rows; they must be equal")
    for name, size, step in zip("mnk", (m, n, k), tile, strict=True):
        if size % step:
            raise ValueError(f"{name}={size} must be divisible by tile_{name}={step}")
    m_iters, n_iters, k_iters = (size // step for size, step in zip((m, n, k), tile, strict=True))
    return m_iters, n_iters, k_iters
