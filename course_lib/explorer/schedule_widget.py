"""The schedule view as a widget: three ways to deal tiles out to SMs, played over time.

    from course_lib import explore
    explore.schedules(16, sms=4, pattern="mixed")

All is computed in the browser (`schedule_view.mjs`); a saved notebook shows the same from
`course_lib.layouts.schedules`.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
import traitlets

from course_lib.diagnostics import CourseError
from course_lib.explorer.bundle import bundle
from course_lib.explorer.layout_pictures import EMPTY, Drawing, Panel, draw_legend
from course_lib.explorer.layout_widgets import LayoutView
from course_lib.explorer.sheet import WIDTH, Sheet, is_light, text_width, wrapped
from course_lib.layouts.schedules import WAYS, Schedule, costs, schedule

__all__ = ["Schedules", "schedules"]

TILE_PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
STARTING, OTHER = len(TILE_PALETTE), len(TILE_PALETTE) + 1
PALETTE = (*TILE_PALETTE, "#8c8c8c", "#4a4a4a")
STATE_PALETTE = ("#cc79a7", "#56b4e9", "#009e73")
_LEGEND = (
    (TILE_PALETTE[0], "a tile, with its number"),
    (PALETTE[STARTING], "a block starts"),
    (PALETTE[OTHER], "the SM works for another kernel"),
    (EMPTY, "nothing to do, or not begun"),
    (STATE_PALETTE[0], "claimed, not begun"),
    (STATE_PALETTE[1], "being computed"),
    (STATE_PALETTE[2], "done"),
)
ALL = 999
"""A step behind every end."""

_CELL, _GAP = 22, 44  # CSS pixels
_Matrix = npt.NDArray[np.int16]


class Schedules(LayoutView):
    """Three ways to deal out tiles that take different times.

    Attributes:
      tiles, pattern: how many, and how long they take: `layouts.schedules.costs`.
      sms, start, late, ahead: of `layouts.schedules.schedule`.
      code: the schedule whose code is shown.
      step: up to which unit of time.
    """

    _esm = bundle("schedule_view.mjs")

    tiles = traitlets.Int(16).tag(sync=True)
    sms = traitlets.Int(4).tag(sync=True)
    pattern = traitlets.Unicode("every-fourth").tag(sync=True)
    start = traitlets.Int(1).tag(sync=True)
    late = traitlets.Int(0).tag(sync=True)
    ahead = traitlets.Bool(True).tag(sync=True)
    code = traitlets.Unicode("dynamic").tag(sync=True)
    step = traitlets.Int(ALL).tag(sync=True)

    def made(self) -> tuple[Schedule, ...]:
        """The three schedules, as they are set now.

        Raises:
          CourseError: a number is out of range; says what would fit.
        """
        deal = functools.partial(
            schedule,
            tile_costs=costs(self.pattern, self.tiles),
            sms=self.sms,
            start=self.start,
            ahead=self.ahead,
            late=self.late,
        )
        return tuple(deal(way) for way in WAYS)

    def drawing(self) -> ScheduleDrawing:
        made = self.made()
        last = max(m.end for m in made)
        now = max(0, min(last, self.step))
        panels = (
            Panel(
                "Who works when", _work(made, last, now, self.late), PALETTE, "", "units of time"
            ),
            Panel(
                "What has become of the tiles, and how long each takes",
                _states(made, now),
                STATE_PALETTE,
                "",
                "tile",
            ),
        )
        return ScheduleDrawing(_sentence(made, last, now), panels, _LEGEND, made)


def _work(made: tuple[Schedule, ...], last: int, now: int, late: int) -> _Matrix:
    """A row for each SM of each schedule, a column for each unit of time."""
    sms = made[0].sms
    cells = np.full((len(WAYS) * sms, last), -1, np.int16)
    for way, m in enumerate(made):
        cells[way * sms, :late] = OTHER
        for sm, begin, end in m.begins:
            cells[way * sms + sm, begin:end] = STARTING
        for s in m.spans:
            cells[way * sms + s.sm, s.start : s.end] = s.tile % len(TILE_PALETTE)
    cells[:, now:] = -1
    return cells


def _states(made: tuple[Schedule, ...], now: int) -> _Matrix:
    """A row for each schedule, a column for each tile: -1 nothing yet, then `STATE_PALETTE`."""
    return np.array(
        [
            [
                2 if now >= s.end else 1 if now > s.start else 0 if now > s.claimed else -1
                for s in m.spans
            ]
            for m in made
        ],
        np.int16,
    )


def _sentence(made: tuple[Schedule, ...], last: int, now: int) -> str:
    blocks, persistent, dynamic = made
    said = (
        f"{len(blocks.spans)} tiles on {blocks.sms} SMs, {blocks.work} units of work. Done after "
        f"{blocks.end} with a block for each tile, {persistent.end} if {len(persistent.begins)} "
        f"blocks take turns, {dynamic.end} if blocks take tiles over."
    )
    return f"After {now} of {last} units: {said}" if now < last else said


@dataclasses.dataclass(frozen=True)
class ScheduleDrawing(Drawing):
    """Three schedules up to a time; the picture has the SMs' rows above the tiles'."""

    made: tuple[Schedule, ...]

    def png(self) -> bytes:
        """Both panels, one above the other, the sentence on top and the legend below."""
        sms = self.made[0].sms
        names = (tuple(f"{way}, SM {m}" for way in WAYS for m in range(sms)), WAYS)
        lines = wrapped(self.sentence, 12.5, WIDTH - 20)
        left = 18 + max(text_width(name, 11) for name in names[0])
        top = 24.0 + 17 * len(lines)
        sheet = Sheet(top + 2 * _GAP + 12 + _CELL * (len(names[0]) + len(WAYS)) + 60)
        for i, line in enumerate(lines):
            sheet.text(10, 16 + 17 * i, line, 12.5)
        for panel, rows, split in zip(self.panels, names, (sms, 0), strict=True):
            sheet.text(10, top + 6, panel.title, 12.5, bold=True)
            self._draw(sheet, panel, rows, (left, top + 22), split)
            top += _GAP + _CELL * len(rows) + 6
        draw_legend(sheet, self.legend, top + 4, columns=3)
        return sheet.png()

    def _draw(
        self,
        sheet: Sheet,
        panel: Panel,
        rows: tuple[str, ...],
        corner: tuple[float, float],
        split: int,
    ) -> None:
        """The rows of a panel; a gap after every `split` of them."""
        left, top = corner
        wide = min(34.0, (WIDTH - left - 10) / max(1, panel.values.shape[1]))
        for r, name in enumerate(rows):
            y = top + r * _CELL + (3 * (r // split) if split else 0)
            sheet.text(left - 8, y + _CELL / 2, name, 11, anchor="rm")
            for c, value in enumerate(panel.values[r].tolist()):
                fill = EMPTY if value < 0 else panel.palette[value]
                sheet.box(left + c * wide, y, wide, _CELL, fill, "white")
                words = self._label(panel, r, c, value)
                size = min(11.0, wide / (0.66 * max(1, len(words))))
                ink = "#101418" if is_light(fill) else "white"
                middle = (left + (c + 0.5) * wide, y + _CELL / 2)
                sheet.text(*middle, words, size, ink=ink, anchor="mm")

    def _label(self, panel: Panel, row: int, column: int, value: int) -> str:
        """A tile's number where it begins; in the tiles' panel, how long it takes."""
        if panel is self.panels[1]:
            s = self.made[row].spans[column]
            return str(s.end - s.start)
        if not 0 <= value < STARTING:
            return ""
        way, sm = divmod(row, self.made[0].sms)
        begun = [s.tile for s in self.made[way].spans if (s.sm, s.start) == (sm, column)]
        return str(begun[0]) if begun else ""


def schedules(
    tiles: int = 16,
    *,
    sms: int = 4,
    pattern: str = "every-fourth",
    start: int = 1,
    late: int = 0,
    ahead: bool = True,
    code: str = "dynamic",
    step: int = ALL,
) -> Schedules:
    """A view that plays three ways to deal out tiles that take different times.

    Args:
      tiles: how many tiles there are.
      sms: how many SMs, a block on each at a time.
      pattern: how long the tiles take: "even", "triangle" (rising), "heavy-first" (falling),
        "mixed", "long-last" or "every-fourth".
      start: units of time that a block takes before its first tile.
      late: when SM 0 is free: until then it works for another kernel.
      ahead: whether a block that takes tiles over asks when it begins with the tile before, as
        `plgpu.dynamic_scheduling_loop` does, or when it is done with it.
      code: "blocks", "persistent" or "dynamic": whose code is shown.
      step: up to which unit of time to show at first; by default everything.

    Raises:
      CourseError: a number is out of range, or there is no such pattern or schedule.
    """
    if code not in WAYS:
        raise CourseError(f"code = {code!r} is none of {', '.join(WAYS)}.")
    if step < 0:
        raise CourseError(f"step = {step} does not exist: time begins at 0.")
    view = Schedules(
        tiles=tiles,
        sms=sms,
        pattern=pattern,
        start=start,
        late=late,
        ahead=ahead,
        code=code,
        step=step,
    )
    try:
        view.made()
    except CourseError:
        view.close()
        raise
    return view
