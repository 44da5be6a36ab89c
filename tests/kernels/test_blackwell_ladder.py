"""Every step of the ladder for Blackwell: right, free of findings, of the expected instructions."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.compiler import compile_for, expectations
from course_lib.kernels import blackwell_ladder
from course_lib.simulator import replay, trace_kernels

NUMBERS = [step.number for step in blackwell_ladder.STEPS]
LAST = blackwell_ladder.LAST
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}


def normal(*shape: int, dtype: Any = "float16") -> Any:
    return jnp.asarray(np.random.default_rng().standard_normal(shape), dtype)


def relative_error(value: Any, a: Any, b: Any) -> float:
    """Against a product of the same operands in float32."""
    truth = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    return float(np.linalg.norm(np.asarray(value, np.float32) - truth) / np.linalg.norm(truth))


def few_sms(module: types.ModuleType, **settings: Any) -> Any:
    """A configuration with three SMs at most, so that a block has several tiles."""
    if "num_sms" in {field.name for field in dataclasses.fields(module.Config)}:
        settings = {"num_sms": 3, **settings}
    return module.Config(**settings)


def on_few_sms(number: int, **settings: Any) -> Any:
    module = blackwell_ladder.step(number).module
    return functools.partial(module.matmul, config=few_sms(module, **settings))


@pytest.mark.two_jax
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_multiplies_and_nothing_is_found(number, dtype):
    a, b = normal(512, 320, dtype=dtype), normal(320, 768, dtype=dtype)
    outcome = model.execute(on_few_sms(number), (a, b))
    assert outcome.findings == ()
    assert np.asarray(outcome.value).dtype == a.dtype
    assert relative_error(outcome.value, a, b) < TOLERANCE[dtype]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_is_right_in_any_order(number):
    a, b = normal(256, 192), normal(192, 512)
    settings = {"num_sms": 1} if number >= 3 else {}
    program = trace_kernels(on_few_sms(number, **settings), a, b)
    for schedule in ("adversarial", *range(20)):
        report = replay(program, [np.asarray(a), np.asarray(b)], schedule=schedule, arch="sm_100a")
        assert report.findings == (), schedule
        assert relative_error(report.value[0], a, b) < TOLERANCE["float16"], schedule


@pytest.mark.parametrize("number", NUMBERS)
def test_one_slot_of_k_and_one_tile_are_enough(number):
    a, b = normal(128, 64), normal(64, 256)
    outcome = model.execute(on_few_sms(number), (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (0, dict(tile_n=64)),
        (1, dict(max_concurrent_steps=2)),
        (2, dict(tile_n=128, epi_tile_n=32)),
        (3, dict(tile_n=128, grid_minor_dim=1, grid_tile_width=2)),
        (4, dict(tile_n=128, max_concurrent_steps=1)),
        (4, dict(epi_tile_n=128, max_concurrent_steps=3)),
    ],
)
def test_other_configurations(number, settings):
    a, b = normal(256, 192), normal(192, 768)
    outcome = model.execute(on_few_sms(number, **settings), (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((512, 320), (256, 512), "a has 320 columns and b has 256 rows"),
        ((100, 320), (320, 512), "m=100 must be a multiple of 128"),
        ((512, 320), (320, 100), r"n=100 must be a multiple of (128|256)"),
        ((512, 300), (300, 512), "k=300 must be a multiple of 64"),
    ],
)
def test_shapes_that_do_not_fit(number, a, b, words):
    with pytest.raises(ValueError, match=words):
        blackwell_ladder.step(number).matmul(normal(*a), normal(*b))


@pytest.mark.parametrize("number", NUMBERS[2:])
def test_an_epilogue_that_does_not_fit_its_tile(number):
    module = blackwell_ladder.step(number).module
    config = module.Config(epi_tile_n=96)
    with pytest.raises(ValueError, match="tile_n=256 must be a multiple of 96"):
        module.matmul(normal(128, 64), normal(64, 256), config=config)


# What the compiler makes of each step at 4096^3, bfloat16: the MMAs are of 16 of K each, a load
# is of 16 lanes. commit: one for each slot, one for a tile.
EXPECTED: dict[int, dict[str, int | str]] = {
    0: {"tcgen05.ld": 4, "tcgen05.commit": 1, "tcgen05.wait::ld": 0, "tmem_columns": 128},
    1: {"tcgen05.ld": 4, "tcgen05.commit": 2, "tcgen05.wait::ld": 0, "tmem_columns": 128},
    2: {"tcgen05.ld": 8, "tcgen05.commit": 2, "tcgen05.wait::ld": 0, "tmem_columns": 256},
    3: {"tcgen05.ld": 8, "tcgen05.commit": 2, "tcgen05.wait::ld": 1, "tmem_columns": 256},
    4: {"tcgen05.ld": 8, "tcgen05.commit": 2, "tcgen05.wait::ld": 1, "tmem_columns": 512},
}


@pytest.mark.parametrize("number", NUMBERS)
def test_what_the_compiler_makes_of_a_step(number):
    square = (jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16),) * 2
    code = compile_for(blackwell_ladder.step(number).module.matmul, *square, arch="sm_100a")
    every = {
        "tcgen05.mma": 4,
        "UTCHMMA": 4,
        "LDTM": ">=4",
        "tcgen05.alloc": 1,
        "tcgen05.dealloc": 1,
        "UTMALDG": ">=2",
        "UTMASTG": 1 if number < 2 else 4,
        "wgmma": 0,
        "registers": "<=128",
        "spill_bytes": 0,
    }
    assert expectations(code, {**every, **EXPECTED[number]}) == []


def test_a_whole_tile_of_256_columns_takes_nearly_all_registers():
    """Why step 2, which has 75, takes the accumulator out in pieces."""
    module = blackwell_ladder.step(1).module
    config = module.Config(tile_n=256, max_concurrent_steps=3)
    square = (jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16),) * 2
    code = compile_for(functools.partial(module.matmul, config=config), *square, arch="sm_100a")
    assert expectations(code, {"registers": ">200"}) == []


def test_every_step_shows_what_it_changes():
    for step in blackwell_ladder.STEPS[1:]:
        changes = blackwell_ladder.diff(step.number)
        assert changes.startswith(f"--- matmul{step.number - 1}\n+++ {step.name}\n")


def test_a_step_that_there_is_not():
    with pytest.raises(ValueError, match=f"the ladder goes from 0 to {LAST}"):
        blackwell_ladder.step(LAST + 1)
    with pytest.raises(ValueError, match="step 0 is the first"):
        blackwell_ladder.diff(0)
    with pytest.raises(ValueError, match="matmul2 does not contain 'wgmma'"):
        blackwell_ladder.variant(2, "wgmma", "")


BROKEN = [
    (0, ("            plgpu.barrier_wait(done)", "            pass"), "mma-operand-overwritten"),
    (1, ("@pl.when(ki >= slots)", "@pl.when(ki < 0)"), "data-race"),
    (2, ("wait_smem_to_gmem(1", "wait_smem_to_gmem(2"), "store-source-overwritten"),
    (3, ("            plgpu.wait_load_tmem()", "            pass"), "tmem-load-not-waited"),
    (4, ("            plgpu.wait_load_tmem()", "            pass"), "tmem-load-not-waited"),
    (
        4,
        ("stored=plgpu.Barrier(num_barriers=ACCS, orders_tensor_core=True)",
         "stored=plgpu.Barrier(num_barriers=ACCS)"),
        "missing-orders-tensor-core",
    ),
    (
        4,
        ("ACCS)\n            plgpu.barrier_wait(stored.at[acc])\n\n", "ACCS)\n\n"),
        "barrier-overrun",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "change", "rule"), BROKEN, ids=[f"{b[0]}-{b[2]}" for b in BROKEN]
)
def test_what_the_steps_avoid_is_found(number, change, rule):
    module = blackwell_ladder.variant(number, *change)
    config = few_sms(module, **({"num_sms": 1} if number >= 3 else {}))
    a, b = normal(256, 320), normal(320, 512)
    program = trace_kernels(functools.partial(module.matmul, config=config), a, b)
    report = replay(program, [np.asarray(a), np.asarray(b)], schedule="adversarial", arch="sm_100a")
    assert rule in {finding.rule for finding in report.errors}, report


def test_a_changed_step_can_travel_to_another_process():
    module = blackwell_ladder.variant(0, "barrier_wait(done)", "barrier_wait(done) ")
    a, b = normal(128, 64), normal(64, 128)
    outcome = model.execute(module.matmul, (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]
