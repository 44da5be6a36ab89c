"""Traces of the profiler, the kept one, and the same scopes in a timeline; chapter 14's words."""

from __future__ import annotations

import functools
import itertools
import json
import re
import statistics
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import simulate
from course_lib.authoring import Course
from course_lib.benchmarks import scopes
from course_lib.benchmarks.scopes import NAMES, Scope
from course_lib.diagnostics import CourseError
from course_lib.figures import png
from course_lib.kernels import debugging

CHAPTER = (Course().solutions / "14_debugging.md").read_text()


@pytest.fixture(scope="module")
def h200():
    return scopes.recorded()


@pytest.fixture(scope="module")
def model(h200):
    rng = np.random.default_rng()
    a, b = (
        jnp.asarray(rng.standard_normal(s), jnp.bfloat16) for s in ((128, h200.k), (h200.k, 128))
    )
    timelines = {}
    for slots in h200.slots:
        report = simulate(
            functools.partial(debugging.product, slots=slots), a, b, timeline="detailed"
        )
        assert report.findings == ()
        timelines[slots] = scopes.of_timeline(report.timeline)
    return timelines


EVENTS = [
    ("Init", "B", 0), ("Init", "E", 70), ("copy", "B", 100), ("copy", "E", 150),
    ("arrive", "B", 160), ("arrive", "E", 800),
]  # fmt: skip


def test_scopes_begin_with_the_kernels_own_first_one():
    assert scopes.of_events(EVENTS) == [Scope("copy", 0, 50), Scope("arrive", 60, 700)]


@pytest.mark.parametrize("wrong", [EVENTS[1:], [*EVENTS[:2], EVENTS[2], EVENTS[5]]])
def test_an_end_without_its_begin_is_said(wrong):
    with pytest.raises(CourseError, match="has not begun"):
        scopes.of_events(wrong)


def test_of_a_trace_the_first_thread_is_read_in_cycles():
    events = [
        {"name": n, "ph": p, "ts": 17.5 + c / 1e3, "pid": 125, "tid": 1} for n, p, c in EVENTS
    ]
    others = [{**e, "tid": 2, "ts": e["ts"] + 3} for e in events]
    found = scopes.of_trace({"traceEvents": [*events, *others]})
    assert [s.name for s in found] == ["copy", "arrive"]
    assert [s.cycles for s in found] == pytest.approx([50, 640])
    assert scopes.of_trace({"traceEvents": []}) == []


def test_the_kept_recording_has_every_step(h200):
    steps = h200.k // debugging.STEP
    for found in h200.slots.values():
        counts = {n: sum(s.name == n for s in found) for n in NAMES}
        assert counts == {"copy": steps, "arrive": steps, "multiply": steps, "store": 1}
        assert sum(scopes.totals(found).values()) <= scopes.length(found)


def test_the_timeline_has_the_same_parts(h200, model):
    steps = h200.k // debugging.STEP
    for found in model.values():
        assert found[-1].name == "store"
        assert sum(scopes.totals(found).values()) == pytest.approx(scopes.length(found))
    one = [s.name for s in model[1]]
    assert one == ["copy", "arrive", "multiply"] * steps + ["store"]
    assert one == [s.name for s in h200.slots[1]]


def test_a_file_for_perfetto_holds_every_scope(h200, tmp_path):
    rows = {"card": h200.slots[1], "again": h200.slots[2]}
    scopes.save(tmp_path / "trace.json", rows)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    drawn = [e for e in events if e["ph"] == "X"]
    assert len(drawn) == sum(map(len, rows.values()))
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == set(rows)
    assert drawn[1]["dur"] == pytest.approx(h200.slots[1][1].cycles / 1e3)


def test_the_picture_can_be_drawn(h200):
    assert png(scopes.picture({"card": h200.slots[1]}, until=6000))


def test_without_a_gpu_there_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(scopes.runtime, "device", lambda: None)
    assert scopes.record_here(jnp.ones((128, 64)), jnp.ones((64, 128)), slots=1) is None
    assert "no GPU" in capsys.readouterr().out


# --- the chapter's words ----------------------------------------------------------------------


def _step(found: Sequence[Scope], name: str) -> float:
    """The usual length of a scope."""
    return statistics.median(s.cycles for s in found if s.name == name)


def _until_arrival(found: Sequence[Scope]) -> float:
    """From where the thread begins to ask for two tiles to where it has them, as a rule."""
    pairs = itertools.pairwise(found)
    return statistics.median(b.end - a.start for a, b in pairs if a.name == "copy")


def test_what_the_chapter_says_of_a_step_is_in_the_record(h200):
    said = re.search(
        r"A step is ([\d,]+) cycles: (\d+) to start the copies, (\d+) to wait for them, (\d+) to",
        CHAPTER,
    )
    assert said is not None
    step, copy, arrive, multiply = (int(n.replace(",", "")) for n in said.groups())
    one = list(h200.slots[1])
    begins = [s.start for s in one if s.name == "copy"]
    steps = [b - a for a, b in itertools.pairwise(begins)]
    assert step == pytest.approx(statistics.median(steps), rel=0.01)
    assert copy == _step(one, "copy")
    assert arrive == pytest.approx(_step(one, "arrive"), rel=0.01)
    assert multiply == _step(one, "multiply")


def test_what_the_chapter_says_of_the_agreement_is_so(h200, model):
    ratios = {
        slots: {n: scopes.totals(model[slots])[n] / scopes.totals(found)[n] for n in NAMES}
        for slots, found in h200.slots.items()
    }
    for of in ratios.values():
        assert of["multiply"] == pytest.approx(0.9, abs=0.05)
        assert of["store"] == pytest.approx(1.1, abs=0.05)
    assert scopes.length(model[4]) / scopes.length(h200.slots[4]) == pytest.approx(0.75, abs=0.01)
    assert _until_arrival(model[1]) == pytest.approx(1182, abs=1)
    assert _until_arrival(h200.slots[1]) == pytest.approx(760, abs=5)
    two = list(h200.slots[2])
    assert _step(two, "arrive") == pytest.approx(66, abs=1)
    slow = max(s.cycles for s in h200.slots[4] if s.name == "copy")
    assert 1000 < slow < 1100


def test_what_the_chapter_says_without_the_profiler_is_in_the_record(h200):
    said = re.search(r"the three took ([\d.]+), ([\d.]+) and ([\d.]+) µs", CHAPTER)
    assert said is not None
    assert [float(n) for n in said.groups()] == [round(u, 1) for u in h200.unprofiled_us.values()]


def test_a_profiled_kernel_asks_for_room_for_its_scopes():
    """A scope takes 4 entries, JAX enters one of its own, and a header takes 3."""
    scopes_of_k = 3 * 20 + 1
    assert 4 * (scopes_of_k + 1) + 3 <= 4 * debugging.EVENTS
    assert jax.eval_shape(
        functools.partial(debugging.product, profile_dir="/tmp"),
        *(jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((128, 1280), (1280, 128))),
    ).shape == (128, 128)
