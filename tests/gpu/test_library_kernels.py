"""Every kernel that a chapter's notebook uses gives on the GPU what the CPU model gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model, runtime
from course_lib.kernels import matmul_hopper

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["matmul", "matmul_multicast"])
def test_a_hopper_matmul_agrees_with_the_model(name):
    kernel = getattr(matmul_hopper, name)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((512, 512)).astype(np.float16) for _ in range(2))
    if not runtime.can_run_natively(kernel, a, b):
        pytest.skip("this card has no wgmma")
    native = runtime.execute_native(kernel, (a, b))
    simulated = model.execute(kernel, (a, b))
    assert native.ok, native.findings
    assert simulated.ok, simulated.findings
    reference = np.asarray(jnp.dot(a, b, preferred_element_type=jnp.float32))
    for value in (native.value, simulated.value):
        np.testing.assert_allclose(value.astype(np.float32), reference, rtol=2e-2, atol=0.1)
    assert jax.tree.structure(native.value) == jax.tree.structure(simulated.value)
