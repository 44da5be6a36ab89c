"""The pictures of chapter 11: what the two SMs of a pair hold, and who was at work when.

Sources: PTX ISA, tcgen05 (CTA pair, cta_group::2); reference page, "Collective MMA".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_SMS = (1.5, 45.0)
_WIDTH = 29.5


def pair() -> Figure:
    """Two SMs side by side: their halves of A, B and the accumulator, and who reads which."""
    fig, ax = canvas(3.9)
    for number, x in enumerate(_SMS):
        _sm(ax, x, number)
    for source, target in ((0, 1), (1, 0)):
        start = _SMS[source] + (24.0 if source == 0 else 17.5), 24.3
        end = _SMS[target] + (5.5 if target == 1 else 24.5), 20.3
        _arrow(ax, start, end, "#c05a00")
    label(ax, (38.0, 15.0), "each TensorCore\nreads the\nother's half of B,\ntoo", size=8.5)
    fig.set_label(
        "Two SMs of a pair. Each has in its SMEM half of the rows of A and half of the columns of "
        "B, and in its TMEM the accumulator of its rows, with all columns. Each TensorCore reads "
        "its own half of A, and both halves of B: arrows lead from each half of B to the other "
        "SM's TensorCore. Block 0, the leader, waits for the loads and issues the MMA for both."
    )
    return fig


def _sm(ax: Axes, x: float, number: int) -> None:
    name = "SM 0: block 0, the leader" if number == 0 else "SM 1: block 1"
    box(ax, (x, 1.0, _WIDTH, 36.5), "", fill="white")
    label(ax, (x + _WIDTH / 2, 35.4), name, size=10, weight="bold")
    half = ("upper", "left") if number == 0 else ("lower", "right")
    for at, words, colour in (
        (1.5, f"A, {half[0]} half\n(M / 2, K)", style.SKY),
        (15.2, f"B, {half[1]} half\n(K, N / 2)", style.ORANGE),
    ):
        box(ax, (x + at, 24.5, 12.8, 8.0), words, fill=colour, size=9)
        _arrow(ax, (x + at + 6.4, 24.3), (x + 9.0 + at / 1.6, 20.3), style.INK)
    words = "TensorCore: its rows of A\ntimes all of B"
    box(ax, (x + 4.0, 12.9, 21.5, 7.2), words, fill=style.GREEN, size=9)
    _arrow(ax, (x + 14.75, 12.7), (x + 14.75, 9.9), style.INK)
    box(ax, (x + 1.5, 2.6, 26.5, 7.0), f"D, {half[0]} half: (M / 2, N)", fill=style.BLUE, size=9)
    for y, space in ((23.3, "SMEM"), (11.2, "TMEM")):
        at, side = (x + 1.5, "left") if number == 0 else (x + _WIDTH - 1.5, "right")
        label(ax, (at, y), space, size=8, ha=side, color=style.MUTED)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": colour, "lw": 1.5, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=end, xytext=start, arrowprops=arrow)


def balance(timelines: Mapping[str, Any]) -> Figure:
    """When the tensor cores of each cluster were at work, in several kernels, on one time axis.

    Args:
      timelines: a simulator's timeline by the kernel's name. The leader's lane stands for a pair.
    """
    rows = [(name, lane) for name, t in timelines.items() for lane in _cores(t)]
    last = max(t.cycles for t in timelines.values())
    fig, ax = canvas(0.55 + 0.34 * len(rows))
    top = 3.4 * len(rows) + 1.6
    left, room = 20.0, 54.5
    for i, (name, lane) in enumerate(rows):
        y = top - 3.4 * i
        label(ax, (left - 1, y), f"{name}, {_cluster(lane)}", size=9, ha="right")
        for start, end in _joined(timelines[name], lane, last / 400):
            wide = max(0.1, room * (end - start) / last)
            corner = (left + room * start / last, y - 1.1)
            ax.add_patch(Rectangle(corner, wide, 2.2, facecolor="#0072b2"))
    for name, timeline in timelines.items():
        x = left + room * timeline.cycles / last
        count = sum(n == name for n, _ in rows)
        first = next(i for i, (n, _) in enumerate(rows) if n == name)
        ys = [top - 3.4 * first + 1.5, top - 3.4 * (first + count - 1) - 1.5]
        ax.plot([x, x], ys, color=style.INK, lw=1.2)
    label(ax, (left + room / 2, 1.4), "time, by the simulator's cost model", size=9,
          color=style.MUTED)  # fmt: skip
    fig.set_label(_balance_words(timelines))
    return fig


def _cores(timeline: Any) -> list[str]:
    return [lane for lane in timeline.lanes if lane.startswith("tensor core")]


def _cluster(lane: str) -> str:
    """ "cluster 3", of "tensor core of block 0 of cluster (3)"."""
    return f"cluster {lane.rpartition('(')[2].rstrip(')')}"


def _joined(timeline: Any, lane: str, gap: float) -> list[tuple[float, float]]:
    """Stretches of work; those closer than `gap` are one."""
    out: list[tuple[float, float]] = []
    for start, end in sorted((s.start, s.end) for s in timeline.spans if s.lane == lane):
        if out and start - out[-1][1] < gap:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def _balance_words(timelines: Mapping[str, Any]) -> str:
    said = []
    for name, timeline in timelines.items():
        ends = [max(e for _, e in _joined(timeline, lane, 0)) for lane in _cores(timeline)]
        parts = ", ".join(f"{end / timeline.cycles:.0%}" for end in ends)
        said.append(f"{name}: the clusters' tensor cores are done at {parts} of its time")
    return f"A row for each cluster, with bars where its tensor cores work. {'; '.join(said)}."
