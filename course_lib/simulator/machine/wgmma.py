"""Hopper's tensor core: a thread's queue of MMAs, accumulating into registers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.memory import View
from course_lib.simulator.machine.plan import Compiler, Env, Maker, Step
from course_lib.simulator.machine.views import compile_ref

_ALLOWED = {
    # operand dtype -> accumulator dtypes (PTX ISA, wgmma.mma_async)
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "float32": ("float32",),
    "float8_e4m3fn": ("float16", "float32"),
    "float8_e5m2": ("float16", "float32"),
    "int8": ("int32",),
    "uint8": ("int32",),
}


def _wgmma(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    find_acc, find_b = compile_ref(op.refs["acc"]), compile_ref(op.refs["b"])
    find_a = compile_ref(op.refs["a"]) if "a" in op.refs else None
    registers = op.inputs[0] if find_a is None else None
    checked: set[Any] = set()

    def run(thread: Any, env: Env) -> None:
        acc, b = find_acc(thread, env), find_b(thread, env)
        a = find_a(thread, env) if find_a else None
        left = env[registers] if registers is not None else None
        arch = thread.machine.arch.name
        key = (arch, acc.data.shape, b.data.shape, b.buffer.swizzle, a.buffer.swizzle if a else 0)
        if key not in checked:
            _check_shapes(acc, a, left, b, arch)
            checked.add(key)
        if thread.machine.clockwork is not None:
            _keep_time(thread, acc, a, b, op)
        seq = thread.issue_wgmma()
        for operand in (a, b):
            if operand is not None:
                check_operand(thread, operand, op, races.WGMMA, thread.wgmma, seq)
        thread.last_wgmma[id(acc.buffer)] = (seq, op)
        views = tuple(v for v in (a, b) if v is not None)
        thread.queue_wgmma(seq, views, lambda: accumulate(acc, a, left, b))

    return Step(run, shared=True)


def _keep_time(thread: Any, acc: View, a: View | None, b: View, op: ir.Op) -> None:
    clockwork = thread.machine.clockwork
    (m, n), k = acc.data.shape, b.data.shape[0]
    # Each instruction is 64 rows high and reads all of B; A may come from registers.
    smem_bytes = -(-m // 64) * b.nbytes + (a.nbytes if a is not None else 0)
    clockwork.wgmma(
        thread, clockwork.costs.mma_cycles(m, n, k, b.data.dtype), op, smem_bytes=smem_bytes
    )


def check_operand(
    thread: Any, view: View, op: ir.Op, kind: str, component: int, time: int,
    *, verb: str = "multiplies", fix: str = "",
) -> None:  # fmt: skip
    """An MMA reads an operand in shared or tensor memory.

    `verb` and `fix` are for the finding where nobody has written it.
    """
    if view.buffer.unwritten is not None and view.buffer.reads_unwritten(view):
        thread.machine.report_unwritten(thread, view, op, verb, fix=fix)
    races.check(thread.machine, thread, view, op, write=False, kind=kind,
                component=component, time=time)  # fmt: skip


def _check_shapes(acc: View, a: View | None, left: Any, b: View, arch: str) -> None:
    if arch != "sm_90a":
        raise KernelFault("wrong-architecture", "wgmma exists on Hopper (sm_90a) only")
    m, n = acc.data.shape
    k = b.data.shape[0]
    operand = a.data if a is not None else left
    name, acc_name = operand.dtype.name, acc.data.dtype.name
    if acc_name not in _ALLOWED.get(name, ()):
        raise KernelFault("illegal-mma", f"wgmma cannot multiply {name} into {acc_name}")
    if m % 64 or n % 8 or n > 256:
        raise KernelFault(
            "illegal-mma",
            f"wgmma has no {m}x{n}x{k}: M must be a multiple of 64, N of 8 and at most 256",
        )
    for view in (a, b):
        _check_layout(view, k, operand.dtype.itemsize)


def _check_layout(view: View | None, k: int, itemsize: int) -> None:
    """K must be whole swizzle atoms; an operand needs tiles of 8 rows."""
    if view is None or not view.buffer.swizzle:
        return
    atom = view.buffer.swizzle // itemsize
    if view.buffer.tiling and tuple(view.buffer.tiling) != (8, atom):
        raise KernelFault(
            "illegal-mma",
            f"{view.buffer.name} is tiled by {view.buffer.tiling}; an MMA with a swizzle of "
            f"{view.buffer.swizzle} bytes needs tiles of (8, {atom})",
        )
    step = 32 // itemsize
    if k % step:
        raise KernelFault("illegal-mma", f"K = {k} is not a multiple of {step}")


def float32(view: View) -> np.ndarray:
    """An operand's values in float32, those that are known of its region if there are any."""
    casts = view.buffer.casts
    if casts is not None and (known := casts.get(view)) is not None:
        return known
    if view.data.dtype == np.float32:
        return tf32(view.data)
    return view.data.astype(np.float32)


def tf32(x: np.ndarray) -> np.ndarray:
    """float32 as the tensor core reads it: 10 bits of mantissa, the rest cut off."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class _Scratch(threading.local):
    """Memory for products, the same each time: new memory costs page faults."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = np.empty(shape, np.float32)
        return found


_product = _Scratch()


def accumulate(acc: View, a: View | None, left: Any, b: View) -> None:
    """`acc += a @ b`, in the accumulator's dtype."""
    operand = a.data if a is not None else left
    out = acc.data
    if operand.dtype.kind in "iu":
        out += operand.astype(np.int32) @ b.data.astype(np.int32)
        return
    x = float32(a) if a is not None else np.asarray(left).astype(np.float32)
    x = tf32(x) if operand.dtype == np.float32 and a is None else x
    y = float32(b)
    if out.dtype == np.float32:
        np.add(out, np.matmul(x, y, out=_product(out.shape)), out=out)
    else:
        out[...] = (out.astype(np.float32) + x @ y).astype(out.dtype)


def _wait(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    n = int(op.params["n"])
    return Step(lambda thread, env: thread.drain_wgmma(n), shared=True)


def _deref(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    find, n, [out] = compile_ref(op.refs["acc"]), op.params["n"], op.outputs

    def run(thread: Any, env: Env) -> None:
        view = find(thread, env)
        if n is not None:
            thread.drain_wgmma(int(n))
        last = thread.last_wgmma.get(id(view.buffer))
        if last is not None and last[0] > thread.wgmma_done:
            thread.machine.report_accumulator(thread, view, op, last[1])
        if out >= 0:
            env[out] = view.data.copy()

    return Step(run, shared=True)


def _acc_store(c: Compiler, block: ir.Block, op: ir.Op) -> Step:
    find, [value] = compile_ref(op.refs["acc"]), op.inputs
    outputs = op.outputs

    def run(thread: Any, env: Env) -> None:
        thread.drain_wgmma(0)
        view = find(thread, env)
        view.data[...] = env[value]
        for out in outputs:
            if out >= 0:
                env[out] = env[value]

    return Step(run, shared=True)


WGMMA: dict[str, Maker] = {
    "wgmma_ref": _wgmma,
    "wgmma_wait": _wait,
    "wgmma_accumulator_deref": _deref,
    "wgmma_accumulator_store": _acc_store,
}
