"""Variants of the exercises of chapter 06: more threads, more arrivals, another thing to carry."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Edit, Variants, Varied

Array = np.ndarray[Any, Any]

_WORDS = {3: "three", 4: "four", 5: "five"}


def _hand_off(*, threads: int, factor: int) -> Varied:
    last = threads - 1
    between = "thread 1" if threads == 3 else f"each of the threads 1 to {last - 1}"
    multiplies = "multiplies" if threads == 3 else "in turn multiplies"
    result = f"exp(x) * {factor ** (threads - 2)} + 1"
    return Varied(
        statement=(
            f"Return {result} from {threads} Pallas threads, of which each waits for the one "
            f"before it. Thread 0 puts exp(x) into item_smem; {between} {multiplies} it there by "
            f"{factor}; thread {last} adds 1 and writes y_gmem. Each hand-over has a barrier of "
            "its own: ready.at[t] says that thread t is done."
        ),
        reference=functools.partial(_hand_off_reference, factor=factor ** (threads - 2)),
        edits=(
            (
                "Return `exp(x) + 1`. Thread 0 computes the exponential, thread 1 adds 1 and "
                "writes.",
                f"Return `{result}` from {_WORDS[threads]} threads. Thread 0 puts the exponential "
                f"into `item_smem`, {between} {multiplies} it there by {factor}, thread {last} "
                "adds 1 and writes. Each hand-over has a barrier of its own: `ready.at[t]` says "
                "that thread `t` is done.",
            ),
            ("About 8 lines.", "About 8 lines, and a few for what is between."),
            (
                "        scratch_types=dict(item_smem=plgpu.SMEM(x.shape, x.dtype), "
                "ready=plgpu.Barrier()),\n",
                "        scratch_types=dict(\n"
                "            item_smem=plgpu.SMEM(x.shape, x.dtype),\n"
                f"            ready=plgpu.Barrier(num_barriers={last}),\n"
                "        ),\n",
            ),
            ("num_threads=2", f"num_threads={threads}"),
        ),
    )


def _hand_off_reference(x: Array, *, factor: int) -> Array:
    return np.asarray((np.exp(x.astype(np.float64)) * factor + 1).astype(x.dtype))


def _exp_minus(*, producers: int, factor: int) -> Varied:
    rows = " - ".join(["exp(x[0])", *(f"{factor} * x[{t}]" for t in range(1, producers))])
    last = producers - 1
    return Varied(
        statement=(
            f"Return {rows} from {producers + 1} Pallas threads: thread 0 puts exp(x[0]) into "
            f"items_smem[0], threads t = 1 to {last} put -{factor} * x[t] into items_smem[t], and "
            f"thread {producers} adds the {producers} terms and writes y_gmem. There is one "
            "barrier, which you allocate."
        ),
        signature=f"exp_minus(x: float32[{producers}, n]) -> float32[n], n a multiple of 128",
        reference=functools.partial(_exp_minus_reference, factor=factor),
        cases=tuple(Case((Spec((producers, n)),)) for n in (128, 256, 384)),
        edits=(
            ("### Exercise 2: two producers", f"### Exercise 2: {_WORDS[producers]} producers"),
            (
                "Return `exp(x[0]) - x[1]`, from three threads. Threads 0 and 1 each put one term "
                "into `items_smem`; thread 2 adds the terms\nand writes.",
                f"Return `{rows}`, from {_WORDS[producers + 1]} threads. Threads 0 to {last} each "
                f"put one term into `items_smem`; thread {producers} adds the terms\nand writes.",
            ),
            ("num_threads=3", f"num_threads={producers + 1}"),
        ),
        # terms of up to about 20, the sum of which may be near 0
        atol=5e-5,
    )


def _exp_minus_reference(x: Array, *, factor: int) -> Array:
    wide = x.astype(np.float64)
    return np.asarray((np.exp(wide[0]) - factor * wide[1:].sum(0)).astype(x.dtype))


def _take_turns(*, plus: int, factor: int) -> Varied:
    once = f"{factor} * (x / 2 + {plus})"
    return Varied(
        statement=(
            f"Start from x and replace it `rounds` times by {once}. Thread 0 halves what is in "
            f"item_smem, thread 1 adds {plus} to it, thread 2 multiplies it by {factor}, in turn. "
            "Thread 0 also fills item_smem at the start and writes y_gmem at the end."
        ),
        reference=functools.partial(_take_turns_reference, plus=plus, factor=factor),
        edits=(
            ("`rounds` times by `x / 2 + 1`.", f"`rounds` times by `{once}`."),
            (
                "Thread 0 halves what is in `item_smem`, thread 1 adds 1. Thread\n0 also fills",
                f"Thread 0 halves what is in `item_smem`, thread 1 adds {plus}, thread 2 "
                f"multiplies by {factor}: three take turns. Thread\n0 also fills",
            ),
            ("About 16\nlines.", "About 16\nlines, and a few for thread 2."),
            ("item_smem, halved, added)", "item_smem, halved, added, multiplied)"),
            (
                "            item_smem=plgpu.SMEM(x.shape, x.dtype), halved=plgpu.Barrier(), "
                "added=plgpu.Barrier()\n",
                "            item_smem=plgpu.SMEM(x.shape, x.dtype),\n"
                "            halved=plgpu.Barrier(),\n"
                "            added=plgpu.Barrier(),\n"
                "            multiplied=plgpu.Barrier(),\n",
            ),
            ("num_threads=2", "num_threads=3"),
        ),
    )


def _take_turns_reference(x: Array, *, rounds: int, plus: int, factor: int) -> Array:
    number = x.dtype.type
    for _ in range(rounds):
        x = (x / number(2) + number(plus)) * number(factor)
    return x


def _queue(*, factor: int, start: int) -> Varied:
    return Varied(
        statement=(
            f"Return, for each batch, y[i] = {start} + {factor} * (x[0] + ... + x[i]), each batch "
            f"through a queue of `slots` slots. Thread 0 puts {factor} * x[i] into slot i % slots; "
            f"thread 1 adds it to a running total, which begins at {start} in each batch, and "
            "writes the total to row i. When a batch's scope ends, every completion of both "
            "arrays of barriers has been waited for, also where there are fewer rows than slots."
        ),
        reference=functools.partial(_queue_reference, factor=factor, start=start),
        edits=(
            (
                "Return `2 * x + 1` as above, batch by batch, with any number of slots,",
                f"Return `y[i] = {start} + {factor} * (x[0] + ... + x[i])`, batch by batch. Thread "
                f"0 puts `{factor} * x[i]` into a slot; thread 1 adds it to a running total, which "
                f"begins at {start} in each batch, and writes the total to row `i` "
                "(`jax.lax.fori_loop` hands a value from step to step). Do it with any number of "
                "slots,",
            ),
        ),
        rtol=1e-5,
        # up to eight additions of numbers of up to about 60
        atol=1e-4,
    )


def _queue_reference(x: Array, *, slots: int, factor: int, start: int) -> Array:
    totals = start + factor * np.cumsum(x.astype(np.float64), axis=1)
    return np.asarray(totals.astype(x.dtype))


def _ring(*, threads: int, plus: int) -> Varied:
    a_lap = sum(range(plus, plus + threads))
    return Varied(
        statement=(
            f"{threads} threads pass token_smem around, `laps` times, and thread t adds t + {plus} "
            "to it. Thread 0 fills it with x at the start and writes y_gmem at the end, so the "
            f"result is x + {a_lap} * laps. turn[t] says that it is thread t's turn. Mend the "
            "deadlock of the ring above."
        ),
        reference=functools.partial(_ring_reference, a_lap=a_lap),
        edits=(
            (
                "Now write it right, for any number of `laps`: `x + 6 * laps` is the result.",
                f"Now write it right, for any number of `laps`, and for {_WORDS[threads]} threads, "
                f"of which thread `t` adds `t + {plus}`: `x + {a_lap} * laps` is the result.",
            ),
            ("num_barriers=3", f"num_barriers={threads}"),
            ("num_threads=3", f"num_threads={threads}"),
        ),
    )


def _ring_reference(x: Array, *, laps: int, a_lap: int) -> Array:
    return np.asarray((x.astype(np.float64) + laps * a_lap).astype(x.dtype))


def _two_compute_threads(*, divisor: int) -> Varied:
    first, second, third = (f"exp(tile / {divisor + t})" for t in range(3))
    return Varied(
        statement=(
            f"Return y with y[t] the sum of exp(tile / (t + {divisor})) over the tiles of 64 rows "
            "of x, for t = 0, 1 and 2. Thread 3 brings the tiles (bring_tiles, above). Threads 0, "
            "1 and 2 compute: each has all rows of every tile, takes 152 registers per lane, and "
            "writes its own sum."
        ),
        signature="sum_exp(x: float32[tiles * 64, 128]) -> float32[3, 64, 128], 3 tiles or more",
        reference=functools.partial(_sums_of_exp_reference, divisor=divisor),
        edits=_edits_of_three_sums(f"{first}`, of `{second}` and of `{third}", divisor),
    )


def _edits_of_three_sums(sums: str, divisor: int) -> tuple[Edit, ...]:
    return (
        ("### Exercise 6: two threads", "### Exercise 6: three threads"),
        (
            "One thread with a 64 x 128 sum of float32 needs 64 registers per lane for the sum "
            "alone. Share it: threads 0 and 1 compute,\neach on 32 of the 64 rows of every tile, "
            "and thread 2 brings the tiles.",
            f"Return three sums over the tiles: of `{sums}`. One thread with three 64 x 128 sums "
            "of float32 needs 192 registers per lane for the sums alone. Share them: threads 0, 1 "
            f"and 2 compute, thread `t` the sum of `exp(tile / (t + {divisor}))`, which is "
            "`y_gmem[t]`. Each has all 64 rows of every tile, and thread 3 brings the tiles.",
        ),
        ("thread < 2)", "thread < 3)"),
        ("thread == 2)", "thread == 3)"),
        ("num_threads=3)", "num_threads=4)"),
        (
            "    return plgpu.kernel(kernel, out_type=TILE,",
            "    sums = jax.ShapeDtypeStruct((3, 64, 128), jnp.float32)\n"
            "    return plgpu.kernel(kernel, out_type=sums,",
        ),
    )


def _sums_of_exp_reference(x: Array, *, divisor: int) -> Array:
    tiles = x.astype(np.float64).reshape(-1, 64, x.shape[1])
    sums = [np.exp(tiles / (t + divisor)).sum(0) for t in range(3)]
    return np.stack(sums).astype(x.dtype)


def _sum_of_products(*, shift: int) -> Varied:
    return Varied(
        statement=(
            "a and b are columns of tiles of 64 rows, as many each. Return the sum over all ti of "
            f"tile ti of a times tile (ti + {shift}) % tiles of b, where `tiles` is how many there "
            "are. Let plgpu.emit_pipeline_warp_specialized bring the tiles with its memory "
            "thread, and two threads compute, each on 32 of the 64 rows."
        ),
        reference=functools.partial(_products_reference, shift=shift),
        edits=(
            (
                "Return the sum of `a_tile * b_tile` over tiles of 64 x 128, with a memory thread",
                "Return a sum of products of tiles of 64 x 128: tile `ti` of `a` times tile "
                f"`(ti + {shift}) % tiles` of `b`, where `tiles` is how many there are. Use `spec` "
                "for `a`, and one of your own for `b`. Do it with a memory thread",
            ),
        ),
    )


def _products_reference(a: Array, b: Array, *, shift: int) -> Array:
    products = a.astype(np.float64) * np.roll(b, -64 * shift, axis=0)
    return np.asarray(products.reshape(-1, 64, a.shape[1]).sum(0).astype(a.dtype))


VARIANTS = {
    "hand_off": Variants({"threads": (3, 4), "factor": (2, 3, 4, 5)}, _hand_off),
    "exp_minus": Variants({"producers": (3, 4), "factor": (2, 3, 4, 5)}, _exp_minus),
    "take_turns": Variants({"plus": (2, 3, 4, 5), "factor": (-3, -2, 3, 5)}, _take_turns),
    "queue": Variants({"factor": (3, 4, 5), "start": (1, 2, 3, 4)}, _queue),
    "ring": Variants({"threads": (4, 5), "plus": (2, 3, 4, 5)}, _ring),
    "two_compute_threads": Variants({"divisor": (2, 3, 4, 5)}, _two_compute_threads),
    "sum_of_products": Variants({"shift": (1, 2, 3, 5)}, _sum_of_products),
}
