"""The kernels of chapter 04 give on the GPU what their references give."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from course_lib import runtime
from course_lib.kernels import register_layouts as kernels
from tests.kernels.test_register_layouts import CALLS, assert_right, draw

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference(name: str) -> None:
    kernel, _, shapes, dtype = CALLS[name]
    args = draw(shapes, dtype)
    if not runtime.can_run_natively(kernel, *args):
        pytest.skip("this card lacks what the kernel needs")
    assert_right(name, np.asarray(kernel(*map(jax.numpy.asarray, args))), args)


def test_lane_numbers() -> None:
    value = np.asarray(kernels.lane_numbers(m=128, n=24))
    np.testing.assert_array_equal(value, kernels.lane_numbers_reference(m=128, n=24))
