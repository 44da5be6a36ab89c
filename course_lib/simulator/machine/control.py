"""Control flow, scopes and their allocations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Generator
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.memory import Buffer
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step, put


def _call(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    run, plan = c.call(op.params["blocks"][0])
    inputs, outputs = op.inputs, op.outputs

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        put(env, outputs, (yield from run(thread, [env[s] for s in inputs])))

    def plain(thread: Any, env: Env) -> None:
        put(env, outputs, run(thread, [env[s] for s in inputs]))

    return Step(waiting if plan.waits else plain, plan.waits, plan.shared)


def _cond(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    calls = [c.call(b) for b in op.params["blocks"]]
    which, *inputs = op.inputs
    outputs, last = op.outputs, len(calls) - 1
    waits = any(p.waits for _, p in calls)

    def pick(env: Env) -> tuple[Any, bool]:
        run, plan = calls[min(max(int(env[which]), 0), last)]
        return run, plan.waits

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        run, can_wait = pick(env)
        result = run(thread, [env[s] for s in inputs])
        put(env, outputs, (yield from result) if can_wait else result)

    def plain(thread: Any, env: Env) -> None:
        run, _ = pick(env)
        put(env, outputs, run(thread, [env[s] for s in inputs]))

    return Step(waiting if waits else plain, waits, any(p.shared for _, p in calls))


def _while(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    (test, test_plan), (body, body_plan) = (c.call(b) for b in op.params["blocks"])
    n_test, n_body = op.params["cond_consts"], op.params["body_consts"]
    inputs, outputs = op.inputs, op.outputs

    def split(env: Env) -> tuple[list[Any], list[Any], list[Any]]:
        values = [env[s] for s in inputs]
        return values[:n_test], values[n_test : n_test + n_body], values[n_test + n_body :]

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        test_consts, body_consts, carry = split(env)
        while True:
            found = test(thread, [*test_consts, *carry])
            if test_plan.waits:
                found = yield from found
            if not found[0]:
                break
            carry = body(thread, [*body_consts, *carry])
            if body_plan.waits:
                carry = yield from carry
        put(env, outputs, carry)

    def plain(thread: Any, env: Env) -> None:
        test_consts, body_consts, carry = split(env)
        while test(thread, [*test_consts, *carry])[0]:
            carry = body(thread, [*body_consts, *carry])
        put(env, outputs, carry)

    waits = test_plan.waits or body_plan.waits
    return Step(waiting if waits else plain, waits, test_plan.shared or body_plan.shared)


def _scan(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    body, plan = c.call(op.params["blocks"][0])
    n_consts, n_carry = op.params["consts"], op.params["carry"]
    steps = list(range(op.params["length"]))
    if op.params["reverse"]:
        steps.reverse()
    inputs, outputs = op.inputs, op.outputs

    def start(env: Env) -> tuple[list[Any], list[Any], list[Any]]:
        values = [env[s] for s in inputs]
        return (
            values[:n_consts],
            values[n_consts : n_consts + n_carry],
            values[n_consts + n_carry :],
        )

    def finish(env: Env, carry: list[Any], rows: dict[int, list[Any]]) -> None:
        if len(outputs) == n_carry:
            put(env, outputs, carry)
            return
        columns = zip(*(rows[i] for i in range(len(steps))), strict=True) if rows else ()
        stacked = [np.stack([np.asarray(v) for v in col]) for col in columns]
        missing = len(outputs) - n_carry - len(stacked)
        put(env, outputs, [*carry, *stacked, *[None] * missing])

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        consts, carry, xs = start(env)
        rows: dict[int, list[Any]] = {}
        for i in steps:
            out = yield from body(thread, [*consts, *carry, *(x[i] for x in xs)])
            carry = out[:n_carry]
            rows[i] = out[n_carry:]
        finish(env, carry, rows)

    def plain(thread: Any, env: Env) -> None:
        consts, carry, xs = start(env)
        rows: dict[int, list[Any]] = {}
        for i in steps:
            out = body(thread, [*consts, *carry, *(x[i] for x in xs)])
            carry = out[:n_carry]
            rows[i] = out[n_carry:]
        finish(env, carry, rows)

    return Step(waiting if plan.waits else plain, plan.waits, plan.shared)


def _run_scoped(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    run, plan = c.call(op.params["blocks"][0])
    body = c.program.blocks[op.params["blocks"][0]]
    given = len(op.inputs)
    slots = body.params[given:]
    types = [body.types[s] for s in slots]
    names = [_nice(n, t) for n, t in zip(body.names[given:], types, strict=True)]
    axes = op.params["collective_axes"]
    inputs, outputs = op.inputs, op.outputs

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        scope = thread.block.enter_scope(thread, op, types, names, axes)
        values = [env[s] for s in inputs]
        put(env, outputs, (yield from run(thread, [*values, *scope.things])))
        thread.block.leave_scope(thread, scope)

    def plain(thread: Any, env: Env) -> None:
        scope = thread.block.enter_scope(thread, op, types, names, axes)
        values = [env[s] for s in inputs]
        put(env, outputs, run(thread, [*values, *scope.things]))
        thread.block.leave_scope(thread, scope)

    return Step(waiting if plan.waits else plain, plan.waits, True)


def _nice(name: str, type_: ir.Type) -> str:
    match = re.fullmatch(r"(in|out)_smem_refs\[(\d+)\]", name)
    if match:  # of emit_pipeline, which has no better name for them
        return f"pipeline_{match[1]}put_{match[2]}"
    if name:
        return name
    assert isinstance(type_, ir.RefType)
    return "the barrier" if type_.barrier else f"a {type_.space} ref"


def _run_state(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    """Inside a kernel: refs pass through, arrays become accumulators or register refs."""
    run, plan = c.call(op.params["blocks"][0])
    body = c.program.blocks[op.params["blocks"][0]]
    inputs, outputs = op.inputs, op.outputs
    given = op.params["initialized"]

    def enter(thread: Any, env: Env) -> list[Any]:
        values = iter([env[s] for s in inputs])
        args = []
        for slot, name, has_value in zip(body.params, body.names, given, strict=True):
            type_ = body.types[slot]
            assert isinstance(type_, ir.RefType)
            args.append(_state_ref(next(values) if has_value else None, type_, name))
        return args

    def leave(thread: Any, env: Env, args: list[Any]) -> None:
        thread.drain_wgmma(0)
        results = [a.data.copy() if o >= 0 and isinstance(a, Buffer) and a.space in ("regs", "host")
                   else a for a, o in zip(args, outputs, strict=True)]  # fmt: skip
        put(env, outputs, results)

    def waiting(thread: Any, env: Env) -> Generator[Any, None, None]:
        args = enter(thread, env)
        yield from run(thread, args)
        leave(thread, env, args)

    def plain(thread: Any, env: Env) -> None:
        args = enter(thread, env)
        run(thread, args)
        leave(thread, env, args)

    return Step(waiting if plan.waits else plain, plan.waits, plan.shared)


def _state_ref(value: Any, type_: ir.RefType, name: str) -> Any:
    if value is not None and not isinstance(value, np.ndarray | np.generic):
        return value  # a ref, passed through
    if value is None:
        return Buffer.fresh(type_, "regs", name or "the state")
    return Buffer(np.array(value), "regs", name or "the accumulator", written=True)


def _nothing(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    return Step(lambda thread, env: None)


def _print(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    # Not str.format: the text may come from a kernel that nobody trusts, and a field of it may ask
    # for an attribute, or for a line of a gigabyte.
    first, *rest = str(op.params.get("text", "")).split("{}")
    inputs = op.inputs

    def run(thread: Any, env: Env) -> None:
        values = (_as_printed(env[i]) for i in inputs)
        parts = itertools.zip_longest(values, rest, fillvalue="")
        thread.machine.say(first + "".join(value + text for value, text in parts))

    return Step(run, shared=True)


def _as_printed(value: Any) -> str:
    """A value as a GPU's printf writes it: six places after the point."""
    array = np.asarray(value)
    if array.ndim:
        return str(array)
    return f"{array.item():f}" if array.dtype.kind in "fV" else str(array.item())


def _axis_index(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    axis, [out] = op.params["axis"], op.outputs

    def run(thread: Any, env: Env) -> None:
        if out >= 0:
            env[out] = thread.axis_index(axis)

    return Step(run)


def _program_id(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    axis, [out] = op.params["axis"], op.outputs

    def run(thread: Any, env: Env) -> None:
        if out >= 0:
            env[out] = thread.program_id(axis)

    return Step(run)


def _num_programs(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    axis, [out] = op.params["axis"], op.outputs

    def run(thread: Any, env: Env) -> None:
        kernel = thread.block.cluster.device.kernel
        sizes = [*kernel.grid, *kernel.cluster, kernel.num_threads]
        if out >= 0:
            env[out] = np.int32(sizes[axis])

    return Step(run)


CONTROL: dict[str, Maker] = {
    "call": _call,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "run_scoped": _run_scoped,
    "run_state": _run_state,
    "nothing": _nothing,
    "print": _print,
    "axis_index": _axis_index,
    "program_id": _program_id,
    "num_programs": _num_programs,
}
