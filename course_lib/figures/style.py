"""Colours, sizes and the few shapes that the course's pictures are made of."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

INK = "#1b1f24"
MUTED = "#57606a"
LINE = "#8c959f"
PANEL = "#f3f5f7"
# Okabe and Ito's palette (Color Universal Design, 2008), lightened where dark text stands on it
BLUE = "#7fb8e6"
ORANGE = "#f0b357"
GREEN = "#63c2a0"
PURPLE = "#d7a1c4"
YELLOW = "#f2e66b"
VERMILION = "#ea8f5e"
SKY = "#c4e3f6"
GREY = "#d9dde1"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, VERMILION, SKY, GREY)

FONT = {"fontfamily": "DejaVu Sans", "color": INK}
WIDTH_IN = 7.6


def canvas(height_in: float, *, width_in: float = WIDTH_IN) -> tuple[Figure, Axes]:
    """A figure with one axes that fills it, without ticks; its unit is a tenth of an inch."""
    fig = Figure(figsize=(width_in, height_in))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width_in * 10)
    ax.set_ylim(0, height_in * 10)
    ax.axis("off")
    return fig, ax


def box(
    ax: Axes,
    xywh: tuple[float, float, float, float],
    text: str = "",
    *,
    fill: str = "white",
    edge: str = LINE,
    size: float = 10,
    **font: Any,
) -> None:
    """A rounded box with text in its middle; `size` in points, font as in `Axes.text`."""
    x, y, w, h = xywh
    patch = FancyBboxPatch(
        (x, y), w, h, boxstyle="round,pad=0,rounding_size=0.6", facecolor=fill, edgecolor=edge
    )
    ax.add_patch(patch)
    if text:
        label(ax, (x + w / 2, y + h / 2), text, size=size, **font)


def label(ax: Axes, xy: tuple[float, float], text: str, *, size: float = 10, **font: Any) -> None:
    """Text, centred at `xy` unless `ha` and `va` say otherwise."""
    settings: dict[str, Any] = {**FONT, "ha": "center", "va": "center", "fontsize": size, **font}
    ax.text(*xy, text, **settings)
