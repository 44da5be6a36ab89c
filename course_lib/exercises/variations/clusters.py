"""Variants of the exercises of chapter 09: other neighbours, other clusters, other tiles."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import clusters as kernels

Array = np.ndarray[Any, Any]

# blocks of a cluster -> how many that is, and what share of a row each has
_BLOCKS = {2: ("two", "half"), 8: ("eight", "an eighth")}
_TILE_M, _TILE_K = 64, 64  # rows of a block, and how much of K a slot holds
_BESIDE = 2  # blocks of its cluster beside each other


def _smooth(*, back: int, ahead: int, times: int) -> Varied:
    wanted = f"x[i - {back}] + {times} * x[i] + x[i + {ahead}]"
    return Varied(
        statement=(
            f"Return {wanted} for each tile i of x, in a circle: tile 0 has the last one before "
            "it. Each block of the cluster has one tile, puts it into tile_smem, and reads those "
            "of two others from theirs. With few blocks the two may be the same, or its own."
        ),
        reference=functools.partial(_smooth_reference, back=back, ahead=ahead, times=times),
        edits=(
            ("### Exercise 1: ask both neighbours", "### Exercise 1: ask two others"),
            (
                "Return `(x[i - 1] + x[i] + x[i + 1]) / 3` for each tile, in a circle.",
                f"Return `{wanted}` for each tile, in a circle. With few blocks the two others may "
                "be one, or the block itself.",
            ),
        ),
    )


def _smooth_reference(x: Array, *, back: int, ahead: int, times: int) -> Array:
    wide = x.astype(np.float64)
    others = np.roll(wide, back, axis=0) + np.roll(wide, -ahead, axis=0)
    return (others + times * wide).astype(x.dtype)


def _normalize(*, blocks: int, plus: int) -> Varied:
    many, share = _BLOCKS[blocks]
    others = "the other one" if blocks == 2 else "the others"
    return Varied(
        statement=(
            f"Return each row of x divided by sqrt(mean of its squares + {plus}). The {blocks} "
            f"blocks of a cluster share 64 rows: each has {share} of the columns in `tile`, and "
            f"reads the sums of squares of {others} from their part_smem."
        ),
        signature=f"normalize(x: float32[m, n]) -> float32[m, n]; m of 64, n of {32 * blocks}",
        reference=functools.partial(_normalize_reference, plus=plus),
        cases=tuple(
            Case((Spec((m * _TILE_M, n * 32 * blocks), "float32"),))  # 32 are a cache line
            for m, n in ((1, 2), (2, 1), (3, 3))
        ),
        edits=(
            (
                "only a quarter of the row knows a quarter of the sum.",
                f"only {share} of the row knows {share} of the sum.",
            ),
            ("its quarter in registers", f"its {share.split()[-1]} in registers"),
            ("and asks the others for", f"and asks {others} for"),
            (
                "each of its four blocks `n // 4` columns",
                f"each of its {many} blocks `n // {blocks}` columns",
            ),
            (
                "Fill in the rest.",
                f"Return `row / sqrt(mean(row ** 2) + {plus})` for each row. Fill in the rest.",
            ),
            (
                'axis_index("cluster") * (n // 4), n // 4)',
                f'axis_index("cluster") * (n // {blocks}), n // {blocks})',
            ),
            ("cluster=(4,),", f"cluster=({blocks},),"),
        ),
    )


def _normalize_reference(x: Array, *, plus: int) -> Array:
    wide = x.astype(np.float64)
    squares = (wide * wide).mean(axis=1, keepdims=True)
    return (wide / np.sqrt(squares + plus)).astype(x.dtype)


def _scale_own(*, shift: int, times: int) -> Varied:
    own = f"own[(i + {shift}) % blocks]"
    return Varied(
        statement=(
            f"Return x * {own} + {times} * x for each i, in a cluster of `blocks` blocks, one for "
            f"each i. All blocks need x: let one collective copy bring it. {own} is needed by "
            "block i only. Wait once for both, and allocate the barrier for it."
        ),
        reference=functools.partial(_scale_own_reference, shift=shift, times=times),
        edits=(
            (
                "Return `x * own[i]` for each `i`. All blocks need `x`, and block `i` needs "
                "`own[i]`.",
                f"Return `x * {own} + {times} * x` for each `i`, where `blocks` is how many tiles "
                f"`own` has. All blocks need `x`, and block `i` needs `{own}`.",
            ),
            ("It is the second example of", "It is nearly the second example of"),
        ),
        atol=1e-5,  # two terms of about 10 that may nearly cancel
    )


def _scale_own_reference(x: Array, own: Array, *, shift: int, times: int) -> Array:
    mine = np.roll(own.astype(np.float64), -shift, axis=0)
    return (x * mine + times * x.astype(np.float64)).astype(x.dtype)


def _distances(*, times: int, cap: int) -> Varied:
    each = f"min(|x[t] - {times} * q[i]|, {cap})"
    return Varied(
        statement=(
            f"Return the sum over t of {each} for each i, so that no tile counts more than {cap}. "
            "A block has one q[i] and needs all tiles of x; the `blocks` blocks of a cluster bring "
            "them together, through a ring of `slots` slots. Write one step, and allocate consumed."
        ),
        reference=functools.partial(_distances_reference, times=times, cap=cap),
        edits=(
            ("`sum over t of |x[t] - q[i]|`.", f"`sum over t of {each}`."),
            (
                "wait for the slot's tile, add to `total`, commit.",
                f"wait for the slot's tile, add to `total` (no element more than {cap}), commit.",
            ),
        ),
    )


def _distances_reference(q: Array, x: Array, *, times: int, cap: int, **_: int) -> Array:
    wide = np.abs(x.astype(np.float64)[:, None] - times * q.astype(np.float64)[None])
    return np.minimum(wide, cap).sum(axis=0).astype(q.dtype)


def _shared_matmul(*, above: int, columns: int) -> Varied:
    shape = f"{above} x {_BESIDE}"
    return Varied(
        statement=(
            f"Multiply a and b in clusters of {shape} blocks ({above} above each other, {_BESIDE} "
            f"beside each other), of which each computes a tile of 64 x {columns} through 3 slots "
            "of 64 along K. kernels.product has the ring; write fetch, before_refill, consumed and "
            "config. Blocks that need the same tile bring it together. A block waits for those "
            "that it shares a tile with, and for no other."
        ),
        reference=kernels.matmul_reference,
        cases=tuple(
            Case((Spec((m, k), "float16"), Spec((k, n), "float16")))
            for m, n, k in (
                (_TILE_M * above, _BESIDE * columns, 4 * _TILE_K),
                (2 * _TILE_M * above, _BESIDE * columns, 3 * _TILE_K),
                (_TILE_M * above, 3 * _BESIDE * columns, 7 * _TILE_K),
            )
        ),
        edits=(
            ("It leaves three things to you:", "It leaves four things to you:"),
            (
                "and `consumed` itself. The axes",
                "`consumed` itself; and `config`, a `kernels.Config` with all six of its fields: "
                f"a block computes a tile of 64 x {columns}, through 3 slots that hold 64 of K, in "
                f"a cluster of {shape}, {above} above each other and {_BESIDE} beside each other. "
                "The axes",
            ),
            ("About 6\nlines.", "About 8\nlines."),
            (
                "CONFIG = kernels.Config(tile_m=64, tile_n=64, slots=3, cluster_m=2, cluster_n=2)"
                "\n\n\n",
                "",
            ),
            ("config=CONFIG", "config=config"),
        ),
    )


VARIANTS = {
    "smooth": Variants({"back": (2, 3), "ahead": (1, 2), "times": (2, 3, 4, 5)}, _smooth),
    "normalize": Variants({"blocks": (2, 8), "plus": (1, 2, 3)}, _normalize),
    # odd: a cluster of two would not notice an even shift
    "scale_own": Variants({"shift": (1, 3, 5), "times": (2, 3, 4)}, _scale_own),
    "distances": Variants({"times": (2, 3, 4), "cap": (1, 2, 3)}, _distances),
    # widths of which the course's cluster, with 128 columns, does not divide two
    "shared_matmul": Variants({"above": (1, 4), "columns": (96, 160)}, _shared_matmul),
}
