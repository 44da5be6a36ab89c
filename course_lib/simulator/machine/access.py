"""A thread's own reads and writes of refs, and its registers' accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.views import compile_ref


def read(thread: Any, view: View, op: ir.Op) -> None:
    """Checks a plain read."""
    if thread.machine.clockwork is not None:
        thread.machine.clockwork.access(thread, view, op)
    if view.buffer.unwritten is not None and view.buffer.reads_unwritten(view):
        thread.machine.report_unwritten(thread, view, op, "reads")
    races.check(
        thread.machine, thread, view, op,
        write=False, kind=races.GENERIC, component=thread.generic, time=thread.now(),
    )  # fmt: skip


def write(thread: Any, view: View, op: ir.Op) -> None:
    """Checks a plain write; the caller stores the value."""
    if thread.machine.clockwork is not None:
        thread.machine.clockwork.access(thread, view, op)
    races.check(
        thread.machine, thread, view, op,
        write=True, kind=races.GENERIC, component=thread.generic, time=thread.now(),
    )  # fmt: skip
    if view.buffer.casts is not None:
        view.buffer.casts.clear()
    view.buffer.mark_written(view)


def place(view: View, thread: Any) -> View:
    """The view in the memory it means: another device's or block's, if it says so."""
    if view.device is None and view.cluster is None:
        return view
    return thread.machine.elsewhere(view, thread)


def _get(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, [out] = compile_ref(op.refs["ref"]), op.outputs

    def run(thread: Any, env: Env) -> None:
        view = place(resolve(thread, env), thread)
        read(thread, view, op)
        if out >= 0:
            env[out] = view.data.copy() if view.data.ndim else view.data[()]

    return Step(run, shared=True)


def _swap(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, [value] = compile_ref(op.refs["ref"]), op.inputs
    out = op.outputs[0] if op.outputs else -1

    def run(thread: Any, env: Env) -> None:
        view = place(resolve(thread, env), thread)
        new = env[value]
        if out >= 0:
            read(thread, view, op)
            env[out] = np.array(view.data)[()]
        write(thread, view, op)
        store_into(view, new)

    return Step(run, shared=True)


def store_into(view: View, new: Any) -> None:
    """Stores into a view; one that names elements one by one needs its flat indices."""
    if any(kind == "take" for kind, _ in view.steps):
        assert view.cells is not None
        view.buffer.data.reshape(-1)[view.cells] = np.reshape(new, -1)
    else:
        view.data[...] = new


def _addupdate(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, [value] = compile_ref(op.refs["ref"]), op.inputs

    def run(thread: Any, env: Env) -> None:
        view = place(resolve(thread, env), thread)
        read(thread, view, op)
        write(thread, view, op)
        store_into(view, view.data + env[value])

    return Step(run, shared=True)


def _masked_load(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, [out] = compile_ref(op.refs["ref"]), op.outputs
    mask, other = _optional(op, ("has_mask", "has_other"))

    def run(thread: Any, env: Env) -> None:
        view = resolve(thread, env)
        read(thread, view, op)
        value = np.array(view.data)
        if mask is not None:
            fill = env[other] if other is not None else np.zeros((), value.dtype)
            value = np.where(env[mask], value, fill)
        if out >= 0:
            env[out] = value[()]

    return Step(run, shared=True)


def _masked_swap(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, value = compile_ref(op.refs["ref"]), op.inputs[0]
    mask = op.inputs[1] if op.params["has_mask"] else None
    out = op.outputs[0] if op.outputs else -1

    def run(thread: Any, env: Env) -> None:
        view = resolve(thread, env)
        old = np.array(view.data)
        if out >= 0:
            read(thread, view, op)
            env[out] = old[()]
        write(thread, view, op)
        new = env[value] if mask is None else np.where(env[mask], env[value], old)
        store_into(view, new)

    return Step(run, shared=True)


def _optional(op: ir.Op, flags: tuple[str, ...]) -> list[int | None]:
    """The slots of optional inputs, in order; None where one is absent."""
    slots = iter(op.inputs)
    return [next(slots) if op.params[f] else None for f in flags]


_ATOMIC = {"add": np.add, "max": np.maximum, "min": np.minimum}


def _atomic(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    """Atomic updates of one element commute: they do not race with each other."""
    resolve, [value] = compile_ref(op.refs["ref"]), op.inputs
    function = _ATOMIC[op.params["kind"]]

    def run(thread: Any, env: Env) -> None:
        view = place(resolve(thread, env), thread)
        if view.buffer.reads_unwritten(view):
            thread.machine.report_unwritten(thread, view, op, "updates")
        races.check(
            thread.machine, thread, view, op,
            write=True, kind=races.ATOMIC, component=thread.generic, time=thread.now(),
        )  # fmt: skip
        view.buffer.mark_written(view)
        store_into(view, function(view.data, env[value]))

    return Step(run, shared=True)


def _plain(maker: Maker) -> Maker:
    """An access by a thread itself, which tensor memory does not have."""

    def make(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
        ref = op.refs["ref"]
        type_ = block.types[ref.slot]
        if not isinstance(type_, ir.RefType) or type_.space != "tmem":
            return maker(c, block, op)
        find = compile_ref(ref)

        def refuse(thread: Any, env: Env) -> None:
            raise KernelFault(
                "tmem-indexed",
                f"{find(thread, env)} is in tensor memory, which cannot be "
                f"{_DOES.get(op.name, 'updated')} with [...]",
            )

        return Step(refuse, shared=True)

    return make


_DOES = {"get": "read", "masked_load": "read", "swap": "written", "masked_swap": "written"}

ACCESS: dict[str, Maker] = {
    "get": _plain(_get),
    "swap": _plain(_swap),
    "addupdate": _plain(_addupdate),
    "masked_load": _plain(_masked_load),
    "masked_swap": _plain(_masked_swap),
    "atomic": _plain(_atomic),
}
