"""The TMA engine: copies between global and shared memory that run on their own.

A load announces its bytes on a barrier and delivers them when it lands. A store
belongs to a group of its thread; it first reads its source, then writes. When
each of these happens is up to the schedule (`Timing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.access import place, store_into
from course_lib.simulator.machine.faults import KernelFault, OutOfBounds
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import compile_thing
from course_lib.simulator.machine.views import compile_ref, whole


def _load(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    source = compile_ref(op.refs["src"], clip=True)
    target = compile_ref(op.refs["dst"])
    if "barrier" not in op.refs:
        return _unsupported_load()
    pick = compile_thing(op.refs["barrier"])
    predicate = op.inputs[0] if op.params["has_predicate"] else None
    axes, partition = op.params["collective_axes"], op.params["partition"]
    outside = op.params["oob"]

    def run(thread: Any, env: Env) -> None:
        if predicate is not None and not env[predicate]:
            return
        src, dst = place(source(thread, env), thread), target(thread, env)
        check_alignment(dst, src, op)
        if src.cells is not None:
            _check_indices(thread, src)
        if src.pad is not None:
            _check_one_tile(dst, src)
            if outside == "promise_in_bounds":
                raise _broken_promise(src)
        barrier = pick(env)[0]
        if not axes:
            _issue(thread, op, src, dst, barrier)
        else:
            thread.block.cluster.collective_load(thread, op, src, dst, barrier, axes, partition)

    return Step(run, shared=True)


def _unsupported_load() -> Step:
    def run(thread: Any, env: Env) -> None:
        raise KernelFault(
            "unsupported",
            "A copy_gmem_to_smem without a barrier, its third argument (cp.async, before Hopper)",
        )

    return Step(run)


def _issue(thread: Any, op: ir.Op, src: View, dst: View, barrier: Any) -> None:
    machine = thread.machine
    check_load(thread, op, src, dst, barrier)
    if machine.timing.prompt:  # the bytes are owed and delivered in the same breath
        if not machine.timing_only:
            move(src, dst, op)
        barrier.last_load = (barrier.phases + 1, op)
        barrier.arrive(machine, thread.clock, thread, op)
        thread.release()
        return
    nbytes = dst.nbytes
    barrier.expect(nbytes, op)
    barrier.arrive(machine, thread.clock, thread, op)
    thread.release()

    def land() -> None:
        move(src, dst, op)
        barrier.deliver(machine, nbytes)

    machine.timing.load(machine, thread, dst, land)


def check_load(thread: Any, op: ir.Op, src: View, dst: View, barrier: Any) -> None:
    """The load reads its source and writes its target until the barrier's phase completes."""
    machine = thread.machine
    component, time = barrier.component, barrier.time
    if machine.clockwork is not None:
        machine.clockwork.load(thread, src, dst.nbytes, barrier, op)
        if machine.timing_only:
            return
    if src.buffer.unwritten is not None and src.buffer.reads_unwritten(src):
        machine.report_unwritten(thread, src, op, "copies")
    if src.buffer.watched:
        races.check(machine, thread, src, op, write=False, kind=races.LOAD,
                    component=component, time=time)  # fmt: skip
    races.check(machine, thread, dst, op, write=True, kind=races.LOAD,
                component=component, time=time)  # fmt: skip
    if dst.buffer.unwritten is not None:
        dst.buffer.mark_written(dst)


def _check_indices(thread: Any, view: View) -> None:
    """Copies by an array of indices (tile::gather4, tile::scatter4) came with Blackwell."""
    by_array = any(
        isinstance(item, np.ndarray)
        for kind, items in view.steps if kind == "take" for item in items
    )  # fmt: skip
    if by_array and thread.machine.arch.name != "sm_100a":
        raise KernelFault(
            "wrong-architecture",
            "A copy by an array of indices exists on Blackwell (sm_100a) only; "
            f"this is {thread.machine.arch.name}",
        )


def _check_one_tile(smem: View, gmem: View) -> None:
    """A slice that starts outside of an axis which is one tile long (of a tiled copy, else one
    element): JAX leaves such an axis out of the tensor map, and its index with it
    (launch_context.py, _prepare_tma; found on an H200).
    """
    assert gmem.pad is not None
    kept = _kept(gmem)
    tiling = smem.buffer.tiling
    tiles = [1] * (len(kept) - len(tiling)) + list(tiling)
    for d, tile, (before, after) in zip(kept, tiles, gmem.pad, strict=False):
        extent = gmem.buffer.data.shape[d]
        start, stop = gmem.lo[d] - before, gmem.hi[d] + after
        if start and extent == tile and stop - start == tile:
            raise OutOfBounds(
                gmem.buffer, d, start, stop, extent,
                "The axis is one tile long, and the slice is one tile: JAX leaves the axis out of "
                "the copy, so it lands on the first tile instead of being cut off.",
            )  # fmt: skip


def _kept(view: View) -> list[int]:
    """The axes of the buffer that a view still has."""
    return [d for d in range(len(view.lo)) if not view.take or isinstance(view.take[d], slice)]


def _broken_promise(src: View) -> OutOfBounds:
    """A slice that sticks out, with oob_mode=PROMISE_IN_BOUNDS."""
    assert src.pad is not None
    axis = next(d for d, (before, after) in enumerate(src.pad) if before or after)
    before, after = src.pad[axis]
    root = [d for d, t in enumerate(src.take) if isinstance(t, slice)][axis] if src.take else axis
    return OutOfBounds(
        src.buffer, root, src.lo[root] - before, src.hi[root] + after, src.buffer.data.shape[root],
        "oob_mode promised that the slice lies in bounds, so the copy carries no bounds at all: "
        "it reads whatever lies behind the array.",
    )  # fmt: skip


