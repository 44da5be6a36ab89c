"""Shape operations, reductions and small products of values in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.values import ELEMENTWISE, Function, Maker

Types = Sequence[ir.Type]
Params = Mapping[str, Any]


def _broadcast_in_dim(params: Params, ins: Types, outs: Types) -> Function:
    shape, dims = outs[0].shape, params["broadcast_dimensions"]
    if not dims:
        return lambda x, *_: np.broadcast_to(x, shape)
    mid = [1] * len(shape)
    for d, n in zip(dims, ins[0].shape, strict=True):
        mid[d] = n
    return lambda x, *_: np.broadcast_to(np.reshape(x, mid), shape)


def _reshape(params: Params, ins: Types, outs: Types) -> Function:
    shape = outs[0].shape
    return lambda x, *_: np.reshape(x, shape)


def _transpose(params: Params, ins: Types, outs: Types) -> Function:
    perm = params["permutation"]
    return lambda x: np.transpose(x, perm)


def _concatenate(params: Params, ins: Types, outs: Types) -> Function:
    axis = params["dimension"]
    return lambda *xs: np.concatenate(xs, axis)


def _slice(params: Params, ins: Types, outs: Types) -> Function:
    strides = params["strides"] or (1,) * len(params["start_indices"])
    take = tuple(
        slice(a, b, s)
        for a, b, s in zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    )
    return lambda x: x[take]


def _starts(x: Any, sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    """The slice as JAX clamps it: it never reaches out of bounds."""
    take = []
    for n, size, start in zip(x.shape, sizes, starts, strict=True):
        first = min(max(int(start), 0), n - size)
        take.append(slice(first, first + size))
    return tuple(take)


def _dynamic_slice(params: Params, ins: Types, outs: Types) -> Function:
    sizes = outs[0].shape
    return lambda x, *starts: x[_starts(x, sizes, starts[: x.ndim])]


def _dynamic_update_slice(params: Params, ins: Types, outs: Types) -> Function:
    def update(x: Any, new: Any, *starts: Any) -> Any:
        out = np.array(x)
        out[_starts(x, new.shape, starts)] = new
        return out

    return update


def _pad(params: Params, ins: Types, outs: Types) -> Function:
    config = params["padding_config"]

    def pad(x: Any, fill: Any) -> Any:
        out = np.full(outs[0].shape, fill, np.asarray(x).dtype)
        put, take = [], []
        for (low, _, inner), n, total in zip(config, x.shape, out.shape, strict=True):
            step = inner + 1
            first = max(0, -(-max(0, -low) // step))
            kept = [i for i in range(first, n) if low + i * step < total]
            put.append(slice(low + first * step, low + first * step + len(kept) * step, step))
            take.append(slice(first, first + len(kept)))
        out[tuple(put)] = x[tuple(take)]
        return out

    return pad


def _iota(params: Params, ins: Types, outs: Types) -> Function:
    shape, axis = outs[0].shape, params["dimension"]
    line = np.arange(shape[axis]).astype(ir.numpy_dtype(outs[0].dtype))
    mid = [1] * len(shape)
    mid[axis] = shape[axis]
    value = np.broadcast_to(line.reshape(mid), shape)
    return lambda *_: value


def _rev(params: Params, ins: Types, outs: Types) -> Function:
    axes = params["dimensions"]
    return lambda x: np.flip(x, axes)


def _split(params: Params, ins: Types, outs: Types) -> Function:
    ends = np.cumsum(params["sizes"])[:-1]
    axis = params["axis"]
    return lambda x: list(np.split(x, ends, axis))


def _reduction(ufunc: np.ufunc) -> Maker:
    """Small floats are summed in float32 and rounded once, as XLA and the GPU do."""

    def make(params: Params, ins: Types, outs: Types) -> Function:
        axes = tuple(params["axes"])
        dtype = ir.numpy_dtype(outs[0].dtype)
        if dtype.kind in "fV" and dtype.itemsize < 4 and ufunc in (np.add, np.multiply):
            return lambda x: ufunc.reduce(np.asarray(x, np.float32), axes).astype(dtype)[()]
        if ufunc in (np.add, np.multiply):
            return lambda x: ufunc.reduce(x, axes, dtype=dtype)
        return lambda x: ufunc.reduce(x, axes)

    return make


def _arg(function: Any) -> Maker:
    def make(params: Params, ins: Types, outs: Types) -> Function:
        [axis] = params["axes"]
        dtype = ir.numpy_dtype(outs[0].dtype)
        return lambda x: function(x, axis).astype(dtype)

    return make


def _cumulative(ufunc: np.ufunc) -> Maker:
    def make(params: Params, ins: Types, outs: Types) -> Function:
        axis, reverse = params["axis"], params["reverse"]

        def run(x: Any) -> Any:
            turned = np.flip(x, axis) if reverse else x
            out = ufunc.accumulate(turned, axis, dtype=x.dtype)
            return np.flip(out, axis) if reverse else out

        return run

    return make


def _dot_general(params: Params, ins: Types, outs: Types) -> Function:
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    out_dtype = ir.numpy_dtype(outs[0].dtype)
    work = np.dtype(np.float32) if out_dtype.itemsize < 4 and out_dtype.kind in "fV" else out_dtype

    def matrix(x: Any, contract: Any, batch: Any, last: bool) -> Any:
        free = [d for d in range(x.ndim) if d not in contract and d not in batch]
        order = [*batch, *free, *contract] if last else [*batch, *contract, *free]
        k = int(np.prod([x.shape[d] for d in contract], dtype=int))
        f = int(np.prod([x.shape[d] for d in free], dtype=int))
        lead = [x.shape[d] for d in batch]
        return np.transpose(x, order).reshape(*lead, *((f, k) if last else (k, f)))

    def dot(a: Any, b: Any) -> Any:
        left = matrix(np.asarray(a).astype(work), contract_a, batch_a, True)
        right = matrix(np.asarray(b).astype(work), contract_b, batch_b, False)
        return np.matmul(left, right).astype(out_dtype).reshape(outs[0].shape)

    return dot


def _mma(params: Params, ins: Types, outs: Types) -> Function:
    """The synchronous MMA of values in registers."""
    dtype = ir.numpy_dtype(outs[0].dtype)
    work = np.int32 if dtype.kind in "iu" else np.float32
    return lambda acc, a, b: (acc.astype(work) + a.astype(work) @ b.astype(work)).astype(dtype)


def _expand(params: Params, ins: Types, outs: Types) -> Function:
    return _reshape(params, ins, outs)


SHAPES: dict[str, Maker] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "broadcast_to": lambda params, ins, outs: lambda x: np.broadcast_to(x, outs[0].shape),
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _expand,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "iota": _iota,
    "rev": _rev,
    "split": _split,
    "reduce_sum": _reduction(np.add),
    "reduce_prod": _reduction(np.multiply),
    "reduce_max": _reduction(np.maximum),
    "reduce_min": _reduction(np.minimum),
    "reduce_and": _reduction(np.logical_and),
    "reduce_or": _reduction(np.logical_or),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "dot_general": _dot_general,
    "mma": _mma,
}

VALUES: dict[str, Maker] = {**ELEMENTWISE, **SHAPES}
