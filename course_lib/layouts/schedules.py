"""Who computes which tile, and when, where tiles take different times: three ways to deal them out.

A model in whole units of time, to compare schedules with and not to predict a kernel's time:

- "blocks": a block per tile. Whenever an SM is free, the hardware starts the next block there.
- "persistent": a block per SM, and the blocks take turns: block w has tiles w, w + sms, ...
- "dynamic": as "blocks", but a block that runs takes tiles over from blocks that have not begun
  (cluster launch control). With `ahead` it asks for its next tile when it begins with one, as
  `plgpu.dynamic_scheduling_loop` does; without, when it is done with it.

Each block that starts costs `start` units first, which is what the second and the third way save.
Where several SMs are free at the same time, the one with the lowest number is first.
`explorer/schedule_view.mjs` is the twin of this module.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence

import numpy as np

from course_lib.diagnostics import CourseError

__all__ = ["MOST_SMS", "MOST_TILES", "PATTERNS", "WAYS", "Schedule", "Span", "costs", "schedule"]

WAYS = ("blocks", "persistent", "dynamic")
PATTERNS = ("even", "triangle", "heavy-first", "mixed", "long-last", "every-fourth")
MOST_TILES, MOST_SMS = 48, 8


@dataclasses.dataclass(frozen=True)
class Span:
    """A tile at work.

    Attributes:
      tile, sm: which, and where.
      claimed: from when on it cannot go to anybody else.
      start, end: from when to when it is computed.
      block: the tile with which its block began.
    """

    tile: int
    sm: int
    claimed: int
    start: int
    end: int
    block: int


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What came of a schedule.

    Attributes:
      spans: by tile.
      begins: of each block that was started, `(sm, from, to)`: what its start took.
      sms: how many SMs there are.
    """

    spans: tuple[Span, ...]
    begins: tuple[tuple[int, int, int], ...]
    sms: int

    @property
    def end(self) -> int:
        """When the last tile is done."""
        return max(s.end for s in self.spans)

    @property
    def work(self) -> int:
        """Units of time that all tiles take together."""
        return sum(s.end - s.start for s in self.spans)

    @property
    def ends(self) -> tuple[int, ...]:
        """When each SM is done; 0 where it never had a tile."""
        return tuple(max((s.end for s in self.spans if s.sm == m), default=0)
                     for m in range(self.sms))  # fmt: skip

    @property
    def tail(self) -> int:
        """For how long some SM has nothing left to do: from the first that is done to the end."""
        return self.end - min(self.ends)

    @property
    def busy(self) -> float:
        """The part of all SMs' time, up to the end, in which they compute."""
        return self.work / (self.end * self.sms)


