"""On the card, the small kernels of chapter 12 are right, turns included."""

import jax
import jax.numpy as jnp
import pytest

from course_lib import runtime
from tests.kernels.test_flash_attention import CALLS, assert_close

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _hopper():
    device = runtime.device()
    if device is None or "wgmma" not in device.features:
        pytest.skip("this card has no wgmma")


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_right_on_the_card(name):
    function, reference, draw = CALLS[name]
    args = draw()
    assert_close(jax.jit(function)(*map(jnp.asarray, args)), reference(*args))
