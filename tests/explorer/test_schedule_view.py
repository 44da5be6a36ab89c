"""The schedule view deals tiles out as `layouts.schedules` does, and its code is what it shows."""

from __future__ import annotations

import base64
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib import explore, simulator
from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import bundle
from course_lib.explorer.schedule_widget import Schedules
from course_lib.layouts.schedules import PATTERNS, WAYS
from tests.explorer import node

MODULE = Path(__file__).with_name("schedule_view_for_tests.mjs")
PNG = b"\x89PNG\r\n"


def states() -> list[dict[str, Any]]:
    """Every pattern, the ends of every range, and some drawn anew each time."""
    made: list[dict[str, Any]] = [
        {"pattern": p, "step": step} for p in PATTERNS for step in (0, 1, 7, 999)
    ]
    made += [{"tiles": 1}, {"tiles": 48, "sms": 8}, {"tiles": 48, "sms": 1, "start": 9, "late": 40}]
    rng = np.random.default_rng()
    for _ in range(30):
        tiles, sms, start, late, step = (int(rng.integers(*r)) for r in (
            (1, 49), (1, 9), (0, 10), (0, 41), (0, 60)))  # fmt: skip
        made.append(
            {"tiles": tiles, "sms": sms, "start": start, "late": late, "step": step,
             "pattern": str(rng.choice(PATTERNS)), "ahead": bool(rng.integers(2))}
        )  # fmt: skip
    return made


@pytest.mark.needs("node")
def test_every_schedule_is_the_one_that_python_makes() -> None:
    cases = states()
    got = node.call(MODULE, [("study", [state]) for state in cases])
    for state, shown in zip(cases, got, strict=True):
        view = Schedules(**state)
        drawing, made = view.drawing(), view.made()
        assert shown["sentence"] == drawing.sentence == repr(view)
        for mine, theirs in zip(made, shown["made"], strict=True):
            assert [dataclasses.asdict(s) for s in mine.spans] == theirs["spans"], state
            assert sorted(map(list, mine.begins)) == sorted(theirs["begins"])
            assert (mine.end, mine.tail, mine.work) == (
                theirs["end"], theirs["tail"], theirs["work"])  # fmt: skip
        for cells, panel in zip(drawing.panels, shown["panels"], strict=True):
            assert cells.values.shape == (panel["rows"], panel["cols"])
            assert cells.values.ravel().tolist() == panel["value"], state
            assert list(cells.palette) == panel["palette"]
        assert shown["steps"] == drawing.panels[0].values.shape[1] + 1


@pytest.mark.needs("node")
def test_a_widget_begins_as_the_page_does() -> None:
    [state] = node.call(MODULE, [("state", [])])
    view = Schedules()
    assert state == {key: getattr(view, key) for key in state}
    own = {k for k in Schedules.class_own_traits(sync=True) if not k.startswith("_")}
    assert own == set(state)


@pytest.mark.needs("node")
def test_what_does_not_fit_is_a_sentence() -> None:
    wrong = [{"tiles": 49}, {"sms": 0}, {"start": 10}, {"late": -1}, {"pattern": "odd"}]
    said = [s["error"] for s in node.call(MODULE, [("study", [state]) for state in wrong])]
    assert said[0] == "Tiles: give 1 to 48."
    assert said[3] == "SM 0 is free at: give 0 to 40."
    assert said[4] == "There is no pattern odd."


@pytest.mark.needs("node")
def test_pointing_at_a_tile_says_when_each_schedule_computes_it() -> None:
    tile, idle, later, nowhere = node.call(
        MODULE,
        [("point", [{}, 1, 8]), ("point", [{}, 0, 24]), ("point", [{"step": 2}, 0, 9]),
         ("point", [{}, -1, -1])],
    )  # fmt: skip
    made = Schedules().made()
    assert tile["text"].startswith("Tile 8 takes 6 units. blocks: on SM ")
    assert f"persistent: on SM 0 from {made[1].spans[8].start}" in tile["text"]
    assert f"taken over at {made[2].spans[8].claimed} by the block of tile" in tile["text"]
    assert len(tile["marks"][0]) == 3 * 6
    assert idle["text"] == "blocks, SM 0, unit 24: nothing to do."
    assert later["text"] == "blocks, SM 0, unit 9: not yet."
    assert nowhere["marks"] == [[], []]


@pytest.mark.needs("node")
def test_a_click_on_a_time_goes_there() -> None:
    there, nowhere = node.call(MODULE, [("pick", [{}, 0, 7]), ("pick", [{}, 1, 7])])
    assert (there, nowhere) == ({"step": 8}, None)


@pytest.mark.needs("node")
def test_the_table_tells_the_tail() -> None:
    [shown] = node.call(MODULE, [("study", [{}])])
    made = Schedules().made()
    for (name, said), m, way in zip(shown["table"], made, WAYS, strict=True):
        assert name == way
        assert f"done at {m.end}; SMs compute {round(100 * m.busy)}% of the time" in said
        assert f"tail: {m.tail}; {len(m.begins)} blocks started" in said


@pytest.mark.needs("node")
@pytest.mark.parametrize("way", WAYS)
def test_its_code_is_a_kernel_with_that_schedule(way: str) -> None:
    [shown] = node.call(MODULE, [("study", [{"code": way}])])
    names: dict[str, Any] = {}
    exec(shown["code"], names)
    costs = np.asarray(names["costs"])
    report = simulator.simulate(names["kernel"], costs, arch="sm_100a", sms=4)
    assert report.findings == ()
    np.testing.assert_array_equal(report.value, costs)
    lanes = {s.lane for s in report.timeline.spans}
    assert len(lanes) == len(Schedules().made()[WAYS.index(way)].begins)


def test_a_saved_notebook_has_the_view_its_text_and_a_picture() -> None:
    view = explore.schedules(12, sms=3, pattern="mixed", step=7)
    data, metadata = view._repr_mimebundle_() or ({}, {})
    assert base64.b64decode(data["image/png"]).startswith(PNG)
    assert data["text/plain"] == metadata["image/png"]["alt"] == repr(view)
    again = explore.schedules(12, sms=3, pattern="mixed", step=7)._repr_mimebundle_()
    assert again is not None
    assert again[0]["image/png"] == data["image/png"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tiles": 49}, "give 1 to 48"),
        ({"sms": 9}, "give 1 to 8"),
        ({"pattern": "odd"}, "is none of even"),
        ({"code": "greedy"}, "is none of blocks"),
        ({"step": -1}, "time begins at 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_words(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(CourseError, match=words):
        explore.schedules(**arguments)


def test_the_module_stands_alone() -> None:
    text = bundle("schedule_view.mjs")
    assert not re.search(r"^import \{", text, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:const|let|class|function) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
