"""On the card, chapter 08's own kernels are right, each time they run."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import runtime
from course_lib.kernels import wgmma_pipelining as kernels

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _hopper():
    device = runtime.device()
    if device is None or "wgmma" not in device.features:
        pytest.skip("this card has no wgmma")


def in_turns(acc, number, wg, turns):
    def step(ki, _):
        slot = lax.rem(number * turns.k_iters + ki, turns.slots)
        plgpu.barrier_wait(turns.loaded.at[wg * turns.slots + slot])
        plgpu.wgmma(acc, turns.a_smem.at[slot], turns.b_smem.at[slot])
        plgpu.wgmma_wait(0)
        plgpu.barrier_arrive(turns.consumed.at[slot])

    lax.fori_loop(0, turns.k_iters, step, None)


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.one_slot,
        functools.partial(kernels.one_slot, config=kernels.SMALL_ALONE),
        kernels.pipelined,
        functools.partial(kernels.persistent, blocks=3),
        functools.partial(kernels.around, multiply=kernels.through_one_slot, tile_n=256),
        functools.partial(kernels.ping_pong, multiply=in_turns),
    ],
    ids=["one slot", "64x64", "pipeline", "persistent", "around", "ping-pong"],
)
def test_a_kernel_is_right(kernel):
    rng = np.random.default_rng()
    a, b = (jnp.asarray(rng.standard_normal((512, 512)), jnp.float16) for _ in range(2))
    truth = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    compiled = jax.jit(kernel)
    for _ in range(3):
        error = np.linalg.norm(np.asarray(compiled(a, b), np.float64) - truth)
        assert error / np.linalg.norm(truth) < 2e-3
