"""The wave view without a browser: its numbers, its text, and its picture as a PNG."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib import figures
from course_lib.diagnostics import CourseError
from course_lib.figures import style
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words

_NOW, _DONE, _LATER, _IN_L2 = "#0072b2", "#bcd9ec", "#eceff2", "#7d3c73"
_A, _B = "#e69f00", "#009e73"
_BAND_IN, _MARGIN_IN, _TEXT_IN = 0.7, 0.3, 1.2


_ROOMY = grid.residency()


@functools.lru_cache(maxsize=4)
def study(**settings: Any) -> Study:
    """A `Study`; the same one for the same settings, since a notebook asks several times."""
    return Study(**settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A matmul, an order and a cache, and all that follows from them.

    Attributes:
      matmul, order: the sizes, and which tile is computed when.
      concurrent: how many blocks run at a time.
      persistent: whether those are all the blocks that there are.
      dynamic: whether they take the next tile when they are free, instead of taking turns.
      spread: by how many percent the dearest tile costs more than the cheapest.
      per_sm: how many blocks share an SM.
      resident: how many could.

    Raises:
      CourseError: they do not fit on the SMs.
      l2_bytes, count_c: the cache's capacity, and whether tiles of C take room in it.
    """

    matmul: grid.Matmul
    order: grid.Order
    concurrent: int
    persistent: bool = False
    dynamic: bool = False
    spread: int = 0
    per_sm: int = 1
    resident: grid.Residency = _ROOMY
    l2_bytes: int
    count_c: bool = False

    def __post_init__(self) -> None:
        if self.per_sm < 1 or self.concurrent % self.per_sm:
            raise CourseError(
                f"{self.concurrent} blocks at a time are no whole number of SMs with "
                f"{self.per_sm} each."
            )
        if self.per_sm > self.resident.blocks:
            limit = self.resident.limit
            allow = "allows" if limit == "shared memory" else "allow"
            raise CourseError(
                f"{self.per_sm} blocks do not fit on an SM: its {limit} {allow} "
                f"{self.resident.blocks}."
            )
        grid.tile_costs(1, spread=self.spread)

    @functools.cached_property
    def assignment(self) -> grid.Assignment:
        """Which block computes each tile, and when."""
        costs = grid.tile_costs(self.matmul.m * self.matmul.n, spread=self.spread)
        in_turn = self.persistent and not self.dynamic
        assign = grid.assign_static if in_turn else grid.assign_dynamic
        return assign(costs, workers=self.concurrent)

    @functools.cached_property
    def waves(self) -> list[grid.Tiles]:
        """The tiles of each wave."""
        tiles = self.order.tiles(self.matmul.m, self.matmul.n)
        return grid.waves(tiles, concurrent=self.concurrent)

    @functools.cached_property
    def traffic(self) -> tuple[grid.Traffic, ...]:
        """What each wave asks of the L2 cache."""
        return grid.l2_traffic(
            self.matmul, self.waves, l2_bytes=self.l2_bytes, count_c=self.count_c
        )

    def contents(self, wave: int) -> tuple[list[int], list[int]]:
        """What the L2 cache holds after a wave: tiles of each row of A and column of B."""
        waves = self.waves[: wave + 1]
        return grid.l2_contents(self.matmul, waves, l2_bytes=self.l2_bytes, count_c=self.count_c)

    @functools.cached_property
    def row_major(self) -> Study:
        """The same in row-major order."""
        return dataclasses.replace(self, order=grid.Order())

    def text(self, wave: int) -> str:
        """A wave and the whole in four lines."""
        return "\n".join([self._heading(), self._about(wave), self._cache(wave), self._whole()])

    def _heading(self) -> str:
        mm = self.matmul
        blocks = f"{self.concurrent} blocks at a time"
        if self.persistent:
            blocks = f"{self.concurrent} persistent blocks"
        if self.persistent and self.dynamic:
            blocks = f"{self.concurrent} blocks that take the next tile when they are free"
        if self.per_sm > 1:
            blocks += f" ({self.per_sm} on an SM)"
        return f"C = A @ B in {mm.m} x {mm.n} tiles, {blocks}; order: {self.order}"

    def _about(self, wave: int) -> str:
        touched = grid.footprint(self.waves[wave])
        word = "Step" if self.persistent else "Wave"
        return (
            f"{word} {wave + 1} of {len(self.waves)} reads "
            f"{_count(touched.a_rows, 'tile row')} of A + "
            f"{_count(touched.b_columns, 'tile column')} of B = {touched.inputs} "
            f"({bytes_in_words(self.matmul.input_bytes(touched))})"
        )

    def _cache(self, wave: int) -> str:
        t = self.traffic[wave]
        return (
            f"  L2 of {bytes_in_words(self.l2_bytes)}: {t.hits:,} of {t.requests:,} requests hit, "
            f"{t.compulsory:,} miss at the first read, {t.capacity:,} because evicted before"
        )

    def _whole(self) -> str:
        all_waves = grid.total(self.traffic)
        least = self.matmul.a_bytes + self.matmul.b_bytes
        text = (
            f"In all {bytes_in_words(all_waves.hbm_read_bytes)} read from HBM; "
            f"each byte once: {bytes_in_words(least)}"
        )
        if self.order.kind != "row-major":
            other = grid.total(self.row_major.traffic).hbm_read_bytes
            text += f"; row-major: {bytes_in_words(other)}"
        if self.spread:
            text += (
                f"; tiles take 1 to {1 + self.spread / 100:g}, all of them "
                f"{self.assignment.makespan:.1f}"
            )
        return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def png(study: Study, wave: int) -> bytes:
    """The picture of a wave as a PNG."""
    return figures.png(draw(study, wave))


