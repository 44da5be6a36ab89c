"""Where arrays lie in tensor memory, against the layouts that JAX infers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts import tmem
from course_lib.layouts.tmem import TmemRef, allocate
from tests.layouts import jax_witness

pytestmark = pytest.mark.two_jax

CASES = [
    TmemRef(shape=(rows, columns), bits=bits, packed=packed, collective=collective)
    for rows, columns, bits, packed, collective in itertools.product(
        (64, 128), (16, 32, 64, 96, 256, 512), (8, 16, 32), (False, True), (False, True)
    )
]


def test_there_are_hundreds():
    assert len(CASES) > 100


@pytest.mark.parametrize("rows", [64, 128])
def test_places_and_sizes_are_those_of_jax(rows):
    for ref in (ref for ref in CASES if ref.shape[0] == rows):
        theirs = jax_witness.tmem_layout(ref.shape, ref.packing, collective=ref.collective)
        assert ref.columns == theirs.cols_in_shape(ref.shape, ref.bits)
        wanted = jax_witness.elements(theirs.as_tiled_layout(), ref.shape)
        places = ref.places()
        element = np.arange(np.prod(ref.shape)).reshape(ref.shape)
        np.testing.assert_array_equal(wanted[tuple(np.moveaxis(places, -1, 0))], element)


def test_no_two_elements_share_a_place():
    for ref in CASES:
        lane, column, sub = np.moveaxis(ref.places(), -1, 0)
        assert (lane.max(), column.max()) == (127, ref.columns - 1)
        assert sub.max() == ref.packing - 1
        place = (lane * 512 + column) * 4 + sub
        assert len(np.unique(place)) == place.size


def test_m64_uses_all_lanes_with_half_of_the_columns():
    alone = TmemRef(shape=(64, 64)).places()
    assert alone[0, 0].tolist() == [0, 0, 0]
    assert alone[0, 32].tolist() == [16, 0, 0]  # the right half is 16 lanes further
    assert alone[16, 0].tolist() == [32, 0, 0]  # the next 16 rows are the next warp's
    shared = TmemRef(shape=(64, 64), collective=True).places()
    assert shared[32, 0].tolist() == [32, 0, 0]
    assert shared[0, 32].tolist() == [64, 0, 0]  # the right half belongs to warps 2 and 3


def test_allocation_rounds_up_to_a_power_of_two():
    assert TmemRef(shape=(128, 16)).allocated == 32
    assert TmemRef(shape=(128, 96)).allocated == 128
    assert TmemRef(shape=(128, 256), bits=16, packed=True).allocated == 128


def test_arrays_lie_one_after_the_other():
    accumulator, operand = TmemRef(shape=(128, 256)), TmemRef(shape=(128, 2), bits=16)
    assert allocate([accumulator, operand, operand]) == [0, 256, 260]


WRONG = {
    "M = 32": ({"shape": (32, 64)}, r"it holds \(128, N\) or \(64, N\)"),
    "too wide": ({"shape": (128, 513)}, "takes 513 columns of TMEM; there are 512"),
    "unpacked and too wide": ({"shape": (128, 1024), "bits": 16}, "unpacked, takes 1024"),
    "an odd number to pack": (
        {"shape": (128, 63), "bits": 16, "packed": True},
        "take a multiple of 2",
    ),
    "M = 64 with 24 columns": ({"shape": (64, 24)}, "must be a multiple of 16"),
    "64-bit elements": ({"shape": (128, 64), "bits": 64}, "8, 16 or 32 bits"),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_does_not_fit_says_what_would(case):
    given, sentence = WRONG[case]
    with pytest.raises(CourseError, match=sentence):
        TmemRef(**given)


def test_two_arrays_that_do_not_fit_together():
    with pytest.raises(CourseError, match="512 and 64 columns are 576 together"):
        allocate([TmemRef(shape=(128, 512)), TmemRef(shape=(128, 64))])
    with pytest.raises(CourseError, match="all collective or all not"):
        allocate([TmemRef(shape=(128, 64)), TmemRef(shape=(128, 64), collective=True)])


def test_several_arrays_share_one_allocation_of_a_power_of_two():
    refs = tmem.parse("128x64x32, 128x30x16p, 64x48x32", collective=False)
    assert [ref.columns for ref in refs] == [64, 15, 24]
    assert tmem.allocate(refs) == [0, 64, 80]  # each begins at a multiple of 4 columns
    assert tmem.allocated_columns(refs) == 128
    assert tmem.allocated_columns(refs[1:2]) == 32
    assert tmem.parse("") == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("128x64", "'128x64' is no array of TMEM: write rows x columns x bits"),
        ("96x64x32", r"it holds \(128, N\) or \(64, N\)"),
        ("128x63x16p", "take a multiple of 2"),
    ],
)
def test_what_is_no_array_of_tensor_memory_says_what_would_be(text, sentence):
    with pytest.raises(CourseError, match=sentence):
        tmem.parse(text)
