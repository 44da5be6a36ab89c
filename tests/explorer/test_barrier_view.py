"""The barrier view steps as the machine of `layouts.phases` does, and can be clicked through."""

from __future__ import annotations

import base64
import itertools
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from course_lib import explore, simulator
from course_lib.diagnostics import CourseError
from course_lib.explorer.barrier_widget import Barriers
from course_lib.explorer.bundle import bundle
from course_lib.layouts.phases import ORDERS, PROGRAMS
from tests.explorer import node

MODULE = Path(__file__).with_name("barrier_view_for_tests.mjs")
PNG = b"\x89PNG\r\n"


def states() -> list[dict[str, Any]]:
    """Every step of every program in every order, and some that were clicked together."""
    made = [
        {"program": program, "order": order, "step": step}
        for program, order in itertools.product(PROGRAMS, ORDERS)
        for step in range(len(Barriers(program=program, order=order).run().events) + 1)
    ]
    rng = np.random.default_rng()
    for program in PROGRAMS:
        picks = "".join(map(str, rng.integers(0, 3, size=9)))
        whose = {"program": program, "picks": f"{program}/turns:{picks}"}
        made += [{**whose, "step": step} for step in (3, 9, 99)]
    return made


@pytest.mark.needs("node")
def test_every_step_is_the_one_that_python_takes() -> None:
    cases = states()
    got = node.call(MODULE, [("study", [state]) for state in cases])
    for state, shown in zip(cases, got, strict=True):
        view = Barriers(**state)
        drawing = view.drawing()
        assert shown["sentence"] == drawing.sentence == repr(view)
        assert shown["count"] == len(view.run().events)
        for mine, theirs in zip(drawing.panels, shown["panels"], strict=True):
            assert mine.values.shape == (theirs["rows"], theirs["cols"])
            assert mine.values.ravel().tolist() == theirs["value"], state
            assert list(mine.palette) == theirs["palette"]


@pytest.mark.needs("node")
def test_a_widget_begins_as_the_page_does() -> None:
    [state] = node.call(MODULE, [("state", [])])
    view = Barriers()
    assert state == {key: getattr(view, key) for key in state}
    own = {k for k in Barriers.class_own_traits(sync=True) if not k.startswith("_")}
    assert own == set(state)


@pytest.mark.needs("node")
def test_a_click_on_a_thread_lets_it_go_next_and_a_blocked_one_stays() -> None:
    eager = {"program": "eager", "order": "turns"}
    [first, blocked] = node.call(MODULE, [("pick", [eager, 0, 0]), ("pick", [eager, 0, 12])])
    assert first == {"picks": "eager/turns:0", "step": 1}
    assert blocked is None  # thread 1 waits for an arrival that has not come
    state: dict[str, Any] = dict(eager)
    for _ in range(4):  # thread 0 twice through its loop: nobody holds it back
        [changes] = node.call(MODULE, [("pick", [state, 0, 0])])
        state |= changes
    [shown] = node.call(MODULE, [("study", [state])])
    assert "phase 2 is complete. Thread 1 has not waited for phase 1 yet." in shown["sentence"]
    [jump] = node.call(MODULE, [("pick", [state, 1, 2])])
    assert jump == {"step": 3}  # a barrier's row: to that step


@pytest.mark.needs("node")
def test_pointing_at_a_step_says_what_happened_in_it() -> None:
    state = {"program": "queue", "step": 4}
    done, later, nowhere = node.call(
        MODULE, [("point", [state, 0, 1]), ("point", [state, 0, 9]), ("point", [state, -1, -1])]
    )
    assert done["text"] == "Step 2: thread 0 arrives on produced: phase 1 is complete."
    assert done["marks"] == [[1, 19], [1, 19]]
    assert later["text"].startswith("Step 10 has not happened yet. Click")
    assert nowhere["marks"] == [[], []]


@pytest.mark.needs("node")
def test_the_table_tells_the_state_and_what_comes_next() -> None:
    state = {"program": "arrivals", "order": "0", "step": 2}
    [shown] = node.call(MODULE, [("study", [state])])
    table = dict(map(tuple, shown["table"]))
    assert table["ready"].startswith("phase 1, parity 0; 1 of 2 arrivals; completed: 0;")
    assert table["thread 0, next"] == "nothing, it is done"
    assert table["thread 1, next"] == "writes item 1"
    assert table["thread 2, next"] == "waits for ready"
    assert shown["panels"][1]["labels"][:2] == ["1: 0/2", "1: 1/2"]


# nothing holds "eager" back: it also writes an item over the one that is still being read
FINDINGS = {"eager": {"barrier-overrun", "data-race"}, "skipped": {"barrier-skipped-phase"}}


@pytest.mark.needs("node")
@pytest.mark.parametrize("program", PROGRAMS)
def test_its_code_is_the_kernel_that_it_shows(program: str) -> None:
    [shown] = node.call(MODULE, [("study", [{"program": program}])])
    names: dict[str, Any] = {}
    exec(shown["code"], names)
    traced = jax.jit(names["kernel"]).trace(names["x"])
    assert traced.lower(lowering_platforms=("cuda",)).as_text()
    report = simulator.simulate(names["kernel"], np.asarray(names["x"]))
    wanted = FINDINGS.get(program, set())
    assert {f.rule for f in report.errors} == wanted
    if not wanted:
        np.testing.assert_array_equal(report.value, names["x"])


def test_a_saved_notebook_has_the_view_its_text_and_a_picture() -> None:
    view = explore.barriers("eager", order="0", step=4)
    data, metadata = view._repr_mimebundle_() or ({}, {})
    assert base64.b64decode(data["image/png"]).startswith(PNG)
    assert data["text/plain"] == metadata["image/png"]["alt"] == repr(view)
    again = explore.barriers("eager", order="0", step=4)._repr_mimebundle_()
    assert again is not None
    assert again[0]["image/png"] == data["image/png"]


def test_picks_belong_to_the_program_that_they_were_made_in() -> None:
    view = explore.barriers("eager", picks="0000")
    assert [e.actor for e in view.run().events[:4]] == [0, 0, 0, 0]
    view.program = "queue"
    assert [e.actor for e in view.run().events] == [
        e.actor for e in explore.barriers("queue").run().events
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"program": "ring"}, "'hand-over', 'arrivals'"),
        ({"order": "3"}, "'turns', '0', '1' or '2'"),
        ({"step": 5}, "steps 0 to 4"),
        ({"step": -1}, "steps 0 to 4"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_words(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(CourseError) as error:
        explore.barriers(**arguments)
    assert words in str(error.value)


def test_the_module_stands_alone() -> None:
    text = bundle("barrier_view.mjs")
    assert not re.search(r"^import \{", text, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:const|let|class|function) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
