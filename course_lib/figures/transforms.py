"""Pictures of shared memory: tiles in a row, the bits of a swizzled address, and the swizzle atom.

Sources: the reference page, "Memory reference transforms"; PTX ISA, "Asynchronous Warpgroup
Level Matrix Shared Memory Layout" and "Swizzling Modes" (of tensor maps); the CUDA
Programming Guide, "Shared Memory" (32 banks of 4 bytes).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib.figures import style
from course_lib.figures.style import box, canvas, label
from course_lib.layouts import swizzle as swizzles

_CHUNK_BITS = (4, 5, 6)
_ROW_BITS = (7, 8, 9)
_BITS = 12
_CHUNKS = 8  # of 16 bytes in a row of 128


def tiles_in_memory(
    rows: int = 24, columns: int = 128, *, tile: tuple[int, int] = (8, 64)
) -> Figure:
    """A matrix cut into numbered tiles, and the same tiles one after the other in memory.

    Args:
      rows, columns: of the matrix.
      tile: rows and columns of a tile; they divide the matrix.
    """
    fig, ax = canvas(4.3)
    down, across = rows // tile[0], columns // tile[1]
    label(ax, (2, 41), f"logical: {rows} x {columns}", size=10.5, ha="left", weight="bold")
    width, height = 40 / across, 24 / down
    for t in range(down * across):
        mi, ni = divmod(t, across)
        x, y = 2 + ni * width, 38.5 - (mi + 1) * height
        _tile(ax, (x, y, width - 0.6, height - 0.6), t, tile)
        if ni == 0:
            label(ax, (44, y + height / 2), f"rows {mi * tile[0]} to {(mi + 1) * tile[0] - 1}",
                  size=9, ha="left", color=style.MUTED)  # fmt: skip
    label(ax, (2, 11), "physical: one line of memory", size=10.5, ha="left", weight="bold")
    pitch = 72 / (down * across)
    for t in range(down * across):
        _tile_in_memory(ax, (2 + t * pitch, 4.4, pitch - 0.5, 4.4), t, tile[0])
    text = (
        f"low addresses; each tile is {tile[0]} rows of {tile[1]} elements in one piece, row by row"
    )
    label(ax, (2, 2.2), text, size=9, ha="left", color=style.MUTED)
    fig.set_label(
        f"A matrix of {rows} x {columns} is cut into tiles of {tile[0]} x {tile[1]}, numbered row "
        f"by row. In memory the tiles lie one after the other: {_sequence(down * across)}. Each "
        "tile is stored whole, row by row, before the next begins, so that the right half of the "
        "matrix's first row comes after the whole left tile."
    )
    return fig


def _tile(
    ax: Axes, xywh: tuple[float, float, float, float], number: int, tile: tuple[int, int]
) -> None:
    x, y, w, h = xywh
    box(ax, xywh, fill=_colour(number))
    for row in range(1, tile[0]):  # between the tile's rows
        at = y + row * h / tile[0]
        ax.plot([x + 0.3, x + w - 0.3], [at, at], color="white", lw=1)
    middle = (x + w / 2, y + h / 2)
    label(ax, middle, f"tile {number}", size=11, weight="bold", bbox=_plate(number))


def _tile_in_memory(
    ax: Axes, xywh: tuple[float, float, float, float], number: int, rows: int
) -> None:
    x, y, w, h = xywh
    box(ax, xywh, fill=_colour(number))
    for row in range(1, rows):  # between the tile's rows
        at = x + row * w / rows
        ax.plot([at, at], [y + 0.3, y + h - 0.3], color="white", lw=1)
    label(ax, (x + w / 2, y + h / 2), f"tile {number}", size=9.5, bbox=_plate(number))


def _plate(number: int) -> dict[str, Any]:
    """What keeps a tile's lines out of its name."""
    return {"facecolor": _colour(number), "edgecolor": "none", "pad": 2.5}


