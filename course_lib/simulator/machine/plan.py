"""A block of ops, compiled to closures over a list of slots.

Each op becomes a step: a function of the thread and its slots. A step that may
have to wait is a generator function. A block in which nothing can wait runs as
a plain function, which is what makes the machine fast; any other is a generator
that yields what it waits for (None: a point where another thread may go first).
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import traceback
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import arithmetic
from course_lib.simulator.machine.faults import Fault, StepLimit, Unsupported
from course_lib.simulator.machine.values import Function

Env = list[Any]
Run = Callable[[Any, Env], Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """One op, ready to run.

    Attributes:
      run: the function, or generator function if `waits`.
      waits: whether it may have to wait.
      shared: whether others can see what it does (so that the order matters).
      pure: of a function of values with one result: that function, None of anything else.
    """

    run: Run
    waits: bool = False
    shared: bool = False
    pure: Function | None = None


# Functions that Python has an operator for, which is quicker than a call.
_OPERATORS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.eq: "==",
    operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip


def _fuse(group: list[tuple[ir.Op, Step]]) -> Run:
    """One function for a run of pure ops; line i + 2 of its source is op i."""
    names: dict[str, Any] = {}
    lines = ["def fused(thread, env):"]
    local: set[int] = set()
    for i, (op, step) in enumerate(group):
        assert step.pure is not None
        args = [f"v{s}" if s in local else f"env[{s}]" for s in op.inputs]
        sign = _OPERATORS.get(step.pure) if len(args) == 2 else None
        names[f"f{i}"] = step.pure
        value = f"{args[0]} {sign} {args[1]}" if sign else f"f{i}({', '.join(args)})"
        [out] = op.outputs
        lines.append(f"    env[{out}] = v{out} = {value}" if out >= 0 else f"    {value}")
        local.add(out)
    exec("\n".join(lines), names)
    return names["fused"]


def _fused(steps: list[tuple[ir.Op, Step]]) -> list[tuple[tuple[ir.Op, ...], Step]]:
    """The steps, with runs of pure ones made one."""
    out: list[tuple[tuple[ir.Op, ...], Step]] = []
    for pure, run in itertools.groupby(steps, lambda s: s[1].pure is not None):
        group = list(run)
        if pure and len(group) > 1:
            out.append((tuple(op for op, _ in group), Step(_fuse(group))))
        else:
            out += [((op,), step) for op, step in group]
    return out


class Plan:
    """A compiled block."""

    def __init__(self, block: ir.Block, steps: list[tuple[ir.Op, Step]], consts: Sequence[Any],
                 *, preempt: bool) -> None:  # fmt: skip
        self.params = block.params
        self.results = block.results
        self.template: Env = [None] * len(block.types)
        for (slot, _), value in zip(block.consts, consts, strict=True):
            self.template[slot] = value
        self.shared = any(s.shared for _, s in steps)
        self.waits = any(s.waits for _, s in steps) or (preempt and self.shared)
        self.count = len(steps)
        fused = _fused(steps)
        self.runs = tuple(s.run for _, s in fused)
        self.kinds = tuple((s.run, s.waits, preempt and s.shared and not s.waits) for _, s in fused)
        self.ops = {id(s.run): ops for ops, s in fused}

    def _start(self, thread: Any, args: Sequence[Any]) -> Env:
        env = self.template[:]
        for slot, value in zip(self.params, args, strict=True):
            env[slot] = value
        machine = thread.machine
        machine.steps += self.count
        if machine.steps > machine.max_steps:
            raise StepLimit(f"more than {machine.max_steps:,} operations")
        return env

    def run(self, thread: Any, args: Sequence[Any]) -> list[Any]:
        """Runs a block that cannot wait."""
        env = self._start(thread, args)
        step = None
        try:
            for step in self.runs:
                step(thread, env)
        except Exception as error:
            self._blame(error, step)
            raise
        return [env[r] for r in self.results]

    def generate(self, thread: Any, args: Sequence[Any]) -> Generator[Any, None, list[Any]]:
        """Runs any block; yields where it has to wait."""
        env = self._start(thread, args)
        step = None
        try:
            for step, waits, preempt in self.kinds:
                if waits:
                    yield from step(thread, env)
                else:
                    if preempt:
                        yield None
                    step(thread, env)
        except GeneratorExit:
            raise
        except Exception as error:
            self._blame(error, step)
            raise
        return [env[r] for r in self.results]

    def _blame(self, error: Exception, step: Any) -> None:
        """Notes the innermost op that an error came out of."""
        if getattr(error, "op", None) is None:
            ops = self.ops.get(id(step), (None,))
            error.op = ops[_line_of(error, step) if len(ops) > 1 else 0]  # type: ignore[attr-defined]


def _line_of(error: Exception, step: Any) -> int:
    """Which op of a fused run an error came out of."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code is step.__code__:
            return line - 2
    return 0


