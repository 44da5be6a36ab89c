"""Collective copies: the blocks of a cluster load together.

Without `leader_tracked` each block issues its share of the copy, which goes to
all of them and counts on each one's barrier. A block that never issues its
share leaves the others' barriers short of bytes: the wait never ends, as on
hardware. Leader-tracked copies give each block its own part (or all of it) and
report to the first block's barrier only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine.barriers import Barrier
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.tma import check_load, move


def load(
    cluster: Any, thread: Any, op: ir.Op, src: View, dst: View, barrier: Barrier,
    blocks: Sequence[Any], partition: Any,
) -> None:  # fmt: skip
    """One block's part of a collective copy."""
    if partition is not None:
        _leader_tracked(cluster, thread, op, src, dst, barrier, blocks, partition)
        return
    _note(cluster, thread, op, src, dst, blocks)
    machine = thread.machine
    rank = blocks.index(thread.block)
    barrier.expect(dst.nbytes, op)
    barrier.arrive(machine, thread.clock, thread, op)
    landings = []
    for block in blocks:
        theirs = cluster.peer_view(dst, block)
        their_barrier = cluster.peer_barrier(barrier, block)
        part_src, part_dst = _share(src, theirs, rank, len(blocks))
        if part_dst is None:
            continue
        check_load(thread, op, part_src, part_dst, their_barrier)
        landings.append((part_src, part_dst, their_barrier))
    clock = thread.clock.copy()
    thread.release()

    def land() -> None:
        for s, d, b in landings:
            move(s, d, op)
            b.deliver(machine, d.nbytes, clock)

    machine.timing.load(machine, thread, dst, land)


def _share(src: View, dst: View, rank: int, ranks: int) -> tuple[View, View | None]:
    """The part of a copy that one block loads for all: an even share of the first long axis."""
    axis = next((i for i, n in enumerate(dst.data.shape) if n % ranks == 0 and n >= ranks), None)
    if axis is None or src.pad is not None or src.cells is not None:
        return src, dst if rank == 0 else None
    return _part(src, axis, rank, ranks), _part(dst, axis, rank, ranks)


def _part(view: View, axis: int, rank: int, ranks: int) -> View:
    """One of `ranks` equal parts of a view along an axis of what the operation sees."""
    size = view.data.shape[axis] // ranks
    take = [slice(None)] * view.data.ndim
    take[axis] = slice(rank * size, (rank + 1) * size)
    root = _root_axis(view, axis)
    lo, hi = list(view.lo), list(view.hi)
    lo[root] = view.lo[root] + rank * size
    hi[root] = lo[root] + size
    out = View(view.buffer, view.data[tuple(take)], tuple(lo), tuple(hi))
    whole = list(view.take) or [slice(a, b) for a, b in zip(view.lo, view.hi, strict=True)]
    whole[root] = slice(lo[root], hi[root])
    out.take, out.steps = tuple(whole), view.steps
    return out


def _root_axis(view: View, axis: int) -> int:
    """The buffer's axis behind an axis of a (boxed) view."""
    kept = [
        d for d in range(len(view.lo))
        if not view.take or isinstance(view.take[d], slice)
    ]  # fmt: skip
    for kind, perm in view.steps:
        if kind == "transpose":
            axis = perm[axis]
    return kept[axis]


def _note(
    cluster: Any, thread: Any, op: ir.Op, src: View, dst: View, blocks: Sequence[Any]
) -> None:
    """Compares the n-th collective copy into a buffer with what the other blocks issue."""
    _, key = dst.buffer.home
    mine = (tuple(b.index for b in blocks), key)
    here = cluster.loads.setdefault(mine, {b.index: [] for b in blocks})
    mark = (src.buffer.name, src.lo, src.hi, dst.lo, dst.hi)
    here[thread.block.index].append((mark, thread, op, src))
    n = len(here[thread.block.index]) - 1
    for index, issued in here.items():
        if index != thread.block.index and len(issued) > n and issued[n][0] != mark:
            thread.machine.report_mismatch(issued[n], (mark, thread, op, src))
            break


def _leader_tracked(
    cluster: Any, thread: Any, op: ir.Op, src: View, dst: View, barrier: Barrier,
    blocks: Sequence[Any], partition: Any,
) -> None:  # fmt: skip
    """Each block loads its own part; the leader's barrier counts the bytes of both."""
    machine = thread.machine
    rank = blocks.index(thread.block)
    leader = cluster.peer_barrier(barrier, blocks[0])
    if partition != "replicated":
        src = _part(src, int(partition), rank, len(blocks))
    if rank == 0:
        leader.expect(dst.nbytes * len(blocks), op)
        leader.arrive(machine, thread.clock, thread, op)
    else:
        barrier.leader_only = True
    check_load(thread, op, src, dst, leader)
    clock = thread.clock.copy()
    thread.release()

    def land() -> None:
        move(src, dst, op)
        leader.deliver(machine, dst.nbytes, clock)

    machine.timing.load(machine, thread, dst, land)
