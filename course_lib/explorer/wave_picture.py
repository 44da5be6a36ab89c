"""The wave view without a browser: its numbers, its text, and its picture as a PNG."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.explorer.sheet import INK, MUTED, WIDTH, Sheet, text_width, wrapped
from course_lib.layouts import grid
from course_lib.layouts.units import bytes_in_words

_NOW, _DONE, _LATER, _IN_L2 = "#0072b2", "#bcd9ec", "#eceff2", "#7d3c73"
_A, _B = "#e69f00", "#009e73"
_BAND, _MARGIN, _ROOM_FOR_EDGES = 70, 30, 6  # CSS pixels


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
      cluster: blocks of a cluster above and beside each other; the order deals out clusters.
      l2_bytes, count_c: the cache's capacity, and whether tiles of C take room in it.

    Raises:
      CourseError: they do not fit on the SMs.
    """

    matmul: grid.Matmul
    order: grid.Order
    concurrent: int
    persistent: bool = False
    dynamic: bool = False
    spread: int = 0
    per_sm: int = 1
    resident: grid.Residency = _ROOMY
    cluster: tuple[int, int] = (1, 1)
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
        grid.check_cluster(self.matmul.m, self.matmul.n, self.cluster)
        if self.concurrent % self.blocks:
            raise CourseError(
                f"{self.concurrent} blocks at a time are no whole number of clusters of "
                f"{self.blocks}."
            )

    @property
    def blocks(self) -> int:
        """The blocks of a cluster, 1 without."""
        return self.cluster[0] * self.cluster[1]

    @functools.cached_property
    def assignment(self) -> grid.Assignment:
        """Which block computes each tile, and when."""
        costs = grid.tile_costs(self.matmul.m * self.matmul.n, spread=self.spread)
        in_turn = self.persistent and not self.dynamic
        assign = grid.assign_static if in_turn else grid.assign_dynamic
        return assign(costs, workers=self.concurrent, blocks=self.blocks)

    @functools.cached_property
    def waves(self) -> list[grid.Tiles]:
        """The tiles of each wave."""
        mm = self.matmul
        tiles = grid.clustered(self.order, mm.m, mm.n, cluster=self.cluster)
        return grid.waves(tiles, concurrent=self.concurrent)

    @functools.cached_property
    def traffic(self) -> tuple[grid.Traffic, ...]:
        """What each wave asks of the L2 cache."""
        return grid.l2_traffic(self.matmul, self.waves, **self._cache_options)

    def contents(self, wave: int) -> tuple[list[int], list[int]]:
        """What the L2 cache holds after a wave: tiles of each row of A and column of B."""
        return grid.l2_contents(self.matmul, self.waves[: wave + 1], **self._cache_options)

    @property
    def _cache_options(self) -> dict[str, Any]:
        return {"l2_bytes": self.l2_bytes, "count_c": self.count_c, "blocks": self.blocks}

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
        if self.blocks > 1:
            blocks += f", in clusters of {self.cluster[0]} x {self.cluster[1]}"
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
        if self.blocks > 1:
            tile_bytes = self.matmul.a_tile_bytes + self.matmul.b_tile_bytes
            alone = self.matmul.m * self.matmul.n * self.matmul.k * tile_bytes
            text += (
                f"; L2 sends {bytes_in_words(all_waves.request_bytes)}, without clusters "
                f"{bytes_in_words(alone)}"
            )
        if self.spread:
            text += (
                f"; tiles take 1 to {1 + self.spread / 100:g}, all of them "
                f"{self.assignment.makespan:.1f}"
            )
        return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def png(study: Study, wave: int) -> bytes:
    """A, B and C with the tiles of one wave marked, and the numbers below, as a PNG."""
    mm = study.matmul
    side = min(40.0, (WIDTH - _BAND - 3 * _MARGIN) / mm.n, 450 / mm.m)
    corner = 2 * _MARGIN + _BAND
    text = [
        line
        for full in study.text(wave).splitlines()
        for line in wrapped(full.strip(), 12.5, WIDTH - 40)
    ]
    sheet = Sheet(corner + side * mm.m + 40 + 23 * len(text) + 12)
    _draw_c(sheet, study, wave, corner, side)
    _draw_bands(sheet, study, wave, corner, side)
    top = corner + side * mm.m + 20
    _draw_legend(sheet, study, top)
    for i, line in enumerate(text):
        sheet.text(_MARGIN, top + 32 + 23 * i, line, 12.5)
    return sheet.png()


