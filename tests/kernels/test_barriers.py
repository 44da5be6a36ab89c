"""The kernels of chapter 06: right, free of findings in any schedule, and fit for CUDA."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import numpy as np
import pytest

from course_lib import simulator, tracing
from course_lib.kernels import barriers as k

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# kernel, reference, the shape of its argument, keywords of the kernel, tolerance
Call = tuple[Callable[..., Any], Callable[..., Any], Shape, dict[str, Any], float]

TWO = k.Config(compute_threads=2)
FOUR = k.Config(compute_threads=4, slots=2)
SUMS: dict[str, Callable[..., Any]] = {
    "sum": k.sum_exp,
    "by hand": k.sum_exp_by_hand,
    "specialized": k.sum_exp_specialized,
}
CALLS: dict[str, Call] = {
    "hand over": (k.hand_over, k.hand_over_reference, (128,), {}, 0.0),
    "hand over, long": (k.hand_over, k.hand_over_reference, (1024,), {}, 0.0),
    "exp minus": (k.exp_minus, k.exp_minus_reference, (2, 256), {}, 1e-5),
    "turns": (k.take_turns, k.take_turns_reference, (128,), {"rounds": 5}, 0.0),
    "turns, one": (k.take_turns, k.take_turns_reference, (256,), {"rounds": 1}, 0.0),
    "ring": (k.ring, k.ring_reference, (128,), {"laps": 3}, 0.0),
    "ring, one lap": (k.ring, k.ring_reference, (128,), {"laps": 1}, 0.0),
    "queue": (k.queue, k.queue_reference, (8, 128), {}, 0.0),
    "queue, short": (k.queue, k.queue_reference, (2, 128), {}, 0.0),
    "queue, one slot": (k.queue, k.queue_reference, (4, 128), {"slots": 1}, 0.0),
    "warps": (k.sum_by_warps, k.sum_by_warps_reference, (4, 64, 64), {}, 0.0),
    **{
        f"{name}{words}": (kernel, k.sum_exp_reference, shape, static, 1e-4)
        for name, kernel in SUMS.items()
        for words, shape, static in (
            ("", (512, 128), {}),
            (", one tile", (64, 128), {}),
            (", narrow", (256, 64), {"config": k.Config(slots=2)}),
        )
    },
    "by hand, two": (k.sum_exp_by_hand, k.sum_exp_reference, (512, 128), {"config": TWO}, 1e-4),
    "by hand, four": (k.sum_exp_by_hand, k.sum_exp_reference, (320, 128), {"config": FOUR}, 1e-4),
    "specialized, two": (
        *(k.sum_exp_specialized, k.sum_exp_reference, (512, 128)),
        {"config": TWO},
        1e-4,
    ),
}


@pytest.mark.two_jax
@pytest.mark.parametrize("schedule", ["in_order", "adversarial", 7])
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str, schedule: str | int) -> None:
    kernel, reference, shape, static, tolerance = CALLS[name]
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    report = simulator.simulate(lambda x: kernel(x, **static), x, schedule=schedule)
    assert report.findings == ()
    wanted = reference(x, **static)
    assert (report.value.dtype, report.value.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(report.value, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shape, static, _ = CALLS[name]
    traced = jax.jit(lambda x: kernel(x, **static)).trace(jax.ShapeDtypeStruct(shape, np.float32))
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("kernel", "shape", "words"),
    [
        (k.exp_minus, (3, 128), r"must be \(2, n\)"),
        (k.sum_exp, (100, 128), "multiple of 64 rows"),
        (k.sum_exp_by_hand, (64,), "two axes"),
        (k.sum_by_warps, (3, 64, 64), r"must be \(4, m, n\)"),
    ],
)
def test_refuses_shapes_it_cannot_take(
    kernel: Callable[..., Any], shape: Shape, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kernel(jax.ShapeDtypeStruct(shape, np.float32))


def test_refuses_a_tile_that_the_threads_cannot_share() -> None:
    x: Any = jax.ShapeDtypeStruct((128, 128), np.float32)
    with pytest.raises(ValueError, match="must be divisible by"):
        k.sum_exp_by_hand(x, config=k.Config(compute_threads=3))


@pytest.mark.parametrize(
    ("memory", "threads", "registers"), [(40, 1, 256), (40, 2, 232), (40, 3, 152), (24, 4, 112)]
)
def test_registers_add_up_to_what_a_block_is_launched_with(
    memory: int, threads: int, registers: int
) -> None:
    config = k.Config(memory_registers=memory, compute_threads=threads)
    assert config.compute_registers == registers
    of_each = 65_536 // (128 * (threads + 1)) // 8 * 8
    assert memory + threads * registers <= of_each * (threads + 1)


@pytest.mark.two_jax
def test_the_three_sums_hold_the_same_smem_and_issue_the_same_copies() -> None:
    x = jax.ShapeDtypeStruct((512, 128), np.float32)
    traced = {name: tracing.trace(kernel, x) for name, kernel in SUMS.items()}
    assert {t.smem_bytes for t in traced.values()} == {3 * 64 * 128 * 4}
    assert traced["by hand"].inside["set_max_registers"] == 2
    assert traced["specialized"].inside["set_max_registers"] == 2
    assert traced["sum"].inside["set_max_registers"] == 0


# ---- the older forms of the reference page, which the chapter shows as history ----


def _add_one(x_gmem: Any, y_gmem: Any) -> None:
    part = pl.ds(jax.lax.axis_index("block") * 128, 128)
    y_gmem[part] = x_gmem[part] + 1


MESH = plgpu.Mesh(grid=(2,), grid_names=("block",))


def _with_core_map(x: jax.Array) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        core_map = pl.core_map

    @pl.run_state
    def run(refs: Any) -> None:
        core_map(MESH)(lambda: _add_one(*refs))

    return run((x, jax.numpy.zeros_like(x)))[1]


def _with_pl_kernel(x: jax.Array) -> Any:
    return pl.kernel(_add_one, out_type=x, mesh=MESH)(x)


def _with_plgpu_kernel(x: jax.Array) -> Any:
    return plgpu.kernel(_add_one, out_type=x, grid=(2,), grid_names=("block",))(x)


@pytest.mark.two_jax
@pytest.mark.parametrize("form", [_with_core_map, _with_pl_kernel, _with_plgpu_kernel])
def test_three_forms_of_one_kernel(form: Callable[..., Any]) -> None:
    x = np.random.default_rng().standard_normal(256).astype(np.float32)
    report = simulator.simulate(form, x)
    assert report.findings == ()
    np.testing.assert_array_equal(report.value, x + 1)
    traced = jax.jit(form).trace(jax.ShapeDtypeStruct((256,), np.float32))
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.two_jax
def test_core_map_is_deprecated() -> None:
    code = "from jax.experimental import pallas as pl; pl.core_map"  # JAX warns once in a process
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "core_map is deprecated, use jax.experimental.pallas.kernel" in ran.stderr


@pytest.mark.two_jax
def test_pallas_call_does_not_lower_for_mosaic_gpu_any_more() -> None:
    spec = pl.BlockSpec((128,), lambda i: (i,))

    def add_one(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...] + 1

    old = pl.pallas_call(
        add_one,
        grid=(2,),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((256,), np.float32),
        compiler_params=plgpu.CompilerParams(),
    )
    traced = jax.jit(old).trace(jax.ShapeDtypeStruct((256,), np.float32))
    with pytest.raises((AssertionError, NotImplementedError)):
        traced.lower(lowering_platforms=("cuda",))


@pytest.mark.two_jax
def test_a_warp_mesh_is_what_warp_map_makes() -> None:
    def by_mesh(y_gmem: Any) -> None:
        def each() -> None:
            warp = jax.lax.axis_index("warp")
            y_gmem[warp] = warp * 10

        pl.kernel(each, out_type=(), mesh=plgpu.WarpMesh(axis_name="warp"))()

    def by_map(y_gmem: Any) -> None:
        @plgpu.warp_map
        def _(warp: Any) -> None:
            y_gmem[warp] = warp * 10

    for body in (by_mesh, by_map):
        kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), np.int32))
        report = simulator.simulate(kernel)
        assert report.findings == ()
        assert report.value.tolist() == [0, 10, 20, 30]
        assert "mosaic_gpu" in jax.jit(kernel).trace().lower(lowering_platforms=("cuda",)).as_text()
