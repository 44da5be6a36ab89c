"""Matrix products on Hopper's tensor cores: `wgmma` fed by TMA, alone and in clusters.

Both keep a ring of SMEM slots: while the tensor core works on one slot, the
copies into the others are under way.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, and how long the ring of SMEM slots is.

    Attributes:
      tile_m: rows of the result per block, a multiple of 64.
      tile_n: columns of the result per block, a multiple of 8, at most 256.
      tile_k: how much of K a slot holds; 64 float16 fill the 128-byte swizzle.
      max_concurrent_steps: the number of slots.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    max_concurrent_steps: int = 4


def matmul(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` by `wgmma`, one Pallas thread per block.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: the tile sizes.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile, or K has fewer steps than slots.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    slots = config.max_concurrent_steps
    m_iters, n_iters, k_iters = _iterations(a, b, config)

    def kernel(
        a_gmem: Any, b_gmem: Any, o_gmem: Any, a_smem: Any, b_smem: Any, o_smem: Any, loaded: Any
    ) -> None:
        rows = pl.ds(lax.axis_index("m") * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        def fetch(ki: Any, slot: Any) -> None:
            ks = pl.ds(ki * tile_k, tile_k)
            plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot], loaded.at[slot])
            plgpu.copy_gmem_to_smem(b_gmem.at[ks, cols], b_smem.at[slot], loaded.at[slot])

        def mma_body(acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading
                refill_ki = ki + slots - 1

                @pl.when((ki > 0) & (refill_ki < k_iters))
                def _refill() -> None:
                    fetch(refill_ki, lax.rem(refill_ki, slots))

            return acc[...]

        for slot in range(slots):
            fetch(slot, slot)
        acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
        o_smem[...] = acc.astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((tile_m, tile_n), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
        ),
    )(a, b)


def matmul_multicast(a: jax.Array, b: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`a @ b` like `matmul`, in clusters of two blocks that share each tile of B.

    The blocks of a cluster lie above each other, so they read the same columns of
    B: one multicast copy writes them into the SMEM of both.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      config: the tile sizes of one block.

    Returns:
      (m, n) of the same dtype; products are added up in float32.

    Raises:
      ValueError: a shape is not a multiple of its tile (m: of two tiles), or K has fewer steps
        than slots.
    """
    config = config or Config()
    tile_m, tile_n, tile_k = config.tile_m, config.tile_n, config.tile_k
    slots = config.max_concurrent_steps
    m_iters, n_iters, k_iters = _iterations(a, b, config, cluster_m=2)

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
        mi = lax.axis_index("m") * 2 + lax.axis_index("cluster")
        rows = pl.ds(mi * tile_m, tile_m)
        cols = pl.ds(lax.axis_index("n") * tile_n, tile_n)

        def fetch(ki: Any, slot: Any) -> None:
            ks = pl.ds(ki * tile_k, tile_k)
            plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem.at[slot], loaded.at[slot])
            plgpu.copy_gmem_to_smem(
                b_gmem.at[ks, cols], b_smem.at[slot], loaded.at[slot], collective_axes="cluster"
            )

        def mma_body(acc: Any) -> jax.Array:
            @pl.loop(0, k_iters)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                plgpu.barrier_wait(loaded.at[slot])
                plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # only the wgmma just issued may still be reading
                refill_ki = ki + slots - 1

                @pl.when((ki > 0) & (refill_ki < k_iters))
                def _refill() -> None:
                    refill_slot = lax.rem(refill_ki, slots)
                    # The copy writes into both blocks, so both must be done with the slot.
                    plgpu.barrier_arrive(consumed.at[refill_slot])
                    plgpu.barrier_wait(consumed.at[refill_slot])
                    fetch(refill_ki, refill_slot)

            return acc[...]

        for slot in range(slots):
            fetch(slot, slot)
        acc = pl.run_scoped(mma_body, plgpu.ACC((tile_m, tile_n), jnp.float32))
        o_smem[...] = acc.astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[rows, cols])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        grid=(m_iters, n_iters),
        grid_names=("m", "n"),
        cluster=(2,),
        cluster_names=("cluster",),
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, tile_m, tile_k), a.dtype),
            b_smem=plgpu.SMEM((slots, tile_k, tile_n), b.dtype),
            o_smem=plgpu.SMEM((tile_m, tile_n), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
            consumed=plgpu.ClusterBarrier(collective_axes=("cluster",), num_barriers=slots),
        ),
    )(a, b)


def _iterations(
    a: jax.Array, b: jax.Array, config: Config, *, cluster_m: int = 1
) -> tuple[int, int, int]:
    """How many tiles, or clusters of tiles, there are along M, N and K."""
    (m, k), (k2, n) = a.shape, b.shape
    tile_m, tile_n, tile_k = config.tile_m * cluster_m, config.tile_n, config.tile_k
    if k != k2:
        raise ValueError(f"a has {k} columns and b has {k2} rows; they must be equal")
    for name, size, tile in (("m", m, tile_m), ("n", n, tile_n), ("k", k, tile_k)):
        if size % tile:
            raise ValueError(f"{name}={size} must be divisible by tile_{name}={tile}")
    if k // tile_k < config.max_concurrent_steps:
        raise ValueError(f"{k=} must hold max_concurrent_steps={config.max_concurrent_steps} tiles")
    return m // tile_m, n // tile_n, k // tile_k
