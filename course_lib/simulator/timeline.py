"""When things happened, by the cost model: spans per thread and engine."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_COLOURS = {
    "issue": "#4c72b0", "memory": "#64b5cd", "in flight": "#55a868", "wait": "#d9d9d9",
}  # fmt: skip
_WIDTH, _LANE, _LEFT = 900, 22, 210


@dataclasses.dataclass(frozen=True)
class Span:
    """Something that a thread or an engine did, from `start` to `end` in cycles.

    Attributes:
      lane: the thread or engine.
      kind: "issue", "memory" (a plain access), "in flight" (an engine at work) or "wait".
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

    def svg(self, lanes: Sequence[str] | None = None) -> str:
        """A drawing with a lane per thread and engine; hovering over a span names its line."""
        shown = list(lanes) if lanes is not None else self.lanes[:16]
        rows = {lane: i for i, lane in enumerate(shown)}
        spans = [s for s in self.spans if s.lane in rows]
        last = max((s.end for s in spans), default=1.0)
        scale = (_WIDTH - _LEFT) / last
        height = _LANE * len(shown) + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'role="img" font-family="sans-serif" font-size="11">',
            f"<title>Timeline of {len(shown)} lanes over {last:.0f} cycles</title>",
        ]
        for lane, row in rows.items():
            parts.append(f'<text x="0" y="{row * _LANE + 15}">{html.escape(lane)}</text>')
        for s in spans:
            x, w = _LEFT + s.start * scale, max(0.5, (s.end - s.start) * scale)
            parts.append(
                f'<rect x="{x:.1f}" y="{rows[s.lane] * _LANE + 3}" width="{w:.1f}" '
                f'height="{_LANE - 6}" fill="{_COLOURS[s.kind]}"><title>'
                f"{html.escape(s.name or s.kind)} ({s.kind}), {s.end - s.start:.0f} cycles, "
                f"{html.escape(s.where)}</title></rect>"
            )
        parts.append(
            f'<text x="{_LEFT}" y="{height - 4}">0</text><text x="{_WIDTH}" y="{height - 4}" '
            f'text-anchor="end">{last:.0f} cycles</text></svg>'
        )
        return "\n".join(parts)

    def show(self, lanes: Sequence[str] | None = None) -> None:
        """Draws it in the notebook."""
        from IPython.display import HTML, display

        display(HTML(self.svg(lanes)))
