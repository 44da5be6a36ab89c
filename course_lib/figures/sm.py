"""Pictures of a streaming multiprocessor: what is in it, what runs on it, who is busy when.

Sources: "NVIDIA Hopper Architecture In-Depth" (four processing blocks, 132 SMs of an
H100 SXM, 228 KB of shared memory), the Hopper tuning guide (64 warps, 32 blocks), the
PTX ISA (a warpgroup is four consecutive warps).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_QUADRANTS = 4
# who is resident in the picture: colour, name, its block
_RESIDENTS = (
    (style.BLUE, "thread 0", "block 7"),
    (style.ORANGE, "thread 1", "block 7"),
    (style.GREEN, "thread 0", "block 9"),
)


def one_sm() -> Figure:
    """An SM: four quadrants as columns, Pallas threads as bands across all four."""
    fig, ax = canvas(5.0)
    box(ax, (0.6, 0.6, 74.8, 48.8), fill=style.PANEL)
    label(ax, (2, 47.2), "one SM (streaming multiprocessor)", size=11, ha="left", weight="bold")
    left, width, gap = 15.0, 14.2, 0.8
    for q in range(_QUADRANTS):
        _quadrant(ax, q, left + q * (width + gap), width)
    for row, resident in enumerate(_RESIDENTS):
        _band(ax, row, resident, left, width, gap)
    _captions(ax)
    _shared(ax, left, _QUADRANTS * (width + gap) - gap)
    fig.set_label(
        "One SM with four quadrants as columns. Each has a warp scheduler, 64 KB of registers, a "
        "TensorCore, an ALU and an SFU. Three Pallas threads are bands of four warps, one warp in "
        "each quadrant: thread 0 and thread 1 of block 7, and thread 0 of block 9. The quadrants "
        "share the load and store unit (LSU), up to 228 KB of shared memory (SMEM) and the copy "
        "engine (TMA)."
    )
    return fig


def _quadrant(ax: Axes, q: int, x: float, w: float) -> None:
    box(ax, (x, 9.6, w, 35.6))
    label(ax, (x + w / 2, 43.6), f"quadrant {q}", size=10, weight="bold")
    box(ax, (x + 0.8, 38.6, w - 1.6, 3.6), "warp scheduler", fill=style.GREY, size=9)
    box(ax, (x + 0.8, 17.2, w - 1.6, 3.6), "registers, 64 KB", size=9)
    units = (("Tensor\nCore", style.PURPLE), ("ALU", style.YELLOW), ("SFU", style.VERMILION))
    widths = (w - 1.6 - 1.0) * np.array([0.46, 0.27, 0.27])
    lefts = x + 0.8 + np.array([0, widths[0] + 0.5, widths[0] + widths[1] + 1.0])
    for (name, colour), ux, uw in zip(units, lefts, widths, strict=True):
        box(ax, (ux, 10.8, uw, 5.2), name, fill=colour, size=8.5)


def _band(
    ax: Axes, row: int, resident: tuple[str, str, str], left: float, width: float, gap: float
) -> None:
    """Four warps, one in each quadrant, that are one Pallas thread."""
    colour, thread, block = resident
    y = 33.6 - row * 5.6
    label(ax, (1.6, y + 2.9), f"Pallas {thread}", size=9.5, ha="left", weight="bold")
    label(ax, (1.6, y + 0.9), f"of {block}", size=9, ha="left", color=style.MUTED)
    first = 4 * int(thread[-1])
    for q in range(_QUADRANTS):
        x = left + q * (width + gap)
        box(ax, (x + 0.8, y, width - 1.6, 3.9), f"warp {first + q}", fill=colour, size=9.5)
        if q:
            ax.plot([x - gap - 0.8, x + 0.8], [y + 1.95] * 2, color=colour, lw=6, zorder=1.1)


def _captions(ax: Axes) -> None:
    rows = ((40.4, "picks one warp,\neach cycle"), (19.0, "hold the arrays"), (13.4, "do the work"))
    for y, text in rows:
        label(ax, (1.6, y), text, size=9, ha="left", color=style.MUTED)


def _shared(ax: Axes, left: float, w: float) -> None:
    label(ax, (1.6, 4.8), "shared by\nthe four", size=9, ha="left", color=style.MUTED)
    box(ax, (left, 2, w * 0.2, 5.6), "LSU\nloads, stores", fill=style.SKY, size=9)
    text = "shared memory (SMEM), up to 228 KB"
    box(ax, (left + w * 0.21, 2, w * 0.57, 5.6), text, fill=style.SKY, size=10)
    box(ax, (left + w * 0.79, 2, w * 0.21, 5.6), "TMA\ncopy engine", fill=style.SKY, size=9)


def blocks_on_sms(blocks: int = 11, *, sms: int = 4, per_sm: int = 2) -> Figure:
    """A grid of blocks, some of them running on SMs, the rest waiting for a place.

    Args:
      blocks: blocks of the grid.
      sms: how many SMs to draw.
      per_sm: how many blocks fit an SM at a time.
    """
    fig, ax = canvas(2.9)
    label(ax, (1.6, 26.6), f"the grid: {blocks} blocks", size=10, ha="left", weight="bold")
    pitch = 72.8 / blocks
    running = min(blocks, sms * per_sm)
    for b in range(blocks):
        colour = style.CYCLE[b % sms] if b < running else "white"
        box(ax, (1.6 + b * pitch, 20.2, pitch - 0.8, 4.4), f"{b}", fill=colour)
    label(ax, (1.6, 17.0), "the GPU", size=10, ha="left", weight="bold")
    width = 72.8 / sms
    for s in range(sms):
        x = 1.6 + s * width
        box(ax, (x, 3.8, width - 0.8, 11.4), fill=style.PANEL)
        label(ax, (x + 1.2, 13.4), f"SM {s}", size=9.5, ha="left")
        for i, b in enumerate(range(s, running, sms)):
            inner = (width - 2.0) / per_sm
            at = (x + 1.0 + i * inner, 5.0, inner - 0.8, 6.4)
            box(ax, at, f"block {b}", fill=style.CYCLE[s], size=9.5)
    waiting = blocks - running
    homes = (f"SM {s} holds {_listed('block', range(s, running, sms))}" for s in range(sms))
    fig.set_label(
        f"A grid of {blocks} blocks above a GPU of {sms} SMs. {'; '.join(homes)}. "
        f"{waiting} wait for a place."
    )
    text = f"{running} blocks run, {waiting} wait: each starts where an earlier one ends."
    label(ax, (1.6, 1.9), text, size=9, ha="left", color=style.MUTED)
    return fig


# who, what, start, length; time in arbitrary units
Span = tuple[str, str, float, float]


def ping_pong() -> Figure:
    """The TensorCore and the ALUs over time: one Pallas thread, then two that take turns."""
    fig, ax = canvas(3.6)
    alone = [("A", "MMA", 0, 3), ("A", "exp", 3, 3), ("A", "MMA", 6, 3), ("A", "exp", 9, 3)]
    other = [("B", what, start + 3, length) for _, what, start, length in alone]
    _timeline(ax, 21.6, "one Pallas thread: each unit waits for the other", alone)
    _timeline(ax, 5.6, "two Pallas threads: one computes exp while the other multiplies", [
        *alone,
        *other,
    ])  # fmt: skip
    ax.annotate(
        "", xy=(74.6, 2.4), xytext=(18, 2.4), arrowprops={"arrowstyle": "->", "color": style.MUTED}
    )
    label(ax, (46, 1.1), "time", size=9, color=style.MUTED)
    fig.set_label(
        "Two timelines, each with a row for the TensorCore and one for ALU and SFU. With one "
        "Pallas thread, A, matrix products (MMA) and exp alternate, and one of the units always "
        "idles. With two, A and B, one computes exp while the other multiplies: both are busy."
    )
    return fig


def _timeline(ax: Axes, y: float, title: str, spans: Sequence[Span]) -> None:
    rows = {"MMA": (y + 5.2, "TensorCore"), "exp": (y, "ALU, SFU")}
    label(ax, (1.6, y + 12.2), title, size=10, ha="left", weight="bold")
    for row_y, unit in rows.values():
        box(ax, (18, row_y, 56.6, 4.4), fill=style.PANEL, edge=style.GREY)
        label(ax, (1.6, row_y + 2.2), unit, size=10, ha="left")
    scale = 56.6 / 15
    for who, what, start, length in spans:
        colour = style.BLUE if who == "A" else style.ORANGE
        at = (18 + start * scale, rows[what][0], length * scale, 4.4)
        box(ax, at, f"{who}: {what}", fill=colour, size=9.5)


def who_wrote(numbers: Any, *, unit: str = "block") -> Figure:
    """An array of block numbers as a picture: one colour per block, hatched where none wrote.

    Args:
      numbers: a vector or matrix; NaN means that nobody wrote the element.
      unit: what the numbers count.
    """
    array = np.asarray(numbers, np.float64)
    shape = array.shape
    grid = array[None] if array.ndim == 1 else array
    rows, columns = grid.shape
    height = 1.3 if array.ndim == 1 else 0.9 + min(4.0, 6.4 * rows / columns)
    fig, ax = canvas(height)
    w, h = 72.0, height * 10 - 6.8
    for (r0, r1, c0, c1), value in _regions(grid):
        x, y = 2 + w * c0 / columns, 1.6 + h * (rows - r1) / rows
        _region(ax, (x, y, w * (c1 - c0) / columns, h * (r1 - r0) / rows), value, unit)
    axes = " x ".join(map(str, shape))
    what = f"{axes} elements, by the {unit} that wrote them"
    label(ax, (2, height * 10 - 2.6), what, size=10, ha="left")
    fig.set_label(f"{what}: {'; '.join(_whose(shape, r, v, unit) for r, v in _regions(grid))}.")
    return fig


def _whose(
    shape: tuple[int, ...], region: tuple[int, int, int, int], value: float, unit: str
) -> str:
    """A region of `who_wrote` in words: "[0:64, 0:128] by block 0"."""
    r0, r1, c0, c1 = region
    place = f"[{c0}:{c1}]" if len(shape) == 1 else f"[{r0}:{r1}, {c0}:{c1}]"
    return f"{place} never written" if np.isnan(value) else f"{place} by {unit} {int(value)}"


def _listed(noun: str, numbers: Sequence[int]) -> str:
    """Numbers with their noun: "blocks 0, 4", "block 3", "no block"."""
    if not numbers:
        return f"no {noun}"
    return f"{noun}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _region(ax: Axes, xywh: tuple[float, float, float, float], value: float, unit: str) -> None:
    x, y, w, h = xywh
    if np.isnan(value):
        box(ax, xywh, fill="white")
        ax.patches[-1].set_hatch("///")
        ax.patches[-1].set_edgecolor(style.LINE)
        text = "never written"
    else:
        box(ax, xywh, fill=style.CYCLE[int(value) % len(style.CYCLE)])
        text = f"{unit} {int(value)}" if w > 7 else f"{int(value)}"
    settings = {"bbox": {"facecolor": "white", "edgecolor": "none"}} if np.isnan(value) else {}
    label(ax, (x + w / 2, y + h / 2), text, size=9.5, **settings)


def _regions(grid: np.ndarray[Any, Any]) -> list[tuple[tuple[int, int, int, int], float]]:
    """Rectangles of equal value, `((row0, row1, column0, column1), value)`, row by row."""
    row_cuts = _cuts(grid)
    found = []
    for r0, r1 in itertools.pairwise(row_cuts):
        column_cuts = _cuts(grid[r0:r1].T)
        for c0, c1 in itertools.pairwise(column_cuts):
            found.append(((r0, r1, c0, c1), float(grid[r0, c0])))
    return found


def _cuts(grid: np.ndarray[Any, Any]) -> list[int]:
    """Where rows begin that differ from the row before, and the end."""
    same = (grid[1:] == grid[:-1]) | (np.isnan(grid[1:]) & np.isnan(grid[:-1]))
    changes = (np.flatnonzero(~same.all(axis=1)) + 1).tolist()
    return [0, *changes, len(grid)]
