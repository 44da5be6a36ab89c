"""Grid orders, waves, footprints and the L2 model, against hand-counted cases and their laws."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.diagnostics import CourseError
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words

MIB = 2**20
sizes = st.integers(1, 24)


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, int, grid.Order]:
    """m, n and an order that fits them."""
    m, n = draw(sizes), draw(sizes)
    kind = draw(st.sampled_from(grid.KINDS))
    widths = [d for d in range(1, m + 1) if m % d == 0] if kind == "tiled" else range(1, 30)
    return m, n, grid.Order(kind, draw(st.sampled_from(widths)), draw(st.sampled_from((0, 1))))


def first_wave(order: grid.Order, m: int, n: int, concurrent: int = 16) -> int:
    waves = grid.waves(order.tiles(m, n), concurrent=concurrent)
    return grid.footprint(waves[0]).inputs


# ---- the reference page's example ----


def test_the_pages_example_reads_17_and_8_tiles() -> None:
    assert first_wave(grid.Order("row-major"), 8, 16) == 17
    assert first_wave(grid.Order("tiled", 4), 8, 16) == 8


def test_six_by_sixteen_reads_17_10_and_10() -> None:
    assert first_wave(grid.Order("row-major"), 6, 16) == 17
    assert first_wave(grid.Order("tiled", 2), 6, 16) == 10
    assert first_wave(grid.Order("snake", 2, 0), 6, 16) == 10


def test_planar_snake_of_its_docstring() -> None:
    order = grid.planar_snake(8, 8, minor_dim=0, tile_width=2)
    rank = np.empty((8, 8), int)
    rank[order[:, 0], order[:, 1]] = np.arange(64)
    assert rank[0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert rank[2].tolist() == [30, 28, 26, 24, 22, 20, 18, 16]
    assert rank[7].tolist() == [63, 61, 59, 57, 55, 53, 51, 49]


def test_nd_loop_of_its_docstring() -> None:
    tiles = grid.row_major(2, 3)
    who = grid.persistent(6, num_sms=4)
    assert tiles[who[:, 0] == 0].tolist() == [[0, 0], [1, 1]]
    assert tiles[who[:, 0] == 1].tolist() == [[0, 1], [1, 2]]
    assert tiles[who[:, 0] == 3].tolist() == [[1, 0]]
    assert who[4].tolist() == [0, 1]


# ---- laws of orders and waves ----


@given(orders())
def test_an_order_has_every_tile_once(case: tuple[int, int, grid.Order]) -> None:
    m, n, order = case
    tiles = order.tiles(m, n)
    assert sorted(map(tuple, tiles.tolist())) == list(itertools.product(range(m), range(n)))


@given(orders(), st.integers(1, 40))
def test_waves_are_the_order_in_pieces(case: tuple[int, int, grid.Order], concurrent: int) -> None:
    m, n, order = case
    tiles = order.tiles(m, n)
    waves = grid.waves(tiles, concurrent=concurrent)
    np.testing.assert_array_equal(np.concatenate(waves), tiles)
    assert all(len(w) == concurrent for w in waves[:-1])
    q = grid.quantization(m * n, concurrent=concurrent)
    assert (q.waves, q.last) == (len(waves), len(waves[-1]))


@given(sizes, sizes)
def test_width_one_is_row_major(m: int, n: int) -> None:
    np.testing.assert_array_equal(grid.tiled(m, n, mt=1), grid.row_major(m, n))
    np.testing.assert_array_equal(grid.tiled(m, n, mt=m), grid.row_major(n, m)[:, ::-1])


@given(sizes, sizes, st.integers(1, 30), st.sampled_from((0, 1)))
def test_a_snake_never_jumps_along_its_major_axis(m: int, n: int, width: int, minor: int) -> None:
    tiles = grid.planar_snake(m, n, minor_dim=minor, tile_width=width)
    assert np.abs(np.diff(tiles[:, 1 - minor])).max(initial=0) <= 1


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 4)]))
def test_a_cluster_is_a_rectangle_of_tiles_that_follow_each_other(
    m: int, n: int, cluster: tuple[int, int]
) -> None:
    down, across = cluster
    tiles = grid.clustered(grid.Order("snake", 2), m * down, n * across, cluster=cluster)
    assert sorted(map(tuple, tiles.tolist())) == list(
        itertools.product(range(m * down), range(n * across))
    )
    for wave in grid.waves(tiles, concurrent=down * across):
        touched = grid.footprint(wave)
        assert (touched.a_rows, touched.b_columns) == cluster


def test_a_cluster_asks_once_for_what_its_blocks_share() -> None:
    matmul = grid.Matmul(m=4, n=4, k=3)
    sent = {}
    for cluster in ((1, 1), (2, 1), (2, 2), (4, 2)):
        tiles = grid.clustered(grid.Order(), 4, 4, cluster=cluster)
        blocks = cluster[0] * cluster[1]
        waves = grid.waves(tiles, concurrent=8)
        traffic = grid.l2_traffic(matmul, waves, l2_bytes=0, blocks=blocks)
        sent[cluster] = grid.total(traffic).requests
    assert sent == {(1, 1): 96, (2, 1): 72, (2, 2): 48, (4, 2): 36}


def test_a_cluster_goes_on_when_its_slowest_block_is_done() -> None:
    costs = [1.0, 4.0, 2.0, 2.0, 1.0, 1.0]
    one = grid.assign_dynamic(costs, workers=4, blocks=2)
    assert one.worker.tolist() == [0, 1, 2, 3, 2, 3]
    assert one.start.tolist() == [0, 0, 0, 0, 2, 2]
    assert one.end.tolist() == [1, 4, 2, 2, 3, 3]
    assert grid.assign_static(costs, workers=4, blocks=2).start.tolist() == [0, 0, 0, 0, 4, 4]


def test_quantization_says_what_the_tail_costs() -> None:
    assert grid.quantization(132, concurrent=132).busy == 1
    over = grid.quantization(133, concurrent=132)
    assert (over.waves, over.last) == (2, 1)
    assert over.busy == 133 / 264


# ---- who computes what, when the tiles take unequally long ----


def test_static_and_dynamic_assignment_by_hand() -> None:
    costs = [3.0, 1.0, 1.0, 3.0]
    static = grid.assign_static(costs, workers=2)
    assert static.worker.tolist() == [0, 1, 0, 1]
    assert static.end.tolist() == [3, 1, 4, 4]
    dynamic = grid.assign_dynamic([3.0, 1.0, 1.0, 1.0, 2.0], workers=2)
    assert dynamic.worker.tolist() == [0, 1, 1, 1, 0]
    assert dynamic.end.tolist() == [3, 1, 2, 3, 5]
    assert dynamic.makespan == 5


costs = st.lists(st.integers(0, 9).map(float), min_size=1, max_size=40)


@given(costs, st.integers(1, 8))
def test_nobody_computes_two_tiles_at_once(cost: list[float], workers: int) -> None:
    for assign in (grid.assign_static, grid.assign_dynamic):
        got = assign(cost, workers=workers)
        for worker in range(workers):
            mine = got.worker == worker
            assert (got.start[mine][1:] == got.end[mine][:-1]).all()
        assert got.makespan >= max(max(cost), sum(cost) / workers)


@given(costs, st.integers(1, 8))
def test_dynamic_is_within_grahams_bound(cost: list[float], workers: int) -> None:
    least = max(max(cost), sum(cost) / workers)  # Graham 1966: no list schedule is twice as long
    assert grid.assign_dynamic(cost, workers=workers).makespan <= (2 - 1 / workers) * least


def test_equal_costs_make_both_the_persistent_schedule() -> None:
    static = grid.assign_static([1.0] * 11, workers=4)
    dynamic = grid.assign_dynamic([1.0] * 11, workers=4)
    wanted = grid.persistent(11, num_sms=4)
    for got in (static, dynamic):
        np.testing.assert_array_equal(got.worker, wanted[:, 0])
        np.testing.assert_array_equal(got.start, wanted[:, 1])


# ---- the L2 model ----

EXAMPLE = grid.Matmul(m=8, n=16, k=64)  # a tile row of A, a tile column of B: 1 MiB each


def hbm(order: grid.Order, l2_bytes: int, matmul: grid.Matmul = EXAMPLE) -> int:
    waves = grid.waves(order.tiles(matmul.m, matmul.n), concurrent=16)
    return grid.total(grid.l2_traffic(matmul, waves, l2_bytes=l2_bytes)).hbm_read_bytes


def test_sizes_of_the_example() -> None:
    assert (EXAMPLE.a_bytes, EXAMPLE.b_bytes, EXAMPLE.c_bytes) == (8 * MIB, 16 * MIB, 4 * MIB)
    assert EXAMPLE.input_bytes(grid.Footprint(1, 16, 16)) == 17 * MIB


def test_row_major_reads_everything_again_in_every_wave() -> None:
    # between two uses of a tile of B lie all of B and a row of A: 17 MiB, more than fit
    assert hbm(grid.Order(), 8 * MIB) == 8 * 17 * MIB


def test_tiles_read_a_once_and_b_once_per_band() -> None:
    assert hbm(grid.Order("tiled", 4), 8 * MIB) == 2 * (4 + 16) * MIB


@pytest.mark.parametrize("order", [grid.Order(), grid.Order("tiled", 2), grid.Order("snake", 3)])
def test_a_cache_for_all_of_it_reads_every_byte_once(order: grid.Order) -> None:
    assert hbm(order, 24 * MIB) == EXAMPLE.a_bytes + EXAMPLE.b_bytes


def test_no_cache_reads_all_that_is_asked_for() -> None:
    waves = grid.waves(grid.row_major(8, 16), concurrent=16)
    traffic = grid.total(grid.l2_traffic(EXAMPLE, waves, l2_bytes=0))
    assert traffic.hits == 0
    assert traffic.requests == traffic.misses == 2 * 8 * 16 * 64
    assert traffic.written_bytes == EXAMPLE.c_bytes


def test_by_hand() -> None:
    # one block at a time, K in one step, room for two tiles of 4 bytes:
    # (0,0): A0 B0 miss. (0,1): A0 hits, B1 misses and evicts B0. (1,0): A1, then B0 again.
    matmul = grid.Matmul(m=2, n=2, k=1, tile_m=1, tile_n=1, tile_k=1, itemsize=4, out_itemsize=4)
    waves = grid.waves(grid.row_major(2, 2), concurrent=1)
    traffic = grid.l2_traffic(matmul, waves, l2_bytes=8)
    assert [(t.hits, t.compulsory, t.capacity) for t in traffic] == [
        (0, 2, 0),
        (1, 1, 0),
        (0, 1, 1),
        (1, 0, 1),
    ]
    assert grid.l2_contents(matmul, waves, l2_bytes=8) == ([0, 1], [0, 1])
    assert grid.l2_contents(matmul, waves[:2], l2_bytes=8) == ([1, 0], [0, 1])


def test_writing_c_takes_room_when_it_counts() -> None:
    waves = grid.waves(grid.Order("tiled", 4).tiles(8, 16), concurrent=16)
    without = grid.total(grid.l2_traffic(EXAMPLE, waves, l2_bytes=8 * MIB))
    with_c = grid.total(grid.l2_traffic(EXAMPLE, waves, l2_bytes=8 * MIB, count_c=True))
    assert with_c.misses > without.misses
    assert with_c.requests == without.requests


@settings(deadline=None, max_examples=40)
@given(orders(), st.integers(1, 20), st.integers(0, 40), st.integers(1, 4), st.booleans())
def test_laws_of_the_cache(
    case: tuple[int, int, grid.Order], concurrent: int, capacity: int, k: int, count_c: bool
) -> None:
    m, n, order = case
    matmul = grid.Matmul(m=m, n=n, k=k, tile_m=2, tile_n=3, tile_k=2, itemsize=1, out_itemsize=1)
    waves = grid.waves(order.tiles(m, n), concurrent=concurrent)
    small, large = (
        grid.total(grid.l2_traffic(matmul, waves, l2_bytes=b, count_c=count_c))
        for b in (capacity, 10**6)
    )
    assert small.requests == large.requests == 2 * m * n * k
    assert small.compulsory_bytes == large.compulsory_bytes == matmul.a_bytes + matmul.b_bytes
    assert large.capacity == 0
    held_a, held_b = grid.l2_contents(matmul, waves, l2_bytes=capacity, count_c=count_c)
    assert sum(held_a) * 4 + sum(held_b) * 6 <= capacity


# ---- what does not fit gets a sentence ----


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda: grid.tiled(6, 16, mt=4),
            "leave out the last 2 of 6. What divides 6: 1, 2, 3 or 6",
        ),
        (lambda: grid.tiled(3, 16, mt=4), "leave out all 3"),
        (lambda: grid.tiled(8, 16, mt=0), "mt = 0 does not fit: it must be a whole number from 1"),
        (lambda: grid.row_major(0, 4), "m = 0 does not fit"),
        (lambda: grid.Order("zigzag"), "'row-major', 'tiled' or 'snake'"),
        (lambda: grid.Order("snake", 2, 2), "0 to cut bands of tile rows"),
        (lambda: grid.Order("snake", -1), "width = -1"),
        (lambda: grid.waves(grid.row_major(2, 2), concurrent=0), "concurrent = 0"),
        (lambda: grid.persistent(4, num_sms=0), "num_sms = 0"),
        (lambda: grid.Matmul(m=2, n=2, tile_k=0), "tile_k = 0"),
        (lambda: grid.quantization(0, concurrent=1), "tiles = 0"),
        (lambda: grid.assign_static([1.0, -1.0], workers=1), "tile 1 is negative"),
        (lambda: hbm(grid.Order(), -1), "0 stands for no cache"),
        (lambda: hbm(grid.Order(), 1, grid.Matmul(m=8, n=16, k=9000)), "Take k <= 7812"),
    ],
)
def test_says_what_would_fit(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(CourseError) as error:
        wrong()
    assert words in str(error.value)


def test_bytes_in_words() -> None:
    examples = {0: "0 B", 1023: "1023 B", 96 * 1024: "96 KiB", 1122617344: "1.05 GiB"}
    assert {n: bytes_in_words(n) for n in examples} == examples
    assert bytes_in_words(int(17.54 * MIB)) == "17.5 MiB"
    assert bytes_in_words(5 * 2**50) == "5120 TiB"
