"""When things happened, by the cost model: spans per thread and engine."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Each on light and on dark ground; what a wait is, is grey.
_COLOURS = {
    "issue": "#4c72b0", "memory": "#3aa0c0", "arithmetic": "#e0a030", "in flight": "#4d9e5f",
    "wait": "#9a9a9a66",
}  # fmt: skip
_WORDS = {
    "issue": "issues", "memory": "reads or writes", "arithmetic": "computes",
    "in flight": "an engine at work",
    "wait": "waits",
}  # fmt: skip
_WIDTH, _LANE, _LEFT = 900, 22, 210
_MOST_DRAWN = 1500  # more spans than that are drawn joined where they are too narrow to tell apart
_LANES_SHOWN = 16


@dataclasses.dataclass(frozen=True)
class Span:
    """Something that a thread or an engine did, from `start` to `end` in cycles.

    Attributes:
      lane: the thread or engine.
      kind: "issue", "memory" (a plain access), "arithmetic" (in a detailed timeline), "in flight"
        (an engine at work) or "wait".
      name: the operation.
      where: the learner's line, as text.
    """

    lane: str
    kind: str
    start: float
    end: float
    name: str
    where: str


@dataclasses.dataclass(frozen=True, repr=False)
class Timeline:
    """The spans of a simulation, in cycles of an SM at `clock_ghz`."""

    spans: tuple[Span, ...]
    cycles: float
    clock_ghz: float

    @property
    def time_us(self) -> float:
        """How long the kernels would take, by the cost model, in microseconds."""
        return self.cycles / self.clock_ghz / 1e3

    @property
    def lanes(self) -> list[str]:
        """The threads and engines, in the order in which they came to work."""
        return list(dict.fromkeys(s.lane for s in self.spans))

    def __repr__(self) -> str:
        return f"Timeline of {len(self.lanes)} lanes and {len(self.spans)} spans"

    def save(self, path: str | Path) -> None:
        """Writes a trace that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
        lanes = {lane: i for i, lane in enumerate(self.lanes)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": lane}}
            for lane, i in lanes.items()
        ]
        scale = 1 / self.clock_ghz / 1e3
        events += [
            {
                "ph": "X", "name": s.name or s.kind, "cat": s.kind, "pid": 0,
                "tid": lanes[s.lane], "ts": s.start * scale, "dur": (s.end - s.start) * scale,
                "args": {"line": s.where, "cycles": s.end - s.start},
            }
            for s in self.spans
        ]  # fmt: skip
        Path(path).write_text(json.dumps({"traceEvents": events}))

    def window(
        self, lanes: Sequence[str] | None = None, *, start: float = 0.0, end: float | None = None
    ) -> tuple[list[str], list[Span], float]:
        """What a drawing shows: `(lanes, spans, end)`; very many spans are joined where narrow.

        Args:
          lanes: which lanes, by name; by default the first 16.
          start, end: from which cycle to which; by default all.
        """
        shown = list(lanes) if lanes is not None else self.lanes[:_LANES_SHOWN]
        last = max((s.end for s in self.spans if s.lane in shown), default=1.0)
        end = last if end is None else end
        inside = [s for s in self.spans if s.lane in shown and s.end > start and s.start < end]
        clipped = [
            dataclasses.replace(s, start=max(s.start, start), end=min(s.end, end)) for s in inside
        ]
        if len(clipped) > _MOST_DRAWN:
            clipped = list(_joined(clipped, (end - start) / _MOST_DRAWN * len(shown)))
        return shown, clipped, end

    def svg(
        self, lanes: Sequence[str] | None = None, *, start: float = 0.0, end: float | None = None
    ) -> str:
        """A drawing with a lane per thread and engine; hovering over a span names its line.

        The arguments are those of `window`.
        """
        shown, spans, end = self.window(lanes, start=start, end=end)
        height = _LANE * len(shown) + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="100%" role="img" font-family="sans-serif" font-size="11" '
            f'fill="currentColor" style="max-width:{_WIDTH}px">',
            f"<title>Timeline of {len(shown)} lanes over {end - start:.0f} cycles</title>",
            *(
                f'<text x="0" y="{row * _LANE + 15}">{html.escape(lane)}</text>'
                for row, lane in enumerate(shown)
            ),
            *_bars(shown, spans, start, end, left=_LEFT, width=_WIDTH - _LEFT),
            f'<text x="{_LEFT}" y="{height - 4}">{start:.0f}</text><text x="{_WIDTH}" '
            f'y="{height - 4}" text-anchor="end">{end:.0f} cycles</text></svg>',
        ]
        return "\n".join(parts)

    def html(
        self, lanes: Sequence[str] | None = None, *, start: float = 0.0, end: float | None = None
    ) -> str:
        """The drawing with its legend and a slider to zoom; the lanes' names stay in place."""
        shown, spans, end = self.window(lanes, start=start, end=end)
        height = _LANE * len(shown)
        names = "".join(
            f'<div style="height:{_LANE}px;line-height:{_LANE}px;white-space:nowrap;'
            f'overflow:hidden;text-overflow:ellipsis" title="{html.escape(lane)}">'
            f"{html.escape(lane)}</div>"
            for lane in shown
        )
        legend = " ".join(
            f'<span style="display:inline-block;width:10px;height:10px;background:{colour}"></span>'
            f" {_WORDS[kind]}&ensp;"
            for kind, colour in _COLOURS.items()
        )
        bars = "\n".join(_bars(shown, spans, start, end, left=0, width=1000))
        hidden = len(self.lanes) - len(shown)
        more = f" {hidden} more lanes: show(lanes=[...])." if hidden > 0 and lanes is None else ""
        return (
            '<div style="font:12px sans-serif;max-width:1200px">'
            f'<div style="margin-bottom:4px">{legend} <label>zoom <input type="range" min="100" '
            'max="4000" value="100" aria-label="zoom" oninput="this.closest(\'div\')'
            ".nextElementSibling.querySelector('svg').style.width=this.value+'%'\"></label></div>"
            f'<div style="display:flex"><div style="flex:0 0 170px;width:170px">{names}</div>'
            f'<div style="flex:1;min-width:0;overflow-x:auto"><svg viewBox="0 0 1000 {height}" '
            f'preserveAspectRatio="none" role="img" style="display:block;width:100%;'
            f'height:{height}px"><title>Timeline of {len(shown)} lanes over {end - start:.0f} '
            f"cycles</title>{bars}</svg></div></div>"
            f'<div style="display:flex;margin-left:170px"><span>{start:.0f}</span>'
            f'<span style="margin-left:auto">{end:.0f} cycles '
            f"({(end - start) / self.clock_ghz / 1e3:.2f} us)</span></div>"
            f"<div>{more}</div></div>"
        )

    def show(
        self, lanes: Sequence[str] | None = None, *, hover: bool = False, start: float = 0.0,
        end: float | None = None,
    ) -> None:  # fmt: skip
        """Draws it in the notebook, as a picture with a description.

        Args:
          lanes: which lanes, by name; by default the first 16.
          hover: True for a drawing instead that names a span's line under the pointer, and has a
            slider to zoom. (A notebook that is not trusted shows no such drawing, hence the
            picture.)
          start, end: of the drawing: from which cycle to which.
        """
        from IPython.display import HTML, display

        if hover:
            display(HTML(self.html(lanes, start=start, end=end)))
            return
        from course_lib.simulator import timeline_picture

        data, metadata = timeline_picture.bundle(self.figure(lanes))
        display(data, raw=True, metadata=metadata)

    def figure(self, lanes: Sequence[str] | None = None) -> Figure:
        """The picture of the lanes named (by default the first 16); its label describes it."""
        from course_lib.simulator import timeline_picture

        shown = list(lanes) if lanes is not None else self.lanes[:_LANES_SHOWN]
        return timeline_picture.draw(self, shown)


