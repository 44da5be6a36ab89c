"""Barriers, fences and semaphores as a thread uses them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.barriers import Barrier, Semaphore
from course_lib.simulator.machine.faults import KernelFault, OutOfBounds, Unsupported
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.views import device_id, number


@dataclasses.dataclass
class Things:
    """An array of barriers or semaphores, as a ref."""

    array: np.ndarray
    name: str
    type: ir.RefType
    where: Any = None  # which scope's, the same on every device

    @property
    def data(self) -> np.ndarray:
        return self.array


def compile_thing(use: ir.RefUse) -> Callable[[Env], tuple[Any, Things]]:
    """What picks one barrier (or semaphore) of an array; a slice means its start."""
    slot = use.slot
    picks = list(_picks(use.transforms))
    only = picks[0][1] if len(picks) == 1 else None

    def pick(env: Env) -> tuple[Any, Things]:
        things = env[slot]
        array = things.array
        if only is not None and array.ndim == 1:
            i = only(env)
            if 0 <= i < array.size:
                return array[i], things
        index = [0] * array.ndim
        for axis, p in picks:
            index[axis] += p(env)
        for axis, (i, n) in enumerate(zip(index, array.shape, strict=True)):
            if not 0 <= i < n:
                raise OutOfBounds(things, axis, i, i + 1, n)
        if not picks and array.size != 1:
            raise KernelFault(
                "out-of-bounds",
                f"{things.name} holds {array.size} barriers; pick one with {things.name}.at[i]",
            )
        return array[tuple(index)], things

    return pick


_NO_INDEX = {
    "cluster": (
        "an operation on another block's barrier (plgpu.cluster_ref), nor does JAX lower it",
        "Use a plgpu.ClusterBarrier(collective_axes=...): an arrival counts in all blocks that "
        "share it, and each waits on its own.",
    ),
    "unsupported": ("this use of a barrier", ""),
}


def _picks(transforms: tuple[ir.Transform, ...]) -> Iterator[tuple[int, Callable[[Env], Any]]]:
    """The axis of each index: a slice keeps its axis for the next index, a number takes it."""
    axes = list(range(8))
    for t in transforms:
        if t.kind != "index":
            raise Unsupported(*_NO_INDEX.get(t.kind, (f"the transform {t.kind} of a barrier", "")))
        kept = []
        for axis, i in zip(axes, t.args, strict=False):
            if isinstance(i, ir.Slice):
                kept.append(axis)
                i = i.start
            yield axis, number(i)
        axes = kept + axes[len(t.args) :]


@dataclasses.dataclass
class WaitFor:
    """Why a thread waits: on what, since which op."""

    thing: Any
    op: ir.Op
    ready: Callable[[], bool]
    amount: int = 0


def wait_on(thread: Any, barrier: Barrier, op: ir.Op) -> Generator[Any, None, None]:
    """Waits for the barrier's next phase (the thread's own count of it)."""
    # Where threads take turns by their clocks, here is a good place.
    if not barrier.ready(thread) or thread.machine.by_clock:
        yield WaitFor(barrier, op, lambda: barrier.ready(thread))
    barrier.learn(thread, op, thread.machine)


def _barrier_wait(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["barrier"])

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        barrier, _ = pick(env)
        yield from wait_on(thread, barrier, op)

    return Step(run, waits=True, shared=True)


def arrive(thread: Any, barrier: Barrier, op: ir.Op) -> None:
    """One arrival by a thread; on a cluster barrier, in every block that shares it."""
    machine = thread.machine
    for one in thread.block.cluster.sharers(barrier, thread.block):
        one.arrive(machine, thread.clock, thread, op)
    thread.release()


def _barrier_arrive(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["barrier"])
    predicate = op.inputs[0] if op.params["has_predicate"] else None

    def run(thread: Any, env: Env) -> None:
        if predicate is None or env[predicate]:
            arrive(thread, pick(env)[0], op)

    return Step(run, shared=True)


def _arrive_and_wait(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["barrier"])

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        barrier, _ = pick(env)
        arrive(thread, barrier, op)
        yield from wait_on(thread, barrier, op)

    return Step(run, waits=True, shared=True)


def _barrier_test(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    """Polling: whether the next phase has completed; true only observes it."""
    pick = compile_thing(op.refs["barrier"])

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        barrier, _ = pick(env)
        if not barrier.ready(thread):
            yield POLL
        done = barrier.ready(thread)
        if done:
            thread.clock.join(barrier.done, tensor=barrier.orders)
        if op.outputs and op.outputs[0] >= 0:
            env[op.outputs[0]] = np.bool_(done)

    return Step(run, waits=True, shared=True)


POLL = "poll"  # yielded by a thread that looks and goes on: others go first


def _commit_smem(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    def run(thread: Any, env: Env) -> None:
        thread.clock.fence()
        thread.release()

    return Step(run, shared=True)


def _semaphore_signal(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    picks = [compile_thing(op.refs[f"sem{i}"]) for i in range(len(op.refs))]
    devices = [device_id(d) for d in op.params["devices"]]
    amounts = op.inputs

    def run(thread: Any, env: Env) -> None:
        for pick, device, amount in zip(picks, devices, amounts, strict=True):
            semaphore, things = pick(env)
            where = device(env)
            targets = [semaphore]
            if where is not None:
                targets = thread.machine.remote_semaphores(semaphore, things, where, thread)
            for target in targets:
                target.signal(thread.machine, thread, int(env[amount]))
        thread.release()

    return Step(run, shared=True)


def _semaphore_wait(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["sem"])
    [amount], decrement = op.inputs, op.params["decrement"]

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        semaphore, _ = pick(env)
        needed = int(env[amount])
        if semaphore.value < needed:
            yield WaitFor(semaphore, op, lambda: semaphore.value >= needed, needed)
        semaphore.wait(thread, needed, decrement=decrement)
        if thread.machine.clockwork is not None:
            thread.machine.clockwork.wait(thread, semaphore.when, op)

    return Step(run, waits=True, shared=True)


def _semaphore_read(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["sem"])
    [out] = op.outputs

    def run(thread: Any, env: Env) -> Generator[Any, None, None]:
        yield POLL
        semaphore: Semaphore = pick(env)[0]
        if out >= 0:
            env[out] = np.int32(semaphore.value)

    return Step(run, waits=True, shared=True)


def _get_global(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    [out] = op.outputs
    type_ = op.params["type"]

    def run(thread: Any, env: Env) -> None:
        if out >= 0:
            env[out] = thread.block.cluster.device.global_thing(op, type_)

    return Step(run, shared=True)


SYNC: dict[str, Maker] = {
    "barrier_wait": _barrier_wait,
    "barrier_arrive": _barrier_arrive,
    "barrier_arrive_and_wait": _arrive_and_wait,
    "barrier_test": _barrier_test,
    "commit_smem": _commit_smem,
    "semaphore_signal": _semaphore_signal,
    "semaphore_wait": _semaphore_wait,
    "semaphore_read": _semaphore_read,
    "get_global": _get_global,
}
