"""The kernels of chapter 04: right on the CPU model, free of findings, and fit for CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.diagnostics import CourseError
from course_lib.kernels import register_layouts as k

Array = np.ndarray[Any, Any]
# kernel, reference, shapes of its arguments, their dtype
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...], str]

ARGMAX = (k.row_argmax, k.row_argmax_reference)
CHANGE = (k.change_layout, k.subtract_row_max_reference)
COLUMN_MAX = (k.subtract_column_max, k.subtract_column_max_reference)
NORM = (k.rms_norm, k.rms_norm_reference)
ROW_MAX = (k.subtract_row_max, k.subtract_row_max_reference)
SOFTMAX = (k.softmax_rows, k.softmax_rows_reference)
SUMS = (k.rows_plus_columns, k.rows_plus_columns_reference)

CALLS: dict[str, Call] = {
    "add one": (k.add_one, lambda x: x + 1, ((64, 128),), "float32"),
    "add mixed": (k.add_mixed, lambda a, b: a + b, ((64, 128),) * 2, "float32"),
    "fill": (k.fill_like, lambda x: np.full_like(x, 3), ((64, 256),), "float32"),
    "row max": (*ROW_MAX, ((64, 128),), "float32"),
    "row max, two tiles": (*ROW_MAX, ((128, 64),), "float32"),
    "column max": (*COLUMN_MAX, ((64, 128),), "float32"),
    "column max, two tiles": (*COLUMN_MAX, ((128, 64),), "float32"),
    "softmax": (*SOFTMAX, ((128, 128),), "float32"),
    "softmax, narrow": (*SOFTMAX, ((64, 64),), "float32"),
    "softmax, bfloat16": (*SOFTMAX, ((192, 256),), "bfloat16"),
    "softmax, float16": (*SOFTMAX, ((64, 64),), "float16"),
    "argmax": (*ARGMAX, ((128, 128),), "float32"),
    "argmax, ties": (*ARGMAX, ((512, 256),), "bfloat16"),
    "norm": (*NORM, ((128, 128), (128,)), "float32"),
    "norm, wide": (*NORM, ((64, 256), (256,)), "float32"),
    "change": (*CHANGE, ((64, 128),), "float32"),
    "sums": (*SUMS, ((128, 128),), "float32"),
    "sums, one tile": (*SUMS, ((64, 64),), "float32"),
}
# rounding of sums and exps; two units in the last place for 16 bits; all else is exact
TOLERANCES = {
    k.softmax_rows: {"float32": 1e-5, "float16": 2e-3, "bfloat16": 8e-3},
    k.rms_norm: {"float32": 1e-5},
    k.rows_plus_columns: {"float32": 1e-5},
}


def draw(shapes: tuple[tuple[int, ...], ...], dtype: str) -> tuple[Array, ...]:
    rng = np.random.default_rng()
    return tuple(rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes)


def assert_right(name: str, value: Any, args: tuple[Array, ...]) -> None:
    kernel, reference, _, dtype = CALLS[name]
    wanted = reference(*args)
    assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
    rtol = TOLERANCES.get(kernel, {}).get(dtype, 0.0)
    got, wanted = value.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max() / 10)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, _, shapes, dtype = CALLS[name]
    args = draw(shapes, dtype)
    outcome = model.execute(kernel, args)
    assert outcome.findings == ()
    assert_right(name, outcome.value, args)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shapes, dtype = CALLS[name]
    args = [jax.ShapeDtypeStruct(s, jnp.dtype(dtype)) for s in shapes]
    traced = jax.jit(kernel).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.two_jax
@pytest.mark.parametrize(("m", "n"), [(64, 8), (64, 16), (192, 40)])
def test_lane_numbers_are_those_of_the_layout(m: int, n: int) -> None:
    outcome = model.execute(lambda: k.lane_numbers(m=m, n=n), ())
    assert outcome.findings == ()
    np.testing.assert_array_equal(outcome.value, k.lane_numbers_reference(m=m, n=n))
    assert (
        "mosaic_gpu"
        in jax.jit(lambda: k.lane_numbers(m=m, n=n))
        .trace()
        .lower(lowering_platforms=("cuda",))
        .as_text()
    )


def test_every_lane_holds_as_many_elements_as_the_others() -> None:
    lanes, counts = np.unique(k.lane_numbers_reference(m=128, n=24), return_counts=True)
    assert lanes.tolist() == list(range(128))
    assert set(counts.tolist()) == {128 * 24 // 128}


@pytest.mark.parametrize(
    ("kernel", "shapes", "words"),
    [
        (k.subtract_row_max, ((100, 128),), "multiple of 64 rows"),
        (k.subtract_column_max, ((64,),), "two axes"),
        (k.softmax_rows, ((96, 128),), "multiple of 64 rows"),
        (k.row_argmax, ((65, 128),), "multiple of 64 rows"),
        (k.rms_norm, ((64, 128), (64,)), "columns of"),
        (k.change_layout, ((32, 128),), "multiple of 64 rows"),
        (k.rows_plus_columns, ((64, 128),), "square"),
    ],
)
def test_refuses_shapes_it_cannot_take(
    kernel: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kernel(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes))


@pytest.mark.parametrize(("m", "n"), [(32, 8), (64, 12)])
def test_lane_numbers_need_whole_tiles(m: int, n: int) -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        k.lane_numbers(m=m, n=n)


@pytest.mark.parametrize(
    ("layout", "shape", "bits", "registers"),
    [
        ("WGMMA", (64, 256), 32, 128),
        ("WGMMA", (64, 256), 16, 64),
        ("WG_STRIDED", (64, 128), 32, 64),
        ("WG_SPLAT", (64, 256), 32, 1),
        ("WGMMA_ROW", (64,), 32, 2),
        ("WGMMA_COL", (128,), 32, 32),
    ],
)
def test_registers_per_lane(layout: str, shape: tuple[int, ...], bits: int, registers: int) -> None:
    assert k.registers_per_lane(layout, shape, bits) == registers


def test_registers_of_a_shape_that_the_layout_does_not_cover() -> None:
    with pytest.raises(CourseError, match=r"WGMMA covers .* \(64, 128\)"):
        k.registers_per_lane("WGMMA", (60, 128), 32)


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("second", "words"),
    [("WGMMA", ""), ("WG_STRIDED", "Failed to infer a possible set of layouts")],
)
def test_two_layouts_cannot_be_added_and_one_can(second: str, words: str) -> None:
    """A splat is the only layout that is converted without being asked."""
    import jax.experimental.pallas.mosaic_gpu as plgpu

    layouts = {
        "WGMMA": plgpu.Layout.WGMMA,
        "WG_STRIDED": plgpu.Layout.WG_STRIDED((64, 128), vec_size=2),
    }

    def body(x_gmem: Any, y_gmem: Any) -> None:
        a = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        b = plgpu.load(x_gmem, layout=layouts[second], optimized=False)
        y_gmem[...] = a + b + jnp.full((64, 128), 2.0)

    x = jax.ShapeDtypeStruct((64, 128), np.float32)
    traced = jax.jit(plgpu.kernel(body, out_type=x)).trace(x)
    if words:
        with pytest.raises(ValueError, match=words):
            traced.lower(lowering_platforms=("cuda",))
    else:
        assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()
