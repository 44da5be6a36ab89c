"""Chapter 08's kernels beside the ladder: right ones are clean, wrong ones are caught."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.kernels import matmul_ladder
from course_lib.kernels import wgmma_pipelining as kernels


def normal(*shape: int, dtype="float16"):
    return jnp.asarray(np.random.default_rng().standard_normal(shape), dtype)


def outcome(kernel, m=256, n=256, k=320, dtype="float16"):
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    found = model.execute(kernel, (a, b))
    if found.ok:
        truth = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
        error = np.linalg.norm(np.asarray(found.value, np.float64) - truth)
        assert error / np.linalg.norm(truth) < {"float16": 2e-3, "bfloat16": 1e-2}[dtype]
    return found


def rules(found):
    return {finding.rule for finding in found.findings}


@pytest.mark.two_jax
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "kernel",
    [
        kernels.one_slot,
        functools.partial(kernels.one_slot, config=kernels.SMALL_ALONE),
        kernels.pipelined,
        functools.partial(kernels.pipelined, config=kernels.PipelineConfig(3, 2, 1)),
        functools.partial(kernels.pipelined, config=kernels.PipelineConfig(1, 0, 0)),
        kernels.persistent,
        functools.partial(kernels.around, multiply=kernels.through_one_slot),
        functools.partial(kernels.around, multiply=kernels.through_one_slot, tile_n=256),
    ],
)
def test_a_kernel_multiplies_and_nothing_is_found(kernel, dtype):
    assert outcome(kernel, dtype=dtype).findings == ()


@pytest.mark.parametrize(("delay", "unfinished"), [(0, 1)])
def test_a_slot_that_is_released_under_its_wgmma_is_found(delay, unfinished):
    config = kernels.PipelineConfig(4, delay, unfinished)
    found = outcome(functools.partial(kernels.pipelined, config=config), k=512)
    assert rules(found) == {"mma-operand-overwritten"}


def test_a_delay_across_tiles_is_found():
    late = functools.partial(kernels.persistent, delay_release=1, unfinished=1)
    assert rules(outcome(late, k=512)) == {"mma-operand-overwritten"}


@pytest.mark.parametrize(
    ("config", "blocks"),
    [
        (kernels.Config(), 3),
        (kernels.Config(spare_bytes=48 * 1024), 2),
        (kernels.ALONE, 1),
        (kernels.SMALL_ALONE, 1),
    ],
)
def test_spare_smem_keeps_other_blocks_out(config, blocks):
    square = (jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16),) * 2
    kernel = functools.partial(kernels.one_slot, config=config)
    [time] = model.simulate(kernel, *square, values=False).performance
    assert time.occupancy.blocks_per_sm == blocks


def test_the_first_steps_are_the_ladders_own():
    square = (jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16),) * 2
    for kernel, number in ((kernels.one_slot, 0), (kernels.pipelined, 2)):
        mine, step = (
            model.simulate(f, *square, values=False).performance[0].time_us
            for f in (kernel, kernels.step_on(number))
        )
        assert mine == pytest.approx(step, rel=0.02)


@pytest.mark.parametrize(
    ("warpgroup", "block", "smem", "l2"),
    [((128, 128), (128, 128), 25.6, 64), ((64, 256), (128, 256), 32, 256 / 3), ((64, 64),) * 2
     + (16, 32)],
)  # fmt: skip
def test_tile_intensity(warpgroup, block, smem, l2):
    assert kernels.tile_intensity(warpgroup, block) == pytest.approx((smem, l2))


def test_the_roofline_says_which_steps_smem_holds_back():
    """The model, whose constants come from measurements, agrees."""
    shape = (jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16),
             jax.ShapeDtypeStruct((1024, 4096), jnp.bfloat16))  # fmt: skip
    for number, limit in ((1, "SMEM"), (9, "SMEM"), (4, "tensor core"), (10, "tensor core")):
        [time] = model.simulate(kernels.step_on(number), *shape, values=False).performance
        assert time.bottleneck == limit, number


def test_a_step_is_launched_for_the_card_asked_for():
    assert kernels.step_on(12, sms=5).keywords["config"].num_sms == 5
    assert not kernels.step_on(3).keywords  # its grid does not depend on the card
    assert kernels.step_on(3).func is matmul_ladder.step(3).module.matmul


@pytest.mark.parametrize(
    ("kernel", "shape", "words"),
    [
        (kernels.one_slot, (100, 256, 64), "m=100 must be a multiple of 128"),
        (kernels.pipelined, (128, 100, 64), "n=100 must be a multiple of 128"),
        (kernels.persistent, (128, 128, 100), "k=100 must be a multiple of 64"),
    ],
)
def test_a_bad_shape_names_the_multiple(kernel, shape, words):
    m, n, k = shape
    with pytest.raises(ValueError, match=words):
        jax.eval_shape(kernel, *(jax.ShapeDtypeStruct(s, jnp.float16) for s in ((m, k), (k, n))))
