"""The picture of a reduction in WGMMA's layout: who exchanges with whom, along rows and columns.

The numbers come from `course_lib.layouts.registers`, so that the picture says what
the layout says; `row_steps` and `column_steps` hold them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label
from course_lib.layouts.registers import LANES, named

SHAPE = (64, 128)
"""The array that the picture reduces, of float32."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """How one row, or one column, of an array is reduced.

    Attributes:
      own: elements that each of its lanes has, and reduces alone first.
      lanes: its lanes within one warp, in order.
      exchanges: the distances of the exchanges between lanes of the warp, one per step.
      warps: warps that hold a part of it; more than one meet in SMEM.
      results: results (rows, or columns) that a lane has to do all this for.
    """

    own: int
    lanes: tuple[int, ...]
    exchanges: tuple[int, ...]
    warps: int
    results: int

    @property
    def shuffles(self) -> int:
        """Shuffle instructions per warp for the whole array."""
        return self.results * len(self.exchanges)


def steps(axis: int) -> Steps:
    """The steps of a reduction of `SHAPE` along `axis` in WGMMA's layout."""
    held = named("WGMMA", SHAPE, bits=32).holders(SHAPE)[:, 0, 0].reshape(SHAPE)
    line = held[0] if axis == 1 else held[:, 0]
    threads, counts = np.unique(line, return_counts=True)
    lanes = tuple(int(t) for t in threads if t < LANES)
    apart = lanes[1] - lanes[0]
    exchanges = tuple(apart * 2**i for i in range(int(np.log2(len(lanes)))))
    mine = np.argwhere(held == 0)
    results = len(np.unique(mine[:, 1 - axis]))
    return Steps(int(counts[0]), lanes, exchanges, len(threads) // len(lanes), results)


def _alt() -> str:
    row, column = steps(1), steps(0)
    rows = (
        f"Along a row: each of {len(row.lanes)} lanes reduces its own {row.own} elements, then the "
        f"lanes exchange at distances {_listed(row.exchanges)}, after which all {len(row.lanes)} "
        f"hold the result. A lane has {row.results} rows: {row.shuffles} shuffles."
    )
    columns = (
        f"Along a column: each of {len(column.lanes)} lanes in each of {column.warps} warps "
        f"reduces its own {column.own} elements, the lanes exchange at distances "
        f"{_listed(column.exchanges)}, then the {column.warps} warps meet in SMEM. A lane has "
        f"{column.results} columns: {column.shuffles} shuffles."
    )
    of = f"a {SHAPE[0]} x {SHAPE[1]} float32 array in WGMMA's layout"
    return f"Two reductions of {of}. {rows} {columns}"


def _listed(numbers: tuple[int, ...]) -> str:
    *head, last = map(str, numbers)
    return f"{', '.join(head)} and {last}"


def reductions() -> Figure:
    """The picture: a row on the left, a column on the right, time going down."""
    fig, ax = canvas(4.9)
    fig.set_label(_alt())
    _half(ax, 1.0, 33.0, "along a row: jnp.max(x, axis=1)", steps(1))
    _half(ax, 40.0, 35.0, "along a column: jnp.max(x, axis=0)", steps(0))
    return fig


def _half(ax: Axes, left: float, width: float, title: str, s: Steps) -> None:
    label(ax, (left, 47.0), title, size=10, ha="left", weight="bold")
    gap = width / len(s.lanes)
    centres = [left + gap * (i + 0.5) for i in range(len(s.lanes))]
    y = 39.6
    for lane, x in zip(s.lanes, centres, strict=True):
        box(ax, (x - gap * 0.42, y, gap * 0.84, 5.0), f"{lane}", fill=style.BLUE, size=9)
    label(ax, (left, y - 1.6), f"lanes of {_warps(s)}; each first reduces", size=9, ha="left",
          color=style.MUTED)  # fmt: skip
    label(ax, (left, y - 4.2), f"its own {s.own} elements", size=9, ha="left", color=style.MUTED)
    y = 31.2
    for distance in s.exchanges:
        _exchange(ax, centres, y, s, distance)
        y -= 7.0
    _end(ax, left, width, s)


def _warps(s: Steps) -> str:
    return "one warp" if s.warps == 1 else f"each of {s.warps} warps"


def _exchange(ax: Axes, centres: list[float], y: float, s: Steps, distance: int) -> None:
    """Arcs between lanes `distance` apart, below dots for the lanes."""
    for lane, x in zip(s.lanes, centres, strict=True):
        ax.plot([x], [y], "o", color=style.INK, ms=4)
        partner = lane ^ distance
        if partner > lane:
            other = centres[s.lanes.index(partner)]
            arrow = {"arrowstyle": "<|-|>", "color": "#b3541e", "lw": 1.1,
                     "connectionstyle": "arc3,rad=0.35", "shrinkA": 3, "shrinkB": 3}  # fmt: skip
            ax.annotate("", xy=(other, y), xytext=(x, y), arrowprops=arrow)
    label(ax, (centres[0] - 1.0, y + 1.9), f"lane XOR {distance}", size=8.5, ha="left")


def _end(ax: Axes, left: float, width: float, s: Steps) -> None:
    if s.warps > 1:
        text = f"then the {s.warps} warps meet in SMEM"
        box(ax, (left, 7.4, width, 4.2), text, fill=style.ORANGE, size=9)
    results = "rows" if s.warps == 1 else "columns"
    text = (
        f"each lane: {s.results} {results} x {len(s.exchanges)} exchanges = {s.shuffles} shuffles"
    )
    box(ax, (left, 1.6, width, 4.2), text, fill=style.GREEN, size=9)
