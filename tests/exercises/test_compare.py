"""Comparison: types, shapes and dtypes exactly, values within their dtype's tolerance."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from course_lib.exercises.compare import TOLERANCES, compare, wrong_elements

RNG = np.random.default_rng()


def normal(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape)).astype(dtype)


def differ(got, wanted, **kwargs):
    return compare(got, [wanted], inputs={}, **kwargs)


def test_equal_arrays_are_right():
    x = normal(64, 128)
    assert differ(x.copy(), x) is None


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_rounding_once_more_is_right_and_a_few_steps_are_wrong(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wanted = (1 + np.abs(normal(64, 64))).astype(dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    steps = 200 if dtype == np.float32 else 4
    near, far = ((wanted.astype(np.float64) * (1 + n * eps)).astype(dtype) for n in (0.5, steps))
    assert differ(near, wanted) is None
    found = differ(far, wanted)
    assert found is not None
    assert found.fault == "value"


@pytest.mark.parametrize("coarser", [np.float16, ml_dtypes.bfloat16])
def test_float32_through_half_precision_is_wrong(coarser):
    x = normal(64, 64)
    found = differ(x.astype(coarser).astype(np.float32), x)
    assert found is not None


def test_an_exercise_s_own_tolerance_replaces_the_default():
    x = normal(64, 64)
    assert differ(x + 1e-3, x) is not None
    assert differ(x + np.float32(1e-3), x, rtol=0.0, atol=2e-3) is None


def test_integers_are_exact():
    x = RNG.integers(-100_000, 100_000, 128).astype(np.int32)
    y = x.copy()
    y[77] += 1
    assert differ(x.copy(), x) is None
    found = differ(y, x)
    assert found.lines[0] == f"Element [77] is {y[77]}, should be {x[77]}. 1 of 128 is wrong."


def test_booleans_are_exact():
    x = RNG.integers(0, 2, 128).astype(bool)
    y = x.copy()
    y[5] ^= True
    assert differ(x.copy(), x) is None
    assert f"Element [5] is {y[5]}, should be {x[5]}" in differ(y, x).lines[0]


def test_nan_where_the_reference_has_none_is_a_fault_of_its_own():
    x = normal(8, 8)
    y = x.copy()
    y[2, 3] = np.nan
    found = differ(y, x)
    assert found.fault == "nan"
    assert found.lines[0].startswith("Element [2, 3] is nan, should be ")


def test_nan_where_the_reference_has_nan_is_right_and_a_number_there_wrong():
    x = normal(8, 8)
    x[2, 3] = np.nan
    y = x.copy()
    y[2, 3] = 0.5
    assert differ(x.copy(), x) is None
    assert differ(y, x).fault == "value"


def test_infinities_must_be_equal():
    x = normal(8)
    x[3] = np.inf
    assert differ(x.copy(), x) is None
    for wrong in (1e30, -np.inf):
        y = x.copy()
        y[3] = wrong
        assert list(np.flatnonzero(wrong_elements(y, x))) == [3]
    finite = np.where(np.isinf(x), np.float32(2), x)
    assert list(np.flatnonzero(wrong_elements(x, finite))) == [3]


def test_a_wrong_shape_comes_before_a_wrong_value():
    found = differ(normal(64, 128), normal(128, 64))
    assert found.fault == "shape"
    assert found.lines == ("The output is float32[64, 128], should be float32[128, 64].",)


def test_a_wrong_shape_of_the_right_values_is_said():
    x = normal(64, 128)
    assert "transposed" in differ(x.T, x).lines[1]
    assert "only the shape differs" in differ(x.reshape(-1), x).lines[1]


def test_a_wrong_dtype_comes_before_a_wrong_value():
    found = differ(normal(8, dtype=np.float16), normal(8))
    assert found.fault == "dtype"
    assert found.lines == (
        "The output is float16[8], should be float32[8]: only the dtype differs.",
    )


@pytest.mark.parametrize(
    ("got", "says"),
    [
        ((normal(4), normal(4)), "a tuple of 2 arrays, should return 1 array."),
        ((), "a tuple of 0 arrays, should return 1 array."),
    ],
)
def test_a_wrong_number_of_outputs_is_said(got, says):
    found = differ(got, normal(4))
    assert found.fault == "outputs"
    assert says in found.lines[0]


def test_one_array_for_two_is_said():
    found = compare(normal(4), [normal(4), normal(4)], inputs={})
    assert found.lines == ("The function returns 1 array, should return a tuple of 2 arrays.",)


def test_a_tuple_or_list_of_the_right_arrays_is_right():
    x, y = normal(4), normal(8)
    assert compare((x, y), [x, y], inputs={}) is None
    assert compare([x, y], [x, y], inputs={}) is None
    assert compare([x], [x], inputs={}) is None


def test_the_output_that_is_wrong_is_named():
    x, y = normal(4), normal(8)
    found = compare((x, -y), [x, y], inputs={})
    assert "Element [0] of output 2 of 2 is" in found.lines[0]


def test_a_scalar_has_no_index():
    found = differ(np.float32(2.5), np.asarray(np.float32(1.5)))
    assert found.lines[0] == "The output is 2.5, should be 1.5."


def test_numbers_that_look_alike_get_more_digits():
    x = np.array([1.0, 2.0], np.float32)
    found = differ(x * np.float32(1 + 2e-5), x, rtol=1e-7, atol=0.0)
    got, wanted = re.findall(r"is ([\d.]+), should be ([\d.]+)\. ", found.lines[0])[0]
    assert got != wanted
