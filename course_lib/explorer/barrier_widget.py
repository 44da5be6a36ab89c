"""The barrier view as a widget: arrivals, phases and waits, a step at a time.

    from course_lib import explore
    explore.barriers("eager", order="0")

The machine runs in the browser (`barrier_view.mjs`); what a saved notebook shows is the same
from `course_lib.layouts.phases`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import bundle
from course_lib.explorer.layout_pictures import EMPTY, Drawing, Panel
from course_lib.explorer.layout_widgets import LayoutView
from course_lib.figures import style
from course_lib.layouts.phases import Run

__all__ = ["Barriers", "barriers"]

ACTOR_PALETTE = ("#56b4e9", "#e69f00", "#009e73", "#7a7a7a")
BARRIER_PALETTE = ("#0072b2", "#f0e442", "#d55e00")
_INK_ON = {"#0072b2": "white", "#7a7a7a": "white"}
_ACTOR_WORDS = ("reads, writes, starts a copy", "arrives", "its wait is over", "has to wait")
_BARRIER_WORDS = (
    "phase 1, 3, … under way (parity 0)",
    "phase 2, 4, … (parity 1)",
    "a phase was missed",
)
_LABELS = {"issue": "copy", "land": "arrive", "go": "…"}
_CELL_IN, _LEFT_IN, _TOP_IN, _GAP_IN = 0.3, 0.85, 0.62, 0.5


class Barriers(LayoutView):
    """A few threads and their barriers, step by step.

    Attributes:
      program, order: as in `course_lib.layouts.phases.Run`.
      step: how many steps are shown.
      picks: who was clicked to go next: "program/order:digits"; "" for nobody.
    """

    _esm = bundle("barrier_view.mjs")

    program = traitlets.Unicode("hand-over").tag(sync=True)
    order = traitlets.Unicode("turns").tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    picks = traitlets.Unicode("").tag(sync=True)

    def run(self) -> Run:
        """The program from its first step to its last, as it is set now."""
        whose, _, digits = self.picks.partition(":")
        mine = whose == f"{self.program}/{self.order}"
        return Run(self.program, order=self.order, picks=digits if mine else "")

    def drawing(self) -> BarrierDrawing:
        run = self.run()
        step = max(0, min(len(run.events), self.step))
        return BarrierDrawing(
            run.sentence(step),
            (
                Panel("Who did what", run.actor_cells(step), ACTOR_PALETTE, "", "step"),
                Panel(
                    "The phase that is under way, and the arrivals it has",
                    run.barrier_cells(step),
                    BARRIER_PALETTE,
                    "",
                    "step",
                ),
            ),
            tuple(
                zip(
                    (*ACTOR_PALETTE, *BARRIER_PALETTE),
                    (*_ACTOR_WORDS, *_BARRIER_WORDS),
                    strict=True,
                )
            ),
            run,
            step,
        )


@dataclasses.dataclass(frozen=True)
class BarrierDrawing(Drawing):
    """A run up to a step; its figure has the threads' rows above the barriers'.

    Attributes:
      run: the run.
      step: how many of its steps are shown.
    """

    run: Run
    step: int

    def figure(self) -> Figure:
        """Both panels, one above the other, the sentence on top and the legend below."""
        rows = [panel.values.shape[0] for panel in self.panels]
        height = _TOP_IN + 2 * _GAP_IN + _CELL_IN * sum(rows) + 0.75
        fig = Figure(figsize=(style.WIDTH_IN, height))
        ax = fig.add_axes((0, 0, 1, 1))
        ax.axis("off")
        ax.set_xlim(0, style.WIDTH_IN)
        ax.set_ylim(height, 0)
        _text(ax, 0.1, 0.2, self.sentence, 9, wrap=True)
        names = [a for a, _ in self.run.program.actors], [b for b, _ in self.run.program.barriers]
        top = _TOP_IN
        for panel, shown, labels in zip(
            self.panels, names, (self._actor_label, self._barrier_label), strict=True
        ):
            _text(ax, 0.1, top, panel.title, 9, weight="bold")
            _draw_cells(ax, panel, shown, labels, top + 0.2)
            top += _GAP_IN + _CELL_IN * len(shown)
        patches = [Patch(facecolor=c, label=words) for c, words in self.legend]
        fig.legend(handles=patches, loc="lower left", ncols=3, fontsize=8, frameon=False)
        return fig

    def _actor_label(self, row: int, column: int) -> str:
        event = self.run.events[column]
        return _LABELS.get(event.op[0], event.op[0]) if event.actor == row else ""

    def _barrier_label(self, row: int, column: int) -> str:
        event, needed = self.run.events[column], self.run.program.barriers[row][1]
        phase = str(event.completions[row] + 1)
        return phase if needed == 1 else f"{phase}: {event.arrivals[row]}/{needed}"


def _draw_cells(
    ax: Axes, panel: Panel, names: Sequence[str], label: Callable[[int, int], str], top: float
) -> None:
    rows, columns = panel.values.shape
    wide = min(0.62, (style.WIDTH_IN - _LEFT_IN - 0.1) / columns)
    for row in range(rows):
        y = top + row * _CELL_IN
        _text(ax, _LEFT_IN - 0.08, y + _CELL_IN / 2, names[row], 8.5, ha="right")
        for column in range(columns):
            value = int(panel.values[row, column])
            fill = EMPTY if value < 0 else panel.palette[value]
            x = _LEFT_IN + column * wide
            ax.add_patch(
                Rectangle((x, y), wide, _CELL_IN, facecolor=fill, edgecolor="white", linewidth=1)
            )
            words = "" if value < 0 else label(row, column)
            size = min(8.0, wide * 72 / (0.66 * max(1, len(words))))
            ink = _INK_ON.get(fill, style.INK)
            _text(ax, x + wide / 2, y + _CELL_IN / 2, words, size, ha="center", color=ink)


def _text(ax: Axes, x: float, y: float, words: str, size: float, **font: Any) -> None:
    settings: dict[str, Any] = {
        **style.FONT,
        "ha": "left",
        "va": "center",
        "fontsize": size,
        **font,
    }
    ax.text(x, y, words, **settings)


def barriers(
    program: str = "hand-over", *, order: str = "turns", step: int = 0, picks: str = ""
) -> Barriers:
    """A view of a few threads and their barriers, to step through.

    Args:
      program: "hand-over" (one item), "arrivals" (two producers), "copies" (two copies), "eager"
        (three items and no back-pressure), "queue" (three items, with it) or "skipped" (a
        thread that waits for one of two phases).
      order: who goes first wherever several could: "turns", or a thread's number.
      step: how many steps to show at first.
      picks: the threads that go first whatever the order says, a digit each.

    Raises:
      CourseError: there is no such program, order or step.
    """
    run = Run(program, order=order, picks=picks)
    if not 0 <= step <= len(run.events):
        raise CourseError(f"step = {step} does not exist: these are steps 0 to {len(run.events)}.")
    whose = f"{program}/{order}:{picks}" if picks else ""
    return Barriers(program=program, order=order, step=step, picks=whose)
