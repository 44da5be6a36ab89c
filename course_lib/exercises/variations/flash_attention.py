"""Variants of the exercises of chapter 12: other scores, another order, other keys to be seen."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import flash_attention as kernels

Array = np.ndarray[Any, Any]


def _scores(q: Array, k: Array) -> Array:
    """`q k^T / sqrt(head_dim)` in float64, (queries, keys)."""
    wide: Array = q.astype(np.float64) @ k.astype(np.float64).T
    return wide / np.sqrt(q.shape[-1])


def _averages(s: Array, v: Array) -> Array:
    """`softmax(s) v` in float64, with v's dtype."""
    p = np.exp(s - s.max(1, keepdims=True))
    return (p / p.sum(1, keepdims=True) @ v.astype(np.float64)).astype(v.dtype)


def _online(*, cap: int) -> Varied:
    return Varied(
        statement=(
            f"Return softmax(c) v, where c = {cap} * tanh(x / {cap}) and x = q k^T / "
            "sqrt(head_dim): the scores are capped before anything else happens to them. "
            "kernels.attend calls your update for each tile of 128 keys, with the carry (o, "
            "row_max, row_sum), the tile's scores s, which are neither scaled nor capped yet, and "
            "add_product(o, p), which is o + p v. Return the next carry. row_max is the largest "
            "capped score so far, o and row_sum are by that."
        ),
        reference=functools.partial(_capped_reference, cap=cap),
        edits=(
            (
                "Return the next carry. `row_max` belongs to `scale * s`.",
                "Here scores\nare *capped*: each `x = scale * s` becomes "
                f"`{cap} * tanh(x / {cap})`, before anything else happens to it, so none\nis "
                f"larger than {cap}. Return the next carry. `row_max` belongs to the capped "
                "scores.",
            ),
        ),
    )


def _capped_reference(q: Array, k: Array, v: Array, *, cap: int) -> Array:
    return _averages(cap * np.tanh(_scores(q, k) / cap), v)


def _weights(*, base: int, margin: int) -> Varied:
    return Varied(
        statement=(
            f"Return {base} ** ((s - m) / sqrt(head_dim)), where m is {margin} more than the "
            "largest element of each row, with one multiply-add and one power of two per element."
        ),
        reference=functools.partial(_weights_reference, base=base, margin=margin),
        edits=(
            (
                "Return `exp((s - m) / sqrt(head_dim))`, where m is the largest element of each "
                "row,",
                f"Return `{base} ** ((s - m) / sqrt(head_dim))`, where m is {margin} more than the "
                "largest element of each row,",
            ),
        ),
    )


def _weights_reference(s: Array, *, head_dim: int, base: int, margin: int) -> Array:
    wide = s.astype(np.float64)
    m = wide.max(1, keepdims=True) + margin
    return (float(base) ** ((wide - m) / np.sqrt(head_dim))).astype(s.dtype)


def _ping_pong(*, first: int, tile: int) -> Varied:
    other = 1 - first
    return Varied(
        statement=(
            f"Let two warpgroups take turns, warpgroup {first} first. In its turn a warpgroup "
            "calls issue(), which issues its products, and then it passes the turn on. turn holds "
            "two barriers with one arrival each: turn.at[wg] completes when it is warpgroup wg's "
            f"turn. A head has the same number of turns for both, one for each tile of {tile} "
            "keys; at its end no completion is left that nobody has waited for. The diary, the "
            f"second result, is {first}, {other}, {first}, {other}, ..."
        ),
        reference=functools.partial(_turns_reference, first=first, tile=tile),
        cases=tuple(_heads(*sizes) for sizes in _HEADS[tile]),
        edits=(
            ("Warpgroup 0\nis first.", f"**Warpgroup {first}\nis first.**"),
            (
                "About 9 lines.",
                f"A tile is {tile} keys here: the timeline below this exercise has "
                f"{_TILES_BELOW[tile]} of them. About 9 lines.",
            ),
            (
                "    return kernels.attend_in_turns(q, k, v, begin=begin, products=products, "
                "end=end)",
                f"    config = kernels.Config(block_kv={tile})\n"
                "    parts = dict(begin=begin, products=products, end=end)\n"
                "    return kernels.attend_in_turns(q, k, v, **parts, config=config)",
            ),
        ),
    )


