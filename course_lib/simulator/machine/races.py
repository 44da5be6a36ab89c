"""Whether two accesses to the same memory have an order between them.

Every access leaves a `Record` in its buffer's log: where, by which component,
at what time. A later access that overlaps one, where one of the two writes, must
know that time. Which rule is broken if it does not, depends on the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.clocks import at
from course_lib.simulator.machine.memory import Box, Buffer, View

# What kinds of access there are: a thread's own, and each asynchronous unit's.
GENERIC, LOAD, STORE, WGMMA, TCGEN05, TMEM_LOAD, TMEM_STORE, CANCEL, ATOMIC, REMOTE, UPDATE = (
    "generic", "load", "store", "wgmma", "tcgen05", "tmem load", "tmem store", "cancel", "atomic",
    "remote", "remote update",
)  # fmt: skip

_MMA = (WGMMA, TCGEN05)
# What sees a thread's own writes without a fence. Which proxy st.async goes through is unknown
# (the PTX ISA does not list it under the async proxy), so remote stores are not asked for one.
_PLAIN = (GENERIC, REMOTE, UPDATE)


class Record:
    """One access of the past, to the region of its group."""

    __slots__ = ("cluster", "component", "group", "kind", "op", "thread", "time", "write")

    def __init__(
        self, group: Group, write: bool, kind: str, component: int, time: int, thread: Any,
        op: ir.Op,
    ) -> None:  # fmt: skip
        self.group = group
        self.write, self.kind = write, kind
        self.component, self.time = component, time
        self.thread, self.op = thread, op
        self.cluster = thread.block.cluster.index


class Group:
    """The records of one region, and the groups whose regions meet it.

    `near` holds (group, covered): whether that group's region lies within this one's.
    """

    __slots__ = ("cells", "hi", "lo", "near", "records")

    def __init__(self, view: View) -> None:
        self.lo, self.hi, self.cells = view.lo, view.hi, view.cells
        self.records: list[Record] = []
        self.near: list[tuple[Group, bool]] = [(self, True)]


class Log:
    """The records of one buffer that may still matter, in groups of the same region.

    Kernels touch the same few regions again and again (slots, tiles): which of them meet
    is worked out once per region. Where there are many regions, neighbours are found in a
    grid, whose cells are of the size of the first region.
    """

    __slots__ = ("cell", "grid", "groups", "wide")

    _FEW = 12  # regions that are compared one by one
    _MANY = 64

    def __init__(self) -> None:
        self.groups: dict[Any, Group] = {}
        self.cell: Box | None = None
        self.grid: dict[Box, list[Group]] = {}
        self.wide: list[Group] = []

    def group(self, view: View) -> Group:
        """The group of a view's region."""
        key = (view.lo, view.hi, None if view.cells is None else view.cells.tobytes())
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = self._insert(view)
        return group

    def _insert(self, view: View) -> Group:
        group = Group(view)
        shape = view.buffer.data.shape
        if len(self.groups) < self._FEW:
            others: Iterable[Group] = self.groups.values()
        else:
            if self.cell is None:
                for earlier in self.groups.values():
                    self._enter(earlier, self._keys(earlier.lo, earlier.hi))
            keys = self._keys(group.lo, group.hi)
            others = self._candidates(keys)
            self._enter(group, keys)
        for other in others:
            if _meet(group, other, shape):
                group.near.append((other, _covers(group, other)))
                other.near.append((group, _covers(other, group)))
        return group

    def _enter(self, group: Group, keys: list[Box] | None) -> None:
        """Puts a group into the grid."""
        if keys is None:
            self.wide.append(group)
        for key in keys or ():
            self.grid.setdefault(key, []).append(group)

    def _candidates(self, keys: list[Box] | None) -> Iterable[Group]:
        if keys is None:
            return list(self.groups.values())
        found = {id(g): g for k in keys for g in self.grid.get(k, ())}
        return [*self.wide, *found.values()]

    def _keys(self, lo: Box, hi: Box) -> list[Box] | None:
        """The grid cells of a box; None where they are too many."""
        if self.cell is None:
            self.cell = tuple(max(1, h - low) for low, h in zip(lo, hi, strict=True))
        keys: list[Box] = [()]
        for low, h, c in zip(lo, hi, self.cell, strict=True):
            span = range(low // c, max(low, h - 1) // c + 1)
            if len(keys) * len(span) > self._MANY:
                return None
            keys = [(*k, i) for k in keys for i in span]
        return keys


def _meet(a: Group, b: Group, shape: Box) -> bool:
    """Whether two regions share an element."""
    for p, q, r, s in zip(a.lo, a.hi, b.lo, b.hi, strict=True):
        if p >= s or r >= q:
            return False
    if a.cells is None and b.cells is None:
        return True
    return bool(np.isin(_cells(a, shape), _cells(b, shape)).any())


def _cells(group: Group, shape: Box) -> np.ndarray:
    if group.cells is not None:
        return group.cells
    axes = [np.arange(a, b) for a, b in zip(group.lo, group.hi, strict=True)]
    return np.ravel_multi_index(np.ix_(*axes), shape).reshape(-1) if axes else np.zeros(1, int)


def _covers(a: Group, b: Group) -> bool:
    """Whether the region of `a` holds every element of that of `b`."""
    if a.cells is not None:
        return False
    return all(p <= r and s <= q for p, q, r, s in zip(a.lo, a.hi, b.lo, b.hi, strict=True))


def check(
    machine: Any, thread: Any, view: View, op: ir.Op,
    *, write: bool, kind: str, component: int, time: int,
) -> None:  # fmt: skip
    """Checks an access against the log of its buffer, and adds it.

    `thread` issues it; `component` and `time` are what a later access must know.
    """
    buffer = view.buffer
    if buffer.log is None or not buffer.watched or machine.timing_only:
        return
    if buffer.ended:
        machine.report_ended(thread, view, op, write, kind)
    group = view.group
    if group is None:
        group = view.group = buffer.log.group(view)
    cluster = thread.block.cluster.index
    known = thread.clock.tensor if buffer.space == "tmem" else thread.clock.known
    size = len(known)
    plain = kind in _PLAIN or buffer.space != "smem"  # no fence is needed
    for other, covered in group.near:
        if not other.records:
            continue
        kept = []
        for r in other.records:
            c = r.component
            if (
                (write or r.write)
                and r.cluster == cluster
                and (plain or r.kind != GENERIC)
                and c < size
                and known[c] >= r.time
            ):  # the common case: it is over, and the thread knows
                if not (write and covered):
                    kept.append(r)
            elif not _past(machine, thread, view, op, write, kind, component, r, covered):
                kept.append(r)
        if len(kept) < len(other.records):
            other.records = kept
    group.records.append(Record(group, write, kind, component, time, thread, op))
    if buffer.peers is not None:
        _check_union(machine, thread, view, op, write, kind)


def _past(
    machine: Any, thread: Any, view: View, op: ir.Op, write: bool, kind: str, component: int,
    r: Record, covered: bool,
) -> bool:  # fmt: skip
    """Compares an access with one record; whether that record does not matter any more."""
    if not (write or r.write):
        return covered and r.component == component and r.thread is thread
    clock = thread.clock
    space = view.buffer.space
    if r.cluster != thread.block.cluster.index:
        known = clock.elsewhere.get(r.cluster, ())
    else:
        known = clock.tensor if space == "tmem" else clock.known
    c = r.component
    if (c < len(known) and known[c] >= r.time) or _same_queue(r, kind, component):
        if r.kind == GENERIC and space == "smem" and kind not in _PLAIN:
            fenced = clock.fenced
            if c >= len(fenced) or fenced[c] < r.time:
                machine.report_fence(r, thread, view, op, write, kind)
        return write and covered
    machine.report_race(r, thread, view, op, write, kind)
    return True


def _same_queue(r: Record, kind: str, component: int) -> bool:
    """tcgen05 operations of one thread run in order, and atomic updates commute."""
    if kind in (ATOMIC, UPDATE):
        return r.kind == kind
    return r.component == component and kind == r.kind and kind in (TCGEN05, TMEM_STORE, TMEM_LOAD)


def _byte_range(buffer: Buffer, lo: Box, hi: Box) -> tuple[int, int]:
    """The bytes of a union that a box of a member may touch.

    Exact for the leading dimensions; a tiling scrambles the trailing ones, so
    those count whole.
    """
    shape = buffer.data.shape
    size = buffer.data.dtype.itemsize
    tiled = len(buffer.tiling)
    first = last = 0
    stride = size
    for d in reversed(range(len(shape))):
        a, b = (0, shape[d]) if d >= len(shape) - tiled else (lo[d], hi[d])
        first += a * stride
        last += (b - 1) * stride
        stride *= shape[d]
    return buffer.offset + first, buffer.offset + last + size


def _check_union(machine: Any, thread: Any, view: View, op: ir.Op, write: bool, kind: str) -> None:
    """Checks an access to a member of a union against the members that share its bytes."""
    buffer = view.buffer
    assert buffer.peers is not None
    assert buffer.peers.members is not None
    lo, hi = _byte_range(buffer, view.lo, view.hi)
    for other in buffer.peers.members.values():
        if other is buffer or other.log is None:
            continue
        for group in other.log.groups.values():
            a, b = _byte_range(other, group.lo, group.hi)
            if a < hi and lo < b:
                group.records = [
                    r for r in group.records
                    if not _past(machine, thread, view, op, write, kind, -1, r, False)
                ]  # fmt: skip


def check_left(block: Any, buffers: Iterable[Any]) -> None:
    """Memory of a block ends: another block of its cluster must be done with it, and known to be.

    A block ends when all of its threads have, so it is enough if one of them knows.
    """
    for buffer in buffers:
        groups = buffer.log.groups.values() if buffer.log is not None else ()
        for record in [r for group in groups for r in group.records]:
            if record.thread.block is block or record.kind != GENERIC:
                continue
            if all(at(t.clock.known, record.component) < record.time for t in block.threads):
                record.thread.machine.report_left(block, buffer, record)
                break


def check_device_left(device: Any, buffers: Iterable[Any]) -> None:
    """A kernel ends on one device: the others must be done with its memory, and known to be.

    What follows on that device reads the outputs, and may be given the other memory.
    """
    for buffer in buffers:
        log = getattr(buffer, "log", None)
        groups = log.groups.values() if log is not None else ()
        for record in [r for group in groups for r in group.records]:
            if record.thread.block.cluster.device is device:
                continue
            known = device.ending.elsewhere.get(record.cluster, [])
            if at(known, record.component) < record.time:
                record.thread.machine.report_device_left(device, buffer, record)
                break


def rule_of_race(r: Record, thread: Any, view: View, write: bool, kind: str) -> str:
    """The rule that two unordered accesses break."""
    space = view.buffer.space
    other_block = r.thread.block is not thread.block
    if space == "tmem":
        if other_block:
            return "cluster-smem-reuse"
        if at(thread.clock.known, r.component) >= r.time:
            return "missing-orders-tensor-core"
        by_kind = {TMEM_LOAD: "tmem-load-not-waited", TMEM_STORE: "tmem-store-not-committed"}
        return by_kind.get(r.kind, "tmem-mma-not-waited")
    if r.kind in (LOAD, REMOTE, UPDATE) and r.write and not write:
        return "mma-operand-not-arrived" if kind in _MMA else "read-before-arrival"
    if r.kind == CANCEL:
        return "cancel-result-early"
    home = view.buffer.home[0] if view.buffer.home else thread.block
    if (
        space == "smem"
        and kind in (LOAD, TCGEN05, REMOTE, UPDATE)
        and (other_block or home is not thread.block)
    ):
        return "cluster-smem-reuse"
    if r.kind in _MMA and write:
        return "mma-operand-overwritten"
    cluster = thread.block.cluster.index
    if r.kind == STORE and r.cluster != cluster and r.cluster not in thread.clock.elsewhere:
        return "data-race"  # the two never met: waiting for the copy alone would not order them
    if r.kind == STORE:
        return "store-source-overwritten" if not r.write else "store-not-waited"
    return "data-race"
