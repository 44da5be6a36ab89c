"""Memories and the parts of them that an operation touches.

A `Buffer` is one allocation: its values in logical order (a tiled or swizzled
buffer is kept untiled: every operation looks through the tiling), which of its
elements were ever written, and the log of accesses that may still race with a
later one. A `View` is the part of a buffer that one access touches: a numpy
view of the values and the region, in the buffer's own coordinates. A region is a
box (`lo`, `hi`), narrowed by `cells` (flat indices) where it is not one.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from course_lib.simulator import ir

Env = list[Any]
Box = tuple[int, ...]


@functools.cache
def fill_value(dtype: np.dtype) -> Any:
    """What memory that nobody wrote reads as: NaN, or the largest integer."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    if dtype.name in ("int4", "uint4", "int2", "uint2"):
        return 1
    return np.array(np.nan).astype(dtype)


class Buffer:
    """One allocation in a memory space.

    Attributes:
      data: the values, in the logical shape.
      space: "gmem", "smem", "tmem", "regs" or "host".
      name: what the learner calls it.
      unwritten: a mask of elements that nobody wrote, or None if there are none.
      log: the accesses that a later one is checked against (races.Log), or None.
      mirror: of global memory that nobody writes: the same values in float32, or None.
      casts: of shared memory: float32 values of regions, for the matrix units (`Casts`), or None.
      home: the block it belongs to (None for global memory).
      ended: whether its block has left its scope, and only a neighbour can still mean it.
    """

    __slots__ = (
        "_missing", "casts", "columns", "data", "ended", "full", "home", "log", "members", "mirror",
        "name", "offset", "peers", "space", "swizzle", "tiling", "type", "unwritten", "views",
        "watched",
    )  # fmt: skip

    def __init__(self, data: np.ndarray, space: str, name: str, *, written: bool) -> None:
        self.data = data
        self.space = space
        self.name = name
        self.home: Any = None
        self.log: Any = None
        self.mirror: np.ndarray | None = None
        self.casts: Casts | None = None
        self.unwritten: np.ndarray | None = None if written else np.ones(data.shape, bool)
        self._missing = 0 if written else data.size
        self.full: tuple[Box, Box] = ((0,) * data.ndim, data.shape)
        self.tiling: tuple[int, ...] = ()
        self.swizzle = 0
        self.columns = 0
        self.watched = True
        self.ended = False
        self.members: dict[Any, Buffer] | None = None  # of a union, by alias
        self.peers: Buffer | None = None  # the union that this is a member of
        self.offset = 0  # in the union, in bytes
        self.type: ir.RefType | None = None
        self.views: dict[Any, View] = {}  # by who asks and the numbers it asks with

    @staticmethod
    def fresh(type_: ir.RefType, space: str, name: str) -> Buffer:
        """A new allocation: nobody wrote it, and floats read as NaN."""
        dtype = ir.numpy_dtype(type_.dtype)
        data = np.empty(type_.shape, dtype)
        data.fill(fill_value(dtype))
        out = Buffer(data, space, name, written=False)
        out.tiling, out.swizzle, out.columns = type_.tiling, type_.swizzle, type_.columns
        out.type = type_
        if type_.union:
            out.members = {}
        return out

    def end(self) -> None:
        """Its block has left its scope: who comes now is too late."""
        self.ended = True
        for member in (self.members or {}).values():
            member.end()

    def forget(self) -> None:
        """The allocation ends: lets go of everything that points back at it."""
        self.views = {}
        self.log = None
        self.watched = False
        for member in (self.members or {}).values():
            member.forget()
        self.members = None if self.members is None else {}

    def mark_written(self, view: View) -> None:
        """Notes that the elements of `view` hold a value now."""
        mask = self.unwritten
        if mask is None:
            return
        part = view.part(mask)
        self._missing -= int(np.count_nonzero(part))
        if self._missing <= 0:
            self.unwritten = None
        elif isinstance(view.take, tuple) and view.cells is None:
            mask[view.take] = False
        else:
            mask.reshape(-1)[view.flat()] = False

    def mark_undefined(self, view: View, outside: np.ndarray) -> None:
        """Notes that the elements of `view` where `outside` is true hold nothing any more."""
        mask = np.zeros(self.data.shape, bool) if self.unwritten is None else self.unwritten
        part = view.alike(mask)
        part[outside] = True
        self.data[...] = np.where(mask, fill_value(self.data.dtype), self.data)
        self.unwritten, self._missing = mask, int(np.count_nonzero(mask))

    def reads_unwritten(self, view: View) -> bool:
        """Whether an element of `view` was never written."""
        return self.unwritten is not None and bool(view.part(self.unwritten).any())

    def member(self, alias: tuple[Any, ...], untile: tuple[int, ...]) -> Buffer:
        """The member of a union that an alias names, made at its first use."""
        assert self.members is not None
        key = (alias, untile)
        if key not in self.members:
            dtype_name, shape, offset, _ = alias
            dtype = ir.numpy_dtype(dtype_name)
            raw = self.data.reshape(-1).view(np.uint8)[offset:]
            size = math.prod(shape) * dtype.itemsize
            logical = _untiled(shape, untile)
            data = np.frombuffer(raw[:size], dtype).reshape(logical)
            data.fill(fill_value(dtype))
            out = Buffer(data, self.space, self.name, written=False)
            out.home, out.peers, out.offset = self.home, self, offset
            out.tiling, out.swizzle = untile, self.swizzle
            out.log = type(self.log)() if self.log is not None else None
            self.members[key] = out
        return self.members[key]


