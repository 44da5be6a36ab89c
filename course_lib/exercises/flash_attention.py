"""The exercises of chapter 12: online softmax, powers of two, bounds, turns, and merging by lse."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import flash_attention as kernels


def _head(queries: int, keys: int, head_dim: int) -> Case:
    q, kv = Spec((queries, head_dim), "float16"), Spec((keys, head_dim), "float16")
    return Case((q, kv, kv))


def _heads(heads: int, keys: int, head_dim: int) -> Case:
    q, kv = (Spec((heads, rows, head_dim), "float16") for rows in (128, keys))
    return Case((q, kv, kv))


def _parts(queries: int, head_dim: int, offset: int) -> Case:
    shapes = ((2, queries, head_dim), (2, queries))
    return Case(tuple(Spec(shape, "float32") for shape in shapes), {"offset": offset})


register(
    Exercise(
        id="flash_attention.online",
        function="online",
        title="The online softmax",
        statement=(
            "Return softmax(q k^T / sqrt(head_dim)) v. kernels.attend calls your update for each "
            "tile of 128 keys, with the carry (o, row_max, row_sum), the tile's scores s and "
            "add_product(o, p), which is o + p v. Return the next carry. row_max is the largest of "
            "scale * s so far, o and row_sum are by that."
        ),
        signature="online(q: float16[m, d], k: float16[n, d], v: float16[n, d]) -> float16[m, d]",
        lines=6,
        reference=kernels.attention_reference,
        cases=(_head(64, 384, 64), _head(128, 256, 128), _head(64, 128, 64)),
        hints=(
            "Whatever was added up so far was by the old maximum. By which factor does it shrink "
            "if the maximum grows? That factor is one number per row; o and row_sum both need it.",
            "new_max is the larger of row_max and the largest scale * s of each row. "
            "alpha = jnp.exp(row_max - new_max) is 1 where it has not grown. The tile's weights "
            "are jnp.exp(s * scale - new_max[:, None]).",
            "new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)\n"
            "alpha = jnp.exp(row_max - new_max)\n"
            "p = jnp.exp(s * scale - new_max[:, None])\n"
            "row_sum = row_sum * alpha + jnp.sum(p, axis=1)\n"
            "... and o: what was there, times alpha[:, None], goes into add_product with p",
        ),
        requires={"exp": 2, "reduce_max": 1, "reduce_sum": 1, "wgmma_ref": 2},
        rtol=1e-2,
        atol=2e-3,
    )
)

register(
    Exercise(
        id="flash_attention.weights",
        function="weights",
        title="Powers of two",
        statement=(
            "Return exp((s - m) / sqrt(head_dim)), where m is the largest element of each row, "
            "with one multiply-add and one power of two per element."
        ),
        signature="weights(s: float32[64, n], *, head_dim: int) -> float32[64, n]",
        lines=2,
        reference=kernels.weights_reference,
        cases=tuple(
            Case((Spec((64, n), "float32"),), {"head_dim": d})
            for n, d in ((128, 64), (256, 128), (64, 64))
        ),
        hints=(
            "exp(x) is exp2(log2(e) * x). So all factors in front of s are one number, which "
            "Python computes: call it factor. What has to be subtracted from s * factor?",
            "factor = math.log2(math.e) * head_dim**-0.5. Subtract row_max * factor, one number "
            "per row: a product and a difference together are one instruction, but only in this "
            "order. (s - row_max) * factor takes two. And [:, None] comes last, around the whole "
            "vector: row_max[:, None] * factor has a single column, and no layout for that.",
            "factor = math.log2(math.e) * head_dim**-0.5\n"
            "p_gmem[...] = jnp.exp2(s * factor - ...): the row's largest times the same factor, "
            "as [:, None]",
        ),
        requires={"exp2": 1, "reduce_max": 1},
        forbids=("exp",),
        expects={"sm_90a": {"MUFU.EX2": 64, "FFMA": ">=64", "FMUL": "<=8"}},
        rtol=1e-4,
        atol=1e-6,
    )
)

register(
    Exercise(
        id="flash_attention.ping_pong",
        function="ping_pong",
        title="Take turns at the tensor core",
        statement=(
            "Let two warpgroups take turns, warpgroup 0 first. In its turn a warpgroup calls "
            "issue(), which issues its products, and then it passes the turn on. turn holds two "
            "barriers with one arrival each: turn.at[wg] completes when it is warpgroup wg's turn. "
            "A head has the same number of turns for both; at its end no completion is left "
            "that nobody has waited for. The diary, the second result, is 0, 1, 0, 1, ..."
        ),
        signature=(
            "ping_pong(q: float16[heads, 128, d], k: float16[heads, n, d], v: the same) -> "
            "(float16[heads, 128, d], int32[heads, 128])"
        ),
        lines=9,
        reference=kernels.turns_reference,
        cases=(_heads(2, 256, 64), _heads(3, 384, 64), _heads(2, 256, 128)),
        hints=(
            "Each warpgroup waits for its own barrier and arrives on the other's. Two questions "
            "are left: who arrives before the first turn? And after the last turn of warpgroup "
            "1, whose barrier is complete, with nobody to wait for it?",
            "In products: wait for turn.at[wg], issue(), arrive on turn.at[1 - wg]. In begin, one "
            "of the two arrives on turn.at[0], and only one of them. In end, warpgroup 0 waits "
            "for the turn that it does not take.",
            "def begin(wg, turn):\n"
            "    @pl.when(wg == 1)\n"
            "    def first():\n"
            "        plgpu.barrier_arrive(turn.at[0])\n"
            "... products has three lines, and end is like begin: wg == 0 waits for turn.at[0]",
        ),
        requires={"barrier_arrive": 3, "barrier_wait": 3, "wgmma_ref": 3},
        rtol=1e-2,
        atol=2e-3,
    )
)

register(
    Exercise(
        id="flash_attention.causal",
        function="causal",
        title="Causal: bounds and mask",
        statement=(
            "Query i sees the keys 0 to i. tiles(row) says how many tiles of 128 keys a block "
            "looks at whose 64 queries begin with query row: no more than they see, and no more "
            "than there are. mask(s, row, key) puts -inf where a query does not see the key; s "
            "holds the scores of 64 queries from row on and 128 keys from key on."
        ),
        signature=(
            "causal(q: float16[m, d], k: float16[n, d], v: float16[n, d]) -> "
            "(float16[m, d], int32[m / 64])"
        ),
        lines=5,
        reference=kernels.causal_reference,
        cases=(_head(384, 384, 64), _head(512, 256, 64), _head(128, 384, 128)),
        hints=(
            "The last of a block's queries, row + 63, sees most: the keys up to row + 63. In "
            "which tile is that key? And what if there are fewer tiles than that?",
            "Tile number (row + 63) // 128 is the last one, so there is one tile more than that "
            "number, and at most k.shape[0] // 128. For the mask you need the number of each "
            "element's query and key: plgpu.broadcasted_iota(jnp.int32, s.shape, axis, "
            "layout=plgpu.Layout.WGMMA) counts along an axis.",
            "def tiles(row):\n"
            "    return jnp.minimum((row + 63) // 128 + 1, k.shape[0] // 128)\n"
            "def mask(s, row, key):\n"
            "    queries = row + plgpu.broadcasted_iota(jnp.int32, s.shape, 0, layout=wgmma)\n"
            "    keys = key + ... the same along axis 1\n"
            "... then jnp.where(which of them are seen, s, -jnp.inf)",
        ),
        requires={"select_n": 1, "wgmma_ref": 2},
        rtol=1e-2,
        atol=2e-3,
    )
)

register(
    Exercise(
        id="flash_attention.merge",
        function="merge",
        title="Merge two halves",
        statement=(
            "o[0] is the attention of some queries over one half of the keys, o[1] over the other, "
            "and lse[i] + offset the log of each half's sum of exp(score). Return the attention "
            "over all keys, and its lse. Sums of exp(lse) may be too large for a float32."
        ),
        signature=(
            "merge(o: float32[2, m, d], lse: float32[2, m], *, offset: int) -> "
            "(float32[m, d], float32[m])"
        ),
        lines=6,
        reference=kernels.merge_reference,
        cases=(_parts(64, 64, 0), _parts(64, 128, 200), _parts(128, 64, -200)),
        hints=(
            "exp(lse) is a half's row_sum, with all maxima taken out. The two sums add up, and "
            "each o counts by its share of the total. With offset=200 exp overflows, with -200 "
            "it is 0: what did the softmax do about that?",
            "Take the larger of the two lse out: top = jnp.maximum(a, b). Then the weights are "
            "exp(a - top) and exp(b - top), and one of them is 1. The lse of all is top plus the "
            "log of their sum.",
            "top = jnp.maximum(a, b)\n"
            "a, b = jnp.exp(a - top), jnp.exp(b - top)\n"
            "out = o_a * (a / (a + b))[:, None] + ... the same for b\n"
            "all_lse_gmem[...] = top + jnp.log(a + b)",
        ),
        requires={"exp": 2, "log": 1},
        rtol=1e-3,
        atol=1e-4,
    )
)
