"""Flash attention in pictures: who uses the tensor core when, what a causal block sees, the ladder.

Cycles are those of an H200's SM for a tile of 64 queries and 128 keys with head_dim 128: 4096
operations of the tensor core and 16 powers of two a cycle (`course_lib.simulator.machine.costs`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRODUCTS, SOFTMAX = 1024, 830
"""Cycles: the scores of a tile and P V of the one before; the softmax of a tile."""


class Measured(Protocol):
    """What a picture needs of a record of `course_lib.benchmarks`."""

    @property
    def baseline(self) -> str:
        """The library that ratios are to."""

    @property
    def rows(self) -> Sequence[Any]:
        """What was measured; each has a `case`."""

    def ratios(self, case: str) -> dict[str, float]:
        """Each contender's ratio to the baseline at one size."""


@dataclasses.dataclass(frozen=True)
class Span:
    """What a warpgroup, or the tensor core for it, does from `start` to `end`, in cycles."""

    lane: str
    warpgroup: int
    start: int
    end: int


def schedule(rounds: int, *, in_turns: bool) -> list[Span]:
    """Two warpgroups, `rounds` tiles each: in turns, or both the same at the same time.

    In turns, a warpgroup hands over its products when its softmax is done. Else both hand theirs
    over at once, wait for both, and compute their softmax side by side on one ALU.
    """
    spans, free, ready = [], 0, [0, 0]
    for _ in range(rounds):
        for wg in (0, 1):
            start = max(free, ready[wg])
            free = start + PRODUCTS
            spans.append(Span("tensor core", wg, start, free))
            ready[wg] = free + SOFTMAX
            spans.append(Span(f"warpgroup {wg}", wg, free, ready[wg]))
        if not in_turns:
            both = [s for s in spans if s.lane != "tensor core"][-2:]
            spans = [s for s in spans if s not in both]
            spans += [Span(s.lane, s.warpgroup, free, free + 2 * SOFTMAX) for s in both]
            free = free + 2 * SOFTMAX
            ready = [free, free]
    return spans


def busy(spans: Sequence[Span]) -> float:
    """The part of the time in which the tensor core is at work."""
    end = max(s.end for s in spans)
    return sum(s.end - s.start for s in spans if s.lane == "tensor core") / end


_LANES = ("warpgroup 0", "warpgroup 1", "tensor core")
_WORK = (": softmax", ": products")
_LEFT, _RIGHT, _LANE = 16.5, 75.2, 3.0
_COLOURS = (style.BLUE, style.ORANGE)


def ping_pong() -> Figure:
    """The same six tiles twice: both warpgroups in step, and in turns."""
    fig, ax = canvas(4.0)
    panels = [(schedule(3, in_turns=flag), flag) for flag in (False, True)]
    last = max(s.end for spans, _ in panels for s in spans)
    for top, (spans, flag) in zip((37.5, 18.6), panels, strict=True):
        title = (
            "in turns: one multiplies, the other computes its softmax"
            if flag
            else ("in step: both multiply, then both compute")
        )
        label(ax, (0.5, top), title, size=10, ha="left", weight="bold")
        _panel(ax, spans, top - 1.8, last)
    label(ax, (_RIGHT, 1.0), f"{last:,} cycles", size=9, ha="right", color=style.MUTED)
    label(ax, (_LEFT, 1.0), "0", size=9, color=style.MUTED)
    shares = [f"{busy(spans):.0%}" for spans, _ in panels]
    fig.set_label(
        "Two schedules of two warpgroups that each take three tiles. In step: the tensor core does "
        "both warpgroups' products, then it is idle while both compute their softmax side by side; "
        f"it is at work for {shares[0]} of the time. In turns: while the tensor core does one "
        "warpgroup's products, the other one computes its softmax; only at the end the tensor "
        f"core is idle, it is at work for {shares[1]} of the time, and all is done sooner."
    )
    return fig


def _panel(ax: Axes, spans: Sequence[Span], top: float, last: int) -> None:
    scale = (_RIGHT - _LEFT) / last
    for i, lane in enumerate(_LANES):
        y = top - (i + 1) * (_LANE + 1.4)
        label(ax, (0.5, y + _LANE / 2), lane + _WORK[lane == "tensor core"], size=9, ha="left")
        ax.add_patch(
            Rectangle((_LEFT, y), _RIGHT - _LEFT, _LANE, facecolor=style.PANEL, edgecolor="none")
        )
        for span in (s for s in spans if s.lane == lane):
            where = (_LEFT + span.start * scale, y, (span.end - span.start) * scale, _LANE)
            box(ax, where, f"{span.warpgroup}", fill=_COLOURS[span.warpgroup], size=8.5)