def move(src: View, dst: View, op: ir.Op) -> None:
    """The data of a load; out of bounds there are noughts, or nothing if `oob_mode` says so."""
    source, buffer = src.data, dst.buffer
    if src.pad is None:
        dst.data[...] = source
    else:
        dst.data[...] = np.pad(source, src.pad)
        if op.params["oob"] == "undefined":
            buffer.mark_undefined(dst, np.pad(np.zeros(source.shape, bool), src.pad,
                                              constant_values=True))  # fmt: skip
    if buffer.casts is not None:
        buffer.casts.put(dst, _mirrored(src) if src.pad is None else None)


def _mirrored(src: View) -> np.ndarray | None:
    """The source in float32, from a copy that is made once of memory nobody writes."""
    buffer = src.buffer
    if buffer.watched or src.cells is not None:
        return None
    if buffer.mirror is None:
        buffer.mirror = buffer.data.astype(np.float32)
    return src.mirrored()


def check_alignment(smem: View, gmem: View, op: ir.Op) -> None:
    """A slice of a tiled shared ref, and the global side's start, must fall on tiles."""
    tiling = smem.buffer.tiling
    if not tiling or smem.cells is not None:
        return
    if smem.aligned != tiling:
        _check_shared_side(smem, tiling)
        smem.aligned = tiling
    if gmem.aligned != tiling:
        _check_global_side(smem, gmem, tiling)
        gmem.aligned = tiling


def _check_shared_side(smem: View, tiling: tuple[int, ...]) -> None:
    n = len(tiling)
    for lo, hi, tile in zip(smem.lo[-n:], smem.hi[-n:], tiling, strict=True):
        if lo % tile or hi % tile:
            raise KernelFault(
                "unaligned-offset",
                f"{smem} does not fall on the tiles of {smem.buffer.name}, which are "
                f"{' x '.join(map(str, tiling))}",
            )


def _check_global_side(smem: View, gmem: View, tiling: tuple[int, ...]) -> None:
    """The slice of global memory must start at a multiple of the tile, too."""
    if gmem.cells is not None or gmem.steps:
        return
    kept = [d for d, t in enumerate(gmem.take or gmem.lo) if not gmem.take or type(t) is slice]
    for d, tile in zip(kept[-len(tiling) :], tiling, strict=False):
        start = gmem.lo[d] - (gmem.pad[kept.index(d)][0] if gmem.pad else 0)
        if start % tile:
            raise KernelFault(
                "unaligned-offset",
                f"{gmem} does not start at a tile of {smem.buffer.name}, which are "
                f"{' x '.join(map(str, tiling))}",
            )


class Store:
    """A copy to global memory under way: `read` its source, then `write` its target."""

    __slots__ = ("dst", "group", "op", "reduction", "src", "taken", "written")

    def __init__(self, op: ir.Op, src: View, dst: View, group: int, reduction: str | None) -> None:
        self.op, self.src, self.dst, self.group = op, src, dst, group
        self.reduction = reduction
        self.taken: np.ndarray | None = None
        self.written = False

    def read(self) -> None:
        if self.taken is None:
            data = self.src.data
            if self.dst.pad is not None:
                inside = tuple(
                    slice(before, n - after)
                    for (before, after), n in zip(self.dst.pad, data.shape, strict=True)
                )
                data = data[inside]
            self.taken = data.copy()

    def write(self) -> None:
        if not self.written:
            self.read()
            self.written = True
            new = self.taken
            if self.reduction:
                new = _REDUCTIONS[self.reduction](self.dst.data, new)
            store_into(self.dst, new)
            self.taken = None


_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1).astype(old.dtype),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1).astype(old.dtype),
}  # fmt: skip


def _store(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    source = compile_ref(op.refs["src"])
    target = compile_ref(op.refs["dst"], clip=True)
    predicate = op.inputs[0] if op.params["has_predicate"] else None
    commit, reduction = op.params["commit"], op.params["reduction"]

    def run(thread: Any, env: Env) -> None:
        if predicate is None or env[predicate]:
            src, dst = source(thread, env), place(target(thread, env), thread)
            check_alignment(src, dst, op)
            if dst.cells is not None:
                _check_indices(thread, dst)
            if dst.pad is not None:
                _check_one_tile(src, dst)
            _issue_store(thread, op, src, dst, reduction)
        if commit:
            thread.commit_group()

    return Step(run, shared=True)


def _issue_store(thread: Any, op: ir.Op, src: View, dst: View, reduction: str | None) -> None:
    machine = thread.machine
    group = thread.groups + 1
    if machine.clockwork is not None:
        machine.clockwork.store(thread, src.nbytes, op)
        if machine.timing_only:
            return
    if src.buffer.unwritten is not None and src.buffer.reads_unwritten(src):
        machine.report_unwritten(thread, src, op, "copies")
    kind = races.ATOMIC if reduction else races.STORE
    races.check(machine, thread, src, op, write=False, kind=races.STORE,
                component=thread.store_read, time=group)  # fmt: skip
    races.check(machine, thread, dst, op, write=True, kind=kind,
                component=thread.store_write, time=group)  # fmt: skip
    dst.buffer.mark_written(dst)
    store = Store(op, src, dst, group, reduction)
    thread.stores.append(store)
    machine.timing.store(machine, thread, store)


def _commit_group(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    return Step(lambda thread, env: thread.commit_group(), shared=True)


def _wait_stores(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    n, read_only = int(op.params["n"]), bool(op.params["wait_read_only"])
    return Step(lambda thread, env: thread.wait_stores(n, read_only), shared=True)


TMA: dict[str, Maker] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "commit_group": _commit_group,
    "wait_smem_to_gmem": _wait_stores,
}

__all__ = ["TMA", "Store", "check_load", "move", "whole"]
