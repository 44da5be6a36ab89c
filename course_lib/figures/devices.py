"""GPUs in a ring: who sends which shard to whom, and who has what after each step.

Sources: `course_lib.kernels.many_gpus.all_gather`, whose order this is.
"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

MOST = 8
"""Devices that the picture has room for."""

_ARROW = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}


def has(device: int, *, steps: int, devices: int) -> list[int]:
    """The shards that a device has after so many steps of a ring all-gather, its own first."""
    return [(device - s) % devices for s in range(min(steps, devices - 1) + 1)]


def ring(devices: int = 4, steps: int = 1) -> Figure:
    """A ring of GPUs during a step of an all-gather, and a table of what each has after it.

    Args:
      devices: how many, 2 to 8.
      steps: how many steps are done, the one that the arrows show included; 1 to devices - 1.

    Raises:
      ValueError: there is no such step, or no room.
    """
    if not 2 <= devices <= MOST:
        raise ValueError(f"{devices=} must be 2 to {MOST}")
    if not 1 <= steps < devices:
        raise ValueError(f"{steps=} must be 1 to {devices - 1}")
    fig, ax = canvas(3.9)
    _circle(ax, devices, steps)
    _table(ax, devices, steps)
    sent = ", ".join(f"{d} sends shard {(d - steps + 1) % devices}" for d in range(devices))
    held = ", ".join(
        f"device {d}: {sorted(has(d, steps=steps, devices=devices))}" for d in range(devices)
    )
    fig.set_label(
        f"A ring of {devices} GPUs, each with an arrow to the next one, in step {steps - 1} of an "
        f"all-gather: device {sent}. A table beside it says which shards each has afterwards: "
        f"{held}."
    )
    return fig


def _circle(ax: Axes, devices: int, steps: int) -> None:
    radius, centre = 12.4, (18.5, 19.0)
    places = []
    for d in range(devices):
        angle = math.pi / 2 - 2 * math.pi * d / devices
        places.append((centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)))
    for d, (x, y) in enumerate(places):
        following = places[(d + 1) % devices]
        _arrow(ax, (x, y), following, f"{(d - steps + 1) % devices}", bent=devices == 2)
    for d, (x, y) in enumerate(places):
        box(ax, (x - 3.6, y - 2.1, 7.2, 4.2), f"GPU {d}", fill=style.CYCLE[d], size=9.5)
    label(ax, (18.5, 36.8), f"step {steps - 1}: who sends which shard", size=10.5, weight="bold")


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str, *, bent: bool
) -> None:
    length = math.dist(start, end)
    along = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    gap = min(4.6, length * 0.36)
    tail = (start[0] + along[0] * gap, start[1] + along[1] * gap)
    head = (end[0] - along[0] * gap, end[1] - along[1] * gap)
    side = (along[1], -along[0])  # to the right of the way, which is inside of the circle
    if bent:
        tail, head = ((x - side[0] * 1.6, y - side[1] * 1.6) for x, y in (tail, head))
    ax.annotate("", xy=head, xytext=tail, arrowprops=_ARROW)
    middle = ((tail[0] + head[0]) / 2 - side[0] * 1.7, (tail[1] + head[1]) / 2 - side[1] * 1.7)
    label(ax, middle, text, size=9.5, weight="bold")


def _table(ax: Axes, devices: int, steps: int) -> None:
    left, top, cell = 45.5, 31.0, min(3.4, 27.0 / devices)
    label(ax, (left + cell * devices / 2, 36.8), "afterwards", size=10.5, weight="bold")
    for shard in range(devices):
        label(ax, (left + cell * (shard + 0.5), top + 1.4), str(shard), size=9.5)
    label(ax, (left - 0.8, top + 1.4), "shard", size=9.5, ha="right", color=style.MUTED)
    for d in range(devices):
        y = top - cell * (d + 1)
        label(ax, (left - 0.8, y + cell / 2), f"GPU {d}", size=9.5, ha="right")
        held = has(d, steps=steps, devices=devices)
        for shard in range(devices):
            there = shard in held
            fill = style.CYCLE[shard] if there else "white"
            patch = Rectangle(
                (left + cell * shard, y), cell, cell, facecolor=fill, edgecolor=style.LINE, lw=0.8
            )
            ax.add_patch(patch)
            if there and shard == held[-1]:
                label(ax, (left + cell * (shard + 0.5), y + cell / 2), "new", size=7.5)
