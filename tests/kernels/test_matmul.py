"""The matrix products on Hopper's and Blackwell's tensor cores: right, and free of findings."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.compiler import compile_for, expectations
from course_lib.kernels import matmul_blackwell, matmul_hopper
from course_lib.simulator import replay, trace_kernels

KERNELS = (
    matmul_hopper.matmul,
    matmul_hopper.matmul_multicast,
    matmul_blackwell.matmul,
    matmul_blackwell.matmul_collective,
)


def normal(*shape: int, dtype: Any = jnp.float16) -> Any:
    return jnp.asarray(np.random.default_rng().standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.__module__[-6:]}-{k.__name__}")
def test_it_multiplies(kernel, dtype):
    a, b = normal(256, 320, dtype=dtype), normal(320, 256, dtype=dtype)
    outcome = model.execute(kernel, (a, b))
    assert outcome.findings == ()
    truth = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    rtol = 2e-3 if dtype == jnp.float16 else 1.6e-2
    np.testing.assert_allclose(np.asarray(outcome.value, np.float32), truth, rtol=rtol, atol=0.1)


@pytest.mark.parametrize("module", [matmul_hopper, matmul_blackwell])
def test_fewer_slots_and_other_tiles(module):
    config = module.Config(tile_n=64, max_concurrent_steps=2)
    a, b = normal(256, 192), normal(192, 128)
    outcome = model.execute(lambda a, b: module.matmul(a, b, config=config), (a, b))
    assert outcome.findings == ()
    truth = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    np.testing.assert_allclose(np.asarray(outcome.value, np.float32), truth, rtol=2e-3, atol=0.1)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((256, 320), (256, 256), "a has 320 columns and b has 256 rows"),
        ((100, 320), (320, 256), "m=100 must be divisible by tile_m="),
        ((256, 320), (320, 100), "n=100 must be divisible by tile_n="),
        ((256, 300), (300, 256), "k=300 must be divisible by tile_k=64"),
    ],
)
def test_shapes_that_do_not_fit(kernel, a, b, words):
    with pytest.raises(ValueError, match=words):
        kernel(normal(*a), normal(*b))


@pytest.mark.parametrize("kernel", [matmul_hopper.matmul, matmul_hopper.matmul_multicast])
def test_fewer_steps_than_slots(kernel):
    with pytest.raises(ValueError, match="k=64 must hold max_concurrent_steps=4 tiles"):
        kernel(normal(256, 64), normal(64, 256))


BLACKWELL = (matmul_blackwell.matmul, matmul_blackwell.matmul_collective)


@pytest.mark.parametrize("kernel", BLACKWELL)
def test_blackwells_are_clean_in_twenty_random_schedules(kernel):
    a, b = normal(256, 320), normal(320, 256)
    truth = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    program = trace_kernels(kernel, a, b)
    for schedule in ("adversarial", *range(20)):
        report = replay(program, [np.asarray(a), np.asarray(b)], schedule=schedule, arch="sm_100a")
        assert report.findings == (), schedule
        got = np.asarray(report.value[0], np.float32)
        np.testing.assert_allclose(got, truth, rtol=2e-3, atol=0.1)


@pytest.mark.parametrize(
    ("kernel", "columns", "group"), [(BLACKWELL[0], 128, 1), (BLACKWELL[1], 256, 2)]
)
def test_what_the_compiler_makes_of_blackwells(kernel, columns, group):
    square = (jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16),) * 2
    code = compile_for(kernel, *square, arch="sm_100a")
    expected = {
        "tcgen05.mma": 4,
        f"tcgen05.mma.cta_group::{group}*": 4,
        "tcgen05.commit": 2,
        "tcgen05.ld": columns // 32,
        "tmem_columns": columns,
        "spill_bytes": 0,
    }
    assert expectations(code, expected) == []