Maker = Callable[["Compiler", ir.Block, ir.Op], Step]


class Compiler:
    """Compiles the blocks of a program, each once.

    `makers` says how each op becomes a step; arithmetic is found in `values`, and
    what is in neither is tried with `fallback` (JAX) when it runs.
    """

    def __init__(self, program: ir.Program, makers: dict[str, Maker], values: dict[str, Any],
                 *, preempt: bool, timed: bool = False) -> None:  # fmt: skip
        self.program = program
        self.makers = makers
        self.values = values
        self.preempt = preempt
        self.timed = timed  # whether arithmetic takes its time (`clockwork.Detailed`)
        self._plans: dict[int, Plan] = {}

    def plan(self, index: int) -> Plan:
        if index not in self._plans:
            block = self.program.blocks[index]
            steps = [(op, self._step(block, op)) for op in block.ops]
            consts = [self._const(i) for _, i in block.consts]
            self._plans[index] = Plan(block, steps, consts, preempt=self.preempt)
        return self._plans[index]

    def _const(self, index: int) -> Any:
        value = self.program.consts[index]
        return value if value.ndim else value[()]

    def _step(self, block: ir.Block, op: ir.Op) -> Step:
        try:
            return self._make(block, op)
        except Exception as error:
            if getattr(error, "op", None) is None:
                error.op = op  # type: ignore[attr-defined]
            raise

    def _make(self, block: ir.Block, op: ir.Op) -> Step:
        if op.name in self.makers:
            return self.makers[op.name](self, block, op)
        maker = self.values.get(op.name)
        if maker is None:
            return _fallback(op)
        ins = [block.types[s] for s in op.inputs]
        outs = [output_type(block, op, i) for i in range(len(op.outputs))]
        step = value_step(op, maker(op.params, ins, outs))
        return _timed(block, op, step) if self.timed else step

    def call(self, index: int) -> tuple[Run, Plan]:
        """What runs a block for a step: `run`, or `generate` if it may wait."""
        plan = self.plan(index)
        return (plan.generate if plan.waits else plan.run), plan


def output_type(block: ir.Block, op: ir.Op, i: int) -> ir.Type:
    """The type of an op's result; of an unread one, that of its inputs' last."""
    slot = op.outputs[i]
    return block.types[slot if slot >= 0 else op.inputs[-1] if op.inputs else 0]


def value_step(op: ir.Op, function: Function) -> Step:
    """A step of a pure function of values: the common arities, without loops."""
    outputs, inputs = op.outputs, op.inputs
    if len(outputs) == 1 and len(inputs) == 1:
        [out], [a] = outputs, inputs

        def unary(thread: Any, env: Env) -> None:
            env[out] = function(env[a])

        return Step(unary, pure=function)
    if len(outputs) == 1 and len(inputs) == 2:
        [out], [a, b] = outputs, inputs

        def binary(thread: Any, env: Env) -> None:
            env[out] = function(env[a], env[b])

        return Step(binary, pure=function)
    if len(outputs) == 1:
        [out] = outputs

        def many(thread: Any, env: Env) -> None:
            env[out] = function(*[env[s] for s in inputs])

        return Step(many, pure=function)

    def several(thread: Any, env: Env) -> None:
        put(env, outputs, function(*[env[s] for s in inputs]))

    return Step(several)


def _timed(block: ir.Block, op: ir.Op, step: Step) -> Step:
    """The step of an op that a thread's ALU is busy with; as it is, where that is nothing."""
    work = arithmetic.work_of(block, op)
    if work is None:
        return step

    def run(thread: Any, env: Env) -> None:
        step.run(thread, env)
        thread.machine.clockwork.arithmetic(thread, work, op)

    return Step(run)


def put(env: Env, outputs: Sequence[int], values: Sequence[Any]) -> None:
    """Fills an op's result slots."""
    for slot, value in zip(outputs, values, strict=True):
        if slot >= 0:
            env[slot] = value


def _fallback(op: ir.Op) -> Step:
    """An op that numpy has no function for: JAX runs it, where there is JAX."""

    def run(thread: Any, env: Env) -> None:
        values = None
        if op.name != "unsupported":
            values = thread.machine.fallback(op, [env[s] for s in op.inputs])
        if values is None:
            what = op.params.get("what", f"the operation {op.params.get('was', op.name)}")
            raise Unsupported(what, op.params.get("fix", ""))
        put(env, op.outputs, [np.asarray(v) if np.ndim(v) else np.asarray(v)[()] for v in values])

    return Step(run)


def fault_op(error: BaseException) -> ir.Op | None:
    """The op that an error came out of."""
    return getattr(error, "op", None)


__all__ = ["Compiler", "Env", "Fault", "Plan", "Step", "fault_op", "put", "value_step"]
