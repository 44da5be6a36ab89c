"""Chapter 12's small attentions: one head, with the part left open that an exercise is about.

`attend` has everything but the softmax, `attend_causal` everything but the bounds and the mask,
`attend_in_turns` everything but the turns. The kernels that are measured are those of
`course_lib.kernels.attention_ladder`; these are for one idea at a time.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.kernels import attention_ladder
from course_lib.kernels.matmul_ladder.shapes import require_multiple

LOWEST = -1e30
"""The floor of a running maximum: with -inf, a row that sees no key of its first tile would give
exp(-inf + inf), which is NaN."""

Carry = tuple[jax.Array, jax.Array, jax.Array]
"""What goes from tile to tile: the output so far, and each row's maximum and sum."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Tile sizes in elements.

    Attributes:
      block_q: queries per block, or per computing warpgroup: 64.
      block_kv: keys per tile, a multiple of 64, at most 256.
    """

    block_q: int = 64
    block_kv: int = 128


# What all of them are made of.


def per_row(rows: int, value: float) -> jax.Array:
    """float32[rows], a value per row of an array in WGMMA's layout."""
    return plgpu.layout_cast(jnp.full((rows,), value, jnp.float32), plgpu.Layout.WGMMA.reduce(1))


def scores(q_smem: Any, k_smem: Any) -> jax.Array:
    """`q k^T`, float32[queries, keys] in registers: one product of matrices."""

    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, q_smem, k_smem.transpose((1, 0)))
        return acc[...]

    return pl.run_scoped(multiply, plgpu.ACC((q_smem.shape[0], k_smem.shape[0]), jnp.float32))


def add_product(o: jax.Array, p: jax.Array, v_smem: Any) -> jax.Array:
    """`o + p v`, float32[queries, head_dim]; p goes from registers to the tensor core."""
    p16 = p.astype(v_smem.dtype)
    return pl.run_state(lambda acc: plgpu.wgmma(acc, p16, v_smem))(plgpu.ACC.init(o))


def _zeros(block_q: int, head_dim: int) -> Carry:
    o = plgpu.layout_cast(jnp.zeros((block_q, head_dim), jnp.float32), plgpu.Layout.WGMMA)
    return o, per_row(block_q, LOWEST), per_row(block_q, 0)


def _check(q: jax.Array, k: jax.Array, multiple_of_q: int, block_kv: int) -> None:
    require_multiple(q_len=(q.shape[-2], multiple_of_q), kv_len=(k.shape[-2], block_kv))


# The softmax is yours.

