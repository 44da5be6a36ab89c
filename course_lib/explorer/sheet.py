"""Paper for the pictures that stand in saved notebooks: rectangles, text, matrices of colours.

Drawn with Pillow alone. A notebook's first cell shows a view, and importing matplotlib and
laying out a figure would take longer than all else that the cell does.
"""

from __future__ import annotations

import functools
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageColor, ImageDraw, ImageFont

__all__ = ["FRAME", "INK", "MUTED", "WIDTH", "Sheet", "is_light", "text_width", "wrapped"]

INK, MUTED, FRAME = "#1b1f24", "#57606a", "#8c959f"
WIDTH = 760
"""Of a picture, in CSS pixels."""

_DEVICE = 2  # pixels of the image for each CSS pixel


class Sheet:
    """A white sheet of `WIDTH` x `height` CSS pixels; all places and sizes are in them."""

    def __init__(self, height: float) -> None:
        size = (WIDTH * _DEVICE, round(height * _DEVICE))
        self._image = Image.new("RGB", size, "white")
        self._draw = ImageDraw.Draw(self._image)

    def box(
        self, x: float, y: float, w: float, h: float, fill: str | None = None, edge: str = ""
    ) -> None:
        """A rectangle, with an edge of a CSS pixel inside it."""
        left, top, right, bottom = (round(v * _DEVICE) for v in (x, y, x + w, y + h))
        if right > left and bottom > top:
            corners = (left, top, right - 1, bottom - 1)
            outline = edge or None
            self._draw.rectangle(corners, fill, outline, width=_DEVICE if edge else 0)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float,
        *,
        ink: str = INK,
        anchor: str = "lm",
        bold: bool = False,
    ) -> None:
        """A line of text; `anchor` is Pillow's: "lm" begins at x, with its middle at y."""
        font = _font(round(size * _DEVICE), bold)
        self._draw.text((x * _DEVICE, y * _DEVICE), words, ink, font, anchor)

    def upright(self, x: float, y: float, words: str, size: float, *, ink: str = MUTED) -> None:
        """Text that reads upwards, with its middle at (x, y)."""
        font = _font(round(size * _DEVICE), False)
        room = (round(font.getlength(words)) + 4, round(2 * size * _DEVICE))
        mask = Image.new("L", room, 0)
        ImageDraw.Draw(mask).text((room[0] / 2, room[1] / 2), words, 255, font, "mm")
        mask = mask.transpose(Image.Transpose.ROTATE_90)
        corner = round(x * _DEVICE - mask.width / 2), round(y * _DEVICE - mask.height / 2)
        self._image.paste(ImageColor.getrgb(ink), corner, mask)

    def matrix(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        values: npt.NDArray[np.integer],
        palette: Sequence[str],
    ) -> None:
        """A matrix of colour numbers, stretched over a rectangle."""
        colours = np.array([ImageColor.getrgb(c) for c in palette], np.uint8)
        size = round(w * _DEVICE), round(h * _DEVICE)
        shown = Image.fromarray(colours[values]).resize(size, Image.Resampling.NEAREST)
        self._image.paste(shown, (round(x * _DEVICE), round(y * _DEVICE)))

    def png(self) -> bytes:
        """The sheet as a PNG: the same bytes for the same drawing and Pillow."""
        data = io.BytesIO()
        self._image.save(data, "PNG")
        return data.getvalue()


def text_width(words: str, size: float, *, bold: bool = False) -> float:
    """How wide a line of text is, in CSS pixels."""
    return float(_font(round(size * _DEVICE), bold).getlength(words)) / _DEVICE


def wrapped(words: str, size: float, width: float) -> list[str]:
    """The lines that a text takes in `width` CSS pixels."""
    lines: list[str] = []
    for word in words.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def is_light(colour: str) -> bool:
    """Whether dark ink reads better on it than white."""
    return sum(ImageColor.getrgb(colour)[:3]) > 1.4 * 255


@functools.cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which the course's other pictures use: it comes with matplotlib."""
    found = importlib.util.find_spec("matplotlib")  # finds it, does not import it
    assert found is not None
    assert found.origin is not None
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / name
    # without Raqm, which not every Pillow has: the same text everywhere
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
