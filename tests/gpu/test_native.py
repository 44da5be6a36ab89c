"""On a real GPU: kernels run natively, agree with the CPU model, and a hanging one is stopped.

python -m pytest tests/gpu -m gpu          (CONTRIBUTING.md, "On a GPU")
"""

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import numpy as np
import pytest

from course_lib import model, runtime
from tests.model import kernels
from tests.model.test_model import RIGHT

pytestmark = pytest.mark.gpu

REGULAR = plgpu.SemaphoreType.REGULAR


@pytest.fixture
def x():
    return np.random.default_rng().standard_normal((128, 128)).astype(np.float32)


def test_the_device_says_what_it_is():
    gpu = runtime.device()
    assert gpu is not None
    assert gpu.capability >= (8, 0)
    assert f"{gpu.name}" in "\n".join(runtime.doctor())


@pytest.mark.parametrize("name", RIGHT)
def test_a_kernel_runs_natively_and_agrees_with_the_model(name, x):
    kernel = RIGHT[name]
    if not runtime.can_run_natively(kernel, x):
        pytest.skip(f"this card cannot run it: {runtime.requirements(kernel, x)!r}")
    native = runtime.execute_native(kernel, (x,))
    assert native.ok, native.findings
    np.testing.assert_array_equal(native.value, model.execute(kernel, (x,)).value)


def _relay(x_gmem, y_gmem):
    """Names Pallas only: the process has to load what registers its semaphores by itself."""
    turn = pl.get_global(REGULAR)
    block = jax.lax.axis_index("block")

    @pl.when(block > 0)
    def later():
        pl.semaphore_wait(turn, value=block, decrement=False)

    y_gmem[block] = x_gmem[block] + 1
    pl.semaphore_signal(turn)
    pl.when(block == 1)(lambda: pl.semaphore_wait(turn, value=2))


def test_a_kernel_that_names_no_operation_of_plgpu_runs_natively(x):
    out = jax.ShapeDtypeStruct((2, 128), np.float32)
    kernel = plgpu.kernel(_relay, out_type=out, grid=(2,), grid_names=("block",))
    native = runtime.execute_native(kernel, (x[:2],))
    assert native.ok, native.findings
    np.testing.assert_array_equal(native.value, x[:2] + 1)


def test_run_takes_the_gpu_at_the_first_and_at_later_times(x):
    kernel = kernels.two_blocks()
    for _ in range(2):
        y = runtime.run(kernel, x)
        assert y.devices().pop().platform == "gpu"
        np.testing.assert_array_equal(np.asarray(y), x + 1)


def test_a_kernel_that_hangs_the_card_is_stopped_and_the_card_lives_on(x):
    hung = runtime.execute_native(kernels.waits(arrives=False), (x,), timeout_s=20)
    assert hung.errors[0].rule == "timeout"
    assert runtime.execute_native(kernels.two_blocks(), (x,)).ok
