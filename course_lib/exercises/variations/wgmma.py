"""Variants of the exercises of chapter 07: other sums, parts, operands and steps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]

_BAND = 64  # rows of the result that one instruction adds to
_TO_WRITE = "What you have to write is the step, and the maximum after the loop."


def _multiply_add(*, times: int, start: int) -> Varied:
    wanted = f"{times} * (a @ b) + {start} * c"
    return Varied(
        statement=(
            f"Return {wanted} in float32, without an addition: the accumulator starts from values "
            "of your choice (plgpu.ACC.init, in pl.run_state), and the TensorCore adds up. a, b "
            "and c are in SMEM already."
        ),
        reference=functools.partial(_multiply_add_reference, times=times, start=start),
        edits=(("Return `a @ b + c`, without", f"Return `{wanted}`, without"),),
    )


def _multiply_add_reference(a: Array, b: Array, c: Array, *, times: int, start: int) -> Array:
    return (times * _product(a, b) + start * c.astype(np.float64)).astype(np.float32)


def _product(a: Array, b: Array) -> Array:
    """a @ b in float64."""
    product: Array = a.astype(np.float64) @ b.astype(np.float64)
    return product


def _wide_product(*, width: int, plus: int) -> Varied:
    return Varied(
        statement=(
            f"Return a @ b for any number of columns: {width} of them at a time, the last part may "
            f"have fewer. Part number i, counted from 0, is multiplied by i + {plus}. Each part "
            "has an accumulator of its own, and is stored before the next one begins."
        ),
        reference=functools.partial(_wide_product_reference, width=width, plus=plus),
        edits=(
            (
                "in parts of 256; the last part may have fewer.",
                f"in parts of {width} columns; the last part may have fewer. Multiply part number "
                f"`i`, counted from 0, by `i + {plus}`.",
            ),
        ),
    )


def _wide_product_reference(a: Array, b: Array, *, width: int, plus: int) -> Array:
    factors = np.arange(b.shape[1]) // width + plus
    return (_product(a, b) * factors).astype(np.float32)


def _gram(*, first: int, skip: int) -> Varied:
    last = first + _BAND - 1
    columns = first + _BAND
    return Varied(
        statement=(
            f"Leave out the first {skip} rows of x; of what is left, z, return the product of its "
            f"columns {first} to {last}, transposed, with all of it: z[:, {first}:{columns}].T @ z."
            " There is one buffer, x_smem, with x in it as it is in GMEM. Use it for both "
            "operands: the TensorCore makes the transpose itself."
        ),
        signature="gram(x: bfloat16[k, n]) -> float32[64, n], 64 divides n",
        reference=functools.partial(_gram_reference, first=first, skip=skip),
        cases=tuple(
            Case((Spec((skip + k, max(n, columns)), dtype),))
            for k, n, dtype in ((64, 128, "bfloat16"), (128, 192, "float16"), (192, 256, "float16"))
        ),
        edits=(
            (
                "Return `x.T @ x` for an `x` of K x N, in 16 bits.",
                f"`x` is K x N, in 16 bits. Leave out its first {skip} rows. Of what is left, `z`, "
                f"return the product `z[:, {first}:{columns}].T @ z`.",
            ),
            ("jax.ShapeDtypeStruct((n, n),", "jax.ShapeDtypeStruct((64, n),"),
        ),
    )


def _gram_reference(x: Array, *, first: int, skip: int) -> Array:
    z = x[skip:]
    return _product(z[:, first : first + _BAND].T, z).astype(np.float32)


def _split_product(*, limit: int, plus: int) -> Varied:
    return Varied(
        statement=(
            f"Return clip(x) @ w.T + {plus} in nearly the precision of float32, where clip(x) is x "
            f"with what is above {limit} or below -{limit} set to {limit} or -{limit}. Split each "
            "operand into what the TensorCore reads of it, upper(.), and the rest. Put both parts "
            "into SMEM, and add three products up in one accumulator: the two of an upper part "
            "with a rest, and that of the upper parts."
        ),
        reference=functools.partial(_split_product_reference, limit=limit, plus=plus),
        edits=(
            (
                "`upper(x)` is `high`, for",
                f"Here `x` is to be clipped first: what is above {limit} or below -{limit} becomes "
                f"{limit} or -{limit}. Add {plus} to each element of the product. `upper(x)` is "
                "`high`, for",
            ),
            ("(If you leave `x` and `w` where\nthey are,", "(If you leave them where\nthey are,"),
        ),
    )


def _split_product_reference(x: Array, w: Array, *, limit: int, plus: int) -> Array:
    return (_product(np.clip(x, -limit, limit), w.T) + plus).astype(np.float32)


def _relu_product(*, low: int, high: int) -> Varied:
    return Varied(
        statement=(
            f"Return clip(a) @ b, where clip(a) is a with what is below {low} set to {low} and "
            f"what is above {high} set to {high}. Go along K in steps of 64. In each step load 64 "
            "columns of a into registers, clip them, multiply from there, and wait for the product "
            "before the next step needs the registers."
        ),
        reference=functools.partial(_clipped_product_reference, low=low, high=high),
        edits=(
            (
                "Return `max(a, 0) @ b`.",
                f"Return `clip(a) @ b`, where `clip` raises what is below {low} to {low} and "
                f"lowers what is above {high} to {high}.",
            ),
            (
                "load 64 columns of A, take the maximum, multiply",
                "load 64 columns of A, clip, multiply",
            ),
        ),
    )


def _clipped_product_reference(a: Array, b: Array, *, low: int, high: int) -> Array:
    return _product(np.clip(a, low, high), b).astype(np.float32)


def _matmul(*, step: int, low: int) -> Varied:
    return Varied(
        statement=(
            f"Return max(a @ b, {low}). Each block computes a tile of 128 x 128 of the result. It "
            f"goes along K in steps of {step}: copy a tile of a and one of b into SMEM, wait for "
            "both, multiply, and wait for the product before the next copies overwrite its "
            "operands. What comes after the loop is given, but for the maximum: return that from "
            "multiply, computed in registers."
        ),
        reference=functools.partial(_matmul_reference, low=low),
        cases=tuple(
            Case((Spec((m, k * step), dtype), Spec((k * step, n), dtype)))
            for m, k, n, dtype in (
                (128, 3, 256, "bfloat16"),
                (256, 1, 128, "float16"),
                (128, 2, 128, "bfloat16"),
            )
        ),
        edits=(
            ("Now all of it: `a @ b` for", f"Now all of it: `max(a @ b, {low})` for"),
            ("steps of 64. What you have to write is the step.", f"steps of {step}. {_TO_WRITE}"),
            ("(`@pl.loop(0, k // 64)`)", f"(`@pl.loop(0, k // {step})`)"),
            ("and one wait more. Which?", "and one wait more. Which? Return the maximum."),
            ("a_smem=(128, 64), b_smem=(64, 128)", f"a_smem=(128, {step}), b_smem=({step}, 128)"),
        ),
    )


def _matmul_reference(a: Array, b: Array, *, low: int) -> Array:
    return np.maximum(_product(a, b), low).astype(a.dtype)


VARIANTS = {
    "multiply_add": Variants({"times": (2, 3, 4), "start": (2, 3, 5, 7)}, _multiply_add),
    "wide_product": Variants({"width": (64, 128, 192), "plus": (2, 3, 4, 5)}, _wide_product),
    "gram": Variants({"first": (0, 64, 128), "skip": (16, 32, 64)}, _gram),
    "split_product": Variants({"limit": (1, 2), "plus": (2, 3, 4, 5)}, _split_product),
    "relu_product": Variants({"low": (-2, -1), "high": (1, 2, 3)}, _relu_product),
    "matmul": Variants({"step": (32, 128), "low": (-8, -4, 0, 4)}, _matmul),
}
