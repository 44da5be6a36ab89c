"""Stores into the shared memory of another block of the cluster (PTX ISA, st.async, red.async).

A thread sends registers; the bytes count on a barrier of the block that gets them. The
thread arrives on that barrier, too, so the other block waits as for a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.access import store_into
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import compile_thing
from course_lib.simulator.machine.views import compile_ref

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def block_at(thread: Any, axis: str, index: int) -> Any:
    """The block of the thread's cluster at a place along one axis, otherwise where it is."""
    row = thread.block.cluster.along(thread.block, (axis,))
    if not 0 <= index < len(row):
        raise KernelFault(
            "out-of-bounds",
            f"The cluster axis {axis!r} has {len(row)} blocks (0 to {len(row) - 1}), and no block "
            f"{index}",
        )
    return row[index]


def _async_store(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, pick = compile_ref(op.refs["dst"]), compile_thing(op.refs["barrier"])
    value, index = op.inputs
    axis, update = op.params["axis"], op.params["atomic"]

    def run(thread: Any, env: Env) -> None:
        machine, cluster = thread.machine, thread.block.cluster
        target = block_at(thread, axis, int(env[index]))
        dst = cluster.peer_view(resolve(thread, env), target)
        barrier = cluster.peer_barrier(pick(env)[0], target)
        new, nbytes = env[value], dst.nbytes
        if update and dst.buffer.reads_unwritten(dst):
            machine.report_unwritten(thread, dst, op, "updates")
        kind = races.UPDATE if update else races.REMOTE
        races.check(machine, thread, dst, op, write=True, kind=kind,
                    component=barrier.component, time=barrier.time)  # fmt: skip
        dst.buffer.mark_written(dst)
        barrier.expect(nbytes, op)
        barrier.arrive(machine, thread.clock, thread, op)
        thread.release()

        def land() -> None:
            store_into(dst, _UPDATES[update](dst.data, new) if update else new)
            if dst.buffer.casts is not None:
                dst.buffer.casts.put(dst, None)
            barrier.deliver(machine, nbytes)

        machine.timing.load(machine, thread, dst, land)

    return Step(run, shared=True)


REMOTE: dict[str, Maker] = {"async_store_smem": _async_store}
