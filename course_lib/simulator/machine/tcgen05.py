"""Blackwell's tensor core and tensor memory.

Every tcgen05 operation runs in the background, in the order in which its thread
issued it; a commit arrives on a barrier when all before it are done. Loads from
and stores to tensor memory are a thread's own, but only over after a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.barriers import Barrier
from course_lib.simulator.machine.blockscale import (
    apply_scales,
    disordered,
    expand_sparse,
    metadata_of,
    unpack_metadata,
    unpack_scales,
)
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.sync import compile_thing
from course_lib.simulator.machine.tcgen05_rules import check_copy, check_mma, check_rows
from course_lib.simulator.machine.views import compile_ref
from course_lib.simulator.machine.wgmma import check_operand, float32


def _mma(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    find = {role: compile_ref(use) for role, use in op.refs.items() if role != "barrier"}
    pick = compile_thing(op.refs["barrier"]) if "barrier" in op.refs else None
    [accumulate], axes = op.inputs, op.params["collective_axes"]
    checked: set[Any] = set()

    def run(thread: Any, env: Env) -> None:
        views = {role: f(thread, env) for role, f in find.items()}
        blocks = thread.block.cluster.along(thread.block, axes) if axes else [thread.block]
        add = bool(env[accumulate])
        sizes = [(id(v.buffer.type), v.data.shape, v.data.dtype) for v in views.values()]
        key = (thread.machine.arch.name, len(blocks), *sizes)
        if key not in checked:
            check_mma(thread, views, len(blocks))
            checked.add(key)
        parts = [
            {role: thread.block.cluster.peer_view(v, b) for role, v in views.items()}
            for b in blocks
        ]
        if thread.machine.clockwork is not None:
            _keep_time(thread, views, op)
        seq = thread.issue_mma()
        for part in parts:
            _check_part(thread, part, op, add, seq)
        reads = tuple(v for p in parts for r, v in p.items() if r != "acc")
        issue(thread, reads, lambda: _multiply(thread, op, parts, add))
        if pick is not None:
            commit(thread, op, pick(env)[0], axes)

    return Step(run, shared=True)


def _keep_time(thread: Any, views: dict[str, View], op: ir.Op) -> None:
    clockwork = thread.machine.clockwork
    (m, n), k = views["acc"].data.shape, views["b"].data.shape[0]
    clockwork.mma(thread, clockwork.costs.mma_cycles(m, n, k, views["b"].data.dtype), op)


_BEFORE_THE_MMA = (
    "Copy them into tensor memory before the MMA, plgpu.{}(smem, tmem). The tensor core does both "
    "in the order in which a thread issues them: nothing has to wait in between."
)
_SCALES = ("scales with", _BEFORE_THE_MMA.format("async_copy_scales_to_tmem"))
_METADATA = (
    "takes positions from", _BEFORE_THE_MMA.format("async_copy_sparse_metadata_to_tmem")
)  # fmt: skip
_EXTRA = {"a_scale": _SCALES, "b_scale": _SCALES, "a_sparse": _METADATA}


def _check_part(thread: Any, part: dict[str, View], op: ir.Op, add: bool, seq: int) -> None:
    for role, view in part.items():
        if role != "acc":
            verb, fix = _EXTRA.get(role, ("multiplies", ""))
            check_operand(thread, view, op, races.TCGEN05, thread.mma, seq, verb=verb, fix=fix)
    acc = part["acc"]
    if add and acc.buffer.unwritten is not None and acc.buffer.reads_unwritten(acc):
        thread.machine.report_unwritten(thread, acc, op, "accumulates into")
    races.check(thread.machine, thread, acc, op, write=True, kind=races.TCGEN05,
                component=thread.mma, time=seq)  # fmt: skip
    acc.buffer.mark_written(acc)


def _multiply(thread: Any, op: ir.Op, parts: Sequence[dict[str, View]], add: bool) -> None:
    """`acc (+)= a @ b` in each block; B's columns are spread over the blocks."""
    right = np.concatenate([_right(p, i) for i, p in enumerate(parts)], axis=1)
    for part in parts:
        product = _left(thread, op, part) @ right
        out = part["acc"].data
        if add:
            product = out.astype(product.dtype) + product
        out[...] = product.astype(out.dtype)


def _values(view: View) -> np.ndarray:
    if view.data.dtype.kind in "iu" and view.data.dtype.itemsize == 1:
        return view.data.astype(np.int32)
    return float32(view)


def _left(thread: Any, op: ir.Op, part: dict[str, View]) -> np.ndarray:
    values = _values(part["a"])
    if "a_sparse" in part:
        positions = metadata_of(part["a_sparse"].data, part["a"].data.dtype.itemsize)
        if disordered(positions):
            thread.machine.report_metadata(thread, part["a_sparse"], op)
        values = expand_sparse(values, positions)
    if "a_scale" in part:
        values = apply_scales(values, part["a_scale"].data[: values.shape[0]])
    return values


def _right(part: dict[str, View], block: int) -> np.ndarray:
    """B of one block. The scales of all blocks' columns are in each block's tensor memory."""
    values = _values(part["b"])
    if "b_scale" not in part:
        return values
    n = values.shape[1]
    first = block * (128 if part["a"].data.shape[0] == 64 else n)
    return apply_scales(values.T, part["b_scale"].data[first : first + n]).T