def address_bits(offset: int, *, swizzle: int = 128) -> Figure:
    """A byte offset bit by bit, and what a swizzle makes of it.

    Args:
      offset: below 4096.
      swizzle: 128, 64 or 32 bytes.

    Raises:
      ValueError: the offset has more bits than are drawn.
    """
    if not 0 <= offset < 2**_BITS:
        raise ValueError(f"{offset=} must be below {2**_BITS}")
    used = (swizzle // 16).bit_length() - 1
    swizzled = _swizzled(offset, swizzle)
    fig, ax = canvas(3.5)
    ax.set_ylim(3.6, 38.6)
    _headings(ax)
    _bits_row(ax, 22.0, offset, "before", range(_BITS))
    changed = [b for b in range(_BITS) if (offset ^ swizzled) >> b & 1]
    _bits_row(ax, 6.0, swizzled, "after", changed)
    label(ax, (1.5, 16.8), "XOR", size=10, ha="left", weight="bold")
    for bit in range(4, 4 + used):
        _xor(ax, bit)
    pairs = ", ".join(f"bit {b} with bit {b + 3}" for b in range(4, 4 + used))
    fig.set_label(
        f"Byte offset {offset} as bits: {offset:012b}. A swizzle of {swizzle} bytes XORs {pairs}. "
        f"The result is {swizzled:012b}, byte {swizzled}: chunk {offset >> 4 & 7} of the 128-byte "
        f"row became chunk {swizzled >> 4 & 7}; the row and the byte in the chunk stay."
    )
    return fig


def _x(bit: int) -> float:
    return 69.0 - bit * 5.0


def _headings(ax: Axes) -> None:
    groups = (
        (0, 4, "byte in a\nchunk of 16"),
        (4, 7, "chunk\nin a row"),
        (7, 10, "row of 128\nbytes, mod 8"),
        (10, _BITS, "which 1024\nbytes"),
    )
    for low, high, text in groups:
        left, right = _x(high - 1) - 2.0, _x(low) + 2.0
        ax.plot([left, right], [31.6, 31.6], color=style.LINE, lw=1.2)
        label(ax, ((left + right) / 2, 34.6), text, size=8.5, color=style.MUTED)
    for bit in range(_BITS):
        label(ax, (_x(bit), 29.6), f"{bit}", size=8.5, color=style.MUTED)


def _bits_row(ax: Axes, y: float, offset: int, name: str, bold: object) -> None:
    label(ax, (1.5, y + 3.6), name, size=10, ha="left", weight="bold")
    label(ax, (1.5, y + 1.0), f"byte {offset}", size=9, ha="left", color=style.MUTED)
    for bit in range(_BITS):
        fill = style.BLUE if bit in _CHUNK_BITS else style.ORANGE if bit in _ROW_BITS else "white"
        weight = "bold" if bit in bold else "normal"  # type: ignore[operator]
        value = f"{offset >> bit & 1}"
        box(ax, (_x(bit) - 2.0, y, 4.0, 5.4), value, fill=fill, size=12, weight=weight)


def _xor(ax: Axes, bit: int) -> None:
    """From a bit of the row to the bit of the chunk that it is XORed into."""
    look = {"arrowstyle": "-|>", "color": style.INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(_x(bit), 11.9), xytext=(_x(bit + 3), 21.7), arrowprops=look)
    ax.annotate("", xy=(_x(bit), 11.9), xytext=(_x(bit), 21.7), arrowprops=look)


def atom(*, swizzle: int = 128) -> Figure:
    """Where the eight chunks of eight rows of 128 bytes lie, without and with a swizzle."""
    fig, ax = canvas(4.6)
    row_bytes = swizzles.ROW_BYTES
    for left, own in ((2.0, None), (40.5, swizzle)):
        title = "no swizzle" if own is None else f"swizzled by {own} bytes"
        label(ax, (left, 44), title, size=10.5, ha="left", weight="bold")
        for line in range(_CHUNKS):
            for chunk in range(_CHUNKS):
                offset = line * row_bytes + chunk * swizzles.CHUNK_BYTES
                place = offset if own is None else _swizzled(offset, own)
                at = place % row_bytes // swizzles.CHUNK_BYTES
                xywh = (left + at * 4.2, 36.5 - line * 4.2, 4.0, 4.0)
                box(ax, xywh, f"{chunk}", fill=style.CYCLE[chunk], size=10)
        for at in range(_CHUNKS):
            label(ax, (left + at * 4.2 + 2, 4.8), f"{4 * at}", size=8.5, color=style.MUTED)
        label(ax, (left + 16.8, 2.2), "first bank of the place", size=9, color=style.MUTED)
    fig.set_label(
        "Two grids of eight rows (128 bytes of memory each) by eight places of 16 bytes, which are "
        "four banks each. The number in a place says which chunk of that row lies there. Without a "
        f"swizzle each row reads 0 to 7, so that chunk 0 is always in banks 0 to 3. With {swizzle} "
        f"bytes the chunks change places within the row: {_rows(swizzle)}."
    )
    return fig


def _rows(swizzle: int) -> str:
    """The rows of a swizzled atom in words."""
    words = []
    for line in (0, 1, 2, 7):
        places = [0] * _CHUNKS
        for chunk in range(_CHUNKS):
            offset = line * swizzles.ROW_BYTES + chunk * swizzles.CHUNK_BYTES
            at = _swizzled(offset, swizzle) % swizzles.ROW_BYTES
            places[at // swizzles.CHUNK_BYTES] = chunk
        words.append(f"row {line} reads {' '.join(map(str, places))}")
    return ", ".join(words)


def _swizzled(offset: int, swizzle: int | None) -> int:
    return int(swizzles.swizzle_bytes(np.asarray(offset), swizzle))


def _colour(number: int) -> str:
    return style.CYCLE[number % len(style.CYCLE)]


def _sequence(count: int) -> str:
    return ", ".join(map(str, range(count)))
