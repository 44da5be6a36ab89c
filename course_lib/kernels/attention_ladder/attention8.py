"""Step 8, no maximum ahead: powers of two are taken at once, and checked afterwards.

Any number may stand for a row's largest score as long as no power of two gets too large. So a
step takes the number it has, and looks at the sums that it needs anyway. Where one exceeds LIMIT,
which random scores hardly ever do, the step finds the maximum and does its softmax again.
Nothing waits for a maximum, for shuffles between lanes or for the output to be rescaled.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels.attention_ladder.shapes import (
    check_operands,
    even_blocks,
    most_crossed,
    num_sms,
    register_shares,
)
from course_lib.kernels.attention_ladder.votes import any_positive

LOWEST = -1e30
"""A row's largest score is at least that: with -inf, a row that sees no key of a tile would give
exp2(-inf + inf), which is NaN. (A finite score for unseen keys would not do either: s * scale - max
is one fused operation, and what the rounding of max has lost is huge at such sizes.)"""

LIMIT = 2.0**8
"""No sum of probabilities of one tile, and so no probability, may exceed that: float16 ends at
65,504. (What is compared are the sums that one lane has; infinity exceeds it, too.)"""

PARTIAL = 8
"""Sums of a row are kept apart by columns modulo 8: adding them up takes no shuffles. (In
Layout.WGMMA a lane has the same two of each 8 columns, and each quarter of them another lane.)"""


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements, how many warpgroups compute, and how long the ring is.

    Attributes:
      block_q: queries per computing warpgroup, a multiple of 64.
      block_kv: keys per tile, a multiple of 64, at most 256.
      compute_wgs: how many warpgroups compute, 1 to 3.
      max_concurrent_steps: the number of slots, each for a tile of K and one of V.
      turns: whether the warpgroups issue their products in turn.
      num_sms: how many blocks to launch at most; None is one per SM.
    """

    block_q: int = 64
    block_kv: int = 128
    compute_wgs: int = 2
    max_concurrent_steps: int = 2
    turns: bool = True
    num_sms: int | None = None


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    causal: bool = False,
    return_lse: bool = False,
    config: Config | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]:
    """`softmax(q k^T / sqrt(head_dim)) v`, head by head.

    Args:
      q: (batch, q_len, heads, head_dim), float16 or bfloat16.
      k: (batch, kv_len, kv_heads, head_dim), of the same dtype.
      v: like k.
      causal: whether query i sees the keys 0 to i only.
      return_lse: whether to return log(sum(exp(scores))) as well: (batch, heads, q_len), float32.
      config: the tile sizes.

    Raises:
      ValueError: q_len is no multiple of block_q, or kv_len of block_kv; it names the multiple.
    """
    config = config or Config()
    block_q, block_kv = config.block_q, config.block_kv
    sizes = check_operands(q, k, v, block_q, block_kv)
    # Where all queries are a single tile, Mosaic GPU drops that axis of a copy: a tile may only
    # stick out if another one is before it.
    wgs = min(config.compute_wgs, sizes.q_len // block_q)
    tile_q = wgs * block_q
    q_tiles = pl.cdiv(sizes.q_len, tile_q)
    sequences = sizes.batch * sizes.heads
    blocks = even_blocks(q_tiles, sequences, config.num_sms or num_sms(), causal=causal)
    rounds, left_over = divmod(q_tiles * sequences, blocks)
    head_dim, kv_tiles = sizes.head_dim, sizes.kv_len // block_kv
    slots = config.max_concurrent_steps
    masked_tiles = most_crossed(tile_q, block_kv) if causal else 1
    straight = min(masked_tiles, pl.cdiv(tile_q, block_kv), kv_tiles)  # all have that many tiles
    scale = math.log2(math.e) * head_dim**-0.5  # exp(s / sqrt(d)) = exp2(s * scale)
    compute_registers, copy_registers = register_shares(wgs)

    def spread(row: jax.Array, width: int) -> jax.Array:
        return lax.broadcast_in_dim(row, (block_q, width), [0])

    def zeros(width: int) -> jax.Array:
        return plgpu.layout_cast(jnp.zeros((block_q, width), jnp.float32), plgpu.Layout.WGMMA)

    def kernel(
        q_gmem: Any,
        k_gmem: Any,
        v_gmem: Any,
        o_gmem: Any,
        lse_gmem: Any,
        q_smem: Any,
        k_smem: Any,
        v_smem: Any,
        o_smem: Any,
        lse_smem: Any,
        q_loaded: Any,
        loaded: Any,
        q_consumed: Any,
        consumed: Any,
        turn: Any,
    ) -> None:
        block = lax.axis_index("sm")
        wg = lax.axis_index("wg")
        wg_rows = pl.ds(wg * block_q, block_q)

        def place(i: Any) -> Any:
            """Which tile of the i-th round is this block's."""
            return lax.select(lax.rem(i, 2) == 0, block, blocks - 1 - block) if causal else block

        def position(i: Any) -> tuple[Any, Any, Any, Any]:
            """Of this block's i-th tile: batch, head, first query, and how many tiles of keys."""
            # Heads one after the other: their keys and values are in the L2 cache.
            number = i * blocks + place(i)
            sequence = lax.div(number, q_tiles)
            row = (q_tiles - 1 - lax.rem(number, q_tiles)) * tile_q  # the last ones first
            tiles: Any = kv_tiles
            if causal:
                tiles = jnp.minimum(lax.div(row + tile_q + block_kv - 1, block_kv), kv_tiles)
            return lax.div(sequence, sizes.heads), lax.rem(sequence, sizes.heads), row, tiles

        def own_tiles() -> Any:
            return rounds + (place(jnp.int32(rounds)) < left_over).astype(jnp.int32)

        def for_each_tile(work: Any) -> Any:
            """`work(i, steps)` for each tile; `steps` is how many steps of the ring were before."""
            return lax.fori_loop(0, own_tiles(), work, jnp.int32(0))

        def load(source: Any, target: Any, slot: Any, i: Any, ki: Any) -> None:
            """The ki-th keys or values of this block's i-th tile."""
            batch, head, _, tiles = position(i)
            keys = pl.ds((tiles - 1 - ki) * block_kv, block_kv)
            kv_head = lax.div(head, sizes.heads_per_kv_head)
            plgpu.copy_gmem_to_smem(
                source.at[batch, keys, kv_head], target.at[slot], loaded.at[slot]
            )

        def copy_tile(i: Any, steps: Any) -> Any:
            batch, head, row, tiles = position(i)
            before = jnp.maximum(i - 1, 0)  # (a block's very first values are not used)
            last_before = position(before)[3] - 1

            def step(ki: Any, _: Any) -> None:
                slot = lax.rem(steps + ki, slots)
                plgpu.barrier_wait(consumed.at[slot])
                load(k_gmem, k_smem, slot, i, ki)
                is_first = ki == 0
                tile = lax.select(is_first, before, i)
                load(v_gmem, v_smem, slot, tile, lax.select(is_first, last_before, ki - 1))

            # The first slot holds values that the tile before waits for, so it goes before Q.
            step(jnp.int32(0), None)
            plgpu.barrier_wait(q_consumed)
            plgpu.copy_gmem_to_smem(q_gmem.at[batch, pl.ds(row, tile_q), head], q_smem, q_loaded)
            lax.fori_loop(1, tiles, step, None)
            return steps + tiles

        def copy() -> None:
            plgpu.set_max_registers(copy_registers, action="decrease")

            def one_warp() -> None:
                @pl.when(lax.axis_index("warp") == 0)
                def _first() -> None:
                    end = lax.rem(for_each_tile(copy_tile), slots)
                    plgpu.barrier_wait(consumed.at[end])
                    final = own_tiles() - 1
                    last = position(final)[3] - 1
                    load(k_gmem, k_smem, end, final, last)  # not used: a slot counts two copies
                    load(v_gmem, v_smem, end, final, last)
                    plgpu.barrier_wait(q_consumed)  # nobody leaves before the last arrival
                    for slot in range(slots):
                        plgpu.barrier_wait(consumed.at[slot])

            pl.kernel(one_warp, out_type=(), mesh=plgpu.WarpMesh(axis_name="warp"))()

        def probabilities(s: jax.Array, row_max: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Not divided by their sums, and those sums: (block_q, PARTIAL)."""
            p = jnp.exp2(s * scale - spread(row_max, block_kv))
            sums = [p[:, i : i + PARTIAL] for i in range(0, block_kv, PARTIAL)]
            # Cast before anything else happens: p as float32 would need as many registers as s.
            return lax.optimization_barrier(
                (p.astype(v_smem.dtype), functools.reduce(jnp.add, sums))
            )

        def take_turn() -> None:
            if config.turns:
                plgpu.barrier_wait(turn.at[wg])

        def give_turn() -> None:
            if config.turns:
                plgpu.barrier_arrive(turn.at[lax.rem(wg + 1, wgs)])

        def scores(acc: Any, slot: Any) -> None:
            plgpu.wgmma(acc, q_smem.at[wg_rows], k_smem.at[slot].transpose((1, 0)))

        def compute_tile(i: Any, steps: Any) -> Any:
            batch, head, row, tiles = position(i)
            end = steps + tiles

            def first(acc: Any) -> jax.Array:
                slot = lax.rem(steps, slots)  # it is there: the tile before waited for its values
                plgpu.barrier_wait(q_loaded)
                take_turn()
                scores(acc, slot)
                give_turn()
                s = acc[...]
                plgpu.barrier_arrive(consumed.at[slot])
                return s

            def wait_for_slot(number: Any) -> None:
                plgpu.barrier_wait(loaded.at[lax.rem(number, slots)])

            def mask(s: jax.Array, number: Any) -> jax.Array:
                first_query, first_key = row + wg * block_q, (end - 1 - number) * block_kv
                last_seen = first_query + plgpu.broadcasted_iota(
                    jnp.int32, (block_q,), 0, layout=plgpu.Layout.WGMMA.reduce(1)
                )
                keys = first_key + plgpu.broadcasted_iota(
                    jnp.int32, s.shape, 1, layout=plgpu.Layout.WGMMA
                )
                return jnp.where(keys <= spread(last_seen, block_kv), s, -jnp.inf)

            def step(number: Any, carry: Any, *, masked: bool) -> tuple[jax.Array, ...]:
                slot = lax.rem(number, slots)
                wait_for_slot(number)
                take_turn()

                def products(refs: Any) -> None:
                    o_acc, s_ref, p_ref = refs
                    p16 = p_ref[...]

                    def both(s_acc: Any) -> jax.Array:
                        scores(s_acc, slot)
                        plgpu.wgmma(o_acc, p16, v_smem.at[slot])
                        give_turn()
                        # P V, which came last, may still be under way.
                        return plgpu.wgmma_accumulator_load(s_acc, wait_n=1)

                    s_ref[...] = pl.run_scoped(both, plgpu.ACC((block_q, block_kv), jnp.float32))

                o, row_max, sums, p16 = carry
                # When it returns, P V is done.
                o, s, _ = pl.run_state(products)((plgpu.ACC.init(o), zeros(block_kv), p16))
                plgpu.barrier_arrive(consumed.at[slot])
                s = mask(s, number) if masked else s
                p16, more = probabilities(s, row_max)

                def again() -> tuple[jax.Array, ...]:
                    new_max = jnp.maximum(row_max, s.max(axis=1) * scale)
                    alpha = jnp.exp2(row_max - new_max)
                    p16, more = probabilities(s, new_max)
                    return (
                        o * spread(alpha, head_dim),
                        new_max,
                        sums * spread(alpha, PARTIAL) + more,
                        p16,
                    )

                return lax.cond(
                    any_positive(more - LIMIT) > 0,
                    again,
                    lambda: (o, row_max, sums + more, p16),
                )

            s = pl.run_scoped(first, plgpu.ACC((block_q, block_kv), jnp.float32))
            s = mask(s, steps) if causal else s
            row_max = jnp.maximum(s.max(axis=1) * scale, LOWEST)
            p16, sums = probabilities(s, row_max)
            carry: tuple[jax.Array, ...] = (zeros(head_dim), row_max, sums, p16)
            # Not a loop of their own: with two loops, ptxas waits after each single wgmma.
            for offset in range(1, straight):
                carry = step(steps + offset, carry, masked=True)
            rest = functools.partial(step, masked=masked_tiles > straight)
            carry = lax.fori_loop(steps + straight, end, rest, carry)
            o, row_max, sums, p16 = carry
            plgpu.barrier_arrive(q_consumed)
            row_sum = sums.sum(axis=1)

            wait_for_slot(end)
            values = v_smem.at[lax.rem(end, slots)]
            o = pl.run_state(lambda acc: plgpu.wgmma(acc, p16, values))(plgpu.ACC.init(o))
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)  # the tile before has left SMEM
            o_smem[wg] = (o * spread(1 / row_sum, head_dim)).astype(o_smem.dtype)
            lse_smem[wg] = row_max * math.log(2) + jnp.log(row_sum)
            plgpu.commit_smem()  # the TMA unit is to see what this thread has written
            rows = pl.ds(row + wg * block_q, block_q)
            plgpu.copy_smem_to_gmem(o_smem.at[wg], o_gmem.at[batch, rows, head])
            plgpu.copy_smem_to_gmem(lse_smem.at[wg], lse_gmem.at[batch, head, rows])
            return end

        def compute() -> None:
            plgpu.set_max_registers(compute_registers, action="increase")
            plgpu.barrier_arrive(q_consumed)
            for slot in range(slots):  # at first, all slots are free
                plgpu.barrier_arrive(consumed.at[slot])

            if config.turns:

                @pl.when(wg == wgs - 1)
                def _the_first_begins() -> None:
                    plgpu.barrier_arrive(turn.at[0])

            plgpu.barrier_wait(loaded.at[0])
            end = for_each_tile(compute_tile)
            plgpu.barrier_arrive(consumed.at[lax.rem(end, slots)])
            if config.turns:

                @pl.when(wg == 0)
                def _the_last_turn_is_nobodys() -> None:
                    plgpu.barrier_wait(turn.at[0])

            plgpu.wait_smem_to_gmem(0)

        lax.cond(wg < wgs, compute, copy)

    out, lse = plgpu.kernel(
        kernel,
        out_type=(
            jax.ShapeDtypeStruct(q.shape, q.dtype),
            jax.ShapeDtypeStruct((sizes.batch, sizes.heads, sizes.q_len), jnp.float32),
        ),
        grid=(blocks,),
        grid_names=("sm",),
        num_threads=wgs + 1,
        thread_name="wg",
        scratch_types=dict(
            q_smem=plgpu.SMEM((tile_q, head_dim), q.dtype),
            k_smem=plgpu.SMEM((slots, block_kv, head_dim), k.dtype),
            v_smem=plgpu.SMEM((slots, block_kv, head_dim), v.dtype),
            o_smem=plgpu.SMEM((wgs, block_q, head_dim), q.dtype),
            lse_smem=plgpu.SMEM((wgs, block_q), jnp.float32),
            q_loaded=plgpu.Barrier(),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),  # a copy of K, one of V
            q_consumed=plgpu.Barrier(num_arrivals=wgs),
            consumed=plgpu.Barrier(num_arrivals=wgs, num_barriers=slots),
            turn=plgpu.Barrier(num_barriers=wgs),
        ),
        # A row's maximum and sum are found by the four lanes that have it, without SMEM.
        compiler_params=plgpu.CompilerParams(approx_math=True, reduction_scratch_bytes=0),
    )(q, k, v)
    return (out, lse) if return_lse else out