Update = Callable[[Carry, jax.Array, Callable[..., jax.Array]], Carry]


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, update: Update, *, config: Config | None = None
) -> jax.Array:
    """One head, tile by tile of keys; `update` says what a tile's scores do to the carry.

    Args:
      q: (queries, head_dim), float16; a block for every 64 of them.
      k: (keys, head_dim).
      v: (keys, head_dim).
      update: from the carry (o, row_max, row_sum), a tile's scores, float32[64, 128], and a
        function `add_product(o, p)`, which is o + p v, to the next carry.
      config: the tile sizes.

    Returns:
      o / row_sum of the last carry: (queries, head_dim), float16.

    Raises:
      ValueError: a length is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    block_q, block_kv, head_dim = config.block_q, config.block_kv, q.shape[-1]
    _check(q, k, block_q, block_kv)

    def kernel(
        q_gmem: Any, k_gmem: Any, v_gmem: Any, o_gmem: Any,
        q_smem: Any, k_smem: Any, v_smem: Any, o_smem: Any, q_loaded: Any, loaded: Any,
    ) -> None:  # fmt: skip
        rows = pl.ds(lax.axis_index("q") * block_q, block_q)
        plgpu.copy_gmem_to_smem(q_gmem.at[rows], q_smem, q_loaded)
        plgpu.barrier_wait(q_loaded)

        def tile(ki: Any, carry: Carry) -> Carry:
            keys = pl.ds(ki * block_kv, block_kv)
            plgpu.copy_gmem_to_smem(k_gmem.at[keys], k_smem, loaded)
            plgpu.copy_gmem_to_smem(v_gmem.at[keys], v_smem, loaded)
            plgpu.barrier_wait(loaded)
            s = scores(q_smem, k_smem)
            return update(carry, s, functools.partial(add_product, v_smem=v_smem))

        carry = lax.fori_loop(0, k.shape[0] // block_kv, tile, _zeros(block_q, head_dim))
        _write(carry, o_smem, o_gmem.at[rows])

    return plgpu.kernel(
        kernel,
        out_type=q,
        grid=(q.shape[0] // block_q,),
        grid_names=("q",),
        scratch_types=dict(
            **_buffers(q, config), q_loaded=plgpu.Barrier(), loaded=plgpu.Barrier(num_arrivals=2)
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(q, k, v)


def _buffers(q: jax.Array, config: Config) -> dict[str, Any]:
    tile_q, tile_kv = (config.block_q, q.shape[-1]), (config.block_kv, q.shape[-1])
    shapes = dict(q_smem=tile_q, k_smem=tile_kv, v_smem=tile_kv, o_smem=tile_q)
    return {name: plgpu.SMEM(shape, q.dtype) for name, shape in shapes.items()}


def _write(carry: Carry, o_smem: Any, o_gmem: Any) -> None:
    o, _, row_sum = carry
    o_smem[...] = (o / lax.broadcast_in_dim(row_sum, o.shape, [0])).astype(o_smem.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(o_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)


def online(
    s: jax.Array, row_max: jax.Array, row_sum: jax.Array, factor: float
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """One tile's step of the online softmax, in powers of two.

    Args:
      s: a tile's scores, float32[queries, keys].
      row_max: the largest score so far times `factor`, float32[queries].
      row_sum: the sum of the weights so far, by `row_max`.
      factor: of a score; with log2(e) in it.

    Returns:
      the tile's weights, what all that was before shrinks by, and the new maximum and sum.
    """
    new_max = jnp.maximum(row_max, s.max(axis=1) * factor)
    alpha = jnp.exp2(row_max - new_max)
    p = jnp.exp2(s * factor - lax.broadcast_in_dim(new_max, s.shape, [0]))
    return p, alpha, new_max, row_sum * alpha + p.sum(axis=1)


def online_update(scale: float) -> Update:
    """The online softmax as an update of `attend`; scale is what scores are multiplied by."""

    def update(carry: Carry, s: jax.Array, add_product: Callable[..., jax.Array]) -> Carry:
        o, row_max, row_sum = carry
        p, alpha, row_max, row_sum = online(s, row_max, row_sum, scale * math.log2(math.e))
        return add_product(o * lax.broadcast_in_dim(alpha, o.shape, [0]), p), row_max, row_sum

    return update


# The bounds and the mask are yours.


def attend_causal(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    tiles: Callable[[Any], Any],
    mask: Callable[[jax.Array, Any, Any], jax.Array],
    lowest: float = LOWEST,
    config: Config | None = None,
) -> tuple[jax.Array, jax.Array]:
    """One head, causal: from the last of the first `tiles(row)` tiles of keys back to tile 0.

    Args:
      q: (queries, head_dim), float16; a block for every 64 of them.
      k: (keys, head_dim).
      v: (keys, head_dim).
      tiles: from a block's first query to the number of tiles that its queries look at.
      mask: from a tile's scores, the block's first query and the tile's first key to the
        scores, with -inf where the query does not see the key.
      lowest: the floor of a row's maximum.
      config: the tile sizes.

    Returns:
      (queries, head_dim), float16, and each block's number of tiles, int32[blocks].

    Raises:
      ValueError: a length is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    block_q, block_kv, head_dim = config.block_q, config.block_kv, q.shape[-1]
    _check(q, k, block_q, block_kv)
    update = online_update(head_dim**-0.5)

    def kernel(
        q_gmem: Any, k_gmem: Any, v_gmem: Any, o_gmem: Any, tiles_gmem: Any,
        q_smem: Any, k_smem: Any, v_smem: Any, o_smem: Any, q_loaded: Any, loaded: Any,
    ) -> None:  # fmt: skip
        block = lax.axis_index("q")
        row = block * block_q
        count = jnp.asarray(tiles(row), jnp.int32)
        tiles_gmem[block] = count
        plgpu.copy_gmem_to_smem(q_gmem.at[pl.ds(row, block_q)], q_smem, q_loaded)
        plgpu.barrier_wait(q_loaded)

        def tile(i: Any, carry: Carry) -> Carry:
            first_key = (count - 1 - i) * block_kv
            keys = pl.ds(first_key, block_kv)
            plgpu.copy_gmem_to_smem(k_gmem.at[keys], k_smem, loaded)
            plgpu.copy_gmem_to_smem(v_gmem.at[keys], v_smem, loaded)
            plgpu.barrier_wait(loaded)
            s = mask(scores(q_smem, k_smem), row, first_key)
            return update(carry, s, functools.partial(add_product, v_smem=v_smem))

        o, _, row_sum = _zeros(block_q, head_dim)
        carry = lax.fori_loop(0, count, tile, (o, per_row(block_q, lowest), row_sum))
        _write(carry, o_smem, o_gmem.at[pl.ds(row, block_q)])

    blocks = q.shape[0] // block_q
    return plgpu.kernel(
        kernel,
        out_type=(q, jax.ShapeDtypeStruct((blocks,), jnp.int32)),
        grid=(blocks,),
        grid_names=("q",),
        scratch_types=dict(
            **_buffers(q, config), q_loaded=plgpu.Barrier(), loaded=plgpu.Barrier(num_arrivals=2)
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(q, k, v)


def seen_tiles(row: Any, keys: int, config: Config) -> Any:
    """How many tiles of keys the queries row to row + block_q - 1 see, of those that there are."""
    last_key = row + config.block_q - 1
    return jnp.minimum(lax.div(last_key, config.block_kv) + 1, keys // config.block_kv)


def causal_mask(s: jax.Array, row: Any, first_key: Any) -> jax.Array:
    """Scores, with -inf where the key is later than the query."""
    queries, keys = (
        first + plgpu.broadcasted_iota(jnp.int32, s.shape, axis, layout=plgpu.Layout.WGMMA)
        for axis, first in enumerate((row, first_key))
    )
    return jnp.where(keys <= queries, s, -jnp.inf)


# The turns are yours.


def attend_in_turns(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    begin: Callable[[Any, Any], None],
    products: Callable[[Any, Any, Callable[[], None]], None],
    end: Callable[[Any, Any], None],
    config: Config | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Heads one after the other, each by two warpgroups of 64 queries that take turns.

    All keys and values of a head are copied before its first turn. A turn issues the scores of a
    tile and P V of the tile before; `diary` writes down whose turn it was.

    Args:
      q: (heads, 128, head_dim), float16.
      k: (heads, keys, head_dim); the tiles of all keys and values must fit into SMEM.
      v: (heads, keys, head_dim).
      begin: `begin(wg, turn)`, before a head's first turn; turn is two barriers, one per
        warpgroup.
      products: `products(wg, turn, issue)`, for each turn; it has to call `issue()` once.
      end: `end(wg, turn)`, after a head's last turn.
      config: the tile sizes.

    Returns:
      (heads, 128, head_dim), float16; and the diary, int32[heads, 128], in each of its elements
      the order of the turns: a binary digit per turn, the first turn's the highest.

    Raises:
      ValueError: a length is not a multiple of its tile; it names the multiple.
    """
    config = config or Config()
    block_q, block_kv = config.block_q, config.block_kv
    heads, _, head_dim = q.shape
    _check(q, k, 2 * block_q, block_kv)
    require_multiple(**{"2 * block_q": (2 * block_q, q.shape[1])})
    kv_tiles = k.shape[1] // block_kv
    factor = head_dim**-0.5 * math.log2(math.e)

    def kernel(
        q_gmem: Any, k_gmem: Any, v_gmem: Any, o_gmem: Any, diary_gmem: Any,
        q_smem: Any, k_smem: Any, v_smem: Any, o_smem: Any, diary_smem: Any,
    ) -> None:  # fmt: skip
        wg = lax.axis_index("wg")
        rows = pl.ds(wg * block_q, block_q)

        def keys_of(ki: Any) -> Any:
            return pl.ds(ki * block_kv, block_kv)

        def one_head(head: int, turn: Any, loaded: Any, done: Any) -> None:
            @pl.when(wg == 0)
            def _first_of_all() -> None:
                diary_smem[...] = jnp.zeros((128,), jnp.int32)
                for source, target in ((q_gmem, q_smem), (k_gmem, k_smem), (v_gmem, v_smem)):
                    plgpu.copy_gmem_to_smem(source.at[head], target, loaded)
                plgpu.barrier_arrive(loaded)

            plgpu.barrier_wait(loaded)
            begin(wg, turn)

            def score(acc: Any, ki: Any) -> None:
                diary_smem[...] = 2 * diary_smem[...] + wg
                plgpu.wgmma(acc, q_smem.at[rows], k_smem.at[keys_of(ki)].transpose((1, 0)))

            def first(acc: Any) -> jax.Array:
                products(wg, turn, lambda: score(acc, 0))
                return acc[...]

            def step(ki: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
                o, row_max, row_sum, p16 = carry

                def multiply(s_acc: Any) -> tuple[jax.Array, jax.Array]:
                    def both(o_acc: Any) -> None:
                        def issue() -> None:
                            score(s_acc, ki)
                            plgpu.wgmma(o_acc, p16, v_smem.at[keys_of(ki - 1)])

                        products(wg, turn, issue)

                    return pl.run_state(both)(plgpu.ACC.init(o)), s_acc[...]

                o, s = pl.run_scoped(multiply, plgpu.ACC((block_q, block_kv), jnp.float32))
                p, alpha, row_max, row_sum = online(s, row_max, row_sum, factor)
                o = o * lax.broadcast_in_dim(alpha, o.shape, [0])
                return o, row_max, row_sum, p.astype(q.dtype)

            s = pl.run_scoped(first, plgpu.ACC((block_q, block_kv), jnp.float32))
            o, row_max, row_sum = _zeros(block_q, head_dim)
            p, _, row_max, row_sum = online(s, row_max, row_sum, factor)
            o, row_max, row_sum, p16 = lax.fori_loop(
                1, kv_tiles, step, (o, row_max, row_sum, p.astype(q.dtype))
            )
            end(wg, turn)
            last = v_smem.at[keys_of(kv_tiles - 1)]
            o = pl.run_state(lambda acc: plgpu.wgmma(acc, p16, last))(plgpu.ACC.init(o))
            _write((o, row_max, row_sum), o_smem.at[wg], o_gmem.at[head, rows])
            plgpu.barrier_arrive(done)
            plgpu.barrier_wait(done)  # the next head's copies overwrite what both have read

            @pl.when(wg == 0)
            def _last_of_all() -> None:
                diary_gmem[head] = diary_smem[...]

        for head in range(heads):
            pl.run_scoped(
                functools.partial(one_head, head),
                turn=plgpu.Barrier(num_barriers=2),
                loaded=plgpu.Barrier(num_arrivals=4),
                done=plgpu.Barrier(num_arrivals=2),
                collective_axes="wg",
            )

    return plgpu.kernel(
        kernel,
        out_type=(q, jax.ShapeDtypeStruct((heads, 128), jnp.int32)),
        num_threads=2,
        thread_name="wg",
        scratch_types=dict(
            q_smem=plgpu.SMEM(q.shape[1:], q.dtype),
            k_smem=plgpu.SMEM(k.shape[1:], q.dtype),
            v_smem=plgpu.SMEM(k.shape[1:], q.dtype),
            o_smem=plgpu.SMEM((2, block_q, head_dim), q.dtype),
            diary_smem=plgpu.SMEM((128,), jnp.int32),
        ),
        compiler_params=plgpu.CompilerParams(approx_math=True),
    )(q, k, v)


def merge(o: jax.Array, lse: jax.Array, *, offset: int = 0) -> tuple[jax.Array, jax.Array]:
    """The attention over all keys, from those over two parts of them.

    Args:
      o: (2, queries, head_dim), float32, each part's own attention.
      lse: (2, queries), float32, each part's log of the sum of exp(score), less `offset`.
      offset: is added to lse: as if all scores were so much larger.

    Returns:
      (queries, head_dim) and (queries,), float32: of all keys, the lse with `offset`.

    Raises:
      ValueError: the number of queries is not a multiple of 64.
    """
    require_multiple(queries=(o.shape[1], 64))

    def kernel(o_gmem: Any, lse_gmem: Any, all_gmem: Any, all_lse_gmem: Any) -> None:
        def load(ref: Any, layout: Any) -> jax.Array:
            return plgpu.load(ref, layout=layout, optimized=False)

        wgmma = plgpu.Layout.WGMMA
        a, b = (load(lse_gmem.at[i], wgmma.reduce(1)) + offset for i in range(2))
        o_a, o_b = (load(o_gmem.at[i], wgmma) for i in range(2))
        top = jnp.maximum(a, b)
        a, b = jnp.exp(a - top), jnp.exp(b - top)
        total = a + b
        spread = functools.partial(lax.broadcast_in_dim, shape=o_a.shape, broadcast_dimensions=[0])
        all_gmem[...] = o_a * spread(a / total) + o_b * spread(b / total)
        all_lse_gmem[...] = top + jnp.log(total)

    out_type = tuple(jax.ShapeDtypeStruct(x.shape[1:], jnp.float32) for x in (o, lse))
    return plgpu.kernel(kernel, out_type=out_type)(o, lse)


def weights(s: jax.Array, *, head_dim: int) -> jax.Array:
    """`exp((s - the row's largest) / sqrt(head_dim))`, float32[64, keys], of the scores s."""

    def kernel(s_gmem: Any, p_gmem: Any) -> None:
        s = plgpu.load(s_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        factor = math.log2(math.e) * head_dim**-0.5
        row_max = s.max(axis=1) * factor
        p_gmem[...] = jnp.exp2(s * factor - lax.broadcast_in_dim(row_max, s.shape, [0]))

    params = plgpu.CompilerParams(approx_math=True)
    return plgpu.kernel(kernel, out_type=s, compiler_params=params)(s)


def weights_with_exp(s: jax.Array, *, head_dim: int) -> jax.Array:
    """The same as `weights`, written as it stands in a textbook."""

    def kernel(s_gmem: Any, p_gmem: Any) -> None:
        s = plgpu.load(s_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        row_max = lax.broadcast_in_dim(s.max(axis=1), s.shape, [0])
        p_gmem[...] = jnp.exp((s - row_max) * head_dim**-0.5)

    params = plgpu.CompilerParams(approx_math=True)
    return plgpu.kernel(kernel, out_type=s, compiler_params=params)(s)


def changed(number: int, *changes: tuple[str, str]) -> Callable[..., Any]:
    """A step of the attention ladder with a few words of its code replaced: to break it.

    Args:
      number: the step.
      changes: pairs of the words that are there and those that replace them.

    Returns:
      its `attention` function, which is in no module.

    Raises:
      ValueError: the step has no such words.
    """
    step = attention_ladder.step(number)
    code = step.source
    for old, new in changes:
        if old not in code:
            raise ValueError(f"{step.name} has no {old!r}")
        code = code.replace(old, new)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, str(step.module.__file__), "exec"), names)
    function: Callable[..., Any] = names["attention"]
    return function


# The truth, from numpy arrays to numpy arrays.


def exact(q: Any, k: Any, v: Any, *, causal: bool = False) -> np.ndarray:
    """`softmax(q k^T / sqrt(head_dim)) v` in float64, over the last two axes."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(*s.shape[-2:]) > 0, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def attention_reference(q: Any, k: Any, v: Any) -> np.ndarray:
    """`softmax(q k^T / sqrt(head_dim)) v` in float64, with q's dtype."""
    return exact(q, k, v).astype(np.asarray(q).dtype)


def causal_reference(q: Any, k: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
    """The causal attention, and for every block of 64 queries the tiles of 128 keys it sees."""
    rows = np.arange(0, np.shape(q)[0], 64)
    tiles = np.minimum((rows + 63) // 128 + 1, np.shape(k)[0] // 128)
    return exact(q, k, v, causal=True).astype(np.asarray(q).dtype), tiles.astype(np.int32)


def turns_reference(q: Any, k: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
    """The attention, and the diary of warpgroups that take turns: 0, 1, 0, 1, ..."""
    order = functools.reduce(lambda past, wg: 2 * past + wg, [0, 1] * (np.shape(k)[1] // 128), 0)
    diary = np.full((np.shape(q)[0], 128), order, np.int32)
    return attention_reference(q, k, v), diary


def merge_reference(o: Any, lse: Any, *, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What `merge` computes, in float64."""
    o, lse = np.asarray(o, np.float64), np.asarray(lse, np.float64)
    share = np.exp(lse - np.logaddexp(*lse))
    out = np.einsum("pm,pmd->md", share, o)
    return out.astype(np.float32), (np.logaddexp(*lse) + offset).astype(np.float32)


def weights_reference(s: Any, *, head_dim: int) -> np.ndarray:
    """What `weights` computes, in float64."""
    s = np.asarray(s, np.float64)
    return np.exp((s - s.max(1, keepdims=True)) / np.sqrt(head_dim)).astype(np.float32)
