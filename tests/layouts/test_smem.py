"""SMEM addresses: against JAX's own tiling, a sum bit by bit, and their own inverse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts import swizzle as swizzles
from course_lib.layouts.smem import SmemRef, bank
from course_lib.layouts.tiling import Tiling, row_major_strides
from tests.layouts import jax_witness

pytestmark = pytest.mark.two_jax

SHAPES = ((64, 128), (128, 64), (8, 256), (2, 64, 128), (128, 256))
TILES = ((), ((8, 64),), ((8, 32),), ((16, 16),), ((64, 128),), ((64,),), ((32, 64), (8, 16)))


def tiled_shape(tiles, shape):
    try:
        return jax_witness.tiled_shape(tiles, shape) if tiles else tuple(shape)
    except ValueError:
        return None


def every_ref():
    """Refs of all shapes, tilings, sizes of elements, swizzles and transposes that fit."""
    for shape, tiles, bits in itertools.product(SHAPES, TILES, (4, 8, 16, 32)):
        memory = tiled_shape(tiles, shape)
        if memory is None:
            continue
        rank = len(shape)
        for swizzle in (None, 128, 64, 32):
            if swizzle is not None and memory[-1] * bits != swizzle * 8:
                continue
            for permutation in (None, (*range(rank - 2), rank - 1, rank - 2)):
                yield SmemRef(
                    shape=shape,
                    bits=bits,
                    tiling=Tiling(tiles),
                    swizzle=swizzle,
                    permutation=permutation,
                )


REFS = list(every_ref())


def swizzled_by_hand(offset: int, swizzle: int | None) -> int:
    """Bit by bit: bits 4, 5, 6 are flipped by bits 7, 8, 9, as far as `swizzle` goes."""
    bits = [(offset >> i) & 1 for i in range(offset.bit_length() + 10)]
    for i in range({None: 0, 32: 1, 64: 2, 128: 3}[swizzle]):
        bits[4 + i] ^= bits[7 + i]
    return sum(bit << i for i, bit in enumerate(bits))


def address_by_hand(ref: SmemRef, index: tuple[int, ...]) -> int:
    own = list(index)
    if ref.permutation is not None:
        for place, axis in enumerate(ref.permutation):
            own[axis] = index[place]
    tiled = tuple(own)
    if ref.tiling.tiles:
        tiled = jax_witness.tiled_index(ref.tiling.tiles, tiled)
    memory = tiled_shape(ref.tiling.tiles, ref.shape)
    assert memory is not None
    offset = int(np.ravel_multi_index(tiled, memory))
    return swizzled_by_hand(offset * ref.bits // 8, ref.swizzle)


def test_there_are_hundreds_of_refs():
    assert len(REFS) > 200
    assert {ref.swizzle for ref in REFS} == {None, 128, 64, 32}


def test_addresses_of_random_elements():
    rng = np.random.default_rng()
    for ref in REFS:
        for _ in range(12):
            index = tuple(int(rng.integers(d)) for d in ref.view_shape)
            assert ref.byte_offset(index) == address_by_hand(ref, index), (ref, index)


def test_addresses_are_a_permutation_of_the_buffer_and_index_at_undoes_them():
    for ref in REFS:
        slots = ref.bit_offset(ref.indices()) // ref.bits
        np.testing.assert_array_equal(np.sort(slots, axis=None), np.arange(ref.size))
        np.testing.assert_array_equal(ref.index_at(slots), ref.indices())
        assert ref.byte_offsets().max() < ref.smem_bytes


def test_memory_holds_each_value_at_its_address():
    rng = np.random.default_rng()
    for ref in REFS[::7]:
        values = rng.standard_normal(ref.view_shape)
        image = ref.memory(values)
        slots = ref.bit_offset(ref.indices()) // ref.bits
        np.testing.assert_array_equal(image[slots], values)


def test_a_transpose_moves_no_data():
    rng = np.random.default_rng()
    ref = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),)), swizzle=128)
    turned = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),)), swizzle=128, permutation=(1, 0))
    values = rng.standard_normal((64, 128))
    np.testing.assert_array_equal(turned.memory(values.T), ref.memory(values))
    assert turned.view_shape == (128, 64)


def test_a_transposed_ref_is_tiled_as_pallas_says():
    """Pallas moves a transpose past the tiling by transposing the tile."""
    turned = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),)), permutation=(1, 0))
    tile = jax_witness.transposed_tile((8, 64), (1, 0))
    assert tile == (64, 8)
    other = turned.byte_offsets().reshape(128 // tile[0], tile[0], 64 // tile[1], tile[1])
    straight = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),))).byte_offsets()
    mine = straight.reshape(8, 8, 2, 64).transpose(2, 3, 0, 1)
    np.testing.assert_array_equal(other, mine)


def test_tiled_shapes_are_those_of_jax():
    for shape, tiles in itertools.product(SHAPES, TILES[1:]):
        wanted = tiled_shape(tiles, shape)
        if wanted is None:
            with pytest.raises(CourseError, match=r"does not divide the shape|has 2 axes"):
                Tiling(tiles).shape(shape)
        else:
            assert Tiling(tiles).shape(shape) == wanted


@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_a_swizzle_undoes_itself_stays_in_its_row_and_repeats(swizzle):
    offsets = np.arange(4096)
    moved = swizzles.swizzle_bytes(offsets, swizzle)
    np.testing.assert_array_equal(swizzles.swizzle_bytes(moved, swizzle), offsets)
    np.testing.assert_array_equal(moved // 128, offsets // 128)
    np.testing.assert_array_equal(moved % 16, offsets % 16)
    atom = 8 * swizzle
    np.testing.assert_array_equal(moved[:atom] + atom, moved[atom : 2 * atom])
    assert not np.array_equal(moved[: atom // 2], moved[atom // 2 : atom] - atom // 2)


def test_no_swizzle_moves_nothing():
    offsets = np.random.default_rng().integers(0, 2**20, 500)
    np.testing.assert_array_equal(swizzles.swizzle_bytes(offsets, None), offsets)


def test_a_column_of_a_swizzled_tile_lies_in_eight_different_chunks():
    swizzled = SmemRef(shape=(8, 64), tiling=Tiling(((8, 64),)), swizzle=128)
    plain = SmemRef(shape=(8, 64), tiling=Tiling(((8, 64),)))
    assert len(np.unique(bank(swizzled.byte_offsets())[:, 0])) == 8
    assert len(np.unique(bank(plain.byte_offsets())[:, 0])) == 1


WRONG = {
    "a tile that does not divide": (
        {"shape": (64, 100), "tiling": Tiling(((8, 64),))},
        "64 does not divide the 100 of axis 1. What does: 1, 2, 4, 5, 10, 20, 25, 50 or 100.",
    ),
    "more axes in the tile than in the array": (
        {"shape": (64,), "tiling": Tiling(((8, 64),))},
        "a tile covers the last axes",
    ),
    "swizzle 16": ({"shape": (64, 64), "swizzle": 16}, "leave the transform out"),
    "swizzle 256": ({"shape": (64, 64), "swizzle": 256}, "there are 128, 64 or 32 bytes"),
    "a swizzle that does not match the tile": (
        {"shape": (64, 64), "tiling": Tiling(((8, 32),)), "swizzle": 128},
        r"need 64 elements .* has 32. Tile by \(8, 64\), or take swizzle 64.",
    ),
    "a swizzle without a tile": (
        {"shape": (64, 256), "swizzle": 128},
        r"this array \(it has no tiling\) has 256. Tile by \(8, 64\).",
    ),
    "a transpose of other axes": (
        {"shape": (64, 64), "permutation": (0, 2)},
        r"does not order the axes \(0, 1\)",
    ),
    "elements of 24 bits": ({"shape": (64, 64), "bits": 24}, "4, 8, 16 or 32 bits"),
    "an empty shape": ({"shape": (0, 64)}, "each size must be 1 or more"),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_does_not_fit_says_what_would(case):
    given, sentence = WRONG[case]
    with pytest.raises(CourseError, match=sentence):
        SmemRef(**given)


def test_what_is_refused_is_refused_by_jax_too():
    """Over a product of shapes, tiles, swizzles and sizes: JAX's transforms accept the same."""
    seen = set()
    tiles = (None, (8, 64), (8, 32), (8, 16), (8, 128), (16, 64), (7, 64))
    for shape, tile, bits, swizzle in itertools.product(
        ((64, 128), (64, 96), (16, 64)), tiles, (8, 16, 32), (128, 64, 32, 16, 256)
    ):
        try:
            tiling = Tiling(()) if tile is None else Tiling((tile,))
            SmemRef(shape=shape, bits=bits, tiling=tiling, swizzle=swizzle)
            mine = True
        except CourseError:
            mine = False
        try:
            jax_witness.check_transforms(shape, bits, tile, swizzle)
            theirs = True
        except (ValueError, AssertionError):
            theirs = False
        assert mine == theirs, (shape, tile, bits, swizzle)
        seen.add(mine)
    assert seen == {True, False}


def test_the_code_names_the_transforms():
    ref = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),)), swizzle=128)
    assert ref.code("bfloat16") == (
        "plgpu.SMEM((64, 128), jnp.bfloat16, "
        "transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)))"
    )
    assert SmemRef(shape=(64, 128)).code("float32") == "plgpu.SMEM((64, 128), jnp.float32)"


def test_strides():
    assert row_major_strides((2, 3, 4)) == (12, 4, 1)
