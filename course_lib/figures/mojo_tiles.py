"""Pictures of a tree of sums with what it leaves behind, and of a tile dealt to a warp.

Sources: the block reduction and the fragments of the guide to GPU programming in Mojo.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_CELL = 3.2
_LEFT = 13.5


def tree_of_sums(*, threads: int = 16, warp: int = 4) -> Figure:
    """A tree over `threads` ones: after each round the slots, and what a warp's sum of them is.

    Args:
      threads: how many slots, a power of two.
      warp: how many slots the warp adds up at the end; a power of two, at most `threads`.
    """
    rounds = threads.bit_length()
    fig, ax = canvas(0.46 * rounds + 0.4)
    top = 4.6 * rounds - 1.4
    label(ax, (_LEFT + warp * _CELL / 2, top + 3.7), "the warp adds these", size=9)
    slots, active = [1] * threads, threads
    for number in range(rounds):
        y = top - 4.6 * number
        label(ax, (1, y), _round(number, active), size=10, ha="left")
        _slots(ax, slots, active, y)
        _verdict(ax, sum(slots[:warp]), threads, (_LEFT + threads * _CELL + 2, y))
        active //= 2
        slots = [s + slots[i + active] if i < active else s for i, s in enumerate(slots)]
    edge = (_LEFT - 0.4, top - 4.6 * (rounds - 1) - 2.1, warp * _CELL + 0.4, 4.6 * rounds - 0.3)
    box(ax, edge, fill="none", edge=style.INK)
    fig.set_label(
        f"{threads} slots, all 1, through the rounds of a tree. After each round blue slots hold "
        "sums that still count, orange ones sums that were added to another slot already. On the "
        f"right is the sum of the first {warp} slots. It is {threads}, which is right, after the "
        f"round that leaves {warp} blue slots; each later round leaves orange ones among the "
        f"first {warp}, and at the end the sum is {_at_the_end(threads, warp)}."
    )
    return fig


def _round(number: int, active: int) -> str:
    if not number:
        return "before"
    return "1 lane adds" if active == 1 else f"{active} lanes add"


def _at_the_end(threads: int, warp: int) -> int:
    """What a warp's sum is after the whole tree over ones: slot i holds 2^-ceil(log2(i+1))."""
    return sum(threads >> i.bit_length() for i in range(warp))


def _slots(ax: Axes, slots: Sequence[int], active: int, y: float) -> None:
    for i, value in enumerate(slots):
        fill = style.BLUE if i < active else style.ORANGE
        box(ax, (_LEFT + i * _CELL, y - 1.55, _CELL - 0.4, 3.1), str(value), fill=fill, size=9)


def _verdict(ax: Axes, total: int, wanted: int, xy: tuple[float, float]) -> None:
    right = total == wanted
    text = f"{total}, right" if right else f"{total}"
    label(ax, xy, text, size=10, weight="bold" if right else "normal", ha="left")


def fragments(*, marked: int = 5) -> Figure:
    """A tile of 16 x 32 as 16 x 8 vectors, dealt to a warp by an 8 x 4 layout.

    Args:
      marked: the lane whose vectors are marked.
    """
    fig, ax = canvas(4.6)
    width, height = 7.0, 2.55
    for row in range(16):
        for col in range(8):
            lane = row % 8 * 4 + col % 4
            x, y = 9 + col * (width + 0.3), 40.5 - row * height
            fill = (
                style.ORANGE
                if lane == marked
                else style.SKY
                if (row // 8 + col // 4) % 2
                else "white"
            )
            box(ax, (x, y - 2.3, width, 2.3), f"lane {lane}", fill=fill, size=7.5)
    for col in range(8):
        label(ax, (12.5 + col * 7.3, 42), f"{4 * col} to {4 * col + 3}", size=8)
    for row in range(16):
        label(ax, (4.5, 39.4 - row * height), f"row {row}", size=8)
    label(ax, (38, 44.4), "columns of the tile", size=9)
    fig.set_label(
        "A tile of 16 rows and 32 columns as 16 x 8 vectors of four numbers. Lanes 0 to 31 stand "
        "in them as an 8 x 4 pattern that is repeated twice down and twice across. Lane "
        f"{marked}'s four vectors are marked: "
        + ", ".join(
            f"row {marked // 4 + 8 * r}, columns {4 * (marked % 4 + 4 * c)} to "
            f"{4 * (marked % 4 + 4 * c) + 3}"
            for r in range(2)
            for c in range(2)
        )
        + "."
    )
    return fig