# (heads, keys, head_dim): whole tiles, as many as fit into shared memory with their values.
_HEADS = {
    64: ((2, 192, 64), (3, 320, 64), (2, 128, 128)),
    256: ((2, 512, 64), (3, 256, 64), (2, 256, 128)),
}
_TILES_BELOW = {64: "eight", 256: "two"}


def _heads(heads: int, keys: int, head_dim: int) -> Case:
    q, kv = (Spec((heads, rows, head_dim), "float16") for rows in (128, keys))
    return Case((q, kv, kv))


def _turns_reference(q: Array, k: Array, v: Array, *, first: int, tile: int) -> tuple[Array, Array]:
    order = 0
    for wg in [first, 1 - first] * (k.shape[1] // tile):
        order = 2 * order + wg
    return kernels.attention_reference(q, k, v), np.full((q.shape[0], 128), order, np.int32)


def _causal(*, prefix: int, past: int) -> Varied:
    return Varied(
        statement=(
            f"Query i sees the keys 0 to i + {past}, and every query sees the first {prefix} keys "
            "in any case. tiles(row) says how many tiles of 128 keys a block looks at whose 64 "
            "queries begin with query row: no more than they see, and no more than there are. "
            "mask(s, row, key) puts -inf where a query does not see the key; s holds the scores of "
            "64 queries from row on and 128 keys from key on."
        ),
        reference=functools.partial(_seen_reference, prefix=prefix, past=past),
        edits=(
            (
                "Write both. ",
                f"Write both, for other queries: query `i` sees the keys 0 to `i + {past}`, since "
                f"{past} keys are older than query\n0, and every query sees the first {prefix} "
                "keys in any case. ",
            ),
        ),
    )


def _seen_reference(q: Array, k: Array, v: Array, *, prefix: int, past: int) -> tuple[Array, Array]:
    last = np.maximum(np.arange(q.shape[0]) + past, prefix - 1)
    s = np.where(np.arange(k.shape[0]) <= last[:, None], _scores(q, k), -np.inf)
    tiles = np.minimum(last[63::64] // 128 + 1, k.shape[0] // 128)
    return _averages(s, v), tiles.astype(np.int32)


def _merge(*, copies: int, sink: int) -> Varied:
    return Varied(
        statement=(
            "o[0] is the attention of some queries over one half of the keys, o[1] over the other, "
            "and lse[i] + offset the log of each half's sum of exp(score). Return the attention "
            f"over all keys, and its lse, where each key of the second half counts {copies} times, "
            f"and where there is one more key, a sink: its score is {sink}, whatever offset is, "
            "and its value is zero. Sums of exp(lse) may be too large for a float32, or all too "
            "small."
        ),
        reference=functools.partial(_merge_reference, copies=copies, sink=sink),
        edits=(
            (
                "Return both\nfor all keys.",
                "Return both\nfor all keys, with two changes. Each key of the second half counts "
                f"{copies} times, as if it stood there {copies} times. And there is\none more key, "
                f"a *sink*: its score is {sink}, whatever `offset` is, and its value is zero. So "
                "it takes a share of the weights, and\nadds nothing to `o`.",
            ),
            ("`exp` of it may overflow.", "`exp` of it may overflow, or be 0."),
        ),
    )


def _merge_reference(
    o: Array, lse: Array, *, offset: int, copies: int, sink: int
) -> tuple[Array, Array]:
    a, b = lse.astype(np.float64) + offset
    b = b + np.log(copies)
    of_all = np.logaddexp(np.logaddexp(a, b), sink)
    share = np.exp(np.stack([a, b]) - of_all)
    out = np.einsum("pm,pmd->md", share, o.astype(np.float64))
    return out.astype(np.float32), of_all.astype(np.float32)


VARIANTS = {
    "online": Variants({"cap": (1, 2, 3, 4)}, _online),
    "weights": Variants({"base": (3, 5, 6, 7, 10), "margin": (1, 2, 3, 4)}, _weights),
    "ping_pong": Variants({"first": (1,), "tile": (64, 256)}, _ping_pong),
    "causal": Variants({"prefix": (80, 100, 150, 200), "past": (16, 32, 48)}, _causal),
    "merge": Variants({"copies": (2, 3, 4, 5), "sink": (-1, 1, 2, 3)}, _merge),
}
