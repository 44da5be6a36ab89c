"""Rooflines, and the ladder of matmuls against cuBLAS: pictures of plain numbers.

A roofline has two ceilings: the tensor core's rate, flat, and a slope, what a memory delivers
times the FLOP that a kernel does with each byte (Williams, Waterman and Patterson, Roofline,
CACM 2009). A matmul meets three memories on its way, so there are three panels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style

_BLUE, _RED = "#2b6ca3", "#b3432b"
_MARKERS = ("o", "s", "D", "^")
_COLOURS = (_BLUE, _RED, "#2f8f6b", "#8a5fa8")
_FIRST_RATIO = 0.65
_OWN_CLOCK = ("HBM",)
_TICKS = (200, 400, 800, 1600)


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What a card can do.

    Attributes:
      device: its name.
      flop_per_s: its tensor cores with 16-bit operands, at the highest clock.
      bytes_per_s: what each memory delivers, by its name, in the order of the panels.
      clock_part: the part of the highest clock that it kept under load; 1 if that is not known.
        It slows the SMs and the L2 cache, not the HBM.
    """

    device: str
    flop_per_s: float
    bytes_per_s: Mapping[str, float]
    clock_part: float = 1.0

    def attainable(self, memory: str, flop_per_byte: float, *, clock_part: float = 1.0) -> float:
        """The most FLOP/s that this memory and the tensor cores allow at a part of the clock."""
        slowed = 1.0 if memory in _OWN_CLOCK else clock_part
        bytes_per_s = slowed * self.bytes_per_s[memory]
        return min(clock_part * self.flop_per_s, flop_per_byte * bytes_per_s)


@dataclasses.dataclass(frozen=True)
class Point:
    """A kernel in a panel.

    Attributes:
      memory: the panel's.
      label: what stands next to it.
      flop_per_byte: what it does with each byte of this memory.
      flop_per_s: what it was measured to do.
    """

    memory: str
    label: str
    flop_per_byte: float
    flop_per_s: float


def roofline(ceilings: Ceilings, points: Sequence[Point]) -> Figure:
    """One panel per memory, each with its roof and the points that belong to it."""
    memories = list(ceilings.bytes_per_s)
    fig = Figure(figsize=(style.WIDTH_IN, 3.5))
    axes = fig.subplots(1, len(memories), sharey=True, squeeze=False)[0]
    fig.subplots_adjust(left=0.085, right=0.98, bottom=0.155, top=0.83, wspace=0.13)
    for ax, memory in zip(axes, memories, strict=True):
        _panel(ax, ceilings, memory, [p for p in points if p.memory == memory])
    axes[0].set_ylabel("TFLOP/s", fontsize=9, color=style.INK)
    fig.text(0.085, 0.945, f"{ceilings.device}: three memories, three roofs", fontsize=10,
             color=style.INK, weight="bold")  # fmt: skip
    fig.set_label(describe(ceilings, points))
    return fig


def describe(ceilings: Ceilings, points: Sequence[Point]) -> str:
    """The picture in words. It names no card: the same words go with every card's picture."""
    words = {m: [_words(p) for p in points if p.memory == m] for m in ceilings.bytes_per_s}
    panels = " ".join(f"{memory}: {', '.join(w or ['no kernel'])}." for memory, w in words.items())
    return (
        "Three rooflines side by side, FLOP per byte against TFLOP/s: each rises with the bytes "
        f"that a memory delivers and is flat from where the tensor cores are the limit. {panels}"
    )


def _words(point: Point) -> str:
    return f"{point.label} at {point.flop_per_byte:.0f} FLOP per byte"


def _panel(ax: Axes, ceilings: Ceilings, memory: str, points: Sequence[Point]) -> None:
    low = min([8.0, *(p.flop_per_byte / 2 for p in points)])
    high = max([512.0, *(p.flop_per_byte * 2 for p in points)])
    x = np.geomspace(low, high, 400)
    parts = [(1.0, style.INK, "-"), (ceilings.clock_part, style.MUTED, "--")]
    for part, colour, line in parts[: 1 if ceilings.clock_part == 1 else 2]:
        roof = [ceilings.attainable(memory, float(v), clock_part=part) / 1e12 for v in x]
        ax.plot(x, roof, color=colour, lw=1.4, ls=line)
    for point in points:
        _point(ax, point, high)
    ridge = ceilings.flop_per_s / ceilings.bytes_per_s[memory]
    ax.axvline(ridge, color=style.LINE, lw=0.8, ls=":")
    ax.set_title(f"{memory}, ridge at {ridge:.0f}", fontsize=9.5, color=style.INK)
    ax.set_xlabel(f"FLOP per byte of {memory}", fontsize=8.5, color=style.INK)
    _frame(ax)
    ax.set_xlim(low, high)
    ax.set_ylim(150, 1.35 * ceilings.flop_per_s / 1e12)


