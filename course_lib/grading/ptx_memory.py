"""The bytes that a kernel's lanes read and write, and who of them did so last.

Two accesses of one place, one of them a write, not both atomic, are a race unless a barrier that
both lanes were at lies between them (PTX ISA, chapter 8, "Memory Consistency Model"). Bytes that
nobody wrote have all bits set: NaN, or -1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WARP = 32
BLOCK_BARRIER = 1 << 32


class Memory:
    """Bytes of which some are there, and who used each of them last.

    Attributes:
      data: the bytes.
      there: which of them belong to a variable or a buffer.
    """

    def __init__(self, name: str, size: int, *, watched: bool) -> None:
        size = -(-max(size, 1) // 16) * 16
        self.name = name
        self.data = np.full(size, 255, np.uint8)
        self.there = np.zeros(size, bool)
        self._watched = watched
        count = size if watched else 0
        self._writer = np.full(count, -1, np.int64)
        self._reader = np.full(count, -1, np.int64)
        self._many = np.zeros(count, bool)  # whether other lanes have read it as well
        self._written = np.zeros(count, np.int64)
        self._read = np.zeros(count, np.int64)
        self._atomic = np.zeros(count, bool)  # whether the last write was atomic

    def inside(self, places: Array, size: int) -> Array:
        """Which of these places are there, all `size` bytes of each."""
        fits = (places >= 0) & (places + size <= self.data.size)
        found = np.zeros(places.shape, bool)
        if fits.any():
            first = places[fits]
            found[fits] = self.there[first] & self.there[first + size - 1]
        return found

    def races(
        self, places: Array, who: Who, *, write: bool, atomic: bool = False,
        values: Array | None = None,
    ) -> bool:  # fmt: skip
        """Notes that lanes use these bytes; whether others use them at the same time.

        Args:
          places: an element's first byte, for each lane.
          who: the lanes.
          write: whether they write.
          atomic: whether it is done in one piece.
          values: what they write; to write what is there already is no race with who did.
        """
        if not self._watched:
            return False
        writer, reader = self._writer[places], self._reader[places]
        near = who.at_once(reader, self._read[places])
        read = near & ((reader != who.lane) | self._many[places])
        written = who.at_once(writer, self._written[places]) & (writer != who.lane)
        found = written & ~(self._atomic[places] & atomic)
        if write:
            found |= read
            self._writer[places], self._written[places] = who.lane, who.times
            self._atomic[places] = atomic
        else:
            self._note_read(places, who, near, near & (reader != who.lane))
        if values is not None and not atomic:
            found &= self.data.view(values.dtype)[places // values.itemsize] != values
            return bool(found.any()) or _clash(places, values)
        return bool(found.any())

    def _note_read(self, places: Array, who: Who, near: Array, again: Array) -> None:
        """Notes who reads: one lane, and whether there are more."""
        self._many[places[~near]] = False
        self._reader[places], self._read[places] = who.lane, who.times
        self._many[places[again | (self._reader[places] != who.lane)]] = True


def _clash(places: Array, values: Array) -> bool:
    """Whether two lanes write different values to one place with one instruction."""
    order = np.argsort(places, kind="stable")
    near = places[order][1:] == places[order][:-1]
    return bool((near & (values[order][1:] != values[order][:-1])).any())


@dataclasses.dataclass(frozen=True)
class Who:
    """Lanes, and when they do something.

    Attributes:
      lane: their numbers in the launch.
      times: how many barriers each has passed, those of its block times `BLOCK_BARRIER`, plus
        those of its warp.
      blocks, warps: for each lane of the launch the number of its block, and of its warp.
    """

    lane: Array
    times: Array
    blocks: Array
    warps: Array

    def at_once(self, other: Array, then: Array) -> Array:
        """Whether no barrier lies between another lane's access and this one."""
        near = self.blocks[other] == self.blocks[self.lane]
        within = self.warps[other] == self.warps[self.lane]
        block = then // BLOCK_BARRIER == self.times // BLOCK_BARRIER
        return (other >= 0) & (~near | (block & (~within | (then == self.times))))
