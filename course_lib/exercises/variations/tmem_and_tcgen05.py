"""Variants of the exercises of chapter 10: other sums, more accumulators, other ways out."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import tmem_and_tcgen05 as kernels

Array = np.ndarray[Any, Any]

_LOWS = (-8, -4, 0, 4)


def _case(*shapes: tuple[int, ...]) -> Case:
    return Case(tuple(Spec(shape, "float16") for shape in shapes))


def _sum_in_tmem(*, factor: int) -> Varied:
    wanted = "x[0] + f * x[1] + f * f * x[2] + ..."
    return Varied(
        statement=(
            f"Return {wanted}, where f is {factor} and x are the tiles in x_smem. Keep the running "
            "sum in total_tmem, and begin at the end: store the last tile there, then go through "
            "the tiles before it, the last one first. For each multiply the sum by f and add the "
            "tile, with a load from TMEM and a store back. In the end write the sum to y_gmem."
        ),
        reference=functools.partial(_sum_in_tmem_reference, factor=factor),
        edits=(
            (
                "Return `x[0] + x[1] + ...`, and keep the running sum in TMEM.",
                f"Return `{wanted}`, where `f` is {factor}, and keep the running sum in TMEM. "
                "Begin with the last tile: each step multiplies the sum by `f` and adds the tile "
                "before.",
            ),
        ),
        atol=1e-4,  # terms of up to 27 times a normal number, which may cancel
    )


def _sum_in_tmem_reference(x: Array, *, factor: int) -> Array:
    total = x[-1].astype(np.float64)
    for tile in x[-2::-1]:
        total = factor * total + tile
    return total.astype(x.dtype)


def _one_commit(*, groups: int) -> Varied:
    return Varied(
        statement=(
            f"acc_tmem holds {groups} accumulators beside each other, of n columns each. The tiles "
            "along K are on their way already, each with a barrier of its own. Multiply tile ki "
            f"into accumulator ki % {groups}, without a barrier, let one commit say when all are "
            f"done, and write accumulator g to c_gmem[g]. There are at least {groups} tiles."
        ),
        signature=f"one_commit(a: float16[128, k], b: float16[k, n]) -> float32[{groups}, 128, n]",
        reference=functools.partial(_one_commit_reference, groups=groups),
        cases=tuple(
            _case((128, 64 * tiles), (64 * tiles, n))
            for tiles, n in ((groups + 1, 64), (groups, 128), (2 * groups, 64))
        ),
        edits=(
            (
                "Multiply them, let one commit tell, and write the result.",
                f"`acc_tmem` has room for {groups} accumulators beside each other, of `n` columns "
                f"each. Multiply tile `ki` into accumulator `ki % {groups}`, let one commit tell, "
                f"and write accumulator `g` to `c_gmem[g]`. There are at least {groups} tiles.",
            ),
            ("About 6 lines.", "About 8 lines."),
            ("ShapeDtypeStruct((128, n), F32)", f"ShapeDtypeStruct(({groups}, 128, n), F32)"),
            ("plgpu.TMEM((128, n), F32)", f"plgpu.TMEM((128, {groups} * n), F32)"),
        ),
    )


def _one_commit_reference(a: Array, b: Array, *, groups: int) -> Array:
    group = np.arange(a.shape[1]) // 64 % groups
    parts = [kernels.product_reference(a[:, group == g], b[group == g]) for g in range(groups)]
    return np.stack(parts)


def _batched(*, times: int, plus: int) -> Varied:
    wanted = f"{times} * ((a[0] + ... + a[i]) @ b) + {plus}"
    return Varied(
        statement=(
            f"Return {wanted} for every i. Thread 0 multiplies, product after product, and the "
            "accumulator goes on adding them up. Thread 1 takes the sum out each time, and writes "
            f"{times} times it plus {plus} to c_gmem[i]. Allocate the barrier `stored`, on which "
            "thread 1 says that it has read the accumulator. Every completion is waited for."
        ),
        reference=functools.partial(_batched_reference, times=times, plus=plus),
        edits=(
            (
                "Thread 0 multiplies, product after product, all into one accumulator. Thread 1 "
                "takes each out.",
                f"Return `{wanted}` for every `i`. Thread 0 multiplies, product after product, all "
                "into one accumulator, which goes on adding them up. Thread 1 takes the sum out "
                f"each time, and writes {times} times it plus {plus} to `c_gmem[i]`.",
            ),
        ),
    )


def _batched_reference(a: Array, b: Array, *, times: int, plus: int) -> Array:
    products = a.astype(np.float64) @ b.astype(np.float64)
    return (times * np.cumsum(products, axis=0) + plus).astype(np.float32)


def _two_products(*, low: int, high: int) -> Varied:
    return Varied(
        statement=(
            f"Return clip(a @ b) @ c, where clip raises what is below {low} to {low}, lowers what "
            f"is above {high} to {high}, and its result is rounded to float16. The first product "
            "is in acc_tmem. Take it out, put clip of it back into TMEM as float16, and let it be "
            "the left operand of the second product. Allocate its place, relu_tmem."
        ),
        reference=functools.partial(_two_products_reference, low=low, high=high),
        edits=(
            (
                "Return `relu(a @ b) @ c`.",
                f"Return `clip(a @ b) @ c`, where `clip` raises what is below {low} to {low} and "
                f"lowers what is above {high} to {high}.",
            ),
            (
                "Allocate `relu_tmem`, too.",
                "Allocate `relu_tmem`, too, which here is for what `clip` gives.",
            ),
        ),
    )


def _two_products_reference(a: Array, b: Array, c: Array, *, low: int, high: int) -> Array:
    first = np.clip(kernels.product_reference(a, b), low, high).astype(a.dtype)
    return kernels.product_reference(first, c)


def _eight_bit_product(*, times: int, low: int) -> Varied:
    wanted = f"max({times} * (x @ w.T), {low})"
    return Varied(
        statement=(
            f"Return {wanted}, with x and w in 8 bits with a scale for each 32 elements. "
            "Quantizing and loading is done. Copy both operands' scales to TMEM, start the scaled "
            "MMA, wait for it, and write to c_gmem. Allocate the two arrays of scales in TMEM."
        ),
        reference=functools.partial(_eight_bit_product_reference, times=times, low=low),
        edits=(
            (
                "Return `x @ w.T`, quantized.",
                f"Return `{wanted}`, with `x` and `w` quantized. The way out to `c_gmem` is yours, "
                "too.",
            ),
            ("About 2 + 12 lines.", "About 2 + 13 lines."),
            ("\n        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)\n", "\n"),
        ),
    )


def _eight_bit_product_reference(x: Array, w: Array, *, times: int, low: int) -> Array:
    product = times * kernels.eight_bit_product_reference(x, w)
    return np.maximum(product, low).astype(np.float32)


VARIANTS = {
    "sum_in_tmem": Variants({"factor": (-3, -2, 2, 3)}, _sum_in_tmem),
    "one_commit": Variants({"groups": (2, 3, 4)}, _one_commit),
    "batched": Variants({"times": (2, 3, 4, 5), "plus": (1, 2, 3, 6, 7)}, _batched),
    "two_products": Variants({"low": (-8, -4, -2), "high": (2, 4, 8)}, _two_products),
    "eight_bit_product": Variants({"times": (2, 3, 5), "low": _LOWS}, _eight_bit_product),
}
