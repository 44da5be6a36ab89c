"""Chapter 09 on the GPU: clusters give there what they give on the model."""

import numpy as np
import pytest

from course_lib import runtime
from tests.kernels.test_clusters import CALLS, close, draw

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_equals_its_reference(name):
    kernel, reference, shapes, dtype, static, tolerance = CALLS[name]
    args = draw(shapes, dtype)
    if not runtime.can_run_natively(lambda *a: kernel(*a, **static), *args):
        pytest.skip("this card lacks what the kernel needs")
    native = runtime.execute_native(lambda *a: kernel(*a, **static), args)
    assert native.ok, native.findings
    close(np.asarray(native.value), reference(*args, **static), tolerance)
