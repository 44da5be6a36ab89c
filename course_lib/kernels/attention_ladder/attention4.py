"""Step 4, softmax beside P V: a warpgroup reads its scores while its P V is still under way.

wgmmas are done in the order in which they were issued, so the scores go first, and waiting
for all but the last one is enough to read them. P stays where it is, in registers that wgmma
is still reading; the new one gets others.
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

from course_lib.kernels.attention_ladder.shapes import check_operands, register_shares


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, how many warpgroups compute, and how long the ring is.

    Attributes:
      block_q: queries per computing warpgroup, a multiple of 64.
      block_kv: keys per tile, a multiple of 64, at most 256.
      compute_wgs: how many warpgroups compute, 1 to 3.
      max_concurrent_steps: the number of slots for tiles of K, and of V.
      wait_ahead: whether to wait for the next keys before P V is done, see the kernel.
    """

    block_q: int = 64
    block_kv: int = 128
    compute_wgs: int = 2
    max_concurrent_steps: int = 2
    wait_ahead: bool = False


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
    block_q, block_kv, wgs = config.block_q, config.block_kv, config.compute_wgs
    tile_q = wgs * block_q
    sizes = check_operands(q, k, v, tile_q, block_kv)
    head_dim, kv_tiles = sizes.head_dim, sizes.kv_len // block_kv
    slots = min(config.max_concurrent_steps, kv_tiles)
    scale = math.log2(math.e) * head_dim**-0.5  # exp(s / sqrt(d)) = exp2(s * scale)
    compute_registers, copy_registers = register_shares(wgs)

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
        k_consumed: Any,
        v_consumed: Any,
        turn: Any,
    ) -> None:
        batch, head = lax.axis_index("batch"), lax.axis_index("head")
        kv_head = lax.div(head, sizes.heads_per_kv_head)
        row = lax.axis_index("q") * tile_q
        wg = lax.axis_index("wg")
        wg_rows = pl.ds(wg * block_q, block_q)

        def copy() -> None:
            plgpu.set_max_registers(copy_registers, action="decrease")
            plgpu.copy_gmem_to_smem(q_gmem.at[batch, pl.ds(row, tile_q), head], q_smem, q_loaded)

            @pl.loop(0, kv_tiles)
            def _step(ki: Any) -> None:
                slot = lax.rem(ki, slots)
                keys = pl.ds(ki * block_kv, block_kv)
                for source, target, loaded, consumed in (
                    (k_gmem, k_smem, k_loaded, k_consumed),
                    (v_gmem, v_smem, v_loaded, v_consumed),
                ):
                    plgpu.barrier_wait(consumed.at[slot])
                    plgpu.copy_gmem_to_smem(
                        source.at[batch, keys, kv_head], target.at[slot], loaded.at[slot]
                    )

            for slot in range(slots):  # nobody leaves while a barrier is still to complete
                plgpu.barrier_wait(k_consumed.at[slot])
                plgpu.barrier_wait(v_consumed.at[slot])

        def compute() -> None:
            plgpu.set_max_registers(compute_registers, action="increase")
            for slot in range(slots):  # at first, all slots are free
                plgpu.barrier_arrive(k_consumed.at[slot])
                plgpu.barrier_arrive(v_consumed.at[slot])
            plgpu.barrier_wait(q_loaded)

            @pl.when(wg == wgs - 1)
            def _the_first_begins() -> None:
                plgpu.barrier_arrive(turn.at[0])

            def scores(acc: Any, slot: Any) -> None:
                plgpu.wgmma(acc, q_smem.at[wg_rows], k_smem.at[slot].transpose((1, 0)))

            def first(acc: Any) -> jax.Array:
                plgpu.barrier_wait(k_loaded.at[0])
                plgpu.barrier_wait(turn.at[wg])
                scores(acc, 0)
                plgpu.barrier_arrive(turn.at[lax.rem(wg + 1, wgs)])
                return acc[...]

            def wait_for_k(ki: Any) -> None:
                @pl.when(ki < kv_tiles)
                def _not_after_the_last() -> None:
                    plgpu.barrier_wait(k_loaded.at[lax.rem(ki, slots)])

            def step(ki: Any, carry: Any) -> tuple[jax.Array, ...]:
                slot, slot_before = lax.rem(ki, slots), lax.rem(ki - 1, slots)
                if not config.wait_ahead:
                    wait_for_k(ki)
                plgpu.barrier_wait(turn.at[wg])

                def body(refs: Any) -> None:
                    o_acc, max_ref, sum_ref, p_ref, alpha_ref = refs
                    row_max, row_sum, p16 = max_ref[...], sum_ref[...], p_ref[...]

                    def softmax(s_acc: Any) -> tuple[jax.Array, ...]:
                        scores(s_acc, slot)
                        plgpu.barrier_wait(v_loaded.at[slot_before])
                        plgpu.wgmma(o_acc, p16, v_smem.at[slot_before])
                        plgpu.barrier_arrive(turn.at[lax.rem(wg + 1, wgs)])
                        # P V, which came last, may still be under way.
                        s = plgpu.wgmma_accumulator_load(s_acc, wait_n=1)
                        plgpu.barrier_arrive(k_consumed.at[slot])
                        new_max = jnp.maximum(row_max, s.max(axis=1) * scale)
                        alpha = jnp.exp2(row_max - new_max)
                        p = jnp.exp2(s * scale - spread(new_max, block_kv))
                        return p, new_max, row_sum * alpha + p.sum(axis=1), alpha

                    found = pl.run_scoped(softmax, plgpu.ACC((block_q, block_kv), jnp.float32))
                    # ptxas moves arithmetic past a wait for wgmma, but not past this barrier's:
                    # the one here keeps all of the softmax beside P V, else half of it is after.
                    p, max_ref[...], sum_ref[...], alpha_ref[...] = lax.optimization_barrier(found)
                    if config.wait_ahead:
                        wait_for_k(ki + 1)
                    p_ref[...] = p.astype(v_smem.dtype)

                o, row_max, row_sum, p16 = carry
                # When it returns, P V is done.
                o, row_max, row_sum, p16, alpha = pl.run_state(body)(
                    (plgpu.ACC.init(o), row_max, row_sum, p16, row_max)
                )
                plgpu.barrier_arrive(v_consumed.at[slot_before])
                return o * spread(alpha, head_dim), row_max, row_sum, p16

            s = pl.run_scoped(first, plgpu.ACC((block_q, block_kv), jnp.float32))
            plgpu.barrier_arrive(k_consumed.at[0])
            row_max = s.max(axis=1) * scale
            p = jnp.exp2(s * scale - spread(row_max, block_kv))
            if config.wait_ahead:
                wait_for_k(jnp.int32(1))
            o = plgpu.layout_cast(jnp.zeros((block_q, head_dim), jnp.float32), plgpu.Layout.WGMMA)
            o, _, row_sum, p16 = lax.fori_loop(
                1, kv_tiles, step, (o, row_max, p.sum(axis=1), p.astype(v_smem.dtype))
            )

            @pl.when(wg == 0)
            def _the_last_turn_is_nobodys() -> None:
                plgpu.barrier_wait(turn.at[0])

            last = (kv_tiles - 1) % slots
            plgpu.barrier_wait(v_loaded.at[last])
            o = pl.run_state(lambda acc: plgpu.wgmma(acc, p16, v_smem.at[last]))(plgpu.ACC.init(o))
            plgpu.barrier_arrive(v_consumed.at[last])
            o_smem[wg] = (o * spread(1 / row_sum, head_dim)).astype(o_smem.dtype)
            plgpu.commit_smem()  # the TMA unit is to see what this thread has written
            rows = pl.ds(row + wg * block_q, block_q)
            plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[batch, rows, head])
            plgpu.wait_smem_to_gmem(0)

        lax.cond(wg < wgs, compute, copy)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sizes.batch, sizes.heads, sizes.q_len // tile_q),
        grid_names=("batch", "head", "q"),
        num_threads=wgs + 1,
        thread_name="wg",
        scratch_types=dict(
            q_smem=plgpu.SMEM((tile_q, head_dim), q.dtype),
            k_smem=plgpu.SMEM((slots, block_kv, head_dim), k.dtype),
            v_smem=plgpu.SMEM((slots, block_kv, head_dim), v.dtype),
            o_smem=plgpu.SMEM((wgs, block_q, head_dim), q.dtype),
            q_loaded=plgpu.Barrier(),
            k_loaded=plgpu.Barrier(num_barriers=slots),
            v_loaded=plgpu.Barrier(num_barriers=slots),
            k_consumed=plgpu.Barrier(num_arrivals=wgs, num_barriers=slots),
            v_consumed=plgpu.Barrier(num_arrivals=wgs, num_barriers=slots),
            turn=plgpu.Barrier(num_barriers=wgs),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(q, k, v)
