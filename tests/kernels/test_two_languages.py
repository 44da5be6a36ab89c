"""The kernels of chapter 22: right, free of findings, and what the compilers make of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import simulator
from course_lib.compiler import compile_for
from course_lib.kernels import two_languages as k
from course_lib.mojo import compile_program

PIPELINED = functools.partial(k.softmax_pipelined, config=k.Config(rows_per_block=8, slots=2))


@pytest.mark.parametrize("kernel", [k.softmax, PIPELINED])
@pytest.mark.parametrize("shape", [(8, 256), (16, 1024)])
def test_both_softmaxes_are_right_and_clean(kernel: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    report = simulator.simulate(kernel, x)
    assert report.ok, report
    np.testing.assert_allclose(report.value, k.softmax_reference(x), rtol=1e-5)


def test_the_matmul_is_right_and_clean() -> None:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((128, 192), (192, 256)))
    report = simulator.simulate(k.matmul, a, b)
    assert report.ok, report
    wanted = k.matmul_reference(a, b).astype(np.float32)
    np.testing.assert_allclose(
        np.asarray(report.value).astype(np.float32), wanted, rtol=2e-2, atol=2e-2
    )


def test_rows_that_do_not_fill_the_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="rows=12 must be a multiple of rows_per_block=8"):
        PIPELINED(jnp.ones((12, 256)))


def test_a_standardized_row_has_mean_0_and_variance_1() -> None:
    x = np.random.default_rng().standard_normal((4, 512)) * 3 + 1
    y = k.standardize_reference(x)
    np.testing.assert_allclose(y.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=1), 1, rtol=1e-4)


def test_every_place_of_the_accumulator_has_one_owner() -> None:
    numbers = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    places = k.place_reference(numbers)
    assert sorted(places.ravel()) == list(range(128 * 64))
    assert places[0, 0] == 0
    assert places[0, 1] == 1
    assert places[0, 2] == 64
    assert places[8, 0] == 2
    assert places[16, 0] == 32 * 64  # the second warp


def test_mojo_s_library_reaches_the_same_instruction() -> None:
    ours = compile_for(k.matmul, *[jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)] * 2)
    program = compile_program(k.mojo_source(), arch="sm_90a")
    theirs = program.kernel("matmul")
    wgmma = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"
    assert ours.count(wgmma) == theirs.ptx.count(wgmma) == 8
    assert theirs.ptx.count("cp.async.bulk.tensor") == 3
    assert theirs.spill_bytes == ours.spill_bytes == 0


def test_the_loop_that_the_chapter_shows_is_the_program_s() -> None:
    loop = k.mojo_loop()
    assert loop in k.mojo_source()
    assert loop.splitlines()[0].startswith("    for k in range")
    assert "core.wgmma" in loop
