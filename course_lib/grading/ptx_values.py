"""What PTX's arithmetic computes, for many lanes at once: PTX ISA, chapter 9, "Instructions".

`computing("mad.lo.s32")` says of which types the operands and the result are, and how one comes
of the other. An instruction that is not here is refused by whoever asks: nothing is guessed.
Where PTX allows an approximation (`rsqrt.approx`), the result is the exact one, rounded.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Lanes = np.ndarray[Any, Any]
Compute = Callable[..., Any]

TYPES: Mapping[str, np.dtype[Any]] = {
    "pred": np.dtype(bool),
    **{f"{k}{bits}": np.dtype(f"u{bits // 8}") for k in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
}
_FLOATS = ("f16", "f32", "f64")
# Modifiers that change nothing here: the default rounding, subnormals, an approximation.
_PLAIN = frozenset({"rn", "ftz", "approx", "full"})


@dataclasses.dataclass(frozen=True)
class Computing:
    """How an instruction computes.

    Attributes:
      result: the type of its result.
      operands: the types of its operands.
      compute: from operands to the result, arrays of these types.
    """

    result: str
    operands: tuple[str, ...]
    compute: Compute


@functools.cache
def computing(opcode: str) -> Computing | None:
    """How an instruction computes, None for one that is not known, or does something else."""
    name, *mods = opcode.split(".")
    decode = _DECODERS.get(name)
    if decode is None or not mods or mods[-1] not in TYPES:
        return None
    return decode(name, tuple(mods[:-1]), mods[-1])


def _signed(kind: str) -> bool:
    return kind[0] == "s"


def _wide(kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}"


# --- integers and floats -------------------------------------------------------------------------


def _simple(compute: Compute, count: int, kinds: str) -> Callable[..., Computing | None]:
    """An instruction whose operands and result are of one type, `kinds` among "bsufp"."""

    def decode(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
        if kind[0] not in kinds or not _PLAIN.issuperset(mods):
            return None
        return Computing(kind, (kind,) * count, compute)

    return decode


def _product(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`mul` and `mad`: the lower half, the upper half, or all of it; of floats as it is."""
    if kind in _FLOATS:
        return Computing(kind, (kind,) * 2, np.multiply) if _PLAIN.issuperset(mods) else None
    more, result = name == "mad", kind
    compute: Compute
    if mods == ("lo",):
        compute = np.multiply
    elif mods == ("wide",) and kind[1:] in ("16", "32"):
        result, compute = _wide(kind), functools.partial(_multiply_wide, TYPES[_wide(kind)])
    elif mods == ("hi",):
        compute = functools.partial(_multiply_high, kind)
    else:
        return None
    if not more:
        return Computing(result, (kind, kind), compute)
    return Computing(result, (kind, kind, result), lambda a, b, c: compute(a, b) + c)


def _multiply_wide(dtype: np.dtype[Any], a: Lanes, b: Lanes) -> Lanes:
    return a.astype(dtype) * b.astype(dtype)


def _multiply_high(kind: str, a: Lanes, b: Lanes) -> Lanes:
    if kind[1:] != "64":
        bits = int(kind[1:])
        wide = TYPES[_wide(kind)]
        return (a.astype(wide) * b.astype(wide) >> bits).astype(TYPES[kind])
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    high = a1 * b1 + (middle >> half) + ((middle & low) + a0 * b1 >> half)
    if _signed(kind):
        zero = np.uint64(0)
        high = high - np.where(a < 0, ub, zero) - np.where(b < 0, ua, zero)
    return high.view(TYPES[kind])