def _draw_c(sheet: Sheet, study: Study, wave: int, corner: float, side: float) -> None:
    mm = study.matmul
    colours = np.zeros((mm.m, mm.n), np.int64)
    for w, tiles in enumerate(study.waves):
        colours[tiles[:, 0], tiles[:, 1]] = 0 if w == wave else 1 if w < wave else 2
    size = min(12.5, side * 0.39, side / (0.75 * len(str(_last_block(study)))))
    if side < _ROOM_FOR_EDGES:
        sheet.matrix(corner, corner, mm.n * side, mm.m * side, colours, (_NOW, _DONE, _LATER))
        return
    for (mi, ni), colour in np.ndenumerate(colours):
        fill = (_NOW, _DONE, _LATER)[colour]
        sheet.box(corner + ni * side, corner + mi * side, side, side, fill, "white")
    if size >= 5.5:
        for number, (mi, ni) in enumerate(np.concatenate(study.waves).tolist()):
            block = int(study.assignment.worker[number]) if study.persistent else number
            ink = ("white", INK, MUTED)[colours[mi, ni]]
            at = corner + (ni + 0.5) * side, corner + (mi + 0.5) * side
            sheet.text(*at, str(block), size, ink=ink, anchor="mm")
    if study.blocks > 1:
        _draw_clusters(sheet, study, corner, side)


def _draw_clusters(sheet: Sheet, study: Study, corner: float, side: float) -> None:
    """A frame around the tiles of each cluster."""
    down, across = study.cluster
    width, height = study.matmul.n * side, study.matmul.m * side
    for mi in range(0, study.matmul.m + 1, down):
        sheet.box(corner - 1, corner + mi * side - 1, width + 2, 2, INK)
    for ni in range(0, study.matmul.n + 1, across):
        sheet.box(corner + ni * side - 1, corner - 1, 2, height + 2, INK)


def _last_block(study: Study) -> int:
    tiles = study.matmul.m * study.matmul.n
    return min(tiles, study.concurrent) - 1 if study.persistent else tiles - 1


def _draw_bands(sheet: Sheet, study: Study, wave: int, corner: float, side: float) -> None:
    mm = study.matmul
    touched = [set(study.waves[wave][:, axis].tolist()) for axis in (0, 1)]
    held_a, held_b = study.contents(wave)
    strip, edge = min(6, side / 4), "white" if side >= _ROOM_FOR_EDGES else ""
    for mi in range(mm.m):
        y = corner + mi * side
        sheet.box(_MARGIN, y, _BAND, side, _A if mi in touched[0] else _LATER, edge)
        sheet.box(_MARGIN, y + side - strip, _BAND * held_a[mi] / mm.k, strip, _IN_L2)
    for ni in range(mm.n):
        x = corner + ni * side
        sheet.box(x, _MARGIN, side, _BAND, _B if ni in touched[1] else _LATER, edge)
        share = _BAND * held_b[ni] / mm.k
        sheet.box(x + side - strip, _MARGIN, strip, share, _IN_L2)
    for x, y, name in (
        (_MARGIN, corner - 12, "A"),
        (corner, _MARGIN - 12, "B"),
        (corner - 20, corner - 12, "C"),
    ):
        sheet.text(x, y, name, 14)


def _draw_legend(sheet: Sheet, study: Study, y: float) -> None:
    word = "step" if study.persistent else "wave"
    x: float = _MARGIN
    for colour, words in (
        (_NOW, f"computed in this {word}"),
        (_DONE, "before it"),
        (_A, "rows of A it reads"),
        (_B, "columns of B it reads"),
        (_IN_L2, "strip: share in L2 after it"),
    ):
        sheet.box(x, y - 6, 12, 12, colour)
        sheet.text(x + 17, y, words, 10.5, ink=MUTED)
        x += 17 + text_width(words, 10.5) + 14