def issue(thread: Any, reads: tuple[View, ...], run: Callable[[], None]) -> None:
    """Hands an operation to the tensor core: now, or later and in order."""
    timing = thread.machine.timing
    if not thread.mma_queue and not timing.late("tcgen05"):
        run()
        return
    entry = (reads, run)
    thread.mma_queue.append(entry)
    timing.pending.append(lambda: _run_until(thread, entry))


def _run_until(thread: Any, entry: Any) -> None:
    """Runs the queue up to an entry, if it has not run yet."""
    if entry in thread.mma_queue:
        while True:
            first = thread.mma_queue.pop(0)
            first[1]()
            if first is entry:
                break


def commit(thread: Any, op: ir.Op, barrier: Barrier, axes: Sequence[str]) -> None:
    """Arrives on a barrier (of every block of a collective MMA) when all before is done."""
    cluster = thread.block.cluster
    blocks = cluster.along(thread.block, axes) if axes else [thread.block]
    targets = [cluster.peer_barrier(barrier, b) for b in blocks]
    if thread.machine.clockwork is not None:
        for target in targets:
            thread.machine.clockwork.commit(thread, target)
    clock = thread.clock.copy()
    for who in (thread, *thread.warps):
        clock.learn(who.mma, who.mma_issued)
    thread.release()

    def arrive() -> None:
        for target in targets:
            target.arrive(thread.machine, clock, thread, op)

    issue(thread, (), arrive)


def _commit(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    pick = compile_thing(op.refs["barrier"])
    predicate = op.inputs[0] if op.params["has_predicate"] else None
    axes = op.params["collective_axes"]

    def run(thread: Any, env: Env) -> None:
        if predicate is None or env[predicate]:
            commit(thread, op, pick(env)[0], axes)

    return Step(run, shared=True)


def _load(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, outputs, reduce = compile_ref(op.refs["ref"]), op.outputs, op.params["reduce"]

    def run(thread: Any, env: Env) -> None:
        view = resolve(thread, env)
        check_rows(view)
        if view.buffer.unwritten is not None and view.buffer.reads_unwritten(view):
            thread.machine.report_unwritten(thread, view, op, "loads")
        thread.tmem_loads += 1
        races.check(thread.machine, thread, view, op, write=False, kind=races.TMEM_LOAD,
                    component=thread.tmem_load, time=thread.tmem_loads)  # fmt: skip
        value = view.data.copy()
        results = [value] if reduce is None else [value, _REDUCE[reduce](value)]
        for slot, result in zip(outputs, results, strict=True):
            if slot >= 0:
                env[slot] = result

    return Step(run, shared=True)


_REDUCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "max": lambda x: x.max(-1),
    "min": lambda x: x.min(-1),
    "absmax": lambda x: np.abs(x).max(-1),
    "absmin": lambda x: np.abs(x).min(-1),
}


def _store(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    resolve, [value] = compile_ref(op.refs["ref"]), op.inputs

    def run(thread: Any, env: Env) -> None:
        view, new = resolve(thread, env), env[value]
        check_rows(view)
        thread.tmem_stores += 1
        races.check(thread.machine, thread, view, op, write=True, kind=races.TMEM_STORE,
                    component=thread.tmem_store, time=thread.tmem_stores)  # fmt: skip
        view.buffer.mark_written(view)

        def land() -> None:
            view.data[...] = new

        if thread.machine.timing.late("tmem store"):
            thread.tmem_queue.append(land)
        else:
            thread.land_tmem_stores()
            land()

    return Step(run, shared=True)


def _wait_load(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    def run(thread: Any, env: Env) -> None:
        thread.clock.learn(thread.tmem_load, thread.tmem_loads)

    return Step(run, shared=True)


def _commit_tmem(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    def run(thread: Any, env: Env) -> None:
        thread.land_tmem_stores()
        thread.clock.learn(thread.tmem_store, thread.tmem_stores)

    return Step(run, shared=True)


def _copy(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    """SMEM to tensor memory, by the tensor core, in order with its MMAs."""
    source, target = compile_ref(op.refs["src"]), compile_ref(op.refs["dst"])
    kind, axes = op.params["kind"], op.params["collective_axes"]

    def run(thread: Any, env: Env) -> None:
        cluster = thread.block.cluster
        blocks = cluster.along(thread.block, axes) if axes else [thread.block]
        check_copy(source(thread, env), target(thread, env), kind, len(blocks))
        seq = thread.issue_mma()
        pairs = []
        for b in blocks:
            src = cluster.peer_view(source(thread, env), b)
            dst = cluster.peer_view(target(thread, env), b)
            check_operand(thread, src, op, races.TCGEN05, thread.mma, seq)
            races.check(thread.machine, thread, dst, op, write=True, kind=races.TCGEN05,
                        component=thread.mma, time=seq)  # fmt: skip
            dst.buffer.mark_written(dst)
            pairs.append((src, dst))
        issue(thread, tuple(s for s, _ in pairs), lambda: _move(pairs, kind))

    return Step(run, shared=True)


def _move(pairs: Sequence[tuple[View, View]], kind: str) -> None:
    for src, dst in pairs:
        data = src.data
        if kind == "scales":
            data = unpack_scales(data, dst.data.shape)
        elif kind == "sparse_metadata":
            data = unpack_metadata(data)
        dst.data[...] = data


TCGEN05: dict[str, Maker] = {
    "tcgen05_mma": _mma,
    "tcgen05_commit_arrive": _commit,
    "async_load_tmem": _load,
    "async_store_tmem": _store,
    "wait_load_tmem": _wait_load,
    "commit_tmem": _commit_tmem,
    "copy_smem_to_tmem": _copy,
}
