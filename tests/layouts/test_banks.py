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


def transfer_of(name: str, ref: SmemRef, arch: str) -> Transfer | None:
    try:
        return Transfer(named(name, ref.view_shape, ref.bits), ref, arch)
    except CourseError:
        return None


def verdict(transfer: Transfer | None) -> str:
    """What JAX makes of a transfer, by our model."""
    if transfer is None:
        return "other"
    if transfer.degree == 1:
        return transfer.form
    return "staggered" if transfer.stagger() else "conflicts"


def verdict_of_jax(stores: list[jax_witness.Store] | str) -> str:
    if isinstance(stores, str):
        return stores
    [form] = {store.form for store in stores}
    return "staggered" if form == "vector" and len(stores[0].registers) > 1 else form


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("name", NAMES)
def test_jax_emits_the_stores_that_the_model_says(name, arch):
    """Vector, stmatrix, stmatrix.trans, staggered or none, and to the same addresses.

    So free of conflicts exactly when JAX's plan is trivial.
    """
    seen = collections.Counter()
    shape = (64, 64) if "M64" in name else (128, 64)
    for ref in tiled_refs(shape):
        found = transfer_of(name, ref, arch)
        vector = named(name, shape, ref.bits).vector_length
        theirs = jax_witness.register_layout(name, shape, ref.bits, vector)
        stores = jax_witness.emitted_stores(
            ref.memory_shape, ref.permutation, theirs, ref.bits, ref.swizzle, arch
        )
        if stores == "assertion":
            assert (name, ref.bits) == ("MMA_RHS", 32)
            continue
        assert verdict(found) == verdict_of_jax(stores), (name, ref)
        seen[verdict(found)] += 1
        if found is not None and not isinstance(stores, str):
            check_addresses(found, stores)
    assert sum(seen.values()) >= 30
    free = seen["vector"] + seen["row"] + seen["column"]
    # with TMEM's own order, 128 lanes with a row each, there are always conflicts
    assert bool(free) == (name != "TCGEN05_TMEM_NATIVE")


def check_addresses(found: Transfer, stores: list[jax_witness.Store]) -> None:
    """Each instruction of JAX's touches the bytes that the model says it does."""
    turn_of = {tuple(r): t for t, r in enumerate(found.registers.tolist())}
    done = []
    for store in stores:
        addresses = store.addresses.reshape(4, 32)
        if store.form == "vector":
            own = store.registers[:1] if len(store.registers) == 1 else store.registers
            late = np.zeros(32, bool)
            if len(own) > 1 and (plan := found.stagger()):
                late = np.arange(32) // plan.group % 2 == 1
            wanted = np.where(
                late, found.byte_offsets[:, :, own[-1]], found.byte_offsets[:, :, own[0]]
            )
            wanted_other = np.where(
                late, found.byte_offsets[:, :, own[0]], found.byte_offsets[:, :, own[-1]]
            )
            assert np.array_equal(addresses, wanted) or np.array_equal(addresses, wanted_other)
            done.append(own)
            continue
        each = found.registers.shape[1]
        for at in range(0, len(store.registers), each):
            turn = turn_of[store.registers[at : at + each]]
            done.append(turn)
            rows = addresses[:, 8 * at : 8 * (at + each)]  # the lanes that give row addresses
            words = np.unique(found.word_numbers[:, turn].reshape(4, -1), axis=1)
            given = np.sort((rows[..., None] // 4 + np.arange(4)).reshape(4, -1), axis=1)
            for warp in range(4):
                np.testing.assert_array_equal(
                    np.unique(found.word_numbers[warp, turn]), given[warp]
                )
            assert words.size
    if stores[0].form == "vector":
        assert len(done) == found.byte_offsets.shape[-1]
    else:
        assert sorted(done) == list(range(len(found.registers)))


def degree_by_hand(transfer: Transfer) -> int:
    """Lane after lane: the most different words that a bank is asked for in a wavefront."""
    if transfer.form == "column":
        return turned_by_hand(transfer)
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


def turned_by_hand(transfer: Transfer) -> int:
    """The same of stmatrix.trans: 8 columns of a matrix, 16 bytes each, in a wavefront."""
    worst = 0
    ref = transfer.ref
    held = transfer.layout.elements(ref.view_shape)
    places = np.stack(np.unravel_index(held, ref.view_shape), axis=-1)
    halves = (range(4),) if ref.bits == 16 else (range(2), range(2, 4))
    for warp, registers, half in itertools.product(range(4), transfer.registers, halves):
        asked = collections.defaultdict(set)
        for register, lane in itertools.product(registers, range(32)):
            if lane % 4 in half:
                for index in places[32 * warp + lane, register]:
                    byte = int(ref.byte_offset(index))
                    asked[byte // 4 % 32].add(byte // 4)
        worst = max(worst, *map(len, asked.values()))
    return worst


@pytest.mark.parametrize("name", NAMES)
def test_the_degree_is_what_a_count_by_hand_gives(name):
    shape = (128, 64)
    seen = set()
    for ref in list(tiled_refs(shape))[::5]:
        try:
            transfer = Transfer(named(name, shape, ref.bits), ref, "sm_100a")
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


def turned(bits: int, swizzle: int | None, *, tile_rows: int = 8) -> SmemRef:
    """A ref whose view of (128, 64) is transposed."""
    tile = (tile_rows, (swizzle or 64) * 8 // bits)
    return SmemRef(
        shape=(64, 128), bits=bits, tiling=Tiling((tile,)), swizzle=swizzle, permutation=(1, 0)
    )


def test_stmatrix_turns_16_bit_registers_for_a_transposed_ref():
    found = Transfer(named("WGMMA", (128, 64)), turned(16, 128))
    assert (found.form, found.degree) == ("column", 1)
    assert "stmatrix.trans moves matrices of 8 rows of 16 bytes" in found.summary()
    assert "A word is made of the elements of 2 lanes" in found.reason(0, 0)
    worse = Transfer(named("WGMMA", (128, 64)), turned(16, None))
    assert (worse.form, worse.degree) == ("column", 4)
    assert "Nothing mends it, so JAX refuses the transfer" in worse.summary()


def test_stmatrix_turns_8_bit_registers_on_blackwell_only():
    layout = named("WGMMA_8BIT", (128, 64), 8)
    found = Transfer(layout, turned(8, 128), "sm_100a")
    assert (found.form, found.degree) == ("column", 1)
    assert found.registers.shape[1] == 2
    assert found.degrees.shape[2] == 2
    with pytest.raises(CourseError, match=r"stmatrix turns 8-bit elements on Blackwell"):
        Transfer(layout, turned(8, 128))


def test_stmatrix_moves_rows_of_16_bytes_where_there_are_no_conflicts():
    assert transfer("WGMMA", 16, 128).form == "row"
    assert transfer("WGMMA", 32, 128).form == "vector"  # two registers of 32 bits
    assert transfer("WGMMA", 8, None).form == "vector"


def test_registers_whose_elements_are_not_neighbours_are_refused():
    with pytest.raises(CourseError, match=r"not neighbours in memory .* take WGMMA_TRANSPOSED"):
        Transfer(named("WGMMA", (128, 64)), turned(32, 128))
    assert Transfer(named("WGMMA_TRANSPOSED", (128, 64)), turned(32, 128)).degree >= 1


def test_an_unknown_gpu_is_named():
    with pytest.raises(CourseError, match=r"arch = 'sm_80' is none of 'sm_90a' or 'sm_100a'"):
        Transfer(named("WGMMA", (64, 64)), SmemRef(shape=(64, 64)), "sm_80")


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
