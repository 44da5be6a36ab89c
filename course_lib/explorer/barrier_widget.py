"""The barrier view as a widget: arrivals, phases and waits, a step at a time.

    from course_lib import explore
    explore.barriers("eager", order="0")

The machine runs in the browser (`barrier_view.mjs`); what a saved notebook shows is the same
from `course_lib.layouts.phases`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import traitlets

from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import bundle
from course_lib.explorer.layout_pictures import EMPTY, Drawing, Panel, draw_legend
from course_lib.explorer.layout_widgets import LayoutView
from course_lib.explorer.sheet import INK, WIDTH, Sheet, text_width, wrapped
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
_CELL, _GAP = 30, 50  # CSS pixels


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
    """A run up to a step; its picture has the threads' rows above the barriers'.

    Attributes:
      run: the run.
      step: how many of its steps are shown.
    """

    run: Run
    step: int

    def png(self) -> bytes:
        """Both panels, one above the other, the sentence on top and the legend below."""
        names = [a for a, _ in self.run.program.actors], [b for b, _ in self.run.program.barriers]
        lines = wrapped(self.sentence, 12.5, WIDTH - 20)
        left = 18 + max(text_width(name, 11.5) for name in [*names[0], *names[1]])
        top = 24.0 + 17 * len(lines)
        body = 2 * _GAP + _CELL * sum(map(len, names))
        sheet = Sheet(top + body + 20 * 3 + 4)
        for i, line in enumerate(lines):
            sheet.text(10, 16 + 17 * i, line, 12.5)
        for panel, shown, labels in zip(
            self.panels, names, (self._actor_label, self._barrier_label), strict=True
        ):
            sheet.text(10, top + 6, panel.title, 12.5, bold=True)
            _draw_cells(sheet, panel, shown, labels, (left, top + 22))
            top += _GAP + _CELL * len(shown)
        draw_legend(sheet, self.legend, top + 8, columns=3)
        return sheet.png()

    def _actor_label(self, row: int, column: int) -> str:
        event = self.run.events[column]
        return _LABELS.get(event.op[0], event.op[0]) if event.actor == row else ""

    def _barrier_label(self, row: int, column: int) -> str:
        event, needed = self.run.events[column], self.run.program.barriers[row][1]
        phase = str(event.completions[row] + 1)
        return phase if needed == 1 else f"{phase}: {event.arrivals[row]}/{needed}"


def _draw_cells(
    sheet: Sheet,
    panel: Panel,
    names: Sequence[str],
    label: Callable[[int, int], str],
    corner: tuple[float, float],
) -> None:
    """The rows of a panel, each with its name to its left and a label in every cell."""
    left, top = corner
    wide = min(62.0, (WIDTH - left - 10) / max(1, panel.values.shape[1]))
    for (row, column), value in np.ndenumerate(panel.values):
        fill = EMPTY if value < 0 else panel.palette[value]
        x, y = left + column * wide, top + row * _CELL
        sheet.box(x, y, wide, _CELL, fill, "white")
        words = "" if value < 0 else label(row, column)
        size = min(11.0, wide / (0.66 * max(1, len(words))))
        ink = _INK_ON.get(fill, INK)
        sheet.text(x + wide / 2, y + _CELL / 2, words, size, ink=ink, anchor="mm")
    for row, name in enumerate(names):
        sheet.text(left - 8, top + (row + 0.5) * _CELL, name, 11.5, anchor="rm")


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