def _fma(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """Rounded once; of float64 twice, as NumPy has no such operation."""
    if kind not in _FLOATS or not _PLAIN.issuperset(mods):
        return None
    dtype = TYPES[kind]

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(dtype)

    return Computing(kind, (kind,) * 3, compute)


def _quotient(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    if kind in _FLOATS:
        plain = name == "div" and _PLAIN.issuperset(mods)
        return Computing(kind, (kind, kind), np.divide) if plain else None
    if mods or kind[0] not in "su":
        return None
    return Computing(kind, (kind, kind), functools.partial(_divide, kind, name == "rem"))


def _divide(kind: str, rest: bool, a: Lanes, b: Lanes) -> Lanes:
    """Towards zero; by zero, of which PTX says nothing, all bits are set."""
    unsigned = TYPES[f"u{kind[1:]}"]
    zero = b == 0
    ua, ub = np.abs(a).view(unsigned), np.where(zero, b.dtype.type(1), np.abs(b)).view(unsigned)
    quotient = (ua // ub).view(TYPES[kind])
    if _signed(kind):
        quotient = np.where((a < 0) != (b < 0), -quotient, quotient)
    result = a - quotient * b if rest else quotient
    return np.where(zero, unsigned.type(~unsigned.type(0)).view(TYPES[kind]), result)


def _extreme(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`min` and `max`: of two floats the number, where one is NaN, unless `.NaN` says otherwise."""
    if kind[0] not in "suf" or not set(mods) <= {"ftz", "NaN"}:
        return None
    both = (np.minimum, np.fmin) if name == "min" else (np.maximum, np.fmax)
    return Computing(kind, (kind, kind), both[0] if "NaN" in mods or kind[0] != "f" else both[1])


def _negate(a: Lanes) -> Lanes:
    return np.negative(a)


def _invert(a: Lanes) -> Lanes:
    return np.invert(a)


def _function(compute: Compute, kinds: Sequence[str] = ("f32",)) -> Callable[..., Computing | None]:
    """A function of one float, computed in float64 and rounded."""

    def decode(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
        if kind not in kinds or not _PLAIN.issuperset(mods):
            return None
        dtype = TYPES[kind]
        return Computing(kind, (kind,), lambda a: compute(a.astype(np.float64)).astype(dtype))

    return decode


def _copysign(a: Lanes, b: Lanes) -> Lanes:
    return np.copysign(b, a)  # PTX ISA: "Copy sign bit of a into value of b"


# --- bits ----------------------------------------------------------------------------------------


def _shift(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """By more than there are bits, nothing is left but the sign."""
    if mods or kind[0] not in "bsu":
        return None
    bits, dtype = int(kind[1:]), TYPES[kind]

    def left(a: Lanes, by: Lanes) -> Lanes:
        moved = a << np.minimum(by, bits - 1).astype(dtype)
        return np.where(by < bits, moved, dtype.type(0))

    def right(a: Lanes, by: Lanes) -> Lanes:
        moved = a >> np.minimum(by, bits - 1).astype(dtype)
        return moved if _signed(kind) else np.where(by < bits, moved, dtype.type(0))

    return Computing(kind, (kind, "u32"), left if name == "shl" else right)


def _funnel(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`shf`: 32 of the 64 bits of two registers."""
    if kind != "b32" or len(mods) != 2 or mods[0] not in ("l", "r"):
        return None
    if mods[1] not in ("wrap", "clamp"):
        return None

    def compute(low: Lanes, high: Lanes, by: Lanes) -> Lanes:
        count = (by & 31 if mods[1] == "wrap" else np.minimum(by, 32)).astype(np.uint64)
        both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        moved = both << count >> np.uint64(32) if mods[0] == "l" else both >> count
        return moved.astype(np.uint32)

    return Computing(kind, (kind, kind, "u32"), compute)


def _count_bits(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    if mods or kind not in ("b32", "b64"):
        return None
    bits = int(kind[1:])

    def leading(a: Lanes) -> Lanes:
        found = np.full(a.shape, bits, np.uint32)
        for i in range(bits):
            found = np.where(a >> a.dtype.type(i) & a.dtype.type(1) != 0, bits - 1 - i, found)
        return found.astype(np.uint32)

    def ones(a: Lanes) -> Lanes:
        return np.bitwise_count(a).astype(np.uint32)

    return Computing("u32", (kind,), ones if name == "popc" else leading)


def _reverse_bits(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    if mods or kind not in ("b32", "b64"):
        return None
    bits = int(kind[1:])

    def compute(a: Lanes) -> Lanes:
        one, turned = a.dtype.type(1), np.zeros_like(a)
        for i in range(bits):
            turned |= (a >> a.dtype.type(i) & one) << a.dtype.type(bits - 1 - i)
        return turned

    return Computing(kind, (kind,), compute)


def _extract(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`bfe`: a field of bits."""
    if mods or kind not in ("u32", "u64", "s32", "s64"):
        return None
    bits, dtype = int(kind[1:]), TYPES[kind]

    def compute(a: Lanes, begin: Lanes, count: Lanes) -> Lanes:
        first, many = (begin & 255).astype(np.int64), (count & 255).astype(np.int64)
        result = np.zeros(np.broadcast_shapes(a.shape, first.shape, many.shape), dtype)
        top = np.minimum(first + many - 1, bits - 1)
        sign = (a >> np.clip(top, 0, bits - 1).astype(dtype) & dtype.type(1)) != 0
        sign &= np.asarray(_signed(kind)) & (many > 0)
        for i in range(bits):
            place = np.clip(first + i, 0, bits - 1).astype(dtype)
            inside = (i < many) & (first + i < bits)
            bit = np.where(inside, a >> place & dtype.type(1) != 0, sign)
            result |= bit.astype(dtype) << dtype.type(i)
        return result

    return Computing(kind, (kind, "u32", "u32"), compute)


def _insert(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`bfi`: a field of bits in another value."""
    if mods or kind not in ("b32", "b64"):
        return None
    bits, dtype = int(kind[1:]), TYPES[kind]

    def compute(a: Lanes, b: Lanes, begin: Lanes, count: Lanes) -> Lanes:
        first, many = (begin & 255).astype(np.int64), (count & 255).astype(np.int64)
        mask = np.zeros(np.broadcast_shapes(a.shape, first.shape, many.shape), dtype)
        for i in range(bits):
            inside = (i >= first) & (i < first + many)
            mask |= inside.astype(dtype) << dtype.type(i)
        moved = np.where(
            first < bits, a << np.minimum(first, bits - 1).astype(dtype), dtype.type(0)
        )
        return b & ~mask | moved & mask

    return Computing(kind, (kind, kind, "u32", "u32"), compute)


def _permute(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`prmt`: four of eight bytes, each with its sign alone where the selector says so."""
    if mods or kind != "b32":
        return None

    def compute(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
        both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint32)
        for i in range(4):
            chosen = selector >> np.uint32(4 * i)
            byte = (both >> (8 * (chosen & 7)).astype(np.uint64) & np.uint64(255)).astype(np.uint32)
            sign = np.where(byte & 128 != 0, np.uint32(255), np.uint32(0))
            result |= np.where(chosen & 8 != 0, sign, byte) << np.uint32(8 * i)
        return result

    return Computing(kind, (kind,) * 3, compute)


def _logic(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`lop3`: any function of three bits, by its table."""
    if mods or kind != "b32":
        return None

    def compute(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
        result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
        for i in range(8):
            match = (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
            result |= np.where(table >> np.uint32(i) & 1 != 0, match, np.uint32(0))
        return result

    return Computing(kind, ("b32", "b32", "b32", "u32"), compute)


# --- choices and conversions ---------------------------------------------------------------------

_COMPARE: Mapping[str, Compute] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BOOLEAN: Mapping[str, Compute] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def _set_predicate(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`setp`: a comparison, perhaps joined with another predicate."""
    mods = tuple(m for m in mods if m != "ftz")
    if not mods or len(mods) > 2 or kind[0] not in "bsuf":
        return None
    compare = _comparison(mods[0], kind)
    if compare is None:
        return None
    if len(mods) == 1:
        return Computing("pred", (kind, kind), compare)
    if mods[1] not in _BOOLEAN:
        return None
    join = _BOOLEAN[mods[1]]
    return Computing("pred", (kind, kind, "pred"), lambda a, b, c: join(compare(a, b), c))


def _comparison(name: str, kind: str) -> Compute | None:
    if kind[0] == "f":
        return _float_comparison(name)
    if kind[0] != "s":
        name = _UNSIGNED.get(name, name)
    return _COMPARE.get(name)


def _float_comparison(name: str) -> Compute | None:
    """Ordered, where a NaN makes it false; with a `u`, where it makes it true."""
    if name in ("num", "nan"):
        nan = name == "nan"
        return lambda a, b: (np.isnan(a) | np.isnan(b)) == nan
    if name in _COMPARE:
        compare = _COMPARE[name]
        return lambda a, b: compare(a, b) & ~(np.isnan(a) | np.isnan(b))
    if name[-1:] == "u" and name[:-1] in _COMPARE:
        compare = _COMPARE[name[:-1]]
        return lambda a, b: compare(a, b) | np.isnan(a) | np.isnan(b)
    return None


def _select(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    if mods or kind == "pred":
        return None
    return Computing(kind, (kind, kind, "pred"), lambda a, b, p: np.where(p, a, b))


_ROUND: Mapping[str, Compute] = {
    "rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def _convert(name: str, mods: tuple[str, ...], kind: str) -> Computing | None:
    """`cvt.to.from`."""
    mods = tuple(m for m in mods if m not in ("rn", "ftz"))
    if not mods or mods[-1] not in TYPES or "pred" in (kind, mods[-1]):
        return None
    to, more = mods[-1], mods[:-1]
    dtype = TYPES[to]
    if not more and not (kind[0] == "f" and to[0] != "f"):
        return Computing(to, (kind,), lambda a: a.astype(dtype))
    if len(more) == 1 and more[0] in _ROUND and kind[0] == "f":
        rounded = _ROUND[more[0]]
        if to[0] == "f":
            return Computing(to, (kind,), lambda a: rounded(a).astype(dtype))
        return Computing(to, (kind,), lambda a: _to_integer(rounded(a), dtype))
    return None


def _to_integer(a: Lanes, dtype: np.dtype[Any]) -> Lanes:
    """Clamped to what the type holds; NaN is 0."""
    info = np.iinfo(dtype)
    wide = np.nan_to_num(a.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = (wide > info.min) & (wide < info.max)
    plain = np.where(inside, wide, 0.0).astype(dtype)
    return np.where(inside, plain, np.where(wide <= info.min, info.min, info.max).astype(dtype))


def _move(a: Lanes) -> Lanes:
    return a


_DECODERS: Mapping[str, Callable[[str, tuple[str, ...], str], Computing | None]] = {
    "mov": _simple(_move, 1, "bsufp"),
    "add": _simple(np.add, 2, "suf"),
    "sub": _simple(np.subtract, 2, "suf"),
    "mul": _product,
    "mad": _product,
    "fma": _fma,
    "div": _quotient,
    "rem": _quotient,
    "min": _extreme,
    "max": _extreme,
    "neg": _simple(_negate, 1, "sf"),
    "abs": _simple(np.abs, 1, "sf"),
    "and": _simple(np.bitwise_and, 2, "bp"),
    "or": _simple(np.bitwise_or, 2, "bp"),
    "xor": _simple(np.bitwise_xor, 2, "bp"),
    "not": _simple(_invert, 1, "bp"),
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "popc": _count_bits,
    "clz": _count_bits,
    "brev": _reverse_bits,
    "bfe": _extract,
    "bfi": _insert,
    "prmt": _permute,
    "lop3": _logic,
    "setp": _set_predicate,
    "selp": _select,
    "cvt": _convert,
    "copysign": _simple(_copysign, 2, "f"),
    "sqrt": _function(np.sqrt, ("f32", "f64")),
    "rsqrt": _function(lambda a: 1 / np.sqrt(a), ("f32", "f64")),
    "rcp": _function(lambda a: 1 / a, ("f32", "f64")),
    "ex2": _function(np.exp2),
    "lg2": _function(np.log2),
    "sin": _function(np.sin),
    "cos": _function(np.cos),
    "tanh": _function(np.tanh),
}

_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,16}|\d{1,20})U?")
_REAL = re.compile(r"-?\d{1,40}\.\d{0,40}(?:[eE][+-]?\d{1,3})?")


def constant(text: str, kind: str) -> Lanes | None:
    """A literal of a type, as an array of no dimensions; None where the text is none."""
    dtype = TYPES[kind]
    if kind == "pred":
        return np.array(int(text) != 0) if _INTEGER.fullmatch(text) else None
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return _bits(np.array(int(text[2:], 16), np.uint32).view(np.float32), dtype)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return _bits(np.array(int(text[2:], 16), np.uint64).view(np.float64), dtype)
    if _REAL.fullmatch(text) and dtype.kind == "f":
        return np.array(float(text), dtype)
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text.rstrip("U"), 0) if not re.fullmatch(r"-?0\d+", text) else int(text, 8)
    if dtype.kind == "f":
        return None
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.array(number & (1 << 8 * dtype.itemsize) - 1, unsigned).view(dtype)


def _bits(value: Lanes, dtype: np.dtype[Any]) -> Lanes | None:
    """A float as its bits in another type of that size; a float of another size is converted."""
    if dtype.kind == "f":
        return value.astype(dtype)
    return value.view(dtype) if dtype.itemsize == value.dtype.itemsize else None
