"""Who holds what: every named layout against JAX's own, over shapes and sizes of elements."""

from __future__ import annotations

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.diagnostics import CourseError
from course_lib.layouts import registers
from course_lib.layouts.registers import CATALOG, Splat, Tiled, named
from course_lib.layouts.tiling import Tiling
from tests.layouts import jax_witness

pytestmark = pytest.mark.two_jax

MATRICES = ((64, 8), (64, 64), (64, 96), (128, 16), (128, 128), (256, 32), (2, 128, 64))
VECTORS = ((4,), (8,), (16,), (64,), (128,), (384,))
BITS = (4, 8, 16, 32)
DEPENDS_ON_BITS = ("WG_STRIDED", "SMEM_GMEM_COPY", "MMA_LHS", "MMA_RHS")
NAMES = [name for name in CATALOG if name != "WG_SPLAT"]


def fitting(name: str):
    """`(layout, shape, bits)` of the shapes that a layout covers."""
    for shape in VECTORS if CATALOG[name].rank == 1 else MATRICES:
        for bits in BITS if name in DEPENDS_ON_BITS else (16,):
            try:
                layout = named(name, shape, bits)
                layout.elements(shape)
            except CourseError:
                continue
            yield layout, shape, bits


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_is_that_of_jax(name):
    cases = list(fitting(name))
    assert len(cases) > 1
    for layout, shape, bits in cases:
        theirs = jax_witness.register_layout(name, shape, bits, layout.vector_length)
        wanted = jax_witness.elements(theirs, shape)
        np.testing.assert_array_equal(layout.elements(shape), wanted, err_msg=f"{name} {shape}")


@pytest.mark.parametrize("name", NAMES)
def test_holders_are_the_inverse(name):
    for layout, shape, _ in fitting(name):
        held, holders = layout.elements(shape), layout.holders(shape)
        assert holders.shape == (math.prod(shape), layout.replication(shape), 3)
        element = np.broadcast_to(np.arange(math.prod(shape))[:, None], holders.shape[:2])
        np.testing.assert_array_equal(held[tuple(np.moveaxis(holders, -1, 0))], element)
        places = np.ravel_multi_index(tuple(np.moveaxis(holders, -1, 0)), held.shape)
        assert len(np.unique(places)) == held.size  # no place is named twice