class Casts:
    """float32 values of regions of a buffer that copies filled from memory nobody writes.

    They are views of that memory's mirror, so they cost nothing to keep. A region that is
    written in another way has no entry any more.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[tuple[Box, Box], tuple[View, np.ndarray]] = {}

    def put(self, view: View, values: np.ndarray | None) -> None:
        """`view` was written; with these values, where they are known."""
        key, entries = (view.lo, view.hi), self._entries
        if key not in entries or values is None:
            for other in [k for k in entries if _boxes_meet(k, key)]:
                del entries[other]
        if values is not None and not view.steps and view.cells is None:
            entries[key] = (view, values)

    def clear(self) -> None:
        """Something was written: nothing is known."""
        self._entries.clear()

    def get(self, view: View) -> np.ndarray | None:
        """The values of `view` in float32, None where they are not known."""
        if view.cells is not None:
            return None
        found = self._entries.get((view.lo, view.hi))
        if found is None or found[0].take != view.take:
            return self._part(view)
        return view.shaped(found[1]) if view.steps else found[1]

    def _part(self, view: View) -> np.ndarray | None:
        """The values of a part of an entry's region."""
        for (lo, hi), (whole, values) in self._entries.items():
            if all(p <= r and s <= q for p, q, r, s in zip(lo, hi, view.lo, view.hi, strict=True)):
                # the dimensions that an index dropped come back, each of size 1
                root = values[tuple(slice(None) if type(t) is slice else None for t in whole.take)]
                shift = tuple(
                    slice(t.start - low, t.stop - low) if type(t) is slice else t - low
                    for t, low in zip(view.take or _slices(view), lo, strict=True)
                )  # fmt: skip
                return view.shaped(root[shift])
        return None


def _slices(view: View) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in zip(view.lo, view.hi, strict=True))


def _boxes_meet(a: tuple[Box, Box], b: tuple[Box, Box]) -> bool:
    return all(p < s and r < q for p, q, r, s in zip(*a, *b, strict=True))


def _untiled(shape: tuple[int, ...], tiling: tuple[int, ...]) -> tuple[int, ...]:
    if not tiling:
        return tuple(shape)
    n = len(tiling)
    lead, tiles = shape[: -2 * n], shape[-2 * n : -n]
    return (*lead, *(a * b for a, b in zip(tiles, tiling, strict=True)))


class View:
    """The part of a buffer that one access touches.

    Attributes:
      data: a numpy view of the values, as the operation sees them.
      lo, hi: the box in the buffer's coordinates.
      cells: flat indices of the elements, where the box says too much; else None.
      take: what indexes the buffer's root array to the box.
      steps: transposes after the box, so that another array can be viewed alike.
      pad: for copies out of bounds: (before, after) per dimension, or None.
      device: the device whose memory is meant (None: the thread's own).
    """

    __slots__ = (
        "aligned", "buffer", "cells", "cluster", "data", "device", "group", "hi", "lo", "pad",
        "reflected", "steps", "take",
    )  # fmt: skip

    def __init__(self, buffer: Buffer, data: np.ndarray, lo: Box, hi: Box) -> None:
        self.buffer = buffer
        self.data = data
        self.lo = lo
        self.hi = hi
        self.cells: np.ndarray | None = None
        self.take: Any = ()
        self.steps: tuple[tuple[str, Any], ...] = ()
        self.pad: list[tuple[int, int]] | None = None
        self.device: Any = None
        self.cluster: Any = None
        self.group: Any = None  # its region in the buffer's log, once it is known
        self.aligned: tuple[int, ...] = ()  # the tiling that it was found to fall on
        self.reflected: tuple[Any, Any] | None = None  # a mirror, and this view of it

    def on(self, buffer: Buffer | None) -> View:
        """The same part of another buffer (or of none yet)."""
        out = View(buffer, None, self.lo, self.hi)  # type: ignore[arg-type]
        out.take, out.steps, out.pad, out.cells = self.take, self.steps, self.pad, self.cells
        out.device, out.cluster = self.device, self.cluster
        if buffer is not None:
            out.data = out.alike(buffer.data)
        return out

    def mirrored(self) -> np.ndarray:
        """This view of the buffer's float32 mirror."""
        mirror = self.buffer.mirror
        if self.reflected is None or self.reflected[0] is not mirror:
            assert mirror is not None
            self.reflected = (mirror, self.alike(mirror))
        return self.reflected[1]

    def part(self, other: np.ndarray) -> np.ndarray:
        """The same elements of another array of the buffer's shape, in any order."""
        if self.cells is not None:
            return other.reshape(-1)[self.cells]
        return other[self.take]

    def alike(self, other: np.ndarray) -> np.ndarray:
        """The same view of another array of the buffer's shape."""
        return self.shaped(other[(*self.take, ...)])

    def shaped(self, box: np.ndarray) -> np.ndarray:
        """The values of the box, as the operation sees them."""
        for kind, arg in self.steps:
            box = box.transpose(arg) if kind == "transpose" else box.reshape(arg)
        return box

    def flat(self) -> np.ndarray:
        """The flat indices of the elements."""
        if self.cells is not None:
            return self.cells
        shape = self.buffer.data.shape
        return np.arange(math.prod(shape)).reshape(shape)[self.take].reshape(-1)

    @property
    def nbytes(self) -> int:
        return self.data.size * self.data.dtype.itemsize

    def __str__(self) -> str:
        """As the learner would write it: `a_smem[0, 0:64, 0:64]`."""
        b = self.buffer
        if (self.lo, self.hi) == b.full or not self.lo:
            return b.name
        parts = [
            str(lo) if hi == lo + 1 and n != 1 else f"{lo}:{hi}"
            for lo, hi, n in zip(self.lo, self.hi, b.data.shape, strict=True)
        ]
        return f"{b.name}[{', '.join(parts)}]"
