"""Step 0, three kernels: the scores go to GMEM, come back for the softmax, and again for V.

Each kernel is one that the earlier chapters have built. What is slow is the way between
them: for every query and key, 4 bytes of score are written once and read twice, and 2 bytes
of probability are written and read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.attention_ladder.shapes import Sizes, check_operands


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements.

    Attributes:
      block_q: queries per block, a multiple of 64.
      block_kv: keys per tile, a multiple of 64, at most 256.
    """

    block_q: int = 64
    block_kv: int = 128


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, config: Config | None = None
) -> jax.Array:
    """`softmax(q k^T / sqrt(head_dim)) v`, head by head.

    Args:
      q: (batch, q_len, heads, head_dim), float16 or bfloat16.
      k: (batch, kv_len, kv_heads, head_dim), of the same dtype.
      v: like k.
      config: the tile sizes.

    Raises:
      ValueError: a shape is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    sizes = check_operands(q, k, v, config.block_q, config.block_kv)
    scores = _scores(q, k, sizes, config)
    p = _softmax(scores, q.dtype, sizes, config)
    return _weighted_sum(p, v, sizes, config)


def _grid(sizes: Sizes, config: Config) -> dict[str, Any]:
    """One block for 64 queries of a head."""
    return dict(
        grid=(sizes.batch, sizes.heads, sizes.q_len // config.block_q),
        grid_names=("batch", "head", "q"),
    )


def _scores(q: jax.Array, k: jax.Array, sizes: Sizes, config: Config) -> jax.Array:
    """`q k^T / sqrt(head_dim)`: (batch, heads, q_len, kv_len), float32."""
    block_q, block_kv, head_dim = config.block_q, config.block_kv, sizes.head_dim

    def kernel(
        q_gmem: Any, k_gmem: Any, s_gmem: Any, q_smem: Any, k_smem: Any, s_smem: Any, loaded: Any
    ) -> None:
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        kv_head = lax.div(head, sizes.heads_per_kv_head)
        rows = pl.ds(lax.axis_index("q") * block_q, block_q)
        plgpu.copy_gmem_to_smem(q_gmem.at[batch, rows, head], q_smem, loaded)
        plgpu.barrier_wait(loaded)

        @pl.loop(0, sizes.kv_len // block_kv)
        def _tile(ki: Any) -> None:
            keys = pl.ds(ki * block_kv, block_kv)
            plgpu.copy_gmem_to_smem(k_gmem.at[batch, keys, kv_head], k_smem, loaded)
            plgpu.barrier_wait(loaded)

            def multiply(acc: Any) -> jax.Array:
                plgpu.wgmma(acc, q_smem, k_smem.transpose((1, 0)))
                return acc[...]

            s = pl.run_scoped(multiply, plgpu.ACC((block_q, block_kv), jnp.float32))
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)  # the tile before has left s_smem
            s_smem[...] = s * head_dim**-0.5
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(s_smem, s_gmem.at[batch, head, rows, keys])

        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(
            (sizes.batch, sizes.heads, sizes.q_len, sizes.kv_len), jnp.float32
        ),
        **_grid(sizes, config),
        scratch_types=dict(
            q_smem=plgpu.SMEM((block_q, head_dim), q.dtype),
            k_smem=plgpu.SMEM((block_kv, head_dim), k.dtype),
            s_smem=plgpu.SMEM((block_q, block_kv), jnp.float32),
            loaded=plgpu.Barrier(),
        ),
    )(q, k)


def _softmax(scores: jax.Array, dtype: Any, sizes: Sizes, config: Config) -> jax.Array:
    """The softmax along the last axis, in two passes: first the sums, then the quotients."""
    block_q, block_kv = config.block_q, config.block_kv
    kv_tiles = sizes.kv_len // block_kv

    def kernel(s_gmem: Any, p_gmem: Any, s_smem: Any, p_smem: Any, loaded: Any) -> None:
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        rows = pl.ds(lax.axis_index("q") * block_q, block_q)

        def read(ki: Any) -> jax.Array:
            keys = pl.ds(ki * block_kv, block_kv)
            plgpu.copy_gmem_to_smem(s_gmem.at[batch, head, rows, keys], s_smem, loaded)
            plgpu.barrier_wait(loaded)
            s = plgpu.load(s_smem, layout=plgpu.Layout.WGMMA)
            plgpu.commit_smem()  # the next copy is not to overtake this read
            return s

        def add_up(ki: Any, carry: Any) -> tuple[jax.Array, jax.Array]:
            row_max, row_sum = carry
            s = read(ki)
            new_max = jnp.maximum(row_max, s.max(axis=1))
            p = jnp.exp(s - lax.broadcast_in_dim(new_max, s.shape, [0]))
            return new_max, row_sum * jnp.exp(row_max - new_max) + p.sum(axis=1)

        def per_row(value: float) -> jax.Array:
            return plgpu.layout_cast(
                jnp.full((block_q,), value, jnp.float32), plgpu.Layout.WGMMA.reduce(1)
            )

        row_max, row_sum = lax.fori_loop(0, kv_tiles, add_up, (per_row(-jnp.inf), per_row(0)))

        @pl.loop(0, kv_tiles)
        def _divide(ki: Any) -> None:
            s = read(ki)
            p = jnp.exp(s - lax.broadcast_in_dim(row_max, s.shape, [0]))
            p = p / lax.broadcast_in_dim(row_sum, s.shape, [0])
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)  # the tile before has left p_smem
            p_smem[...] = p.astype(dtype)
            plgpu.commit_smem()
            keys = pl.ds(ki * block_kv, block_kv)
            plgpu.copy_smem_to_gmem(p_smem, p_gmem.at[batch, head, rows, keys])

        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(scores.shape, dtype),
        **_grid(sizes, config),
        scratch_types=dict(
            s_smem=plgpu.SMEM((block_q, block_kv), jnp.float32),
            p_smem=plgpu.SMEM((block_q, block_kv), dtype),
            loaded=plgpu.Barrier(),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(scores)


def _weighted_sum(p: jax.Array, v: jax.Array, sizes: Sizes, config: Config) -> jax.Array:
    """`p v`: (batch, q_len, heads, head_dim)."""
    block_q, block_kv, head_dim = config.block_q, config.block_kv, sizes.head_dim

    def kernel(
        p_gmem: Any, v_gmem: Any, o_gmem: Any, p_smem: Any, v_smem: Any, o_smem: Any, loaded: Any
    ) -> None:
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        kv_head = lax.div(head, sizes.heads_per_kv_head)
        rows = pl.ds(lax.axis_index("q") * block_q, block_q)

        def multiply(acc: Any) -> jax.Array:
            @pl.loop(0, sizes.kv_len // block_kv)
            def _tile(ki: Any) -> None:
                keys = pl.ds(ki * block_kv, block_kv)
                plgpu.copy_gmem_to_smem(p_gmem.at[batch, head, rows, keys], p_smem, loaded)
                plgpu.copy_gmem_to_smem(v_gmem.at[batch, keys, kv_head], v_smem, loaded)
                plgpu.barrier_wait(loaded)
                plgpu.wgmma(acc, p_smem, v_smem)
                plgpu.wgmma_wait(0)  # the next copies overwrite what wgmma reads

            return acc[...]

        o = pl.run_scoped(multiply, plgpu.ACC((block_q, head_dim), jnp.float32))
        o_smem[...] = o.astype(o_smem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[batch, rows, head])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((sizes.batch, sizes.q_len, sizes.heads, head_dim), v.dtype),
        **_grid(sizes, config),
        scratch_types=dict(
            p_smem=plgpu.SMEM((block_q, block_kv), p.dtype),
            v_smem=plgpu.SMEM((block_kv, head_dim), v.dtype),
            o_smem=plgpu.SMEM((block_q, head_dim), v.dtype),
            loaded=plgpu.Barrier(num_arrivals=2),
        ),
    )(p, v)