def _frame(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0f}")
    ax.set_yticks(_TICKS, [str(t) for t in _TICKS])
    ax.set_yticks([], minor=True)
    ax.tick_params(labelsize=7.5, colors=style.INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _point(ax: Axes, point: Point, high: float) -> None:
    y = point.flop_per_s / 1e12
    left = point.flop_per_byte > high / 4
    ax.plot([point.flop_per_byte], [y], marker="o", ms=5, color=_BLUE, zorder=3)
    ax.annotate(
        point.label, (point.flop_per_byte, y), xytext=(-7 if left else 7, -5),
        textcoords="offset points", fontsize=8, color=_BLUE, ha="right" if left else "left",
    )  # fmt: skip


def ladder(
    names: Sequence[str], series: Mapping[str, Sequence[float | None]], *, device: str, date: str
) -> Figure:
    """Each step's part of cuBLAS, a row per step and a marker per size.

    Args:
      names: what stands left of each row, from the top.
      series: for each size, a ratio per row; None where there is none.
      device: the card.
      date: of the record.
    """
    height_in = 0.265 * len(names) + 0.95
    fig = Figure(figsize=(style.WIDTH_IN, height_in))
    ax = fig.add_axes((0.36, 0.55 / height_in, 0.61, 1 - 0.9 / height_in))
    for i, (size, ratios) in enumerate(series.items()):
        known = [(r, y) for y, r in enumerate(ratios) if r is not None]
        ax.plot(
            [r for r, _ in known], [y for _, y in known], ls="", marker=_MARKERS[i % 4], ms=5.5,
            color=_COLOURS[i % 4], label=size, alpha=0.9,
        )  # fmt: skip
    everything = [r for ratios in series.values() for r in ratios if r is not None]
    _ladder_frame(ax, names, everything)
    ax.legend(
        loc="lower left", bbox_to_anchor=(-0.6, 1.0), ncols=3, fontsize=8, frameon=False,
        handletextpad=0.2, columnspacing=1.2,
    )  # fmt: skip
    ax.set_xlabel(f"part of cuBLAS's speed ({device}, {date})", fontsize=8.5, color=style.INK)
    fig.set_label(describe_ladder(names, series))
    return fig


def describe_ladder(names: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> str:
    """The plot in words."""
    rows = [
        f"{name}: {', '.join('-' if r is None else f'{r:.0%}' for r in ratios)}"
        for name, ratios in zip(names, zip(*series.values(), strict=True), strict=True)
    ]
    return f"Part of cuBLAS's speed at {', '.join(series)}. {'; '.join(rows)}."


def _ladder_frame(ax: Axes, names: Sequence[str], ratios: Sequence[float]) -> None:
    ax.axvline(1.0, color=style.INK, lw=1.2)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(min([_FIRST_RATIO, *(r - 0.02 for r in ratios)]), max([1.05, *ratios]) + 0.01)
    ax.xaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    ax.grid(axis="both", color=style.GREY, lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8.5, colors=style.INK, length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def h200(**more: Any) -> Ceilings:
    """An H200 SXM by its data sheet: 989 TFLOP/s, 4.8 TB/s, 132 SMs at 1.83 GHz."""
    rate = 4096 * 132 * 1.83e9
    return of("NVIDIA H200", flop_per_s=rate, hbm=4.8e12, sm_cycles_per_s=132 * 1.83e9, **more)


def of(
    device: str, *, flop_per_s: float, hbm: float, sm_cycles_per_s: float, **more: Any
) -> Ceilings:
    """A card's ceilings: its SMs move 128 bytes of SMEM per clock, and get 64 from the L2 cache.

    Args:
      device: the card's name.
      flop_per_s: its tensor cores, 16-bit operands.
      hbm: bytes per second of its memory.
      sm_cycles_per_s: clocks per second, of all SMs together.
      **more: other attributes of `Ceilings`.
    """
    inside = {"L2": 64 * sm_cycles_per_s, "SMEM": 128 * sm_cycles_per_s}
    return Ceilings(device, flop_per_s, {"HBM": hbm, **inside}, **more)
