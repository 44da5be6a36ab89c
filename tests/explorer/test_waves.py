"""`explore.waves` without a browser: its text, its picture, its errors, and what it is made of."""

from __future__ import annotations

import base64
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib import explore, simulate
from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import FOLDER, bundle
from course_lib.layouts import grid
from tests.explorer import node

PNG = b"\x89PNG\r\n"
WIDGET = "application/vnd.jupyter.widget-view+json"


def test_the_pages_example_in_text() -> None:
    assert "1 tile row of A + 16 tile columns of B = 17 (17 MiB)" in repr(explore.waves(8, 16))
    tiled = repr(explore.waves(8, 16, order="tiled", width=4))
    assert "4 tile rows of A + 4 tile columns of B = 8 (8 MiB)" in tiled
    assert "In all 40 MiB read from HBM; each byte once: 24 MiB; row-major: 136 MiB" in tiled


def test_the_text_is_the_same_every_time_and_follows_the_settings() -> None:
    one, other = explore.waves(6, 16), explore.waves(6, 16)
    assert repr(one) == repr(other)
    other.wave = 2
    assert "Wave 3 of 6" in repr(other)
    other.persistent = True
    assert "Step 3 of 6" in repr(other)


def test_a_notebook_gets_a_live_view_a_picture_and_what_it_shows_in_words() -> None:
    view = explore.waves(order="tiled")
    data, metadata = view._repr_mimebundle_() or ({}, {})
    assert set(data) == {"text/plain", "image/png", WIDGET}
    assert base64.b64decode(data["image/png"]).startswith(PNG)
    assert data["text/plain"] == metadata["image/png"]["alt"] == repr(view)


def test_the_picture_is_the_same_every_time() -> None:
    def picture(**settings: Any) -> str:
        shown = explore.waves(**settings)._repr_mimebundle_()
        assert shown is not None
        return str(shown[0]["image/png"])

    assert picture(order="snake") == picture(order="snake")
    assert picture(order="snake") != picture(order="snake", wave=1)


