"""Cluster launch control: a running cluster takes over one that has not started."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.access import read
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import compile_thing
from course_lib.simulator.machine.views import compile_ref

_BYTES = 16


def _try_cancel(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, pick = compile_ref(op.refs["dst"]), compile_thing(op.refs["barrier"])
    axes = op.params["collective_axes"]

    def run(thread: Any, env: Env) -> None:
        cluster = thread.block.cluster
        kernel = cluster.device.kernel
        barrier, view = pick(env)[0], resolve(thread, env)
        blocks = cluster.along(thread.block, axes)
        asks = kernel.thread_name not in axes or thread.index == 0
        if asks:
            barrier.expect(_BYTES, op)
        barrier.arrive(thread.machine, thread.clock, thread, op)
        if asks and thread.block is blocks[0]:
            _ask(thread, op, view, barrier, blocks)
        thread.release()

    return Step(run, shared=True)


def _ask(thread: Any, op: ir.Op, view: View, barrier: Any, blocks: list[Any]) -> None:
    """Takes a cluster now; the answer lands later, in every block that takes part."""
    machine, cluster = thread.machine, thread.block.cluster
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
        index = np.unravel_index(int(words[1]), kernel.grid) if success else (0,) * len(names)
        where = dict(zip(kernel.grid_names, index, strict=False))
        results = [*(np.int32(where.get(n, 0)) for n in names), np.bool_(success)]
        for slot, value in zip(outputs, results, strict=True):
            if slot >= 0:
                env[slot] = value

    return Step(run, shared=True)


CANCEL: dict[str, Maker] = {
    "try_cluster_cancel": _try_cancel,
    "query_cluster_cancel": _query,
}
