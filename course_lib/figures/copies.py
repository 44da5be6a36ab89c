"""The life of two copies: what the thread and the copy engine do, and when one hears of the other.

Sources: PTX ISA, "cp.async.bulk.tensor" (completion by mbarrier for loads, by bulk async-groups
for stores), "cp.async.bulk.wait_group" (.read: the sources have been read), "Async proxy".
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_LEFT, _RIGHT = 11.5, 75.0
_THREAD_Y, _ENGINE_Y, _HEIGHT = 22.0, 7.6, 5.6
# start, end, text, colour; in tenths of an inch from the left edge
_THREAD = (
    (_LEFT, 15.5, "start", style.BLUE),
    (15.5, 25.0, "other work", "white"),
    (25.0, 31.0, "wait", style.GREY),
    (31.0, 42.0, "read, compute,\nwrite", style.GREEN),
    (42.0, 48.6, "commit", style.ORANGE),
    (48.6, 52.6, "start", style.BLUE),
    (52.6, 60.0, "wait,\nread only", style.GREY),
    (60.0, 66.5, "refill it", style.GREEN),
    (66.5, _RIGHT, "wait", style.GREY),
)
_ENGINE = (
    (15.5, 31.0, "reads x_gmem,\nwrites SMEM", style.SKY),
    (52.6, 60.0, "reads\nSMEM", style.SKY),
    (60.0, _RIGHT, "writes y_gmem", style.SKY),
)
# x, whether the thread speaks, number
_HAND_OVERS = ((15.5, True, 1), (31.0, False, 2), (52.6, True, 3), (60.0, False, 4))
_LAST = (_RIGHT - 0.2, False, 5)


def two_copies() -> Figure:
    """A copy in and a copy out, as two lanes over time with the five hand-overs between them."""
    fig, ax = canvas(3.5)
    for y, name, what in (
        (_THREAD_Y, "your thread", "generic proxy"),
        (_ENGINE_Y, "copy engine", "async proxy"),
    ):
        label(ax, (0.6, y + 3.7), name, size=10, ha="left", weight="bold")
        label(ax, (0.6, y + 1.6), what, size=9, ha="left", color=style.MUTED)
    _lane(ax, _THREAD_Y, _THREAD)
    _lane(ax, _ENGINE_Y, _ENGINE)
    for x, down, number in (*_HAND_OVERS, _LAST):
        _hand_over(ax, x, number, down=down)
    _brackets(ax)
    fig.set_label(
        "Two lanes over time: your thread, which uses the generic proxy, and the copy engine, "
        "which uses the async proxy. The thread starts a copy in (1), does other work and waits; "
        "the engine reads x_gmem, writes SMEM, and its arrival ends the wait (2). The thread "
        "reads SMEM, computes, writes SMEM, commits, and starts the copy out (3). The engine "
        "first reads SMEM, after which the thread can refill the buffer (4), and then writes "
        "y_gmem (5)."
    )
    return fig


def _lane(ax: Axes, y: float, spans: tuple[tuple[float, float, str, str], ...]) -> None:
    for start, end, text, colour in spans:
        box(ax, (start, y, end - start, _HEIGHT), text, fill=colour, size=8.5)


def _hand_over(ax: Axes, x: float, number: int, *, down: bool) -> None:
    """An arrow between the lanes, from the one that speaks to the one that hears it."""
    top, bottom = _THREAD_Y, _ENGINE_Y + _HEIGHT
    start, end = (top, bottom) if down else (bottom, top)
    arrow = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(x, end), xytext=(x, start), arrowprops=arrow)
    middle = (x - 1.6, (top + bottom) / 2)
    label(ax, middle, f"{number}", size=10, weight="bold")


def _brackets(ax: Axes) -> None:
    for start, end, y, text in (
        (_LEFT, 31.0, 31.0, "the copy in: its barrier tells"),
        (48.6, _RIGHT, 31.0, "the copy out: its group is waited for"),
    ):
        ax.plot([start, start, end, end], [y - 1.6, y - 0.6, y - 0.6, y - 1.6], color=style.LINE)
        label(ax, ((start + end) / 2, y + 0.9), text, size=9.5)
    label(ax, ((_LEFT + _RIGHT) / 2, 2.6), "time", size=9, color=style.MUTED)
    ax.annotate(
        "",
        xy=(_RIGHT, 4.6),
        xytext=(_LEFT, 4.6),
        arrowprops={"arrowstyle": "-|>", "color": style.LINE, "lw": 1},
    )
