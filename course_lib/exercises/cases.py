"""Turns a case, which is data, into arrays: fresh ones at every check."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec, numpy_dtype


def fresh_seed() -> int:
    """A seed from the operating system's entropy, short enough to be typed again."""
    return secrets.randbits(32)


def draw_case(case: Case, *, seed: int, index: int) -> tuple[np.ndarray[Any, Any], ...]:
    """The arguments of a case, drawn anew for each `(seed, index)`.

    Args:
      case: the shapes and dtypes.
      seed: that of the check.
      index: the case's place among its exercise's cases, so that no two share their data.
    """
    rng = np.random.default_rng((seed, index))
    return tuple(_draw(spec, rng) for spec in case.args)


def _draw(spec: Spec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(bool)
    if dtype.kind in "iu":
        low, high = integer_range(dtype)
        return rng.integers(low, high, spec.shape, endpoint=True).astype(dtype)
    return np.asarray(rng.standard_normal(spec.shape)).astype(dtype)


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Smallest and largest integer drawn: all of 8 bits, else such that products still fit."""
    info = np.iinfo(dtype)
    if info.bits <= 8:
        return int(info.min), int(info.max)
    half = info.bits // 2
    return (-(2 ** (half - 1)), 2 ** (half - 1) - 1) if info.min else (0, 2**half - 1)
