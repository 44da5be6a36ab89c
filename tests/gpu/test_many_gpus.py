"""Chapter 13 on two GPUs or more of one host."""

import jax
import numpy as np
import pytest

from course_lib import runtime
from tests.kernels.test_clusters import close
from tests.kernels.test_many_gpus import NAMES, call

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_equals_its_reference(name):
    device = runtime.device()
    if device is None or device.count < 2:
        pytest.skip("this takes two GPUs of one host")
    f, args, wanted, tolerance = call(name, len(jax.devices("gpu")))
    if not runtime.can_run_natively(f, *args):
        pytest.skip("these cards lack what the kernel needs")
    native = runtime.execute_native(f, args)
    assert native.ok, native.findings
    close(np.asarray(native.value), wanted, tolerance)
