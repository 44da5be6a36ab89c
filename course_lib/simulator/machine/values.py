"""Arithmetic of values in registers: numpy functions for JAX's primitives.

Each entry makes, from an op's parameters and types, a function of numpy arrays
(or numpy scalars). Results have the dtype that the op declares. What numpy has
no function for is computed by JAX where the process has it (`Machine.fallback`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir

Function = Callable[..., Any]
Maker = Callable[[Mapping[str, Any], Sequence[ir.Type], Sequence[ir.Type]], Function]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _plain(function: Function) -> Maker:
    return lambda params, ins, outs: function


def _typed(function: Function) -> Maker:
    """For functions whose numpy result may have another dtype."""

    def make(
        params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
    ) -> Function:
        dtype = ir.numpy_dtype(outs[0].dtype)
        return lambda *xs: np.asarray(function(*xs)).astype(dtype, copy=False)[()]

    return make


def _wide(function: Function) -> Maker:
    """For functions that small floats compute in float32 and round once."""

    def make(
        params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
    ) -> Function:
        dtype = ir.numpy_dtype(outs[0].dtype)
        if dtype.itemsize >= 4:
            return function
        return lambda *xs: function(*(np.asarray(x, np.float32) for x in xs)).astype(dtype)[()]

    return make


def _div(params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]) -> Function:
    dtype = ir.numpy_dtype(ins[0].dtype)
    if dtype.kind in "iu" and not ins[0].shape:
        number = dtype.type

        def divide(a: Any, b: Any) -> Any:
            a, b = int(a), int(b)
            return number(a // b if a >= 0 and b > 0 else _int_div(a, b))

        return divide
    if dtype.kind == "u":
        return lambda a, b: np.where(b == 0, ~dtype.type(0), a // np.where(b == 0, 1, b))[()]
    if dtype.kind == "i":
        return _truncated_quotient
    return operator.truediv


def _int_div(a: int, b: int) -> int:
    """Towards zero; by nought it is -1 (all bits set)."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _int_rem(a: int, b: int) -> int:
    return a if b == 0 else a - b * _int_div(a, b)


