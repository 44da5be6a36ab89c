"""On a real GPU: shared memory and registers hold every element where the model says.

    python -m pytest tests/gpu/test_layouts_on_gpu.py -m gpu

The kernels are also lowered for a GPU without one, so that a test run on a CPU finds
what no longer compiles.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import named
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import Tiling
from tests.gpu import layout_kernels

DTYPES = {8: jnp.int8, 16: jnp.bfloat16, 32: jnp.float32}
SWIZZLES = (None, 32, 64, 128)

REFS = [
    SmemRef(shape=(64, 128), bits=bits, tiling=Tiling(((8, (s or 64) * 8 // bits),)), swizzle=s)
    for bits, s in itertools.product(DTYPES, SWIZZLES)
]
TRANSPOSED = [
    SmemRef(
        shape=(64, 128),
        bits=16,
        tiling=Tiling(((8, (s or 64) // 2),)),
        swizzle=s,
        permutation=(1, 0),
    )
    for s in SWIZZLES
]
# The register layouts that Hopper's kernels store from, and what they store. Tiled refs
# without a swizzle are left out: the stores would have bank conflicts, which JAX refuses.
STORES: list[tuple[SmemRef, str]] = [
    *((ref, "WGMMA") for ref in REFS if ref.swizzle and ref.bits >= 16),
    *((ref, "WGMMA_8BIT") for ref in REFS if ref.swizzle and ref.bits == 8),
    *((ref, "WGMMA_UPCAST_2X") for ref in REFS if ref.swizzle and ref.bits == 8),
    *((ref, "WGMMA_TRANSPOSED") for ref in TRANSPOSED if ref.swizzle),
    *((ref, "WGMMA") for ref in TRANSPOSED if ref.swizzle),  # by stmatrix.trans
]
HELD = [
    ("WGMMA", (64, 64)),
    ("WGMMA", (128, 32)),
    ("WGMMA_TRANSPOSED", (64, 64)),
    ("WGMMA_8BIT", (64, 64)),
    ("WGMMA_UPCAST_2X", (64, 64)),
    ("WGMMA_ROW", (128,)),
    ("WGMMA_COL", (64,)),
    ("TCGEN05", (128, 32)),
]


def fresh(shape: tuple[int, ...], bits: int) -> Any:
    rng = np.random.default_rng()
    if bits == 8:
        return jnp.asarray(rng.integers(-128, 128, shape), jnp.int8)
    return jnp.asarray(rng.standard_normal(shape), DTYPES[bits])


def layout_of(name: str) -> Any:
    base, _, reduced = name.rpartition("_")
    if reduced in ("ROW", "COL"):
        return plgpu.Layout[base].reduce(1 if reduced == "ROW" else 0)
    return plgpu.Layout[name]


def store_kernel(ref: SmemRef, name: str) -> Any:
    return layout_kernels.stored(ref, DTYPES[ref.bits], layout_of(name))


def ids(value: Any) -> str:
    if not isinstance(value, SmemRef):
        return str(value)
    turned = "-transposed" if value.permutation else ""
    return f"{value.bits}bit-swizzle{value.swizzle}{turned}"


@pytest.mark.two_jax
@pytest.mark.parametrize("ref", REFS, ids=ids)
def test_the_copy_lowers_without_a_gpu(ref):
    x = fresh(ref.shape, ref.bits)
    assert layout_kernels.lower(layout_kernels.copied_in(ref, x.dtype), x)


@pytest.mark.two_jax
@pytest.mark.parametrize(("ref", "name"), STORES, ids=ids)
def test_the_store_lowers_without_a_gpu(ref, name):
    x = fresh(ref.view_shape, ref.bits)
    assert layout_kernels.lower(store_kernel(ref, name), x)


def test_a_transposed_ref_takes_wgmma_registers_by_stmatrix_trans():
    turned = [ref for ref, name in STORES if ref.permutation and name == "WGMMA"]
    assert len(turned) == 3
    for ref in turned:
        assert Transfer(named("WGMMA", ref.view_shape), ref).form == "column"


@pytest.mark.two_jax
@pytest.mark.parametrize(("name", "shape"), HELD, ids=ids)
def test_the_kernel_that_names_holders_lowers_without_a_gpu(name, shape):
    assert layout_kernels.lower(layout_kernels.places(shape, layout_of(name)))


@pytest.mark.gpu
@pytest.mark.parametrize("ref", REFS, ids=ids)
def test_tma_puts_every_element_where_the_model_says(ref):
    x = fresh(ref.shape, ref.bits)
    memory = jax.jit(layout_kernels.copied_in(ref, x.dtype))(x)
    np.testing.assert_array_equal(np.asarray(memory).ravel(), ref.memory(np.asarray(x)))


@pytest.mark.gpu
@pytest.mark.parametrize(("ref", "name"), STORES, ids=ids)
def test_stores_from_registers_put_every_element_where_the_model_says(ref, name):
    x = fresh(ref.view_shape, ref.bits)
    memory = jax.jit(store_kernel(ref, name))(x)
    np.testing.assert_array_equal(np.asarray(memory).ravel(), ref.memory(np.asarray(x)))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape"), HELD, ids=ids)
def test_every_thread_holds_what_the_model_says(name, shape):
    told = np.asarray(jax.jit(layout_kernels.places(shape, layout_of(name)))())
    told = (told.T if name == "WGMMA_TRANSPOSED" else told).ravel()
    found = np.stack([told >> 16, told >> 4 & 0xFFF, told & 0xF], axis=-1)
    holders = named(name, shape, 32).holders(shape)
    is_one_of_them = (holders == found[:, None]).all(axis=-1).any(axis=-1)
    assert is_one_of_them.all()
    assert len(np.unique(told)) == math.prod(shape)
