"""The kernels of chapter 01: right on the CPU model, free of findings, and fit for CUDA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model, tracing
from course_lib.kernels import memory_spaces as k

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, int], ...]
# kernel, reference, shapes of its arguments, their dtype, keywords of the kernel
Call = tuple[Callable[..., Any], Callable[..., Any], Shapes, str, dict[str, Any]]

SQUARE = (k.square_through_smem, k.square_through_smem_reference)
STAGE = (k.stage_through_smem, k.stage_through_smem_reference)
HALVES = (k.sum_halves, k.sum_halves_reference)
ADD = (k.add_in_one_buffer, k.add_in_one_buffer_reference)
LARGEST = (k.largest_of_tiles, k.largest_of_tiles_reference)
PRODUCTS = (k.sum_of_products, k.sum_of_products_reference)
ALL = (k.through_all_spaces, k.through_all_spaces_reference)
FOUR_SLOTS = {"config": k.Config(max_concurrent_steps=4)}

CALLS: dict[str, Call] = {
    "square": (*SQUARE, ((256, 128),), "float32", {}),
    "square, tall tiles": (*SQUARE, ((256, 64),), "float32", {"config": k.Config(tile_m=128)}),
    "stage": (*STAGE, ((128, 128),), "float32", {}),
    "stage, wide": (*STAGE, ((192, 256),), "float32", {}),
    "stage, bfloat16": (*STAGE, ((128, 256),), "bfloat16", {}),
    "stage, float16": (*STAGE, ((64, 64),), "float16", {}),
    "halves": (*HALVES, ((128, 128),), "float32", {}),
    "add": (*ADD, ((64, 128),) * 2, "float32", {}),
    "add, tall": (*ADD, ((128, 64),) * 2, "float32", {}),
    "add, float16": (*ADD, ((64, 64),) * 2, "float16", {}),
    "largest": (*LARGEST, ((256, 128),), "float32", {}),
    "largest, one tile": (*LARGEST, ((64, 128),), "float32", {}),
    "largest, four slots": (*LARGEST, ((512, 64),), "float32", FOUR_SLOTS),
    "products": (*PRODUCTS, ((64, 512),) * 2, "float32", {}),
    "products, one tile": (*PRODUCTS, ((64, 128),) * 2, "float32", {}),
    "products, flat": (*PRODUCTS, ((32, 384),) * 2, "float32", {}),
    "shift": (k.shift_whole, k.shift_reference, ((128, 128),), "float32", {}),
    "shift in slices": (k.shift_in_slices, k.shift_reference, ((128, 256),), "float32", {}),
    "shift in one slice": (k.shift_in_slices, k.shift_reference, ((16, 128),), "float32", {}),
    "all spaces": (*ALL, ((128, 128),), "float32", {}),
    "all spaces, wide": (*ALL, ((128, 256),), "float32", {}),
}


def _draw(shapes: Shapes, dtype: str) -> tuple[Array, ...]:
    rng = np.random.default_rng()
    return tuple(rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, shapes, dtype, static = CALLS[name]
    args = _draw(shapes, dtype)
    outcome = model.execute(lambda *a: kernel(*a, **static), args)
    assert outcome.findings == ()
    wanted = reference(*args)
    assert (outcome.value.dtype, outcome.value.shape) == (wanted.dtype, wanted.shape)
    # only the running sum of products rounds in another order than NumPy
    tolerance = 1e-5 if reference is k.sum_of_products_reference else 0.0
    got, wanted = outcome.value.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shapes, dtype, static = CALLS[name]
    args = [jax.ShapeDtypeStruct(s, jnp.dtype(dtype)) for s in shapes]
    traced = jax.jit(lambda *a: kernel(*a, **static)).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("kernel", "shapes", "words"),
    [
        (k.square_through_smem, ((100, 128),), "multiple of 64 rows"),
        (k.stage_through_smem, ((64,),), "two axes"),
        (k.sum_halves, ((65, 128),), "the first of them even"),
        (k.add_in_one_buffer, ((64, 128), (128, 64)), "must equal"),
        (k.largest_of_tiles, ((96, 128),), "multiple of 64 rows"),
        (k.sum_of_products, ((64, 200), (64, 200)), "multiple of 128 columns"),
        (k.sum_of_products, ((64, 256), (64, 128)), "must be equal"),
        (k.shift_in_slices, ((24, 128),), "multiple of 16 rows"),
    ],
)
def test_refuses_shapes_it_cannot_take(
    kernel: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kernel(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes))


@pytest.mark.parametrize(
    ("shape", "dtype", "registers"),
    [
        ((128, 256), "float32", 256),
        ((128, 128), "float32", 128),
        ((64, 128), "float32", 64),
        ((128, 256), "bfloat16", 128),
        ((128,), "float32", 1),
        ((128,), "int8", 1),
        ((512,), "int8", 1),
    ],
)
def test_registers_per_lane(shape: tuple[int, ...], dtype: str, registers: int) -> None:
    assert k.registers_per_lane(shape, dtype) == registers


def test_the_registers_of_all_lanes_hold_the_value() -> None:
    shape = (int(np.random.default_rng().integers(1, 200)), 128)
    held_bytes = k.registers_per_lane(shape, "float32") * 4 * k.LANES
    assert held_bytes >= math.prod(shape) * 4 > held_bytes - 4 * k.LANES


def test_smem_bytes_are_those_that_the_trace_counts() -> None:
    traced = tracing.trace(k.square_through_smem, jax.ShapeDtypeStruct((256, 128), np.float32))
    assert traced.smem_bytes == 2 * k.smem_bytes((64, 128), "float32") == 65536


def test_one_buffer_costs_half_the_smem_of_two() -> None:
    x = jax.ShapeDtypeStruct((128, 128), np.float32)
    one = tracing.trace(k.stage_through_smem, x).smem_bytes
    two = tracing.trace(k.square_through_smem, x).smem_bytes
    assert 2 * one == two


def test_scopes_that_follow_each_other_share_their_smem() -> None:
    x = jax.ShapeDtypeStruct((128, 128), np.float32)
    assert tracing.trace(k.sum_halves, x).smem_bytes == k.smem_bytes((64, 128), "float32")


@pytest.mark.two_jax
def test_too_much_smem_does_not_lower() -> None:
    x = jax.ShapeDtypeStruct((256, 256), np.float32)
    config = k.Config(tile_m=128)
    traced = jax.jit(lambda x: k.square_through_smem(x, config=config)).trace(x)
    with pytest.raises(ValueError, match=f"max_smem_bytes={k.SMEM_BYTES_PER_BLOCK}"):
        traced.lower(lowering_platforms=("cuda",))
