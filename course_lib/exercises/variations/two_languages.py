"""Variants of the exercise of chapter 22 that is in Pallas: rows with elements that are known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.variations import Variants, Varied

Array = np.ndarray[Any, Any]
_EPSILON = 1e-5


def _standardize_rows(*, known: int, degrees: int) -> Varied:
    """Rows with more elements, of which all that the kernel sees is `cols`."""
    formula = "(x - mean) / sqrt(variance + 1e-5)"
    what = (
        f"as if every row had {known} more elements, all of them 1, that nobody wants back; the "
        f"variance divides by the number of all elements less {degrees}"
    )
    return Varied(
        statement=f"Standardize every row of x, {what}: {formula}, a block a row.",
        reference=functools.partial(_reference, known=known, degrees=degrees),
        edits=(
            (
                "The same in Pallas, one block per row.",
                f"The same in Pallas, one block per row, but {what}. The mean is that of all "
                "elements as well.",
            ),
        ),
    )


def _reference(x: Array, *, known: int, degrees: int) -> Array:
    whole = np.concatenate([x.astype(np.float64), np.ones((x.shape[0], known))], axis=1)
    mean = whole.mean(1, keepdims=True)
    variance = whole.var(1, ddof=degrees, keepdims=True)
    return ((x - mean) / np.sqrt(variance + _EPSILON)).astype(x.dtype)


VARIANTS = {
    "standardize_rows": Variants(
        {"known": (16, 32, 64, 128), "degrees": (1, 2, 4)}, _standardize_rows
    ),
}