def test_a_state_that_does_not_fit_is_a_sentence_and_not_a_traceback() -> None:
    view = explore.waves(order="tiled")
    view.m = 6  # as the page may set it, before mt is mended
    assert repr(view).startswith("mt = 4 does not divide the 6 tile rows")
    data, _ = view._repr_mimebundle_() or ({}, {})
    assert "image/png" not in data
    assert WIDGET in data


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"m": 6, "order": "tiled"}, "What divides 6: 1, 2, 3 or 6"),
        ({"order": "zigzag"}, "'row-major', 'tiled' or 'snake'"),
        ({"wave": 8}, "these are waves 0 to 7"),
        ({"wave": -1}, "wave = -1 does not exist"),
        ({"m": 257}, "at most 256"),
        ({"concurrent": 0}, "concurrent = 0"),
        ({"k": 10_000}, "Take k <= 7812"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_words(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(CourseError) as error:
        explore.waves(**settings)
    assert words in str(error.value)


# ---- the module that the browser gets ----


def test_the_module_stands_alone_and_asks_nothing_of_the_network() -> None:
    text = bundle("waves.mjs")
    assert not re.search(r"^import\s*[{\"]", text, re.MULTILINE)
    assert "export default" in text
    css = (FOLDER / "waves.css").read_text(encoding="utf-8")
    for part in (text, css):
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttpRequest", part)


def test_no_two_modules_of_the_bundle_share_a_name() -> None:
    names = re.findall(
        r"^(?:export )?(?:const|let|class|function) (\w+)", bundle("waves.mjs"), re.MULTILINE
    )
    assert len(names) == len(set(names))


@pytest.mark.needs("node")
def test_the_view_counts_as_python_does(tmp_path: Path) -> None:
    module = tmp_path / "waves.mjs"
    module.write_text(bundle("waves.mjs"), encoding="utf-8")
    view = explore.waves(6, 16, order="snake", width=2, concurrent=16, count_c=True)
    state = {
        name: getattr(view, name)
        for name in re.findall(
            r'"(\w+)"', bundle("waves.mjs").split("const STATE")[1].split("]")[0]
        )
    }
    study = view.study()
    (got,) = node.call(module, [("study", [state])])
    assert [w["traffic"] for w in got["run"]] == [dataclasses.asdict(t) for t in study.traffic]
    wrong = [{**state, "m": 7, "order": "tiled", "width": 2}, {**state, "n": 1.5}]
    sentences = node.call(module, [("study", [s]) for s in wrong])
    assert sentences[0]["error"].startswith("mt = 2 does not divide the 7 tile rows")
    assert sentences[1]["error"] == "Tile columns (n): it must be a whole number from 1 up."


ORDERS = [
    {"order": order, "width": 2, "minor_dim": minor, "persistent": launch != "blocks",
     "dynamic": launch == "dynamic"}
    for order, minor in (("row-major", 0), ("tiled", 0), ("snake", 0), ("snake", 1))
    for launch in ("blocks", "persistent", "dynamic")
]  # fmt: skip


@pytest.mark.needs("node")
@pytest.mark.parametrize("settings", ORDERS, ids=lambda s: "-".join(map(str, s.values())))
def test_the_code_that_is_copied_has_the_order_that_is_shown(settings: dict[str, Any]) -> None:
    """Every grid order: the simulator runs the kernel, which names the block of each tile."""
    study = explore.waves(4, 6, concurrent=5, **settings).study()
    state = {**settings, "m": 4, "n": 6, "concurrent": 5}
    [code] = node.call(FOLDER / "waves.mjs", [("waveCode", [state])])
    names: dict[str, Any] = {}
    exec(code, names)
    report = simulate(names["kernel"], arch="sm_100a" if settings["dynamic"] else "sm_90a")
    assert report.ok, report
    tiles = study.order.tiles(4, 6)
    number = np.arange(24)
    who = number % 5 if settings["persistent"] and not settings["dynamic"] else number
    wanted = np.empty((4, 6), np.int32)
    wanted[tiles[:, 0], tiles[:, 1]] = who
    np.testing.assert_array_equal(report.value, wanted)


@pytest.mark.parametrize(
    ("given", "blocks", "limit"),
    [
        ({}, 16, "threads"),
        ({"threads": 32}, 32, "blocks"),
        ({"smem_bytes": 100 * 1024}, 2, "shared memory"),
        ({"smem_bytes": 227 * 1024}, 1, "shared memory"),
        ({"threads": 384, "registers": 168}, 1, "registers"),
    ],
)
def test_how_many_blocks_fit_on_an_sm(given: dict[str, int], blocks: int, limit: str) -> None:
    mine = grid.residency(**given)
    assert (mine.blocks, mine.limit) == (blocks, limit)
    assert node.call(FOLDER / "layouts.mjs", [("residency", [given])]) == [dataclasses.asdict(mine)]


def test_blocks_that_do_not_fit_on_an_sm_are_refused() -> None:
    assert "2 on an SM" in repr(explore.waves(concurrent=264, per_sm=2, smem_bytes=100 * 1024))
    with pytest.raises(
        CourseError, match=r"3 blocks do not fit on an SM: its shared memory allows 2"
    ):
        explore.waves(concurrent=396, per_sm=3, smem_bytes=100 * 1024)
    with pytest.raises(CourseError, match="no whole number of SMs"):
        explore.waves(concurrent=131, per_sm=2)
    with pytest.raises(CourseError, match="registers = 300 does not fit: a block has up to 255"):
        explore.waves(registers=300)
    with pytest.raises(CourseError, match="spread = -1 is negative"):
        explore.waves(spread=-1)


def test_tiles_that_cost_differently_are_done_sooner_by_whoever_is_free() -> None:
    turns = explore.waves(32, 64, 4, concurrent=132, persistent=True, spread=100).study().assignment
    free = explore.waves(32, 64, 4, concurrent=132, dynamic=True, spread=100).study().assignment
    assert free.makespan < turns.makespan
    assert sorted(set(free.worker.tolist())) == list(range(132))
    [costs] = node.call(FOLDER / "layouts.mjs", [("tileCosts", [256, 100])])
    assert costs == grid.tile_costs(256, spread=100)


# ---- clusters ----


CLUSTERS = [(2, 1), (1, 2), (2, 2), (1, 4)]


@pytest.mark.needs("node")
@pytest.mark.parametrize("cluster", [(1, 2), (2, 2)], ids=str)
@pytest.mark.parametrize("settings", ORDERS, ids=lambda s: "-".join(map(str, s.values())))
def test_the_code_that_is_copied_has_the_clusters_that_are_shown(
    settings: dict[str, Any], cluster: tuple[int, int]
) -> None:
    down, across = cluster
    blocks = down * across
    study = explore.waves(8, 8, concurrent=3 * blocks, cluster=cluster, **settings).study()
    own = {"m": 8, "n": 8, "concurrent": 3 * blocks, "cluster_m": down, "cluster_n": across}
    [code] = node.call(FOLDER / "waves.mjs", [("waveCode", [{**settings, **own}])])
    names: dict[str, Any] = {}
    exec(code, names)
    report = simulate(names["kernel"], arch="sm_100a" if settings["dynamic"] else "sm_90a")
    assert report.ok, report
    tiles = np.concatenate(study.waves)
    number = np.arange(64)
    in_turn = settings["persistent"] and not settings["dynamic"]
    wanted = np.empty((8, 8), np.int32)
    wanted[tiles[:, 0], tiles[:, 1]] = number % (3 * blocks) if in_turn else number
    np.testing.assert_array_equal(report.value, wanted)


@pytest.mark.needs("node")
@pytest.mark.parametrize("settings", ORDERS, ids=lambda s: "-".join(map(str, s.values())))
def test_the_view_counts_what_clusters_share_as_python_does(settings: dict[str, Any]) -> None:
    for (down, across), spread in ((c, spread) for c in CLUSTERS for spread in (0, 60)):
        own: dict[str, Any] = {"concurrent": 3 * down * across, "spread": spread}
        view = explore.waves(8, 16, cluster=(down, across), **own, **settings)
        names = re.findall(r'"(\w+)"', bundle("waves.mjs").split("const STATE")[1].split("]")[0])
        state = {name: getattr(view, name) for name in names}
        (got,) = node.call(FOLDER / "waves.mjs", [("study", [state])])
        study = view.study()
        assert got["order"] == np.concatenate(study.waves).tolist()
        assert [w["traffic"] for w in got["run"]] == [dataclasses.asdict(t) for t in study.traffic]
        assert got["run"][-1]["held_a"] == study.contents(len(study.waves) - 1)[0]
        assert got["chosen"]["worker"] == study.assignment.worker.tolist()
        assert got["chosen"]["end"] == study.assignment.end.tolist()


def test_a_cluster_of_two_by_two_asks_for_half() -> None:
    alone, together = explore.waves(), explore.waves(cluster=(2, 2))
    sent = [grid.total(view.study().traffic).request_bytes for view in (alone, together)]
    assert sent[1] * 2 == sent[0]
    assert "clusters of 2 x 2" in repr(together)
    assert "L2 sends 128 MiB, without clusters 256 MiB" in repr(together)
    assert "clusters" not in repr(alone)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cluster": (3, 1)}, "cluster_m = 3 does not divide the 8 tile rows"),
        ({"cluster": (1, 3)}, "What divides 16: 1, 2, 4 or 8"),
        ({"cluster": (4, 4)}, "has 16 blocks: 8 are the most"),
        ({"cluster": (2, 2), "concurrent": 18}, "18 blocks at a time are no whole number of"),
        ({"cluster": (0, 2)}, "cluster_m = 0"),
    ],
)
@pytest.mark.needs("node")
def test_clusters_that_do_not_fit_are_refused_in_the_same_words(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(CourseError) as error:
        explore.waves(**settings)
    assert words in str(error.value)
    view = explore.waves()
    names = re.findall(r'"(\w+)"', bundle("waves.mjs").split("const STATE")[1].split("]")[0])
    down, across = settings["cluster"]
    state = {name: getattr(view, name) for name in names}
    state |= {"cluster_m": down, "cluster_n": across}
    state |= {"concurrent": settings.get("concurrent", 16)}
    (got,) = node.call(FOLDER / "waves.mjs", [("study", [state])])
    if down:
        assert got == {"error": str(error.value)}
    else:
        assert "must be a whole number from 1 up" in got["error"]


def test_the_picture_frames_the_clusters() -> None:
    def picture(**settings: Any) -> str:
        shown = explore.waves(**settings)._repr_mimebundle_()
        assert shown is not None
        return str(shown[0]["image/png"])

    assert picture(cluster=(2, 2)) != picture()
    assert picture(cluster=(2, 2)) != picture(cluster=(2, 1))
    assert picture(cluster=(1, 1)) == picture()
