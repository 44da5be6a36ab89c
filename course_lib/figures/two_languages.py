"""A picture of one row of numbers, as lanes in Mojo and as a warpgroup in Pallas share it out.

Sources: the two softmax kernels of chapter 22; WG_STRIDED of the reference page for Pallas.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

_LEFT, _WIDTH = 13.0, 7.2
_COLUMNS = 8


def who_holds_a_row(*, cols: int = 1024) -> Figure:
    """The beginning of a row of `cols` numbers, and which lane holds them, in both languages.

    Args:
      cols: the length of the row, a multiple of 256.
    """
    fig, ax = canvas(2.45)
    _row(ax, 18.9, "Mojo:\n32 lanes", width=4)
    _row(ax, 6.4, "Pallas:\n128 lanes", width=2)
    _note(ax, 12.7, f"lane 0 has {cols // 128} such vectors, 128 apart: {cols // 32} in all")
    _note(ax, 0.2, f"lane 0 has {cols // 256} such vectors, 256 apart: {cols // 128} in all")
    fig.set_label(
        f"The first 16 of {cols} numbers of a row, twice. Above, in Mojo, lane 0 holds 0 to "
        f"3, lane 1 numbers 4 to 7, and so on over 32 lanes; lane 0 has {cols // 32} numbers in "
        "all. Below, in Pallas, lane 0 holds numbers 0 and 1, lane 1 numbers 2 and 3, and so on "
        f"over 128 lanes; lane 0 has {cols // 128} numbers in all. Lane 0's numbers are marked."
    )
    return fig


def _row(ax: Axes, y: float, title: str, *, width: int) -> None:
    """16 numbers, in vectors of `width`; each vector is the next lane's."""
    label(ax, (6.2, y + 2), title, size=9)
    cell = _COLUMNS * _WIDTH / 16
    for lane in range(16 // width):
        left = _LEFT + lane * width * cell
        fill = style.ORANGE if lane == 0 else style.SKY
        box(ax, (left, y - 0.2, width * cell - 0.3, 2.6), f"lane {lane}", fill=fill, size=9)
    for i in range(16):
        label(ax, (_LEFT + (i + 0.5) * cell, y + 3.6), str(i), size=8)
    label(ax, (_LEFT + 16 * cell + 2, y + 1), "...", size=10)


def _note(ax: Axes, y: float, text: str) -> None:
    label(ax, (_LEFT, y + 3.6), text, size=9, ha="left")
