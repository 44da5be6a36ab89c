"""Variants of the exercises of chapter 14: other statistics, other formulas and derivatives."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]


def _normalised(*, extra: int) -> Varied:
    return Varied(
        statement=(
            f"Return (x - mean) / sqrt(variance + {extra}), where mean is that of the whole array "
            "and variance the mean of (x - mean)^2. One block computes it, and no register spills, "
            "however wide x is."
        ),
        reference=functools.partial(_normalised_reference, extra=extra),
        edits=(
            (
                "Return `x / sqrt(sum(x * x))`, the sum over the whole array.",
                f"Return `(x - mean) / sqrt(variance + {extra})`, where `mean` is that of the "
                "whole array, and `variance` the mean of\n`(x - mean)^2`.",
            ),
        ),
    )


def _normalised_reference(x: Array, *, extra: int) -> Array:
    wide = x.astype(np.float64)
    return ((wide - wide.mean()) / np.sqrt(wide.var() + extra)).astype(x.dtype)


def _gelu(*, cap: int, shift: int) -> Varied:
    return Varied(
        statement=(
            f"Return {cap} * tanh(g / {cap}), where g = gelu(x + {shift}) and gelu(z) = z / 2 * (1 "
            "+ tanh(sqrt(2 / pi) * (z + 0.044715 z^3))), both with the tanh that the hardware has: "
            "tanh.approx.f32."
        ),
        reference=functools.partial(_gelu_reference, cap=cap, shift=shift),
        edits=(
            (
                "Return GELU, `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, with the "
                "hardware's `tanh`.",
                f"Return a capped GELU, `{cap} * tanh(g / {cap})`, where `g` is the GELU of "
                f"`z = x + {shift}`, which is\n`z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 "
                "z^3)))`. Compute both with the hardware's `tanh`.",
            ),
        ),
    )


def _gelu_reference(x: Array, *, cap: int, shift: int) -> Array:
    z = x.astype(np.float64) + shift
    gelu = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    return (cap * np.tanh(gelu / cap)).astype(x.dtype)


def _pull_back(*, power: int, plus: int) -> Varied:
    slope = f"{power * plus} x^{power - 1} / ({plus} + x^{power})^2"
    return Varied(
        statement=(
            f"JAX cannot differentiate f(x) = x^{power} / ({plus} + x^{power}), as it is a kernel. "
            f"Give it its derivative f'(x) = {slope}, in a kernel, too: pull_back(x, ct) is what "
            "jax.vjp makes of it, ct * f'(x)."
        ),
        reference=functools.partial(_pull_back_reference, power=power, plus=plus),
        edits=(
            ("`f(x) = x^2 / (1 + x^2)`", f"`f(x) = x^{power} / ({plus} + x^{power})`"),
            ("`2 x / (1 + x^2)^2`", f"`{slope}`"),
            ("= x * x / (1 + x * x)", f"= x**{power} / ({plus} + x**{power})"),
        ),
    )


def _pull_back_reference(x: Array, ct: Array, *, power: int, plus: int) -> Array:
    wide = x.astype(np.float64)
    slope = power * plus * wide ** (power - 1) / (plus + wide**power) ** 2
    return (ct * slope).astype(x.dtype)


VARIANTS = {
    "normalised": Variants({"extra": (1, 2, 3, 4, 5)}, _normalised),
    "gelu": Variants({"cap": (2, 3, 4), "shift": (1, 2, 3)}, _gelu),
    "pull_back": Variants({"power": (4, 6), "plus": (2, 3, 4, 5)}, _pull_back),
}
