"""Chapter 05 on the GPU: at the edges the copy engine does what the model says."""

import jax
import numpy as np
import pytest

from course_lib import runtime
from course_lib.kernels import asynchronous_copies as k
from tests.kernels.test_asynchronous_copies import CALLS, _draw

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_equals_its_reference(name):
    kernel, reference, shapes, dtype, static = CALLS[name]
    args = _draw(shapes, dtype)
    native = runtime.execute_native(lambda *a: kernel(*a, **static), args)
    assert native.ok, native.findings
    wanted = reference(*args)
    for got, expected in zip(*map(jax.tree.leaves, (native.value, wanted)), strict=True):
        np.testing.assert_allclose(
            np.asarray(got).astype(np.float64), expected.astype(np.float64), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("kernel", [k.copy, k.ring_copy])
def test_a_copy_is_right_on_a_gibibyte(kernel):
    x = np.random.default_rng().standard_normal((1 << 20, 256), dtype=np.float32)
    native = runtime.execute_native(kernel, (x,))
    assert native.ok, native.findings
    np.testing.assert_array_equal(native.value, x)
