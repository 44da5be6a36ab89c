"""Data of the cases: fresh, iid normal, the same again only for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.exercises import Case, Spec
from course_lib.exercises.cases import draw_case, fresh_seed, integer_range

CASE = Case((Spec((64, 128)), Spec((64, 128), "bfloat16"), Spec((512,), "int32")))


def test_arrays_have_the_shapes_and_dtypes_of_the_case():
    arrays = draw_case(CASE, seed=fresh_seed(), index=0)
    assert [(a.shape, a.dtype.name) for a in arrays] == [
        ((64, 128), "float32"),
        ((64, 128), "bfloat16"),
        ((512,), "int32"),
    ]


def test_floats_are_standard_normal():
    (x,) = draw_case(Case((Spec((400, 400)),)), seed=fresh_seed(), index=0)
    assert abs(x.mean()) < 0.02  # eight standard errors
    assert abs(x.std() - 1) < 0.02


def test_the_same_seed_draws_the_same_data_and_another_does_not():
    seed = fresh_seed()
    first, again, other = (draw_case(CASE, seed=s, index=0)[0] for s in (seed, seed, seed ^ 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_no_two_cases_share_their_data():
    seed = fresh_seed()
    first, second = (draw_case(CASE, seed=seed, index=i)[0] for i in (0, 1))
    assert not np.array_equal(first, second)


def test_seeds_are_fresh():
    assert len({fresh_seed() for _ in range(8)}) == 8


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint16", "uint32"])
def test_integers_fill_a_range_whose_products_fit(dtype):
    (x,) = draw_case(Case((Spec((100_000,), dtype),)), seed=fresh_seed(), index=0)
    low, high = integer_range(np.dtype(dtype))
    assert low <= x.min() < low + 0.01 * (high - low) + 1
    assert high - 0.01 * (high - low) - 1 < x.max() <= high
    if np.dtype(dtype).itemsize > 1:
        largest = max(abs(low), high) ** 2
        assert largest <= np.iinfo(dtype).max


def test_booleans_are_fair():
    (x,) = draw_case(Case((Spec((100_000,), "bool"),)), seed=fresh_seed(), index=0)
    assert 0.47 < x.mean() < 0.53


def test_a_scalar_is_an_array_of_no_axes():
    (x,) = draw_case(Case((Spec(()),)), seed=fresh_seed(), index=0)
    assert isinstance(x, np.ndarray)
    assert x.shape == ()


def test_a_case_reads_as_its_arguments():
    assert str(Case((Spec((64, 128)),), {"by": 3})) == "float32[64, 128], by=3"
    assert str(Case(())) == "no arguments"