def causal_tiles(*, q_len: int = 512, block_q: int = 64, block_kv: int = 128) -> Figure:
    """Tiles of a causal head: which are skipped, which masked, which computed as they are."""
    kinds = [[kind_of_tile(row, key, block_q, block_kv) for key in range(0, q_len, block_kv)]
             for row in range(0, q_len, block_q)]  # fmt: skip
    fig, ax = canvas(3.5)
    width, height = 9.0, 3.0
    left, top = 15.0, 29.5
    looks = {
        "whole": (style.GREEN, "all seen"),
        "crossed": (style.YELLOW, "masked"),
        "skipped": ("white", "not copied"),
    }
    for r, kinds_of_row in enumerate(kinds):
        y = top - (r + 1) * height
        label(ax, (left - 0.8, y + height / 2), f"queries {r * block_q}-{(r + 1) * block_q - 1}",
              size=8.5, ha="right")  # fmt: skip
        for c, kind in enumerate(kinds_of_row):
            patch = Rectangle(
                (left + c * width, y), width, height, facecolor=looks[kind][0], edgecolor=style.LINE
            )
            ax.add_patch(patch)
    columns = len(kinds[0])
    for c in range(columns):
        text = f"{c * block_kv}-{(c + 1) * block_kv - 1}"
        label(ax, (left + (c + 0.5) * width, top + 1.2), text, size=8.5)
    label(ax, (left + columns * width / 2, top + 3.4), "keys", size=9.5, weight="bold")
    ax.plot(
        [left, left + columns * width], [top, top - len(kinds) * height], color=style.INK, lw=1.2
    )
    for i, (colour, words) in enumerate(looks.values()):
        y = 25.5 - 3.4 * i
        box(ax, (56, y, 3, 2), fill=colour)
        label(ax, (60, y + 1), words, size=9, ha="left")
    label(ax, (56, 13.5), "the line: query i, key i", size=9, ha="left")
    rows = "; ".join(
        f"queries from {r * block_q}: {row.count('whole')} whole, {row.count('crossed')} masked"
        for r, row in enumerate(kinds)
    )
    fig.set_label(
        f"A causal head of {q_len} queries and keys, in tiles of {block_q} queries and {block_kv} "
        f"keys. Tiles above the diagonal are not copied, those that it crosses are masked. {rows}."
    )
    return fig


def kind_of_tile(row: int, key: int, block_q: int, block_kv: int) -> str:
    """What is seen of a tile whose first query and key are these: "whole", "crossed", "skipped"."""
    if key > row + block_q - 1:
        return "skipped"
    return "whole" if key + block_kv - 1 <= row else "crossed"


def _look(place: int) -> dict[str, Any]:
    """Colour of a bar; from the eighth on with stripes, as colours that stay apart are few."""
    hatch = {"hatch": "////", "edgecolor": "white"} if place >= len(style.CYCLE) - 1 else {}
    return {"facecolor": style.CYCLE[place % (len(style.CYCLE) - 1)], **hatch}


def ladder(record: Measured, names: Sequence[str]) -> Figure:
    """The ratios to the library of a record, a group of bars per size, a bar per name.

    Args:
      record: of the attention suite.
      names: who is drawn, in this order, where the record has them.
    """
    cases = list(dict.fromkeys(row.case for row in record.rows))
    groups = {case: [n for n in names if n in record.ratios(case)] for case in cases}
    bars = sum(len(group) + 1 for group in groups.values())
    height_in = 0.14 * bars + 1.25
    fig = Figure(figsize=(style.WIDTH_IN, height_in))
    ax = fig.add_axes((0.27, 0.5 / height_in, 0.69, 1 - 1.1 / height_in))
    y, middles = 0, []
    for case, group in groups.items():
        middles.append(y - (len(group) - 1) / 2)
        for name in group:
            ratio = record.ratios(case)[name]
            ax.barh(y, ratio, 0.9, **_look(names.index(name)))
            ax.text(
                ratio + 0.012,
                y,
                f"{ratio:.2f}",
                va="center",
                fontsize=7,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
            )
            y -= 1
        y -= 1
    ax.axvline(1.0, color=style.INK, lw=1, zorder=0.5)
    ax.set_ylim(y + 1.2, 0.8)
    ax.set_yticks(middles, [case.replace(" float16", "") for case in cases], fontsize=9)
    ax.set_xlabel(f"speed, {record.baseline} = 1", fontsize=9)
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    handles = [Patch(label=name, **_look(i)) for i, name in enumerate(names)]
    fig.legend(
        handles=handles, ncols=6, loc="upper center", fontsize=8, frameon=False,
        handlelength=1, columnspacing=1.2,
    )  # fmt: skip
    best = "; ".join(
        f"{case}: {max(ratios, key=ratios.__getitem__)} {max(ratios.values()):.2f}"
        for case in cases
        if (ratios := {n: v for n, v in record.ratios(case).items() if n in names})
    )
    fig.set_label(
        f"Bars: each step's speed over that of {record.baseline}, by size. The best: {best}."
    )
    return fig