def draw(study: Study, wave: int) -> Figure:
    """A, B and C with the tiles of one wave marked, and the numbers below."""
    mm = study.matmul
    side = min(0.4, (style.WIDTH_IN - _BAND_IN - 3 * _MARGIN_IN) / mm.n, 4.5 / mm.m)
    height = _BAND_IN + 3 * _MARGIN_IN + side * mm.m + _TEXT_IN
    fig = Figure(figsize=(style.WIDTH_IN, height))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.axis("off")
    corner = (_MARGIN_IN * 2 + _BAND_IN, _MARGIN_IN * 2 + _BAND_IN)
    _draw_c(ax, study, wave, corner, side)
    ax.set_xlim(0, style.WIDTH_IN)  # imshow zooms in on what it draws
    ax.set_ylim(height, 0)  # downwards, as matrices are read
    _draw_bands(ax, study, wave, corner, side)
    _draw_text(ax, study, wave, corner[1] + side * mm.m + 0.2)
    return fig


def _draw_c(ax: Axes, study: Study, wave: int, corner: tuple[float, float], side: float) -> None:
    mm = study.matmul
    pixels = np.zeros((mm.m, mm.n, 3))
    for w, tiles in enumerate(study.waves):
        fill = to_rgb(_NOW if w == wave else _DONE if w < wave else _LATER)
        pixels[tiles[:, 0], tiles[:, 1]] = fill
        for place, (mi, ni) in enumerate(tiles.tolist()):
            number = w * study.concurrent + place
            block = int(study.assignment.worker[number]) if study.persistent else number
            size = min(9.0, side * 28, side * 72 / (0.75 * len(str(block))))
            if size < 4:
                continue
            ink = "white" if w == wave else style.INK if w < wave else style.MUTED
            xy = (corner[0] + (ni + 0.5) * side, corner[1] + (mi + 0.5) * side)
            _text(ax, *xy, str(block), size, color=ink, ha="center")
    right, bottom = corner[0] + mm.n * side, corner[1] + mm.m * side
    ax.imshow(pixels, extent=(corner[0], right, bottom, corner[1]), aspect="auto")
    if side > 0.03:
        xs, ys = corner[0] + side * np.arange(mm.n), corner[1] + side * np.arange(mm.m)
        ax.vlines(xs, corner[1], bottom, colors="white", linewidth=0.5)
        ax.hlines(ys, corner[0], right, colors="white", linewidth=0.5)


def _draw_bands(
    ax: Axes, study: Study, wave: int, corner: tuple[float, float], side: float
) -> None:
    mm = study.matmul
    touched = [set(study.waves[wave][:, axis].tolist()) for axis in (0, 1)]
    held_a, held_b = study.contents(wave)
    strip = min(0.06, side / 4)
    for mi in range(mm.m):
        y = corner[1] + mi * side
        fill = _A if mi in touched[0] else _LATER
        ax.add_patch(_tile(_MARGIN_IN, y, _BAND_IN, side, fill))
        share = held_a[mi] / mm.k
        ax.add_patch(_tile(_MARGIN_IN, y + side - strip, _BAND_IN * share, strip, _IN_L2))
    for ni in range(mm.n):
        x = corner[0] + ni * side
        fill = _B if ni in touched[1] else _LATER
        ax.add_patch(_tile(x, _MARGIN_IN, side, _BAND_IN, fill))
        share = held_b[ni] / mm.k
        ax.add_patch(_tile(x + side - strip, _MARGIN_IN, strip, _BAND_IN * share, _IN_L2))
    _text(ax, _MARGIN_IN, corner[1] - 0.12, "A", 10)
    _text(ax, corner[0], _MARGIN_IN - 0.12, "B", 10)
    _text(ax, corner[0] - 0.2, corner[1] - 0.12, "C", 10)


def _draw_text(ax: Axes, study: Study, wave: int, top: float) -> None:
    word = "step" if study.persistent else "wave"
    legend = (
        (_NOW, f"computed in this {word}"),
        (_DONE, "before it"),
        (_A, "rows of A it reads"),
        (_B, "columns of B it reads"),
        (_IN_L2, "strip: share in L2 after it"),
    )
    for i, (colour, words) in enumerate(legend):
        x = _MARGIN_IN + (0, 1.65, 2.6, 4.1, 5.8)[i] * 0.98
        ax.add_patch(_tile(x, top - 0.06, 0.12, 0.12, colour))
        _text(ax, x + 0.17, top, words, 7.5, color=style.MUTED)
    for i, line in enumerate(study.text(wave).splitlines()):
        _text(ax, _MARGIN_IN, top + 0.32 + 0.23 * i, line.strip(), 9)


def _tile(x: float, y: float, w: float, h: float, fill: str) -> Rectangle:
    return Rectangle((x, y), w, h, facecolor=fill, edgecolor="white", linewidth=0.5)


def _text(ax: Axes, x: float, y: float, words: str, size: float, **font: str) -> None:
    settings: dict[str, Any] = {**style.FONT, "va": "center", "ha": "left", **font}
    ax.text(x, y, words, fontsize=size, **settings)