def costs(pattern: str, tiles: int) -> tuple[int, ...]:
    """How many units of time each tile takes, 1 to 9, the same at every call.

    "even": 4 each. "triangle": from 1 up to 8, as the tile rows of a triangular matrix do.
    "heavy-first": the same, from 8 down. "mixed": well mixed. "long-last": 2 each, and 9 for the
    last. "every-fourth": 6 for every fourth, 2 for the others.

    Raises:
      CourseError: there is no such pattern, or more tiles than can be shown.
    """
    if pattern not in PATTERNS:
        raise CourseError(f"pattern = {pattern!r} is none of {', '.join(PATTERNS)}.")
    if not 1 <= tiles <= MOST_TILES:
        raise CourseError(f"tiles = {tiles} does not fit: give 1 to {MOST_TILES}.")
    ramp = [1 + 8 * i // tiles for i in range(tiles)]
    return tuple(
        {
            "even": [4] * tiles,
            "triangle": ramp,
            "heavy-first": ramp[::-1],
            "mixed": [1 + _mixed(i) % 8 for i in range(tiles)],
            "long-last": [2] * (tiles - 1) + [9],
            "every-fourth": [2 if i % 4 else 6 for i in range(tiles)],
        }[pattern]
    )


def _mixed(i: int) -> int:
    """A number that looks random, the same at every call: two rounds of a hash of 32 bits."""
    mixed = (i + 1) * 2654435761 % 2**32
    mixed = (mixed ^ mixed >> 15) * 2246822519 % 2**32
    return mixed ^ mixed >> 13


def schedule(
    way: str,
    tile_costs: Sequence[int],
    *,
    sms: int,
    start: int = 0,
    ahead: bool = True,
    late: int = 0,
) -> Schedule:
    """Deals the tiles out.

    Args:
      way: "blocks", "persistent" or "dynamic".
      tile_costs: units of time, by tile.
      sms: how many SMs there are, a block on each at a time.
      start: units that a block takes before its first tile.
      ahead: of "dynamic": whether a block asks for its next tile when it begins with one.
      late: when SM 0 is free: until then it works for another kernel.

    Raises:
      CourseError: a number is out of range, or there is no such way.
    """
    _check(way, tile_costs, sms, start, late)
    if way == "persistent":
        return _in_turn(tile_costs, sms, start, late)
    return _as_free(tile_costs, sms, start, late, steals=way == "dynamic", ahead=ahead)


def _in_turn(tile_costs: Sequence[int], sms: int, start: int, late: int) -> Schedule:
    spans, begins = [], []
    for sm in range(min(sms, len(tile_costs))):
        now = late if sm == 0 else 0
        begins.append((sm, now, now + start))
        now += start
        for tile in range(sm, len(tile_costs), sms):
            spans.append(Span(tile, sm, 0, now, now + tile_costs[tile], sm))
            now = spans[-1].end
    return Schedule(tuple(sorted(spans, key=lambda s: s.tile)), tuple(begins), sms)


def _as_free(
    tile_costs: Sequence[int], sms: int, start: int, late: int, *, steals: bool, ahead: bool
) -> Schedule:
    """Events in the order of time; of those at the same time, a free SM gets its block first."""
    spans: list[Span] = []
    begins: list[tuple[int, int, int]] = []
    left = iter(range(len(tile_costs)))
    # when; 0 for an SM that is free, 1 for a block that goes on; which SM; what the block has
    # claimed (-1: it asks now) and since when; the tile with which it began
    queue = [(late if sm == 0 else 0, 0, sm, -1, 0, -1) for sm in range(sms)]
    heapq.heapify(queue)
    while queue:
        now, goes_on, sm, tile, claimed, block = heapq.heappop(queue)
        if tile < 0:
            tile, claimed = next(left, -1), now
        if tile < 0:
            continue  # nothing is left: this SM is done
        if not goes_on:
            begins.append((sm, now, now + start))
            heapq.heappush(queue, (now + start, 1, sm, tile, now, tile))
            continue
        end = now + tile_costs[tile]
        spans.append(Span(tile, sm, claimed, now, end, block))
        if not steals:
            heapq.heappush(queue, (end, 0, sm, -1, 0, -1))
        elif not ahead:
            heapq.heappush(queue, (end, 1, sm, -1, 0, block))
        elif (following := next(left, -1)) >= 0:
            heapq.heappush(queue, (end, 1, sm, following, now, block))
    return Schedule(tuple(sorted(spans, key=lambda s: s.tile)), tuple(begins), sms)


def _check(way: str, tile_costs: Sequence[int], sms: int, start: int, late: int) -> None:
    if way not in WAYS:
        raise CourseError(f"way = {way!r} is none of {', '.join(WAYS)}.")
    if not 1 <= len(tile_costs) <= MOST_TILES or min(tile_costs) < 1:
        raise CourseError(f"Give 1 to {MOST_TILES} tiles that take 1 unit or more each.")
    for name, value, least, most in (
        ("sms", sms, 1, MOST_SMS),
        ("start", start, 0, 9),
        ("late", late, 0, 40),
    ):
        if not isinstance(value, int | np.integer) or not least <= value <= most:
            raise CourseError(f"{name} = {value} does not fit: give {least} to {most}.")