@pytest.mark.parametrize("name", [n for n in NAMES if CATALOG[n].rank == 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_are_those_of_jax(name, axis):
    tried = 0
    for layout, shape, bits in fitting(name):
        if not isinstance(layout, Tiled) or len(shape) != 2:
            continue
        theirs = jax_witness.register_layout(name, shape, bits, 0).reduce((axis,))
        left = (shape[1 - axis],)
        mine = layout.reduce(axis)
        assert mine.replication(left) == theirs.replication_factor
        np.testing.assert_array_equal(mine.elements(left), jax_witness.elements(theirs, left))
        tried += 1
    assert tried or name == "WG_STRIDED"


WIDE_DTYPES = {16: jnp.bfloat16, 32: jnp.float32}
COPY_DTYPES = {8: np.int8, 16: ml_dtypes.bfloat16, 32: np.float32}


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_the_copy_layout_is_that_of_jax(swizzle):
    tried = 0
    for bits, dtype in COPY_DTYPES.items():
        minor = swizzle * 8 // bits
        for rows, columns in ((4, 1), (8, 2), (2, 2), (1, 4), (2, 4), (16, 4), (6, 2), (3, 8)):
            shape = (rows * 8, columns * minor)
            mine = registers.smem_gmem_copy(shape, bits, swizzle).elements(shape)
            theirs = jax_witness.copy_layout(shape, dtype, swizzle)
            np.testing.assert_array_equal(mine, jax_witness.elements(theirs, shape))
            tried += 1
    assert tried == 24


def test_every_layout_of_jax_is_covered():
    """All members of `plgpu.Layout` of the installed jax: by name, or as what takes parameters."""
    assert set(plgpu.Layout.__members__) == {
        *(n for n in CATALOG if not n.endswith(("_ROW", "_COL"))),
        "TILED",  # test_tiles_and_axes_of_your_own
    }


@pytest.mark.parametrize("m_warps", [1, 2, 4])
@pytest.mark.parametrize("name", ["MMA_LHS", "MMA_RHS", "MMA_ACC"])
def test_operands_of_mma_sync_are_those_of_jax(name, m_warps):
    for bits, dtype in {4: jnp.int4, 8: jnp.int8, **WIDE_DTYPES}.items():
        make = getattr(registers, name.lower())
        mine = make(m_warps) if name == "MMA_ACC" else make(bits, m_warps)
        theirs = plgpu.Layout[name].to_mgpu(dtype, m_warps=m_warps)
        for shape in ((64, 64), (128, 192)):
            wanted = jax_witness.elements(theirs, shape)
            np.testing.assert_array_equal(mine.elements(shape), wanted)
            assert mine.replication(shape) == theirs.replication_factor


def test_the_warps_of_mma_sync_are_those_that_cover_the_array():
    assert registers.fitting_m_warps("MMA_ACC", (64, 8)) == 4
    assert registers.fitting_m_warps("MMA_ACC", (32, 16)) == 2
    assert registers.code("MMA_LHS", (16, 64), 8) == "plgpu.Layout.MMA_LHS(jnp.int8, m_warps=1)"
    assert registers.code("MMA_RHS", (64, 8), 16).endswith("(jnp.bfloat16, m_warps=4)")
    with pytest.raises(CourseError, match=r"tiles of \(64, 8\); \(24, 8\) .*\(64, 8\)"):
        named("MMA_ACC", (24, 8))
    with pytest.raises(CourseError, match="1, 2 or 4 lie along M"):
        registers.mma_acc(3)


def test_tiles_and_axes_of_your_own():
    """`plgpu.Layout.TILED` is `Tiled`."""
    tiles = ((128, 16), (32, 4), (8, 4), (2,))
    mine = Tiled(Tiling(tiles), (-7,), (-5, -3), -1)
    tiling = jax_witness.tiling(tiles)
    theirs = plgpu.Layout.TILED.to_mgpu(tiling, warp_dims=(-7,), lane_dims=(-5, -3), vector_dim=-1)
    for shape in ((128, 16), (256, 48)):
        wanted = jax_witness.elements(theirs, shape)
        np.testing.assert_array_equal(mine.elements(shape), wanted)


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_the_native_order_of_tmem_in_vectors(vector):
    theirs = plgpu.Layout.TCGEN05_TMEM_NATIVE.to_mgpu(vector)
    wanted = jax_witness.elements(theirs, (128, 32))
    np.testing.assert_array_equal(registers.tmem_native(vector).elements((128, 32)), wanted)


def test_the_examples_of_the_ptx_isa():
    """wgmma.m64n16 D: element (r, c), as the figure of the PTX ISA shows it."""
    holders = named("WGMMA", (64, 16)).holders((64, 16))
    for (r, c), (warp, lane, register, element) in {
        (0, 0): (0, 0, 0, 0),
        (8, 9): (0, 0, 3, 1),
        (63, 15): (3, 31, 3, 1),
    }.items():
        [place] = holders[r * 16 + c].tolist()
        assert place == [warp * 32 + lane, register, element]


def test_replication():
    assert named("WGMMA", (64, 64)).replication((64, 64)) == 1
    assert named("WGMMA_ROW", (64,)).replication((64,)) == 4
    assert named("WGMMA_COL", (64,)).replication((64,)) == 32
    assert named("TMA_INDICES", (16,)).replication((16,)) == 32
    assert named("TMA_INDICES_4", (16,)).replication((16,)) == 128


def test_a_splat_is_in_every_thread():
    holders = Splat().holders((3, 5))
    assert holders.shape == (15, 128, 3)
    assert set(holders[7, :, 0].tolist()) == set(range(128))
    assert not holders[..., 1:].any()
    assert Splat().replication((3, 5)) == 128


WRONG = {
    ("WGMMA", (32, 64)): r"tiles of \(64, 8\); \(32, 64\) .* The next that is: \(64, 64\)",
    ("WGMMA", (64, 12)): r"The next that is: \(64, 16\)",
    ("TCGEN05", (64, 64)): r"tiles of \(128, 8\).* \(128, 64\)",
    ("WGMMA", (64,)): "arrays with 2 axes",
    ("TCGEN05_M64_COLLECTIVE", (64, 24)): "multiple of 16",
    ("TMA_INDICES", (12,)): r"The next that is: \(16,\)",
    ("WGMA", (64, 64)): "is none of WGMMA, ",
}


@pytest.mark.parametrize(("name", "shape"), WRONG)
def test_what_does_not_fit_says_what_would(name, shape):
    with pytest.raises(CourseError, match=WRONG[name, shape]):
        named(name, shape)


def test_a_strided_array_that_the_threads_cannot_share():
    with pytest.raises(CourseError, match="needs a multiple of 128"):
        named("WG_STRIDED", (3, 5)).elements((3, 5))
    with pytest.raises(CourseError, match="vec_size = 1 or 2 would fit"):
        registers.Strided(4).elements((64, 12))


def test_the_copy_layout_needs_four_tiles():
    with pytest.raises(CourseError, match="Take a multiple of 4 tiles"):
        registers.smem_gmem_copy((8, 64), 16, 128)


def test_the_code_is_filled_in():
    assert registers.code("WG_STRIDED", (64, 64), 16) == (
        "plgpu.Layout.WG_STRIDED((64, 64), vec_size=4)"
    )
    assert registers.code("TCGEN05_M64_COLLECTIVE", (64, 32), 16).endswith("COLLECTIVE(32)")
