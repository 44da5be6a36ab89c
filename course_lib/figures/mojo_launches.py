"""The picture of chapter 20: a launch in two dimensions, laid over a matrix that it does not fit.

Source: CUDA Programming Guide, "Thread Hierarchy": x is the first index of a block and of a lane.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.figures import style
from course_lib.figures.style import canvas, label

_CELL = 4.2
_LEFT, _BOTTOM = 13.0, 5.0


def grid_for(rows: int, cols: int, block: tuple[int, int]) -> tuple[int, int]:
    """How many blocks of (x, y) lanes it takes in x and in y: one lane for each element."""
    return -(-cols // block[0]), -(-rows // block[1])


def idle_lanes(rows: int, cols: int, block: tuple[int, int]) -> int:
    """How many lanes of such a launch have no element."""
    across, down = grid_for(rows, cols, block)
    return across * block[0] * down * block[1] - rows * cols


def cover(rows: int, cols: int, *, block: tuple[int, int], marked: tuple[int, int]) -> Figure:
    """The lanes of a launch over a matrix; grey are those without an element.

    Args:
      rows, cols: the matrix.
      block: lanes of a block in x and in y.
      marked: (row, column) of an element whose lane is named.
    """
    across, down = grid_for(rows, cols, block)
    wide, high = across * block[0], down * block[1]
    fig, ax = canvas((_BOTTOM + high * _CELL + 6.0) / 10)
    top = _BOTTOM + high * _CELL
    for row in range(high):
        for col in range(wide):
            number = (col // block[0] + row // block[1]) % 2
            inside = row < rows and col < cols
            fill = (style.SKY, style.YELLOW)[number] if inside else style.GREY
            _cell(ax, (_LEFT + col * _CELL, top - (row + 1) * _CELL), fill)
    _blocks(ax, (across, down), block, top)
    _mark(ax, marked, block, top)
    label(ax, (_LEFT + wide * _CELL / 2, top + 3.6), "x: columns", size=9, color=style.MUTED)
    label(ax, (_LEFT - 8.6, top - high * _CELL / 2), "y: rows", size=9, color=style.MUTED)
    fig.set_label(_told(rows, cols, block, marked))
    return fig


def _cell(ax: Axes, corner: tuple[float, float], fill: str) -> None:
    ax.add_patch(Rectangle(corner, _CELL, _CELL, facecolor=fill, edgecolor="white", lw=1.0))


def _blocks(ax: Axes, grid: tuple[int, int], block: tuple[int, int], top: float) -> None:
    """The blocks' outlines and their numbers, above and at the left."""
    wide, high = block[0] * _CELL, block[1] * _CELL
    for x in range(grid[0]):
        label(ax, (_LEFT + (x + 0.5) * wide, top + 1.3), f"block_idx.x = {x}", size=8)
        for y in range(grid[1]):
            corner = (_LEFT + x * wide, top - (y + 1) * high)
            ax.add_patch(Rectangle(corner, wide, high, fill=False, edgecolor=style.INK, lw=1.4))
    for y in range(grid[1]):
        label(ax, (_LEFT - 0.6, top - (y + 0.5) * high), f"{y}", size=8, ha="right")
    label(ax, (_LEFT - 0.6, top + 1.3), "block_idx.y", size=8, ha="right")


def _mark(ax: Axes, marked: tuple[int, int], block: tuple[int, int], top: float) -> None:
    row, col = marked
    corner = (_LEFT + col * _CELL, top - (row + 1) * _CELL)
    ax.add_patch(Rectangle(corner, _CELL, _CELL, fill=False, edgecolor="#b3261e", lw=2.2))
    words = (
        f"global_idx = ({col}, {row}): block ({col // block[0]}, {row // block[1]}), "
        f"thread_idx ({col % block[0]}, {row % block[1]}), element [{row}, {col}]"
    )
    label(ax, (_LEFT, _BOTTOM - 2.6), words, size=9, ha="left", color="#b3261e")


def _told(rows: int, cols: int, block: tuple[int, int], marked: tuple[int, int]) -> str:
    across, down = grid_for(rows, cols, block)
    row, col = marked
    return (
        f"A matrix of {rows} x {cols} elements under a launch of {across} x {down} blocks, each "
        f"{block[0]} lanes in x and {block[1]} in y. Columns run along x, rows along y. "
        f"{idle_lanes(rows, cols, block)} lanes at the right and at the bottom, drawn grey, have "
        f"no element. The lane with global_idx ({col}, {row}) is lane ({col % block[0]}, "
        f"{row % block[1]}) of block ({col // block[0]}, {row // block[1]}), and has element "
        f"[{row}, {col}]."
    )
