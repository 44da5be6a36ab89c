"""Variants of the exercises of chapter 11: other operands, places, scales, slots and sums."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import collective_mma as kernels

Array = np.ndarray[Any, Any]

_NUMBERS = {3: "three", 4: "four"}
_REFS = "a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done, read"
# The loop of `chain`, from which the way out of tensor memory is taken.
_LOOP = """rows, columns = (
            dict(collective_axes="pair", leader_tracked=plgpu.CopyPartition.PARTITIONED(axis))
            for axis in (0, 1)
        )
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded.at[0], **rows)
        pl.when(block == 0)(lambda: plgpu.barrier_wait(loaded.at[0]))

        @pl.loop(0, b_gmem.shape[0])
        def product(i):
            plgpu.copy_gmem_to_smem(b_gmem.at[i], b_smem, loaded.at[1], **columns)

            @pl.when(block == 0)
            def leader():
                plgpu.barrier_wait(loaded.at[1])
                options = dict(accumulate=False, collective_axis="pair")
                plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, **options)

            plgpu.barrier_wait(done)
            take_out(i)"""


def _pair_product(*, times: int, plus: int) -> Varied:
    wanted = f"{times} * (a @ b.T) + {plus}"
    return Varied(
        statement=(
            f"Return {wanted} in float32, where b is (n, k), by one collective MMA of the two "
            "blocks of a cluster. Say what each block holds of a, of b and of the accumulator; "
            "load both halves; let the leader multiply; and let each block write its rows of "
            "c_gmem."
        ),
        signature="pair_product(a: float16[256, k], b: float16[n, k]) -> float32[256, n], n <= 128",
        reference=functools.partial(_pair_product_reference, times=times, plus=plus),
        cases=tuple(
            Case((Spec((256, k), "float16"), Spec((n, k), "float16")))
            for k, n in ((64, 128), (128, 64), (192, 128))
        ),
        edits=(
            ("Return `a @ b`. Say what", f"Return `{wanted}`, where `b` is (n, k). Say what"),
            ("n = a.shape, b.shape[1]", "n = a.shape, b.shape[0]"),
        ),
    )


def _pair_product_reference(a: Array, b: Array, *, times: int, plus: int) -> Array:
    product = a.astype(np.float64) @ b.T.astype(np.float64)
    return (times * product + plus).astype(np.float32)


def _pair_products(*, shift: int, low: int) -> Varied:
    place = f"(i + {shift}) % count"
    return Varied(
        statement=(
            f"For every i, c[{place}] is a @ b[i], where count is how many there are, with what is "
            f"below {low} set to {low}: one after the other, through one accumulator. Loading and "
            "multiplying is given. take_out(i) brings this block's rows of product i to their "
            "place, and sees to it that nobody overwrites the accumulator while the other block "
            "reads it."
        ),
        reference=functools.partial(_pair_products_reference, shift=shift, low=low),
        edits=(
            (
                "The same with what is missing. Choose",
                "The same with what is missing, and with another way out, which is yours: "
                "`take_out(i)` brings this block's rows of product `i` from the accumulator to "
                f"place `{place}` of `c_gmem`, where `count` is how many products there are. What "
                f"is below {low} becomes {low}. Choose",
            ),
            ("About 4 lines.", "About 8 lines."),
            (
                "def kernel(*refs, read, **scratch):\n",
                f'def kernel({_REFS}):\n        block = jax.lax.axis_index("pair")\n\n',
            ),
            ("def between():", "def take_out(i):"),
            ("chain(*refs, **scratch, between=between)", _LOOP),
        ),
    )


def _pair_products_reference(a: Array, b: Array, *, shift: int, low: int) -> Array:
    products = a.astype(np.float64) @ b.astype(np.float64)
    return np.roll(np.maximum(products, low), shift, axis=0).astype(np.float32)


def _mx_product(*, sets: int, chosen: int) -> Varied:
    return Varied(
        statement=(
            f"Return 2**{chosen} * (a @ b.T) of float8 values with scales. a's scales come as "
            f"{sets} sets: set s holds them times 2**s, in the tiles 2 * s and 2 * s + 1 of its "
            f"first axis. Use set {chosen}. The values are there, and the MMA; issue the four "
            "copies, and say how many arrivals loaded counts. Which of the four does each block "
            "need whole?"
        ),
        reference=functools.partial(_mx_product_reference, chosen=chosen),
        edits=(
            (
                "Issue the four copies.",
                f"Return `2**{chosen} * (a @ b.T)`. For that, a's scales come as {sets} sets, in "
                f"an array of ({2 * sets}, k // 128, 32, 16): set `s` holds the scales times "
                "`2**s`, in tiles `2 * s` and `2 * s + 1` of the first axis, one for each block. "
                f"Use set {chosen}. Issue the four copies.",
            ),
            (
                "for x in pair\n    ]\n",
                "for x in pair\n    ]\n"
                f"    sets = [arrays[2].astype(jnp.float32) * 2.0**s for s in range({sets})]\n"
                "    arrays[2] = jnp.concatenate(sets).astype(arrays[2].dtype)\n",
            ),
        ),
    )


def _mx_product_reference(a: Array, b: Array, *, chosen: int) -> Array:
    product: Array = np.float32(2**chosen) * kernels.mx_product_reference(a, b)
    return product


def _take_over(*, shift: int, slots: int) -> Varied:
    place = f"(i + {shift}) % tiles"
    return Varied(
        statement=(
            f"Twice row i of x is row {place} of the result, where tiles is how many there are. A "
            "block per row takes over further rows while there are any. Ask for the next row "
            f"before you work, and look at the answer after it. {slots} slots take turns."
        ),
        reference=functools.partial(_take_over_reference, shift=shift),
        edits=(
            (
                "Write the loop's body, for one thread. Let the two slots take turns, as they do "
                "in the ready-made loop.",
                f"Write the loop's body, for one thread: twice row `i` of `x` is row `{place}` of "
                f"`y`, where `tiles` is how many rows there are. Let {_NUMBERS[slots]} slots take "
                "turns, as the two do in the ready-made loop.",
            ),
            (
                "Several threads need both, so the check\nasks for both.)",
                "Several threads need more, so the check\nasks for more.)",
            ),
            ("TryClusterCancelResult(2)", f"TryClusterCancelResult({slots})"),
            ("plgpu.Barrier(num_barriers=2)", f"plgpu.Barrier(num_barriers={slots})"),
        ),
    )


def _take_over_reference(x: Array, *, shift: int) -> Array:
    return np.roll(2 * x, shift, axis=0)


def _tiles_by_cluster(*, add: int, times: int, plus: int) -> Varied:
    each = f"{times} * i + {plus}"
    return Varied(
        statement=(
            f"Return x + {add} and the sum of {each} over all tiles i. Each block of a pair has "
            "half of every tile; plgpu.dynamic_scheduling_loop hands the tiles out and carries "
            "this sum over the tiles that this cluster has had. count_gmem[i] gets it from the "
            "cluster that was launched for tile i, and 0 where that launch was cancelled. Block 0 "
            "writes it."
        ),
        reference=functools.partial(_tiles_by_cluster_reference, add=add, times=times, plus=plus),
        edits=(
            (
                "Return `x + 1`, and how many tiles there are, counted by those who compute them.",
                f"Return `x + {add}`, and the sum of `{each}` over all tiles `i`, added up by "
                "those who compute them.",
            ),
            ("after the loop your count into", "after the loop your part of the sum into"),
        ),
    )


def _tiles_by_cluster_reference(
    x: Array, *, add: int, times: int, plus: int
) -> tuple[Array, Array]:
    total = sum(times * i + plus for i in range(len(x)))
    return x + np.asarray(add, x.dtype), np.array([total], np.int32)


VARIANTS = {
    "pair_product": Variants({"times": (2, 3, 5), "plus": (1, 2, 4)}, _pair_product),
    "pair_products": Variants({"shift": (1, 2, 5), "low": (-8, -4, 0, 4)}, _pair_products),
    "mx_product": Variants({"sets": (3, 4), "chosen": (1, 2)}, _mx_product),
    "take_over": Variants({"shift": (1, 3, 5, 7), "slots": (3, 4)}, _take_over),
    "tiles_by_cluster": Variants(
        {"add": (2, 3, 4, 5), "times": (2, 3), "plus": (1, 2, 3)}, _tiles_by_cluster
    ),
}
