"""`layouts.mjs` under node answers what `course_lib.layouts` answers, over hundreds of cases."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import FOLDER
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words
from tests.explorer import node

pytestmark = pytest.mark.needs("node")

LAYOUTS = FOLDER / "layouts.mjs"
GRIDS = ((1, 1), (1, 7), (5, 1), (2, 3), (6, 16), (8, 16), (7, 9), (12, 5), (16, 16))
CONCURRENT = (1, 3, 16, 132)


def every_order(m: int) -> Iterator[grid.Order]:
    yield grid.Order("row-major")
    yield from (grid.Order("tiled", mt) for mt in range(1, m + 1) if m % mt == 0)
    for width, minor_dim in itertools.product((1, 2, 3, 4, 8, 20), (0, 1)):
        yield grid.Order("snake", width, minor_dim)


CASES = [(m, n, order) for m, n in GRIDS for order in every_order(m)]


def as_js(order: grid.Order) -> dict[str, Any]:
    return {"kind": order.kind, "width": order.width, "minor_dim": order.minor_dim}


def matmul_of(m: int, n: int, k: int, rng: np.random.Generator) -> grid.Matmul:
    tile_m, tile_n, tile_k = rng.integers(1, 9, 3).tolist()
    return grid.Matmul(m=m, n=n, k=k, tile_m=tile_m, tile_n=tile_n, tile_k=tile_k)


def test_there_are_hundreds_of_cases() -> None:
    assert len(CASES) * len(CONCURRENT) > 500


def test_orders() -> None:
    got = node.call(LAYOUTS, [("orderTiles", [as_js(o), m, n]) for m, n, o in CASES])
    for (m, n, order), tiles in zip(CASES, got, strict=True):
        np.testing.assert_array_equal(tiles, order.tiles(m, n), err_msg=f"{order} of {m} x {n}")


def test_waves_and_footprints() -> None:
    cases = list(itertools.product(CASES, CONCURRENT))
    orders = [(o.tiles(m, n), c) for (m, n, o), c in cases]
    got = node.call(LAYOUTS, [("waves", [tiles.tolist(), c]) for tiles, c in orders])
    wanted = [[w.tolist() for w in grid.waves(tiles, concurrent=c)] for tiles, c in orders]
    assert got == wanted
    first = [waves[0] for waves in wanted]
    footprints = [dataclasses.asdict(grid.footprint(np.array(w))) for w in first]
    assert node.call(LAYOUTS, [("footprint", [w]) for w in first]) == footprints


def test_l2_traffic_and_contents() -> None:
    rng = np.random.default_rng()
    calls: list[node.Call] = []
    wanted = []
    for (m, n, order), concurrent in itertools.product(CASES, (3, 16)):
        matmul = matmul_of(m, n, int(rng.integers(1, 4)), rng)
        waves = grid.waves(order.tiles(m, n), concurrent=concurrent)
        l2_bytes = int(rng.integers(0, 1 + (matmul.a_bytes + matmul.b_bytes) * 3 // 2))
        count_c = bool(rng.integers(2))
        given = [dataclasses.asdict(matmul), [w.tolist() for w in waves], l2_bytes, count_c]
        calls.append(("l2Run", given))
        wanted.append((matmul, waves, {"l2_bytes": l2_bytes, "count_c": count_c}))
    for run, (matmul, waves, cache) in zip(node.call(LAYOUTS, calls), wanted, strict=True):
        traffic = grid.l2_traffic(matmul, waves, **cache)
        assert [w["traffic"] for w in run] == [dataclasses.asdict(t) for t in traffic]
        held = grid.l2_contents(matmul, waves, **cache)
        assert (run[-1]["held_a"], run[-1]["held_b"]) == held
        half = len(waves) // 2
        held = grid.l2_contents(matmul, waves[: half + 1], **cache)
        assert (run[half]["held_a"], run[half]["held_b"]) == held


def test_clusters() -> None:
    rng = np.random.default_rng()
    for order, (down, across) in itertools.product(
        (grid.Order(), grid.Order("tiled", 2), grid.Order("snake", 3, 1)), ((2, 1), (1, 4), (2, 2))
    ):
        m, n, blocks = 4 * down, 3 * across, down * across
        tiles = grid.clustered(order, m, n, cluster=(down, across))
        waves = grid.waves(tiles, concurrent=2 * blocks)
        matmul = matmul_of(m, n, 2, rng)
        l2_bytes = int(rng.integers(0, matmul.a_bytes + matmul.b_bytes))
        costs = rng.integers(1, 9, m * n).astype(float).tolist()
        js, lists = dataclasses.asdict(matmul), [w.tolist() for w in waves]
        got = node.call(
            LAYOUTS,
            [
                ("clustered", [as_js(order), m, n, down, across]),
                ("l2Run", [js, lists, l2_bytes, False, blocks]),
                *(("assign", [costs, 2 * blocks, dynamic, blocks]) for dynamic in (False, True)),
            ],
        )
        assert got[0] == tiles.tolist()
        traffic = grid.l2_traffic(matmul, waves, l2_bytes=l2_bytes, blocks=blocks)
        assert [w["traffic"] for w in got[1]] == [dataclasses.asdict(t) for t in traffic]
        held = grid.l2_contents(matmul, waves, l2_bytes=l2_bytes, blocks=blocks)
        assert (got[1][-1]["held_a"], got[1][-1]["held_b"]) == held
        for answer, assign in zip(got[2:], (grid.assign_static, grid.assign_dynamic), strict=True):
            wanted = assign(costs, workers=2 * blocks, blocks=blocks)
            assert answer["worker"] == wanted.worker.tolist()
            assert answer["end"] == wanted.end.tolist()


def test_sizes_and_totals() -> None:
    rng = np.random.default_rng()
    for m, n in GRIDS:
        matmul = matmul_of(m, n, 3, rng)
        waves = grid.waves(grid.row_major(m, n), concurrent=4)
        traffic = grid.l2_traffic(matmul, waves, l2_bytes=100)
        touched = grid.footprint(waves[0])
        js = dataclasses.asdict(matmul)
        got = node.call(
            LAYOUTS,
            [
                ("sizes", [js]),
                ("inputBytes", [js, dataclasses.asdict(touched)]),
                ("totalTraffic", [[dataclasses.asdict(t) for t in traffic]]),
            ],
        )
        assert got[0] == {name: getattr(matmul, name) for name in got[0]}
        assert got[1] == matmul.input_bytes(touched)
        assert got[2] == dataclasses.asdict(grid.total(traffic))


def test_persistent_and_quantization() -> None:
    cases = list(itertools.product((1, 5, 16, 133, 300), (1, 4, 16, 132)))
    got = node.call(LAYOUTS, [("persistent", [c, s]) for c, s in cases])
    assert got == [grid.persistent(c, num_sms=s).tolist() for c, s in cases]
    quant = node.call(LAYOUTS, [("quantization", [c, s]) for c, s in cases])
    for (c, s), answer in zip(cases, quant, strict=True):
        wanted = grid.quantization(c, concurrent=s)
        assert answer == {**dataclasses.asdict(wanted), "busy": wanted.busy}


def test_assignments() -> None:
    rng = np.random.default_rng()
    cases = [
        (rng.integers(0, 9, int(rng.integers(1, 40))).astype(float).tolist(), int(w))
        for w in rng.integers(1, 9, 60)
    ]
    for dynamic, assign in ((False, grid.assign_static), (True, grid.assign_dynamic)):
        got = node.call(LAYOUTS, [("assign", [costs, w, dynamic]) for costs, w in cases])
        for (costs, workers), answer in zip(cases, got, strict=True):
            wanted = assign(costs, workers=workers)
            assert answer["worker"] == wanted.worker.tolist()
            assert (answer["start"], answer["end"]) == (
                wanted.start.tolist(),
                wanted.end.tolist(),
            )


def test_bytes_in_words() -> None:
    rng = np.random.default_rng()
    numbers = [
        0,
        1,
        1023,
        1024,
        2**20,
        2**60,
        *np.exp2(rng.uniform(0, 50, 300)).astype(int).tolist(),
    ]
    got = node.call(LAYOUTS, [("bytesInWords", [n]) for n in numbers])
    assert got == [bytes_in_words(n) for n in numbers]


def test_the_same_sentences_for_what_does_not_fit() -> None:
    big = grid.Matmul(m=64, n=64, k=5000)
    waves = grid.waves(grid.row_major(64, 64), concurrent=16)
    calls: list[node.Call] = [
        ("orderTiles", [{"kind": "tiled", "width": 4, "minor_dim": 0}, 6, 16]),
        ("orderTiles", [{"kind": "tiled", "width": 9, "minor_dim": 0}, 7, 16]),
        ("orderTiles", [{"kind": "zigzag", "width": 4, "minor_dim": 0}, 6, 16]),
        ("l2Run", [dataclasses.asdict(big), [w.tolist() for w in waves], 8, False]),
        ("checkCluster", [6, 16, 4, 1]),
        ("checkCluster", [16, 6, 1, 4]),
        ("checkCluster", [16, 16, 4, 4]),
        ("assign", [[1.0] * 6, 4, True, 4]),
        ("assign", [[1.0] * 8, 6, False, 4]),
    ]
    mine = (
        lambda: grid.tiled(6, 16, mt=4),
        lambda: grid.tiled(7, 16, mt=9),
        lambda: grid.Order("zigzag"),
        lambda: grid.l2_traffic(big, waves, l2_bytes=8),
        lambda: grid.check_cluster(6, 16, (4, 1)),
        lambda: grid.check_cluster(16, 6, (1, 4)),
        lambda: grid.check_cluster(16, 16, (4, 4)),
        lambda: grid.assign_dynamic([1.0] * 6, workers=4, blocks=4),
        lambda: grid.assign_static([1.0] * 8, workers=6, blocks=4),
    )
    for answer, function in zip(node.call(LAYOUTS, calls), mine, strict=True):
        with pytest.raises(CourseError) as error:
            function()
        assert answer == {"error": str(error.value)}
