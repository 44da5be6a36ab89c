"""Cluster launch control: a running cluster takes over one that has not started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.access import read
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import compile_thing
from course_lib.simulator.machine.views import compile_ref

_BYTES = 16
_FAILED = "failed"  # who saw the first request fail
_UNDEFINED = 2**31 - 1  # an index that a failed request leaves: far outside of any array


def _try_cancel(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, pick = compile_ref(op.refs["dst"]), compile_thing(op.refs["barrier"])
    axes = op.params["collective_axes"]

    def run(thread: Any, env: Env) -> None:
        cluster = thread.block.cluster
        _check_axes(thread, axes)
        kernel = cluster.device.kernel
        barrier, view = pick(env)[0], resolve(thread, env)
        asks = kernel.thread_name not in axes or thread.index == 0
        if asks and _asked_before(thread, op, barrier):
            asks = False
        if asks:
            barrier.expect(_BYTES, op)
        barrier.arrive(thread.machine, thread.clock, thread, op)
        if asks and thread.block is cluster.blocks[0]:
            _ask(thread, op, view, barrier, cluster.blocks)
        thread.release()

    return Step(run, shared=True)


def _asked_before(thread: Any, op: ir.Op, barrier: Any) -> bool:
    """Whether another thread has asked on this barrier in this phase; that is a finding."""
    asked = thread.block.cluster.asked
    first = asked.get(barrier)
    if first is not None and first[0] == barrier.phases and first[1] is not thread:
        thread.machine.report_cancel(first[1], first[2], thread, op)
        return True
    asked[barrier] = (barrier.phases, thread, op)
    return False


def _check_axes(thread: Any, axes: Sequence[str]) -> None:
    """All blocks of a cluster ask together: the answer goes to all of them.

    Raises:
      KernelFault: the axes leave out one of the cluster's. Nothing sensible can follow: each block
        would take a cluster out of the grid, and write its answer over the others'.
    """
    cluster = thread.block.cluster
    if len(cluster.along(thread.block, axes)) == len(cluster.blocks):
        return
    kernel = cluster.device.kernel
    sizes = zip(kernel.cluster_names, kernel.cluster, strict=True)
    names = tuple(name for name, size in sizes if size > 1)
    thread_names = (kernel.thread_name,) if kernel.num_threads > 1 else ()
    raise KernelFault(
        "cancel-not-collective",
        f"{thread} cancels a cluster by itself, and the answer goes to all {len(cluster.blocks)} "
        "blocks of its cluster, each of which may ask",
        fix=f"Name all axes of the cluster: cluster_axes={names!r} of dynamic_scheduling_loop, or "
        f"collective_axes={(*names, *thread_names)!r} of try_cluster_cancel.",
    )


def _ask(thread: Any, op: ir.Op, view: View, barrier: Any, blocks: list[Any]) -> None:
    """Takes a cluster now; the answer lands later, in every block of this one."""
    machine, cluster = thread.machine, thread.block.cluster
    if _FAILED in cluster.asked:
        machine.report_late_cancel(*cluster.asked[_FAILED][1:], thread, op)
    answer = _encode(machine.steal(cluster.device))
    landings = []
    for b in blocks:
        theirs, bar = cluster.peer_view(view, b), cluster.peer_barrier(barrier, b)
        races.check(machine, thread, theirs, op, write=True, kind=races.CANCEL,
                    component=bar.component, time=bar.time)  # fmt: skip
        theirs.buffer.mark_written(theirs)
        landings.append((theirs, bar))
    clock = thread.clock.copy()

    def land() -> None:
        for theirs, bar in landings:
            theirs.data[...] = answer.reshape(theirs.data.shape)
            bar.deliver(machine, _BYTES, clock)

    machine.timing.load(machine, thread, view, land)


def _encode(coords: tuple[int, ...] | None) -> np.ndarray:
    """The 16 bytes of an answer: whether it worked, and the flat index of the cluster."""
    words = np.zeros(4, np.int32)
    if coords is not None:
        words[0], words[1] = 1, coords[0]
    return words.view(np.int8)


def _query(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, names = compile_ref(op.refs["ref"]), op.params["grid_names"]
    outputs = op.outputs

    def run(thread: Any, env: Env) -> None:
        view = resolve(thread, env)
        read(thread, view, op)
        kernel = thread.block.cluster.device.kernel
        words = np.ascontiguousarray(view.data).reshape(-1).view(np.int32)
        success = bool(words[0] == 1)
        if not success:
            thread.block.cluster.asked.setdefault(_FAILED, (0, thread, op))
        if success:
            index = np.unravel_index(int(words[1]), kernel.grid)
            where = dict(zip(kernel.grid_names, map(int, index), strict=False))
        else:
            where = dict.fromkeys(kernel.grid_names, _UNDEFINED)
        results = [*(np.int32(where.get(n, 0)) for n in names), np.bool_(success)]
        for slot, value in zip(outputs, results, strict=True):
            if slot >= 0:
                env[slot] = value

    return Step(run, shared=True)


CANCEL: dict[str, Maker] = {
    "try_cluster_cancel": _try_cancel,
    "query_cluster_cancel": _query,
}
