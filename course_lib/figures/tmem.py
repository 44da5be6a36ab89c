"""What moved out of the registers on Blackwell, and what a load from TMEM does over time.

Sources: PTX ISA, "Tensor Memory" (128 lanes of 512 columns of 32 bits), "tcgen05.mma" (the
accumulator is in TMEM, B in shared memory, A in either), "wgmma.mma_async" (the accumulator is in
registers), "Register dependencies, same thread" (when a value that was loaded may be used).
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

# ---- what moved out ----

_PANELS = (2.0, 39.0)  # left edges, in tenths of an inch
_PANEL_W, _CORE_Y, _CORE_H = 35.0, 13.4, 8.4
# name, what is in it, its box relative to the panel (x, y, w, h), colour
_HOPPER = (
    ("registers of 128 lanes", "accumulator,\nA if you like", (2, 26, 31, 8.4), style.BLUE),
    ("TensorCore", "wgmma: started by\nall 128 lanes", (9, _CORE_Y, 17, _CORE_H), style.ORANGE),
    ("SMEM", "A and B", (2, 2.4, 31, 6.6), style.GREEN),
)
_BLACKWELL = (
    ("registers of 128 lanes", "what you load from TMEM", (2, 26, 31, 8.4), style.BLUE),
    ("TensorCore", "tcgen05: started\nby one lane", (1.4, _CORE_Y, 15, _CORE_H), style.ORANGE),
    ("TMEM", "accumulator,\nmetadata,\nA if you like", (18.6, _CORE_Y, 15, _CORE_H), style.PURPLE),
    ("SMEM", "A and B", (2, 2.4, 31, 6.6), style.GREEN),
)


def moved_out() -> Figure:
    """Two panels: who holds the accumulator and the operands on Hopper and on Blackwell."""
    fig, ax = canvas(4.2)
    for x, title, boxes in zip(
        _PANELS, ("Hopper", "Blackwell"), (_HOPPER, _BLACKWELL), strict=True
    ):
        box(ax, (x, 0.8, _PANEL_W, 36.0), fill=style.PANEL)
        label(ax, (x + _PANEL_W / 2, 39.0), title, size=12, weight="bold")
        for name, inside, (left, bottom, width, height), colour in boxes:
            box(ax, (x + left, bottom, width, height), fill=colour)
            middle = x + left + width / 2
            label(ax, (middle, bottom + height - 1.5), name, size=10, weight="bold")
            label(ax, (middle, bottom + (height - 2.2) / 2), inside, size=9)
    _ways(ax)
    fig.set_label(
        "Two panels. Hopper: the accumulator is in the registers of 128 lanes, A may be there too, "
        "A and B are in SMEM, and the TensorCore reads and writes both; all 128 lanes start a "
        "wgmma. Blackwell: the accumulator is in TMEM, beside the TensorCore, with metadata and, "
        "if you like, A; A and B are in SMEM; one lane starts a tcgen05. Registers see only what "
        "lanes load from TMEM or store there."
    )
    return fig


def _ways(ax: Axes) -> None:
    left, right = _PANELS
    top, core = 26.0, _CORE_Y + _CORE_H
    both, up = "<|-|>", "-|>"
    for start, end, style_of, text in (
        ((left + 17.5, core), (left + 17.5, top), both, ""),
        ((left + 17.5, 9.0), (left + 17.5, _CORE_Y), up, ""),
        ((right + 9, 9.0), (right + 9, _CORE_Y), up, ""),
        ((right + 16.4, 17.6), (right + 18.6, 17.6), both, ""),
        ((right + 26, core), (right + 26, top), both, "async_load_tmem\nasync_store_tmem"),
    ):
        arrow = {"arrowstyle": style_of, "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", xy=end, xytext=start, arrowprops=arrow)
        if text:
            label(ax, (start[0] - 0.8, (core + top) / 2), text, size=8.5, ha="right")


# ---- a load over time ----

_LEFT, _RIGHT = 13.0, 75.0
_THREAD_Y, _TMEM_Y, _HEIGHT = 20.0, 7.4, 5.2
PIECES = 4
# start, end, text, colour; in tenths of an inch from the left edge
_THREAD = (
    (_LEFT, 20.0, "issue\n4 loads", style.BLUE),
    (26.0, 32.0, "add to 1", style.GREEN),
    (34.0, 40.0, "add to 2", style.GREEN),
    (42.0, 48.0, "add to 3", style.GREEN),
    (50.0, 56.0, "add to 4", style.GREEN),
    (58.0, 64.5, "wait_load\n_tmem", style.GREY),
    (64.5, _RIGHT, "tcgen05_mma", style.BLUE),
)
_TMEM = (
    *((18.0 + 8 * i, 26.0 + 8 * i, f"read\npiece {i + 1}", style.PURPLE) for i in range(PIECES)),
    (64.5, _RIGHT, "is overwritten", style.VERMILION),
)


def load_over_time() -> Figure:
    """A load of four pieces: each is used when it is there; only the wait says that all are."""
    fig, ax = canvas(3.5)
    for y, name, what in (
        (_THREAD_Y, "your thread", "registers"),
        (_TMEM_Y, "TMEM", "accumulator"),
    ):
        label(ax, (0.6, y + 3.4), name, size=10, ha="left", weight="bold")
        label(ax, (0.6, y + 1.5), what, size=9, ha="left", color=style.MUTED)
    for y, spans in ((_THREAD_Y, _THREAD), (_TMEM_Y, _TMEM)):
        for start, end, text, colour in spans:
            box(ax, (start, y, end - start, _HEIGHT), text, fill=colour, size=8.5)
    arrow = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    for _, end, _, _ in _TMEM[:PIECES]:
        ax.annotate("", xy=(end, _THREAD_Y), xytext=(end, _TMEM_Y + _HEIGHT), arrowprops=arrow)
    ax.annotate("", xy=(64.5, _TMEM_Y + _HEIGHT), xytext=(64.5, _THREAD_Y), arrowprops=arrow)
    _says(ax)
    fig.set_label(
        "Two lanes over time. Your thread issues a load, which is four instructions. TMEM reads "
        "piece after piece, and an arrow goes up when the registers of a piece are filled: the "
        "thread adds to piece 1 while pieces 2 to 4 are still being read. wait_load_tmem ends "
        "after the last piece. Only then the thread starts an MMA that overwrites the accumulator."
    )
    return fig


def _says(ax: Axes) -> None:
    for start, end, text in (
        (26.0, 56.0, "values: each as soon as its registers are filled"),
        (58.0, _RIGHT, "memory: not before\nthe wait"),
    ):
        y = 28.4
        ax.plot([start, start, end, end], [y - 1.6, y - 0.6, y - 0.6, y - 1.6], color=style.LINE)
        label(ax, ((start + end) / 2, y + 1.6), text, size=9.5)
    label(ax, ((_LEFT + _RIGHT) / 2, 2.4), "time", size=9, color=style.MUTED)
    line = {"arrowstyle": "-|>", "color": style.LINE, "lw": 1}
    ax.annotate("", xy=(_RIGHT, 4.6), xytext=(_LEFT, 4.6), arrowprops=line)
