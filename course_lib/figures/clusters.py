"""Clusters: a tile that goes to several blocks at once, and who brings what for a matrix product.

Sources: PTX ISA, "cp.async.bulk.tensor" (.multicast::cluster); reference page, "Collective
copies"; the shares are those of `course_lib.kernels.clusters.matmul`.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label

TILE_KIB = 16
"""A tile of A or B in one step: 128 x 64 elements of 2 bytes."""

SIDE = 4
"""Blocks along each side of the grid that is drawn."""

_ARROW = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
_COLOURS = (style.BLUE, style.ORANGE)


def together() -> Figure:
    """Two blocks that bring a tile each for itself, and two that bring it together."""
    fig, ax = canvas(3.3)
    label(ax, (19, 31.2), "each for itself", size=10.5, weight="bold")
    label(ax, (57, 31.2), "a collective copy", size=10.5, weight="bold")
    for left, shared in ((2.0, False), (40.0, True)):
        if shared:
            for half in range(2):
                text = f"block {half} brings this"
                box(ax, (left + 17 * half, 22.5, 17, 5.6), text, fill=_COLOURS[half], size=9)
        else:
            box(ax, (left, 22.5, 34, 5.6), "the tile, in GMEM or L2", fill=style.PANEL, size=9)
        for i in range(2):
            x = left + 18 * i
            box(ax, (x, 1.2, 16, 11.6), "", fill="white")
            label(ax, (x + 8, 2.9), f"block {i}: its SMEM", size=9)
            for half in range(2):
                owner = half if shared else i
                place = (x + 1.5 + 6.5 * half, 5.2, 6.5, 5.6)
                box(ax, place, "", fill=_COLOURS[owner])
        for i in range(2):
            _arrows(ax, left, i, shared)
    fig.set_label(
        "Two blocks, each with its SMEM, and a tile above them. On the left each block brings the "
        "whole tile for itself: the tile leaves L2 twice. On the right, with a collective copy, "
        "block 0 brings the left half and block 1 the right half, and each half arrives in the "
        "SMEM of both: the tile leaves L2 once."
    )
    return fig


def _arrows(ax: Axes, left: float, i: int, shared: bool) -> None:
    """The copy that block `i` starts: down to its own SMEM, or to both."""
    if not shared:
        x = left + 8 + 18 * i
        ax.annotate("", xy=(x, 11.2), xytext=(x, 22.4), arrowprops=_ARROW)
        label(ax, (x + 1, 17.6), "all of it", size=8.5, ha="left")
        return
    start = left + 8.5 + 17 * i
    for j in range(2):
        end = left + 18 * j + 4.7 + 6.5 * i
        arrow = {**_ARROW, "color": ("#2c6fa6", "#b06a00")[i]}
        ax.annotate("", xy=(end, 11.2), xytext=(start, 22.4), arrowprops=arrow)


def grid(cluster_m: int = 2, cluster_n: int = 2) -> Figure:
    """A grid of blocks in clusters, and what one cluster brings for a step of C = A @ B.

    Args:
      cluster_m: blocks above each other in a cluster, 1, 2 or 4.
      cluster_n: blocks beside each other, 1, 2 or 4.

    Raises:
      ValueError: the grid of 4 x 4 blocks cannot be cut like that.
    """
    if SIDE % cluster_m or SIDE % cluster_n:
        raise ValueError(f"{cluster_m=} and {cluster_n=} must be 1, 2 or 4")
    fig, ax = canvas(4.0)
    cell, left, top = 6.4, 16.0, 29.0
    for row in range(SIDE):
        for col in range(SIDE):
            mine = row < cluster_m and col < cluster_n
            at = (left + cell * col, top - cell * (row + 1))
            _cell(ax, at, cell, f"{row}, {col}" if mine else "", mine)
    for row in range(0, SIDE, cluster_m):
        for col in range(0, SIDE, cluster_n):
            at = (left + cell * col, top - cell * (row + cluster_m))
            size = (cell * cluster_n, cell * cluster_m)
            frame = Rectangle(at, *size, fill=False, edgecolor=style.INK, lw=2.2)
            ax.add_patch(frame)
    for row in range(cluster_m):
        at = (left - 9, top - cell * (row + 1))
        _shares(ax, at, (7.5, cell - 0.8), [f"{row}, {j}" for j in range(cluster_n)])
    for col in range(cluster_n):
        at = (left + cell * col, top + 1.2)
        _shares(ax, at, (cell - 0.8, 7.5), [f"{i}, {col}" for i in range(cluster_m)], down=True)
    label(ax, (left - 5.2, top - cell * SIDE - 1.8), "tiles of A", size=9.5)
    label(ax, (left + cell * SIDE + 1, top + 5), "tiles of B", size=9.5, ha="left")
    label(ax, (left + cell * 2, top - cell * SIDE - 1.8), "blocks of C", size=9.5)
    _words(ax, cluster_m, cluster_n)
    fig.set_label(_description(cluster_m, cluster_n))
    return fig


def _cell(ax: Axes, at: tuple[float, float], size: float, text: str, mine: bool) -> None:
    fill = style.SKY if mine else "white"
    ax.add_patch(Rectangle(at, size, size, facecolor=fill, edgecolor=style.LINE, lw=0.8))
    if text:
        label(ax, (at[0] + size / 2, at[1] + size / 2), text, size=9)


def _shares(
    ax: Axes, at: tuple[float, float], size: tuple[float, float], who: list[str], *,
    down: bool = False,
) -> None:  # fmt: skip
    """A tile in equal shares, each with the block that brings it."""
    (x, y), (w, h) = at, size
    for i, text in enumerate(who):
        part_w, part_h = (w, h / len(who)) if down else (w / len(who), h)
        x0, y0 = (x, y + h - part_h * (i + 1)) if down else (x + part_w * i, y)
        fill = (style.BLUE, style.ORANGE, style.GREEN, style.PURPLE)[i % 4]
        ax.add_patch(
            Rectangle((x0, y0), part_w, part_h, facecolor=fill, edgecolor=style.LINE, lw=0.8)
        )
        if len(who) <= 2:
            label(ax, (x0 + part_w / 2, y0 + part_h / 2), text, size=7.5)


def _words(ax: Axes, cluster_m: int, cluster_n: int) -> None:
    alone, now = _brings_kib(1, 1), _brings_kib(cluster_m, cluster_n)
    lines = (
        ("clusters of", f"{cluster_m} x {cluster_n} blocks"),
        ("a tile of A is shared by", _blocks(cluster_n)),
        ("a tile of B is shared by", _blocks(cluster_m)),
        ("a block brings, per step", f"{now} KiB"),
        ("without a cluster", f"{alone} KiB"),
    )
    for i, (what, number) in enumerate(lines):
        y = 26.0 - 4.2 * i
        label(ax, (46.5, y), what, size=9.5, ha="left", color=style.MUTED)
        label(ax, (74.5, y), number, size=9.5, ha="right", weight="bold")


def _brings_kib(cluster_m: int, cluster_n: int) -> int:
    """What a block brings in a step: its share of a tile of A, and of one of B."""
    return TILE_KIB // cluster_n + TILE_KIB // cluster_m


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count} blocks"


def _description(cluster_m: int, cluster_n: int) -> str:
    now = _brings_kib(cluster_m, cluster_n)
    return (
        f"A grid of {SIDE} x {SIDE} blocks of C, cut into clusters of {cluster_m} x {cluster_n}. "
        f"To the left of the first cluster are its tiles of A, each shared by {cluster_n} of its "
        f"blocks, and above it its tiles of B, each shared by {cluster_m}; the blocks that share "
        f"a tile bring equal parts of it. With tiles of 128 x 128 x 64 in 16 bits a block brings "
        f"{now} KiB per step."
    )
