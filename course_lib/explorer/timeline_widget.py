"""The pipeline view of a kernel of your own: what `simulate` kept of its time.

    report = simulate(kernel, x, timeline=True)
    explore.pipeline(timeline=report.timeline)

Threads and engines above, your lines of code below; both show the same spans.
"""

from __future__ import annotations

import linecache
import math
import re
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import traitlets

from course_lib.diagnostics import CourseError
from course_lib.diagnostics.locations import registered_cells
from course_lib.explorer.bundle import bundle
from course_lib.explorer.layout_pictures import EIGHT, Drawing, Panel
from course_lib.explorer.layout_widgets import LayoutView

__all__ = ["Timelines", "timeline_data", "view"]

KINDS = ("issue", "memory", "in flight", "wait", "arithmetic")
MEANINGS = (
    "issues an instruction",
    "reads or writes memory itself",
    "an engine at work",
    "waits",
    "computes",
)
PALETTE = (EIGHT[0], EIGHT[4], EIGHT[2], "#b9c0c8", EIGHT[1])
MOST_SPANS, MOST_LANES, BINS = 20_000, 12, 200


class _Span(Protocol):
    lane: str
    kind: str
    start: float
    end: float
    name: str
    where: str


class Timeline(Protocol):
    """What `report.timeline` is (`course_lib.simulator.timeline.Timeline`)."""

    spans: tuple[_Span, ...]
    cycles: float
    clock_ghz: float


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """A timeline as plain data: `lanes`, `lines` as [place, code], and `spans` of both.

    A span is [lane, kind, start, end, name, line], the times in cycles, -1 for no line.
    """
    spans = timeline.spans[:MOST_SPANS]
    lanes = list(dict.fromkeys(s.lane for s in spans))
    places = sorted({s.where for s in spans if s.where not in ("", "None")}, key=_by_number)
    lane_of = {name: i for i, name in enumerate(lanes)}
    line_of = {where: i for i, where in enumerate(places)}
    return {
        "cycles": timeline.cycles,
        "clock_ghz": timeline.clock_ghz,
        "lanes": lanes,
        "lines": [[where, code_of(where)] for where in places],
        "spans": [
            [lane_of[s.lane], KINDS.index(s.kind), s.start, s.end, s.name, line_of.get(s.where, -1)]
            for s in spans
        ],
    }


def _by_number(where: str) -> tuple[str, int]:
    found = re.search(r"(\d+)$", where)
    return (where[: found.start()], int(found[1])) if found else (where, 0)


def code_of(where: str) -> str:
    """The text of a line that reads "file.py:12" or "cell <id>, line 3"; "" where it is not known.

    Of modules that are imported, and of a notebook's cells.
    """
    if found := re.fullmatch(r"cell (.+), line (\d+)", where):
        files = [file for file, name in registered_cells().items() if name == found[1]]
    elif found := re.fullmatch(r"(.+\.py):(\d+)", where):
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        files = [file for file in loaded if file and Path(file).name == found[1]]
    else:
        return ""
    texts = {linecache.getline(file, int(found[2])).strip() for file in files}
    return texts.pop() if len(texts) == 1 else ""


class Timelines(LayoutView):
    """A timeline: threads and engines, and the learner's lines.

    Attributes:
      timeline: as `timeline_data` makes it.
      first, last: the cycles that are shown; `last` 0 is the end.
      lanes: only threads and engines with this in their name; the first twelve of them.
      line: the line that is marked, -1 for none.
    """

    _esm = bundle("timeline_view.mjs")

    timeline = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    first = traitlets.Int(0).tag(sync=True)
    last = traitlets.Int(0).tag(sync=True)
    lanes = traitlets.Unicode("").tag(sync=True)
    line = traitlets.Int(-1).tag(sync=True)

    def drawing(self) -> Drawing:
        if not self.timeline:
            raise CourseError(
                "There is no timeline: explore.pipeline(timeline=report.timeline) gives one."
            )
        return draw(self.timeline, first=self.first, last=self.last, lanes=self.lanes)


def draw(data: dict[str, Any], *, first: int, last: int, lanes: str) -> Drawing:
    """The two panels of `timeline_view.mjs`."""
    last = last or math.ceil(data["cycles"])
    if not 0 <= first < last:
        raise CourseError(f"From {first} to {last} cycles: the second must be larger.")
    names = [(i, name) for i, name in enumerate(data["lanes"]) if lanes in name][:MOST_LANES]
    if not names:
        raise CourseError(f"lanes '{lanes}': none of {len(data['lanes'])} has that in its name.")
    width = (last - first) / BINS
    placed = [p for lane, _ in names for p in _rows_of(data["spans"], lane)]
    starts: dict[int, int] = {}
    count = 0
    for lane, _ in names:
        starts[lane] = count
        count += max([1, *(row + 1 for of, row, _ in placed if of == lane)])
    above = np.full((count, BINS), -1, np.int16)
    below = np.full((max(1, len(data["lines"])), BINS), -1, np.int16)
    for lane, row, span in placed:
        _, kind, start, end, _, line = span
        if end <= first or start >= last:
            continue
        begin = math.floor((max(start, first) - first) / width)
        stop = min(BINS, max(begin + 1, math.ceil((min(end, last) - first) / width)))
        above[starts[lane] + row, begin:stop] = kind
        if line >= 0:
            below[line, begin:stop] = kind
    lane_names = [""] * count
    for lane, name in names:
        lane_names[starts[lane]] = _short(name, 24)
    shared: dict[str, Any] = {"columns_are": "cycles", "origin": first, "step": width}
    line_names = tuple(_short(_line_words(*line), 46) for line in data["lines"])
    panels = (
        Panel("Threads and engines", above, PALETTE, "", row_names=tuple(lane_names), **shared),
        Panel("Your lines of code", below, PALETTE, "", row_names=line_names, **shared),
    )
    legend = tuple(zip(PALETTE, MEANINGS, strict=True))
    return Drawing(_sentence(data), panels, legend, stacked=True)


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _line_words(where: str, code: str) -> str:
    return f"{re.sub(r'^.*(:|, line )', '', where)}  {code}" if code else where


def _rows_of(spans: list[list[Any]], lane: int) -> list[tuple[int, int, list[Any]]]:
    """`(lane, row, span)` of a lane's spans, each in the first row that is free by then."""
    ends: list[float] = []
    placed = []
    for span in spans:
        if span[0] != lane:
            continue
        free = [row for row, end in enumerate(ends) if end <= span[2]]
        row = free[0] if free else len(ends)
        ends[row : row + 1] = [span[3]]
        placed.append((lane, row, span))
    return placed


def _sentence(data: dict[str, Any]) -> str:
    microseconds = data["cycles"] / data["clock_ghz"] / 1000
    return (
        f"{math.floor(data['cycles'] + 0.5):,} cycles, {microseconds:.2f} µs at "
        f"{data['clock_ghz']:g} GHz, by the cost model: {len(data['spans']):,} spans of "
        f"{len(data['lanes'])} threads and engines."
    )


def view(timeline: Any) -> Timelines:
    """The view of a report's timeline.

    Raises:
      CourseError: it is none; says how to get one.
    """
    if timeline is None or not hasattr(timeline, "spans"):
        raise CourseError(
            "That is no timeline: take report.timeline of "
            "report = simulate(kernel, x, timeline=True)."
        )
    return Timelines(timeline=timeline_data(timeline))