def _bars(
    lanes: Sequence[str], spans: Sequence[Span], start: float, end: float, *, left: int, width: int
) -> Iterator[str]:
    rows = {lane: i for i, lane in enumerate(lanes)}
    scale = width / max(end - start, 1e-9)
    for s in spans:
        x, w = left + (s.start - start) * scale, max(0.3, (s.end - s.start) * scale)
        where = f", {s.where}" if s.where and s.where != "None" else ""
        yield (
            f'<rect x="{x:.2f}" y="{rows[s.lane] * _LANE + 3}" width="{w:.2f}" '
            f'height="{_LANE - 6}" fill="{_COLOURS[s.kind]}"><title>'
            f"{html.escape(s.name or s.kind)} ({s.kind}), {s.end - s.start:.0f} cycles"
            f"{html.escape(where)}</title></rect>"
        )


def _joined(spans: Sequence[Span], least: float) -> Iterator[Span]:
    """Neighbours of one lane and kind as one span, where they and the gap are short."""
    open_: dict[tuple[str, str], Span] = {}
    for s in sorted(spans, key=lambda s: s.start):
        key = (s.lane, s.kind)
        before = open_.get(key)
        if before is not None and s.start - before.end < least and s.end - s.start < least:
            name = before.name if before.name == s.name else "several"
            where = before.where if before.where == s.where else ""
            open_[key] = dataclasses.replace(
                before, end=max(before.end, s.end), name=name, where=where
            )
        else:
            if before is not None:
                yield before
            open_[key] = s
    yield from open_.values()
