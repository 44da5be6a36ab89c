"""Each pattern is said where it is certain, and is not where one element contradicts it."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from course_lib.exercises.compare import compare

RNG = np.random.default_rng()
X = RNG.standard_normal((64, 64)).astype(np.float32)
WANTED = RNG.standard_normal((64, 64)).astype(np.float32)
INTEGERS = np.asarray(RNG.permutation(64 * 64) - 2000, np.int32).reshape(64, 64)

# name -> (what a wrong function makes of the right answer, what must be said)
PATTERNS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "input": (lambda w: X, "The output is x, unchanged."),
    "transposed": (lambda w: w.T, "the right answer, transposed"),
    "first block of rows": (lambda w: np.tile(w[:16], (4, 1)), "in rows 0 to 15 is repeated"),
    "first block of columns": (lambda w: np.tile(w[:, :32], (1, 2)), "columns 0 to 31 is repeated"),
    "reversed": (lambda w: w[::-1], "with its rows in reverse order."),
    "shifted up": (lambda w: np.roll(w, -8, 0), "moved up by 8 rows."),
    "shifted down": (lambda w: np.roll(w, 1, 1), "moved right by 1 column."),
    "bfloat16": (lambda w: w.astype(ml_dtypes.bfloat16).astype(w.dtype), "rounded to bfloat16"),
    "float16": (lambda w: w.astype(np.float16).astype(w.dtype), "rounded to float16"),
    "constant": (lambda w: w + np.float32(3), "off by the same amount: 3."),
    "factor": (lambda w: w * np.float32(2), "Every element is 2 times what it should be."),
    "sign": (lambda w: -w, "Every element has the wrong sign."),
    "shuffled": (
        lambda w: RNG.permutation(w.ravel()).reshape(w.shape),
        "All the right values are there, but in the wrong places.",
    ),
}


def words(got: np.ndarray, wanted: np.ndarray) -> str:
    found = compare(np.ascontiguousarray(got), [wanted], inputs={"x": X})
    assert found is not None
    return " ".join(found.lines)


def spoiled(array: np.ndarray) -> np.ndarray:
    """The array with one element that fits no pattern."""
    copy = np.array(array)
    copy[37, 41] = 12.375
    return copy


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_is_said(name):
    make, says = PATTERNS[name]
    assert says in words(make(WANTED), WANTED)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_is_not_said_when_one_element_contradicts_it(name):
    make, says = PATTERNS[name]
    assert says not in words(spoiled(make(WANTED)), WANTED)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_claims_another(name):
    make, _ = PATTERNS[name]
    said = words(make(WANTED), WANTED)
    assert [n for n, (_, says) in PATTERNS.items() if says in said] == [name]


def test_noise_fits_no_pattern():
    far = 20 + RNG.standard_normal(WANTED.shape)  # none of it is right by chance
    said = words(far.astype(np.float32), WANTED)
    assert said.endswith("All 4096 are wrong.")


@pytest.mark.parametrize("name", ["transposed", "first block of rows", "constant", "sign"])
def test_patterns_of_integers_are_exact(name):
    make, says = PATTERNS[name]
    got = make(INTEGERS).astype(np.int32)
    assert says in words(got, INTEGERS)
    assert says not in words(spoiled(got), INTEGERS)


def test_a_block_of_wrong_elements_is_described():
    got = WANTED.copy()
    got[16:32, 8:24] = RNG.standard_normal((16, 16))
    assert "All of those are in rows 16 to 31, columns 8 to 23; the rest is right." in words(
        got, WANTED
    )
    got[0, 0] += 1
    assert "All of those" not in words(got, WANTED)


def test_a_block_of_right_elements_is_described():
    got = RNG.standard_normal(WANTED.shape).astype(np.float32)
    got[:16, :8] = WANTED[:16, :8]
    assert "Only rows 0 to 15, columns 0 to 7 are right." in words(got, WANTED)
    got[60] = WANTED[60]
    got[61] = WANTED[61]
    assert "Only" not in words(got, WANTED)


def test_a_block_with_a_wrong_element_is_not_called_right():
    got = RNG.standard_normal(WANTED.shape).astype(np.float32)
    got[:16, :8] = WANTED[:16, :8]
    got[3, 3] += 1
    assert "Only" not in words(got, WANTED)


def test_elements_that_are_right_by_chance_do_not_hide_a_block():
    wanted = RNG.standard_normal((64, 64)).astype(np.float16)
    got = wanted.copy()
    got[32:] = RNG.standard_normal((32, 64))
    got[32:, 5] = np.where(np.arange(32) % 8, got[32:, 5], wanted[32:, 5])
    assert "All of those are in rows 32 to 63; the rest is right." in words(got, wanted)
    got = RNG.standard_normal((64, 64)).astype(np.float16)
    got[:32] = wanted[:32]
    got[40, 7] = wanted[40, 7]
    assert "All of those are in rows 32 to 63; the rest is right." in words(got, wanted)


def test_a_band_of_rows_is_described_without_its_columns():
    got = WANTED.copy()
    got[32:] = RNG.standard_normal((32, 64))
    assert "All of those are in rows 32 to 63; the rest is right." in words(got, WANTED)


def test_one_dimension_counts_elements():
    wanted = WANTED.ravel()
    got = wanted.copy()
    got[100:200] = RNG.standard_normal(100)
    assert "All of those are in elements 100 to 199;" in words(got, wanted)
    assert "moved towards lower indices by 3 elements." in words(np.roll(wanted, -3), wanted)


def test_three_dimensions_name_their_axes():
    wanted = WANTED.reshape(4, 16, 64)
    got = wanted.copy()
    got[2:4, 8:16] = RNG.standard_normal((2, 8, 64))
    assert "All of those are in axis 0: 2 to 3, axis 1: 8 to 15;" in words(got, wanted)
    assert "moved towards higher indices by 2 steps of axis 1." in words(
        np.roll(wanted, 2, 1), wanted
    )


def test_one_value_in_all_wrong_elements_is_said():
    got = WANTED.copy()
    got[::3] = 0
    assert "Every wrong element is 0." in words(got, WANTED)
    got[3, 3] = 1
    assert "Every wrong element" not in words(got, WANTED)


def test_a_single_wrong_element_needs_no_pattern():
    got = WANTED.copy()
    got[5, 6] += 1
    assert words(got, WANTED).endswith("1 of 4096 is wrong.")


def test_nan_is_described_by_its_place():
    got = WANTED.copy()
    got[32:] = np.nan
    assert words(got, WANTED).endswith(
        "are NaN. All of those are in rows 32 to 63; the rest is right."
    )
