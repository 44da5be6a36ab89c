"""Inline Mosaic GPU code by its model in numpy (course_lib.simulator.simulated_by)."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.access import place, read, store_into, write
from course_lib.simulator.machine.faults import KernelFault, Unsupported
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step, put
from course_lib.simulator.machine.views import compile_ref


def _inline(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    refs = {int(role): compile_ref(use) for role, use in op.refs.items()}
    values = iter(op.inputs)
    slots = [None if i in refs else next(values) for i in range(op.params["args"])]

    def run(thread: Any, env: Env) -> None:
        views = {i: place(resolve(thread, env), thread) for i, resolve in refs.items()}
        for view in views.values():
            if not view.buffer.reads_unwritten(view):
                read(thread, view, op)
        args = [
            np.array(views[i].data if slot is None else env[slot]) for i, slot in enumerate(slots)
        ]
        before = {i: args[i].copy() for i in views}
        put(env, op.outputs, _call(thread, op, args))
        for i, view in views.items():
            if args[i].tobytes() != before[i].tobytes():
                write(thread, view, op)
                store_into(view, args[i])

    return Step(run, shared=True)


def _call(thread: Any, op: ir.Op, args: list[Any]) -> list[Any]:
    """The model's results; it writes to refs in place. It lives in the process that traced."""
    name = op.params["was"]
    try:
        results = thread.machine.fallback(op, args)
    except Exception as error:
        raise KernelFault(
            "exception", f"The numpy model of {name} raised {type(error).__name__}: {error}"
        ) from error
    if results is None:
        raise Unsupported(f"{name}: its numpy model is not saved with the program")
    return list(results)


INLINE: dict[str, Maker] = {"inline_model": _inline}
