"""The kernels of chapter 00: right on the CPU model, free of findings, and fit for CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from course_lib import model
from course_lib.kernels import start_here as k

Array = np.ndarray[Any, Any]
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...], dict[str, Any]]

TALL = k.Tile(m=128, n=128)
WIDE = k.Tile(m=64, n=256)
# kernel, reference, shapes of its float32 arguments, keywords
CALLS: dict[str, Call] = {
    "fill_iota, 1 block": (k.fill_iota, k.fill_iota_reference, (), {"blocks": 1}),
    "fill_iota, 5 blocks": (k.fill_iota, k.fill_iota_reference, (), {"blocks": 5}),
    "block_numbers": (k.block_numbers, k.block_numbers_reference, (), {"blocks": 4}),
    "add_one, 2 blocks": (k.add_one, k.add_one_reference, ((256,),), {}),
    "add_one, 7 blocks": (k.add_one, k.add_one_reference, ((896,),), {}),
    "reverse_rows, 1 row": (k.reverse_rows, k.reverse_rows_reference, ((1, 128),), {}),
    "reverse_rows, 6 rows": (k.reverse_rows, k.reverse_rows_reference, ((6, 128),), {}),
    "tile_numbers": (k.tile_numbers, k.tile_numbers_reference, (), {"m": 192, "n": 256}),
    "shift_tiles, 2x3": (k.shift_tiles, k.shift_tiles_reference, ((128, 384),), {}),
    "shift_tiles, 3x1": (k.shift_tiles, k.shift_tiles_reference, ((192, 128),), {}),
    "shift_tiles, tall": (k.shift_tiles, k.shift_tiles_reference, ((256, 256),), {"tile": TALL}),
    "shift_tiles, wide": (k.shift_tiles, k.shift_tiles_reference, ((128, 512),), {"tile": WIDE}),
    "double_through_smem": (k.double_through_smem, k.double_through_smem_reference, ((640,),), {}),
}


def _fill() -> jax.Array:
    return k.fill(2.5)


def _fill_reference() -> Array:
    return k.fill_reference(2.5)


CALLS["fill"] = (_fill, _fill_reference, (), {})


def _draw(shapes: tuple[tuple[int, ...], ...]) -> tuple[Array, ...]:
    rng = np.random.default_rng()
    return tuple(rng.standard_normal(s).astype(np.float32) for s in shapes)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, shapes, static = CALLS[name]
    args = _draw(shapes)
    outcome = model.execute(lambda *a: kernel(*a, **static), args)
    assert outcome.findings == ()
    wanted = reference(*args, **static)
    assert (outcome.value.dtype, outcome.value.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(outcome.value, wanted)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shapes, static = CALLS[name]
    args = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    traced = jax.jit(lambda *a: kernel(*a, **static)).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("kernel", "shape", "words"),
    [
        (k.add_one, (100,), "multiple of 128"),
        (k.double_through_smem, (2, 128), "one axis"),
        (k.shift_tiles, (128, 200), r"multiple of the tile \(64, 128\)"),
        (k.shift_tiles, (128,), "two axes"),
    ],
)
def test_refuses_a_shape_it_cannot_tile(
    kernel: Callable[..., Any], shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kernel(jax.ShapeDtypeStruct(shape, np.float32))


def test_a_tile_counts_itself() -> None:
    assert k.TILE.count((192, 384)) == (3, 3)
