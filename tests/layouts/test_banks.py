"""Bank conflicts, against JAX's own transfer planner and against a count by hand."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import CATALOG, Splat, named
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import Tiling
from tests.layouts import jax_witness

pytestmark = pytest.mark.two_jax

NAMES = [n for n in CATALOG if CATALOG[n].rank == 2 and n not in ("WG_SPLAT", "WG_STRIDED")]
SWIZZLES = (None, 32, 64, 128)
MAJORS = (8, 64)


def tiled_refs(shape):
    """Refs whose view has this shape: sizes of elements x swizzles x tiles x transposes."""
    for bits, swizzle, major, turned in itertools.product(
        (8, 16, 32), SWIZZLES, MAJORS, (False, True)
    ):
        tile = (major, (swizzle or 64) * 8 // bits)
        try:
            yield SmemRef(
                shape=shape[::-1] if turned else shape,
                bits=bits,
                tiling=Tiling((tile,)),
                swizzle=swizzle,
                permutation=(1, 0) if turned else None,
            )
        except CourseError:
            continue


def verdict(layout, ref) -> str:
    try:
        transfer = Transfer(layout, ref)
    except CourseError:
        return "other"
    if transfer.degree == 1:
        return "trivial"
    return "staggered" if transfer.stagger() else "conflicts"


@pytest.mark.parametrize("name", NAMES)
def test_free_of_conflicts_exactly_when_the_plan_of_jax_is_trivial(name):
    """And staggered exactly when JAX staggers, and without a plan when JAX has none."""
    seen = collections.Counter()
    shape = (64, 128) if "M64" in name else (128, 128)
    for ref in tiled_refs(shape):
        layout = named(name, shape, ref.bits)
        theirs = jax_witness.register_layout(name, shape, ref.bits, layout.vector_length)
        plan = jax_witness.transfer_plan(
            ref.shape, ref.tiling.tiles[0], ref.permutation, theirs, ref.bits, ref.swizzle
        )
        assert verdict(layout, ref) == plan, (name, ref)
        seen[plan] += 1
    assert sum(seen.values()) >= 40
    # with TMEM's own order, 128 lanes with a row each, there are always conflicts
    assert bool(seen["trivial"]) == (name != "TCGEN05_TMEM_NATIVE")


def degree_by_hand(transfer: Transfer) -> int:
    """Lane after lane: the most different words that a bank is asked for in a wavefront."""
    worst = 0
    lanes = transfer.wavefront_lanes
    for warp, register in np.ndindex(4, transfer.byte_offsets.shape[-1]):
        for first in range(0, 32, lanes):
            asked = collections.defaultdict(set)
            for lane in range(first, first + lanes):
                start = int(transfer.byte_offsets[warp, lane, register])
                for byte in range(start, start + transfer.lane_bytes):
                    asked[byte // 4 % 32].add(byte // 4)
            worst = max(worst, *map(len, asked.values()))
    return worst


@pytest.mark.parametrize("name", NAMES)
def test_the_degree_is_what_a_count_by_hand_gives(name):
    shape = (128, 64)
    seen = set()
    for ref in list(tiled_refs(shape))[::5]:
        try:
            transfer = Transfer(named(name, shape, ref.bits), ref)
        except CourseError:
            continue
        assert transfer.degree == degree_by_hand(transfer), ref
        seen.add(transfer.degree)
    assert seen


def transfer(name: str, bits: int, swizzle: int | None) -> Transfer:
    tile = (8, (swizzle or 64) * 8 // bits)
    ref = SmemRef(shape=(128, 128), bits=bits, tiling=Tiling((tile,)), swizzle=swizzle)
    return Transfer(named(name, (128, 128), bits), ref)


@pytest.mark.parametrize(
    ("name", "bits", "swizzle", "degree", "words"),
    [
        ("WGMMA", 16, 128, 1, "Free of bank conflicts"),
        ("WGMMA", 32, 128, 2, "JAX staggers it"),
        ("TCGEN05_TMEM_NATIVE", 16, 128, 4, "optimized=False"),
    ],
)
def test_three_finds_and_their_words(name, bits, swizzle, degree, words):
    found = transfer(name, bits, swizzle)
    assert found.degree == degree
    assert words in found.summary()


def test_a_conflict_names_its_lanes_words_and_bank():
    found = transfer("TCGEN05_TMEM_NATIVE", 16, 128)
    reason = found.reason(0, 0)
    assert reason.startswith("4-way conflict: bank 0 is asked for 4 different words (lane 0 wants")
    assert "lane 24 wants word 1536" in reason


def test_a_broadcast_is_no_conflict():
    """8-bit WGMMA: two lanes' 2 bytes lie in one word."""
    found = transfer("WGMMA", 8, 128)
    assert "2 lanes share a word: a broadcast, no conflict" in found.reason(0, 0)
    uses = found.uses(0, 0)
    assert all(len(use.words) == 1 and len(use.lanes[0]) == 2 for use in uses)


def test_wider_transfers_take_more_wavefronts():
    assert transfer("WGMMA", 16, 128).wavefront_lanes == 32
    assert transfer("WGMMA", 32, 128).wavefront_lanes == 16
    assert transfer("WGMMA_UPCAST_4X", 16, 128).wavefront_lanes == 8
    assert transfer("WGMMA", 32, 128).degrees.shape == (4, 64, 2)


def test_a_staggering_that_is_found_has_no_conflicts_and_moves_every_register_once():
    plan = transfer("WGMMA", 32, 128).stagger()
    assert plan is not None
    register = np.arange(64)
    turn = register // plan.step % plan.period
    other = register + ((turn + plan.ahead) % plan.period - turn) * plan.step
    np.testing.assert_array_equal(np.sort(other), register)


def test_registers_whose_elements_are_not_neighbours_are_refused():
    ref = SmemRef(shape=(64, 128), tiling=Tiling(((8, 64),)), swizzle=128, permutation=(1, 0))
    with pytest.raises(CourseError, match=r"not neighbours in memory .* take WGMMA_TRANSPOSED"):
        Transfer(named("WGMMA", (128, 64)), ref)
    assert Transfer(named("WGMMA_TRANSPOSED", (128, 64)), ref).degree >= 1


def test_registers_of_half_a_byte_or_of_too_many_are_refused():
    four_bits = SmemRef(shape=(128, 64), bits=4)
    with pytest.raises(CourseError, match="no whole number of bytes"):
        Transfer(named("TCGEN05_M64_COLLECTIVE_NATIVE", (128, 64), 4), four_bits)
    wide = SmemRef(shape=(64, 64), bits=32)
    with pytest.raises(CourseError, match="more than the 16"):
        Transfer(named("WGMMA_UPCAST_4X", (64, 64), 32), wide)


def test_a_splat_says_that_it_is_one():
    found = Transfer(Splat(), SmemRef(shape=(64, 64)))
    assert "All elements are equal" in found.summary()
