"""Step 1, online softmax: one kernel, and no score ever leaves the registers.

The softmax needs a row's largest score and its sum, and both are known only at the end. So
each tile goes by the largest score so far; when a later tile has a larger one, what has been
added up is scaled down. exp is exp2 with the factor log2(e) folded into the scale.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.attention_ladder.shapes import check_operands


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
    block_q, block_kv = config.block_q, config.block_kv
    sizes = check_operands(q, k, v, block_q, block_kv)
    head_dim, kv_tiles = sizes.head_dim, sizes.kv_len // block_kv
    scale = math.log2(math.e) * head_dim**-0.5  # exp(s / sqrt(d)) = exp2(s * scale)

    def per_row(value: float) -> jax.Array:
        return plgpu.layout_cast(
            jnp.full((block_q,), value, jnp.float32), plgpu.Layout.WGMMA.reduce(1)
        )

    def spread(row: jax.Array, width: int) -> jax.Array:
        return lax.broadcast_in_dim(row, (block_q, width), [0])

    def kernel(
        q_gmem: Any,
        k_gmem: Any,
        v_gmem: Any,
        o_gmem: Any,
        q_smem: Any,
        k_smem: Any,
        v_smem: Any,
        o_smem: Any,
        q_loaded: Any,
        k_loaded: Any,
        v_loaded: Any,
    ) -> None:
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        kv_head = lax.div(head, sizes.heads_per_kv_head)
        rows = pl.ds(lax.axis_index("q") * block_q, block_q)
        plgpu.copy_gmem_to_smem(q_gmem.at[batch, rows, head], q_smem, q_loaded)
        plgpu.barrier_wait(q_loaded)

        def scores(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, q_smem, k_smem.transpose((1, 0)))
            return acc[...]

        def step(ki: Any, carry: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
            o, row_max, row_sum = carry
            keys = pl.ds(ki * block_kv, block_kv)
            plgpu.copy_gmem_to_smem(k_gmem.at[batch, keys, kv_head], k_smem, k_loaded)
            plgpu.copy_gmem_to_smem(v_gmem.at[batch, keys, kv_head], v_smem, v_loaded)
            plgpu.barrier_wait(k_loaded)
            s = pl.run_scoped(scores, plgpu.ACC((block_q, block_kv), jnp.float32))

            new_max = jnp.maximum(row_max, s.max(axis=1) * scale)
            alpha = jnp.exp2(row_max - new_max)
            p = jnp.exp2(s * scale - spread(new_max, block_kv))
            row_sum = row_sum * alpha + p.sum(axis=1)
            o = o * spread(alpha, head_dim)

            plgpu.barrier_wait(v_loaded)
            p16 = p.astype(v_smem.dtype)
            o = pl.run_state(lambda acc: plgpu.wgmma(acc, p16, v_smem))(plgpu.ACC.init(o))
            return o, new_max, row_sum

        o = plgpu.layout_cast(jnp.zeros((block_q, head_dim), jnp.float32), plgpu.Layout.WGMMA)
        o, _, row_sum = lax.fori_loop(0, kv_tiles, step, (o, per_row(-jnp.inf), per_row(0)))
        o_smem[...] = (o * spread(1 / row_sum, head_dim)).astype(o_smem.dtype)
        plgpu.commit_smem()  # the TMA unit is to see what this thread has written
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[batch, rows, head])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sizes.batch, sizes.heads, sizes.q_len // block_q),
        grid_names=("batch", "head", "q"),
        scratch_types=dict(
            q_smem=plgpu.SMEM((block_q, head_dim), q.dtype),
            k_smem=plgpu.SMEM((block_kv, head_dim), k.dtype),
            v_smem=plgpu.SMEM((block_kv, head_dim), v.dtype),
            o_smem=plgpu.SMEM((block_q, head_dim), q.dtype),
            q_loaded=plgpu.Barrier(),
            k_loaded=plgpu.Barrier(),
            v_loaded=plgpu.Barrier(),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(q, k, v)