def _truncated_quotient(a: Any, b: Any) -> Any:
    """Integer division towards zero, as XLA and C have it; by nought it is -1."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.asarray((a - np.fmod(a, safe)) // safe, a.dtype)
    return np.where(b == 0, a.dtype.type(-1), quotient)[()]


def _rem(params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]) -> Function:
    dtype = ir.numpy_dtype(ins[0].dtype)
    if dtype.kind in "iu" and not ins[0].shape:
        number = dtype.type

        def remainder(a: Any, b: Any) -> Any:
            a, b = int(a), int(b)
            return number(a % b if a >= 0 and b > 0 else _int_rem(a, b))

        return remainder
    if dtype.kind in "iu":
        return lambda a, b: (
            np.fmod(a, b)
            if np.all(b)
            else np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))[()]
        )
    return np.fmod


def _not(params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]) -> Function:
    return np.logical_not if ins[0].dtype == "bool" else np.invert


def _select_n(
    params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
) -> Function:
    if not ins[0].shape and len(ins) == 3:
        return lambda which, a, b: b if which else a
    if not ins[0].shape:
        return lambda which, *cases: cases[int(which)]
    if len(ins) == 3:
        return lambda which, a, b: np.where(which, b, a)
    return lambda which, *cases: np.choose(which, cases)


def _convert(
    params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
) -> Function:
    source, target = ir.numpy_dtype(ins[0].dtype), ir.numpy_dtype(outs[0].dtype)
    if target.kind in "iu" and source.kind in "fV":
        return lambda x: _float_to_int(x, target)
    if source.kind == "b" and target.kind in "iuf" and not ins[0].shape:
        return target.type
    return lambda x: x.astype(target)


def _float_to_int(x: Any, target: np.dtype) -> Any:
    """Saturating, and nought for NaN: what XLA and the GPU do."""
    wide = np.asarray(x, np.float64)
    info = np.iinfo(target)
    clipped = np.clip(np.trunc(np.nan_to_num(wide, nan=0.0)), info.min, info.max)
    out = clipped.astype(np.int64 if target.kind == "i" else np.uint64)
    if target.itemsize == 8:
        out = np.where(clipped >= 2.0 ** (63 if target.kind == "i" else 64), info.max, out)
    return out.astype(target)[()]


def _bitcast(
    params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
) -> Function:
    target, shape = ir.numpy_dtype(outs[0].dtype), outs[0].shape
    return lambda x: np.ascontiguousarray(x).reshape(ins[0].shape).view(target).reshape(shape)[()]


def _integer_pow(
    params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
) -> Function:
    exponent = params["y"]

    def power(x: Any) -> Any:
        if exponent == 0:
            return np.ones_like(x)
        n, base, out = abs(exponent), x, None
        while n:
            if n & 1:
                out = base if out is None else out * base
            n >>= 1
            if n:
                base = base * base
        return np.ones_like(x) / out if exponent < 0 else out

    return power


def _shift(logical: bool) -> Maker:
    def make(
        params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]
    ) -> Function:
        dtype = ir.numpy_dtype(ins[0].dtype)
        bits = dtype.itemsize * 8
        work = np.dtype(_UNSIGNED[dtype.itemsize]) if logical else dtype

        def shift(a: Any, b: Any) -> Any:
            amount = np.asarray(b).astype(work)
            inside = np.right_shift(np.asarray(a).astype(work), np.minimum(amount, bits - 1))
            if logical:
                inside = np.where(amount >= bits, 0, inside)
            return inside.astype(dtype)[()]

        return shift

    return make


def _shift_left(a: Any, b: Any) -> Any:
    bits = np.asarray(a).dtype.itemsize * 8
    return np.where(b >= bits, 0, np.left_shift(a, np.minimum(b, bits - 1))).astype(a.dtype)[()]


def _rsqrt(x: Any) -> Any:
    return np.float32(1) / np.sqrt(x) if x.dtype == np.float32 else 1 / np.sqrt(x)


def _logistic(x: Any) -> Any:
    one = np.float32(1) if x.dtype == np.float32 else 1
    return one / (one + np.exp(-x))


def _erf(x: Any) -> Any:
    erf = np.frompyfunc(math.erf, 1, 1)
    return np.asarray(erf(np.asarray(x, np.float64)), np.float64).astype(x.dtype)[()]


def _sign(x: Any) -> Any:
    return np.sign(x)


def _round(params: Mapping[str, Any], ins: Sequence[ir.Type], outs: Sequence[ir.Type]) -> Function:
    mode = params.get("rounding_method")
    even = mode == 1  # lax.RoundingMethod.TO_NEAREST_EVEN
    return np.rint if even else lambda x: np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(low, x), high)


def _population_count(x: Any) -> Any:
    unsigned = np.asarray(x).astype(_UNSIGNED[np.asarray(x).dtype.itemsize])
    return np.bitwise_count(unsigned).astype(np.asarray(x).dtype)[()]


def _clz(x: Any) -> Any:
    bits = np.asarray(x).dtype.itemsize * 8
    unsigned = np.asarray(x).astype(_UNSIGNED[bits // 8]).astype(np.float64)
    return np.where(x == 0, bits, bits - 1 - np.floor(np.log2(np.maximum(unsigned, 1)))).astype(
        np.asarray(x).dtype
    )[()]


def _comparison(function: Function) -> Maker:
    return lambda params, ins, outs: function


ELEMENTWISE: dict[str, Maker] = {
    "add": _plain(operator.add),
    "add_any": _plain(operator.add),
    "sub": _plain(operator.sub),
    "mul": _plain(operator.mul),
    "div": _div,
    "rem": _rem,
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "neg": _plain(operator.neg),
    "abs": _plain(np.abs),
    "sign": _plain(_sign),
    "square": _plain(lambda x: x * x),
    "integer_pow": _integer_pow,
    "pow": _typed(np.power),
    "atan2": _typed(np.arctan2),
    "nextafter": _typed(np.nextafter),
    "exp": _wide(np.exp),
    "exp2": _wide(np.exp2),
    "expm1": _wide(np.expm1),
    "log": _wide(np.log),
    "log1p": _wide(np.log1p),
    "log2": _wide(np.log2),
    "frexp": _plain(np.frexp),
    "ldexp": _typed(np.ldexp),
    "tanh": _wide(np.tanh),
    "logistic": _wide(_logistic),
    "sqrt": _wide(np.sqrt),
    "rsqrt": _wide(_rsqrt),
    "cbrt": _wide(np.cbrt),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "tan": _wide(np.tan),
    "asin": _wide(np.arcsin),
    "acos": _wide(np.arccos),
    "atan": _wide(np.arctan),
    "sinh": _wide(np.sinh),
    "cosh": _wide(np.cosh),
    "erf": _plain(_erf),
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "round": _round,
    "is_finite": _plain(np.isfinite),
    "reciprocal": _plain(lambda x: np.ones_like(x) / x),
    "and": _plain(operator.and_),
    "or": _plain(operator.or_),
    "xor": _plain(operator.xor),
    "not": _not,
    "shift_left": _plain(_shift_left),
    "shift_right_logical": _shift(logical=True),
    "shift_right_arithmetic": _shift(logical=False),
    "population_count": _plain(_population_count),
    "clz": _plain(_clz),
    "eq": _comparison(operator.eq),
    "ne": _comparison(operator.ne),
    "lt": _comparison(operator.lt),
    "le": _comparison(operator.le),
    "gt": _comparison(operator.gt),
    "ge": _comparison(operator.ge),
    "select_n": _select_n,
    "clamp": _plain(_clamp),
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "copy": _plain(lambda x: x),
    "copy_p": _plain(lambda x: x),
    "stop_gradient": _plain(lambda x: x),
    "optimization_barrier": _plain(lambda *xs: xs if len(xs) != 1 else xs[0]),
    "identity": _plain(lambda x: x),
    "reduce_precision": _typed(lambda x: x),
}
del ELEMENTWISE["reduce_precision"]  # JAX itself rounds it
