"""Compares what a function returned with what it should have: exactly, and in words.

Number of outputs, shapes and dtypes must match exactly. So must integers and
booleans; a floating-point element is right when |got - wanted| <= atol + rtol * |wanted|.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.exercises import patterns

Array = np.ndarray[Any, Any]

# dtype -> (rtol, atol). Half precision and less: two units in the last place, for one
# rounding more than the reference. float32: a hundred, since the GPU's exp, rsqrt and tanh
# are approximations (CUDA programming guide, "Mathematical Functions"), yet fifty times
# finer than what a trip through tf32 or float16 leaves. Long sums need an exercise's own.
TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float32": (1e-5, 1e-6),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 8e-3),
    "float8_e4m3fn": (0.13, 2e-2),
    "float8_e5m2": (0.26, 2e-2),
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first thing that is wrong with a result.

    Attributes:
      fault: "outputs", "shape", "dtype", "nan" or "value".
      lines: what is wrong, one sentence or two each.
    """

    fault: str
    lines: tuple[str, ...]


def compare(
    got: Any,
    wanted: Sequence[Array],
    *,
    inputs: Mapping[str, Array],
    rtol: float | None = None,
    atol: float | None = None,
) -> Difference | None:
    """What is wrong with `got`, or None if it is right.

    Args:
      got: an array, or a tuple or list of arrays: what the function returned.
      wanted: the outputs it should have.
      inputs: the function's arguments by name, for "the output is x, unchanged".
      rtol, atol: tolerances that replace those of `TOLERANCES`.
    """
    outputs = list(got) if isinstance(got, tuple | list) else [got]
    if len(outputs) != len(wanted):
        return _wrong_count(got, len(wanted))
    for place, (g, w) in enumerate(zip(outputs, wanted, strict=True)):
        name = f"output {place + 1} of {len(wanted)}" if len(wanted) > 1 else "the output"
        found = _compare_one(np.asarray(g), w, name, inputs, rtol, atol)
        if found is not None:
            return found
    return None


def kind(array: Array) -> str:
    """Dtype and shape as the course writes them: "float32[128, 64]"."""
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"


def wrong_elements(
    got: Array, wanted: Array, *, rtol: float | None = None, atol: float | None = None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where `got` differs from `wanted`, both of one shape and dtype, by more than allowed."""
    if wanted.dtype.kind in "biu":
        return np.asarray(got != wanted)
    default_rtol, default_atol = TOLERANCES.get(wanted.dtype.name, (1e-5, 1e-6))
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.abs(g - w) <= atol + rtol * np.abs(w)
    # inf - inf is NaN, and |x - inf| <= inf holds for every x: infinities have to be equal
    close = np.where(np.isfinite(w), close, (g == w) | (np.isnan(g) & np.isnan(w)))
    return np.asarray(~close)


def _compare_one(
    got: Array,
    wanted: Array,
    name: str,
    inputs: Mapping[str, Array],
    rtol: float | None,
    atol: float | None,
) -> Difference | None:
    if got.shape != wanted.shape:
        return _wrong_shape(got, wanted, name, rtol, atol)
    if got.dtype != wanted.dtype:
        sentence = (
            f"{_upper(name)} is {kind(got)}, should be {kind(wanted)}: only the dtype differs."
        )
        return Difference("dtype", (sentence,))
    wrong = wrong_elements(got, wanted, rtol=rtol, atol=atol)
    if not wrong.any():
        return None
    nan = wrong & _is_nan(got)
    if nan.any():
        first = _first_element(got, wanted, nan, name, "are NaN")
        return Difference("nan", (first, *patterns.describe_region(nan)))
    first = _first_element(got, wanted, wrong, name, "are wrong")
    return Difference("value", (first, *patterns.describe(got, wanted, wrong, inputs)))


def _wrong_count(got: Any, count: int) -> Difference:
    here = (
        f"{len(got)} array{'s' * (len(got) != 1)}" if isinstance(got, tuple | list) else "1 array"
    )
    what = f"a {type(got).__name__} of {here}" if isinstance(got, tuple | list) else here
    asked = "1 array" if count == 1 else f"a tuple of {count} arrays"
    return Difference("outputs", (f"The function returns {what}, should return {asked}.",))


def _wrong_shape(
    got: Array, wanted: Array, name: str, rtol: float | None, atol: float | None
) -> Difference:
    sentence = f"{_upper(name)} is {kind(got)}, should be {kind(wanted)}."
    lines = [sentence]
    if got.ndim == 2 and got.T.shape == wanted.shape and got.dtype == wanted.dtype:
        if not wrong_elements(got.T, wanted, rtol=rtol, atol=atol).any():
            lines.append("It is the right answer, transposed.")
    elif got.size == wanted.size and got.dtype == wanted.dtype:
        flat = got.reshape(wanted.shape)
        if not wrong_elements(flat, wanted, rtol=rtol, atol=atol).any():
            lines.append("The values are right: only the shape differs.")
    return Difference("shape", tuple(lines))


def _first_element(got: Array, wanted: Array, wrong: Array, name: str, verb: str) -> str:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    g, w = _numbers(got[index], wanted[index])
    if wrong.size == 1:
        return f"{_upper(name)} is {g}, should be {w}."
    place = f"[{', '.join(map(str, index))}]"
    where = f"Element {place}" if name == "the output" else f"Element {place} of {name}"
    count = int(wrong.sum())
    many = f"All {count}" if count == wrong.size else f"{count} of {wrong.size}"
    return f"{where} is {g}, should be {w}. {many} {verb if count > 1 else _singular(verb)}."


def _numbers(got: Any, wanted: Any) -> tuple[str, str]:
    """Both as text, with as many digits as it takes to tell them apart."""
    if got.dtype.kind in "biu":
        return str(got), str(wanted)
    for digits in (6, 9, 17):
        g, w = f"{float(got):.{digits}g}", f"{float(wanted):.{digits}g}"
        if g != w:
            break
    return g, w


def _is_nan(array: Array) -> Array:
    if array.dtype.kind in "biu":
        return np.zeros(array.shape, bool)
    return np.isnan(array.astype(np.float64))


def _singular(verb: str) -> str:
    return verb.replace("are", "is", 1)


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
