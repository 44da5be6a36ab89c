"""With a GPU: the compiler's worker uses the CUDA plugin that is there, for any target.

python -m pytest tests/gpu -m gpu          (CONTRIBUTING.md, "On a GPU")
"""

import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import runtime
from course_lib.compiler import compile_for, expectations, toolchain
from course_lib.kernels import matmul_blackwell, matmul_hopper

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def square():
    draw = np.random.default_rng().standard_normal
    return tuple(jnp.asarray(draw((1024, 1024)), jnp.float16) for _ in range(2))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))


def test_the_plugin_of_the_environment_is_used():
    assert toolchain.find().path == ()


def test_either_architecture(square):
    hopper = compile_for(matmul_hopper.matmul, *square, arch="sm_90a")
    assert expectations(hopper, {"wgmma.mma_async": 8, "HGMMA": 8, "spill_bytes": 0}) == []
    blackwell = compile_for(matmul_blackwell.matmul_collective, *square, arch="sm_100a")
    assert expectations(blackwell, {"tcgen05.mma.cta_group::2": 4, "UTCHMMA.2CTA": 4}) == []


@pytest.mark.parametrize("kernel", [matmul_hopper.matmul, matmul_hopper.matmul_multicast])
def test_what_was_compiled_multiplies(kernel, square):
    outcome = runtime.execute_native(kernel, square)
    assert outcome.ok, outcome.findings
    a, b = (np.asarray(x, np.float32) for x in square)
    np.testing.assert_allclose(np.asarray(outcome.value, np.float32), a @ b, rtol=2e-3, atol=0.1)
