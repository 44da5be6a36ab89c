"""The kernels of chapter 03: right on the model, free of findings, fit for CUDA, and as tiled."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import compile_for, model
from course_lib.kernels import transforms as k

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], str]
# kernel, reference, its arguments, keywords of both
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Spec, ...], dict[str, Any]]

HAND = (k.tiled_by_hand, k.tiled_reference)
SMEM = (k.through_smem, k.through_smem_reference)
DOUBLED = (k.doubled, k.doubled_reference)
LOADS = (k.loads, k.loads_reference)
ADDRESSES = (k.addresses, k.addresses_reference, (((256,), "uint32"),) * 2)
CHOSEN = (k.chosen, k.chosen_reference)
WINDOW = (k.window, k.window_reference)
SWAP = (k.swap_axes, k.swap_axes_reference)
TURN = (k.transposed, k.transposed_reference)


def config(tile: tuple[int, int] | None, swizzle: int | None = None) -> dict[str, Any]:
    return {"config": k.Config(tile, swizzle)}


CALLS: dict[str, Call] = {
    "by hand": (*HAND, (((32, 128), "bfloat16"),), {}),
    "by hand, float32": (*HAND, (((16, 64), "float32"),), {"tile": (8, 32)}),
    "by call": (*SMEM, (((32, 128), "bfloat16"),), config((8, 64))),
    "by call, swizzled": (*SMEM, (((32, 128), "bfloat16"),), config((8, 64), 128)),
    "automatic": (*SMEM, (((32, 128), "float16"),), {}),
    "doubled": (*DOUBLED, (((64, 128), "bfloat16"),), {}),
    "doubled, 128": (*DOUBLED, (((64, 128), "bfloat16"),), config((8, 64), 128)),
    "doubled, 64": (*DOUBLED, (((64, 128), "bfloat16"),), config((8, 32), 64)),
    "doubled, 32": (*DOUBLED, (((64, 64), "float32"),), config((8, 8), 32)),
    "doubled, float32": (*DOUBLED, (((64, 64), "float32"),), config((8, 32), 128)),
    "loads": (*LOADS, (((64, 64), "bfloat16"),), {"times": 2, **config((8, 64), 128)}),
    "loads with conflicts": (*LOADS, (((64, 64), "float32"),), {"times": 2, **config((8, 32))}),
    "addresses, 128": (*ADDRESSES, {"swizzle": 128}),
    "addresses, 64": (*ADDRESSES, {"swizzle": 64}),
    "addresses, 32": (*ADDRESSES, {"swizzle": 32}),
    "chosen, 128": (*CHOSEN, (((64, 128), "bfloat16"),), {}),
    "chosen, 64": (*CHOSEN, (((64, 96), "float16"),), {}),
    "chosen, 32": (*CHOSEN, (((16, 24), "float32"),), {}),
    "window": (*WINDOW, (((128, 64), "bfloat16"),), {"first": 16}),
    "window, anywhere": (*WINDOW, (((128, 64), "bfloat16"),), {"first": 4}),
    "window, on tiles": (*WINDOW, (((128, 64), "bfloat16"),), {"first": 8, **config((8, 64), 128)}),
    "swap": (*SWAP, (((16, 4, 64), "float32"),), {}),
    "swap, bfloat16": (*SWAP, (((32, 2, 128), "bfloat16"),), {}),
    "transposed": (*TURN, (((64, 128), "float32"),), {}),
    "transposed, bfloat16": (*TURN, (((128, 64), "bfloat16"),), {}),
    "product": (k.product, k.product_reference, (((64, 64), "bfloat16"),) * 2, {}),
    "product, transposed": (
        *(k.product, k.product_reference, (((128, 64), "bfloat16"), ((128, 64), "bfloat16"))),
        {"transpose_a": True},
    ),
    "product, 64": (
        *(k.product, k.product_reference, (((64, 64), "float16"),) * 2),
        config((8, 32), 64),
    ),
}


def draw(specs: tuple[Spec, ...]) -> tuple[Array, ...]:
    rng = np.random.default_rng()
    return tuple(
        rng.integers(0, 2**16, shape).astype(dtype)
        if dtype == "uint32"
        else rng.standard_normal(shape).astype(jnp.dtype(dtype))
        for shape, dtype in specs
    )


def shapes(specs: tuple[Spec, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in specs)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, specs, static = CALLS[name]
    args = draw(specs)
    outcome = model.execute(functools.partial(kernel, **static), args)
    assert outcome.findings == ()
    wanted = reference(*args, **{w: v for w, v in static.items() if w != "config"})
    # only sums of products round in another order than NumPy
    tolerance = 1e-4 if kernel is k.product else 0.0
    for got, want in zip(*map(listed, (outcome.value, wanted)), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=0, atol=tolerance
        )


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, specs, static = CALLS[name]
    traced = jax.jit(functools.partial(kernel, **static)).trace(*shapes(specs))
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("name", CALLS)
def test_compiles_for_hopper(name: str) -> None:
    kernel, _, specs, static = CALLS[name]
    code = compile_for(functools.partial(kernel, **static), *shapes(specs), arch="sm_90a")
    assert code.spill_bytes == 0


def smem_layouts(kernel: Callable[..., Any], *specs: Spec, **static: Any) -> list[str]:
    code = compile_for(functools.partial(kernel, **static), *shapes(specs), arch="sm_90a")
    return [d.layout for d in code.layouts if d.kind == "SMEM"]


BF16 = ((64, 64), "bfloat16")


@pytest.mark.parametrize(
    ("kernel", "specs", "static", "layout"),
    [
        (k.doubled, (BF16,), {}, "tiled (8, 64), swizzled 128 bytes"),
        (k.doubled, (((64, 64), "float32"),), {}, "tiled (8, 32), swizzled 128 bytes"),
        (k.product, (BF16, BF16), {}, "tiled (8, 64), swizzled 128 bytes"),
        (k.product, (BF16, BF16), config((8, 32), 64), "tiled (8, 32), swizzled 64 bytes"),
        (k.through_smem, (BF16,), {}, "row-major"),
        (k.through_smem, (BF16,), config((8, 64)), "tiled (8, 64)"),
        (k.window, (((128, 64), "bfloat16"),), {"first": 4}, "tiled (4, 64), swizzled 128 bytes"),
        (k.window, (((128, 64), "bfloat16"),), {"first": 8}, "tiled (8, 64), swizzled 128 bytes"),
    ],
)
def test_what_is_inferred_and_what_is_written(
    kernel: Any, specs: Any, static: Any, layout: str
) -> None:
    assert smem_layouts(kernel, *specs, **static)[0] == layout


def test_one_copy_of_tiles_replaces_a_copy_per_tile() -> None:
    x = jax.ShapeDtypeStruct((32, 128), jnp.bfloat16)
    by_hand = compile_for(k.tiled_by_hand, x)
    by_call = compile_for(functools.partial(k.through_smem, config=k.Config((8, 64))), x)
    assert by_hand.count("mbarrier::complete_tx::bytes") == 8
    assert by_call.count("mbarrier::complete_tx::bytes") == 1
    assert by_call.count("cp.async.bulk.tensor.4d*complete_tx::bytes") == 1


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("kernel", "specs", "static", "rule"),
    [
        (k.doubled, (BF16,), config((8, 64)), "layout"),  # every way to move it has conflicts
        (k.doubled, (BF16,), config((8, 32), 128), "exception"),  # no such atom
        (k.product, (BF16, BF16), config((8, 64)), "layout"),
        (k.window, (((128, 64), "bfloat16"),), {"first": 4, **config((8, 64), 128)}, "unaligned"),
    ],
)
def test_what_does_not_fit_is_found(kernel: Any, specs: Any, static: Any, rule: str) -> None:
    report = model.simulate(functools.partial(kernel, **static), *draw(specs))
    assert [f.rule for f in report.errors if f.rule.startswith(rule)]


@pytest.mark.parametrize(
    ("shape", "dtype", "tile", "swizzle"),
    [
        ((64, 128), "bfloat16", (8, 64), 128),
        ((64, 96), "bfloat16", (8, 32), 64),
        ((8, 48), "bfloat16", (8, 16), 32),
        ((64, 32), "float32", (8, 32), 128),
        ((64, 96), "int8", (8, 32), 32),
    ],
)
def test_mma_transforms(
    shape: tuple[int, int], dtype: str, tile: tuple[int, int], swizzle: int
) -> None:
    tiling, swizzling = k.mma_transforms(shape, jnp.dtype(dtype))
    assert (tiling.tiling, swizzling.swizzle) == (tile, swizzle)


NARROW: Any = jax.ShapeDtypeStruct((12, 64), jnp.bfloat16)
WIDE: Any = jax.ShapeDtypeStruct((64, 96), jnp.bfloat16)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: k.mma_transforms((12, 64), jnp.bfloat16), "multiple of 8"),
        (lambda: k.mma_transforms((8, 64, 2), jnp.bfloat16), "two axes"),
        (lambda: k.mma_transforms((8, 24), jnp.bfloat16), "48 bytes"),
        (lambda: k.tiled_by_hand(NARROW), "multiple of tile"),
        (lambda: k.transposed(WIDE), "64 x 64"),
    ],
)
def test_refuses_shapes_it_cannot_take(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_the_pages_own_formula_is_another_order() -> None:
    """The page writes the tiles' numbers before the tiles' sizes: (16, 2, 8, 64)."""
    x = np.arange(128 * 128).reshape(128, 128)
    page = x.reshape(128 // 8, 128 // 64, 8, 64).transpose(0, 2, 1, 3)
    assert not np.array_equal(page.ravel(), k.tiled_reference(x).ravel())
    # what its own words say: first [0:8, 0:64], then [0:8, 64:128], then [8:16, 0:64]
    tiles = [x[r : r + 8, c : c + 64].ravel() for r in range(0, 128, 8) for c in (0, 64)]
    assert np.array_equal(np.concatenate(tiles), k.tiled_reference(x).ravel())


def test_in_the_old_mode_an_unaligned_copy_begins_within_the_axis_of_a_tiles_rows() -> None:
    """Lane semantics lower it: the tensor map is (tiles, 8, 64), the copy begins at row 4."""
    tiled = plgpu.SMEM((64, 64), jnp.bfloat16, transforms=k.Config((8, 64), 128).transforms)
    lane = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)

    def from_row_4(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(4, 64)], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    kernel = plgpu.kernel(
        from_row_4,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.bfloat16),
        scratch_types=dict(x_smem=tiled, loaded=plgpu.Barrier()),
        compiler_params=lane,
    )
    code = compile_for(kernel, jax.ShapeDtypeStruct((128, 64), jnp.bfloat16))
    [copy] = code.instructions("cp.async.bulk.tensor.3d*complete_tx::bytes")
    column, row_in_tile, tile = re.findall(r"%r\d+", copy.text.partition("{")[2])[:3]
    assert column == tile != row_in_tile
    assert re.search(rf"mov\.b32\s+{re.escape(row_in_tile)}, 4;", code.ptx)
    assert re.search(rf"mov\.b32\s+{re.escape(tile)}, 0;", code.ptx)
