"""Says what is wrong with an array, where that is certain.

Each function looks for one mistake and answers with a sentence only if the
whole array shows it; inputs are fresh normal data, so that it cannot be chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

_FILLED = 0.95
_TRIED_SHIFTS = 8
_CLOSE = 1e-5  # relative to the largest element: float32 rounding and no more
_COARSER = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def describe(got: Array, wanted: Array, wrong: Array, inputs: Mapping[str, Array]) -> list[str]:
    """What kind of mistake the differences show: no sentence, one or two.

    Args:
      got, wanted: one output and what it should be, of one shape and dtype.
      wrong: where they differ, not empty.
      inputs: the function's arguments by name.
    """
    if wrong.size > 1:
        for sentence in _whole_array(got, wanted, inputs):
            return [sentence]
    return [*describe_region(wrong), *_same_value(got, wrong)]


def describe_region(wrong: Array) -> list[str]:
    """Where the wrong elements are, or the right ones, if they fill one block of the array.

    A few elements of a wrong block are right by chance: 1 in 100 000 of float32, and more
    of coarser dtypes. A block counts as filled in spite of them.
    """
    if wrong.all() or wrong.sum() == 1:
        return []
    box = _bounding_box(wrong)
    if wrong[box].size < wrong.size and wrong[box].mean() > _FILLED:
        return [f"All of those are in {_box_words(box, wrong.shape)}; the rest is right."]
    box = _block_of(~wrong)
    outside = np.ones(wrong.shape, bool)
    outside[box] = False
    if wrong[box].size > 1 and not wrong[box].any() and wrong[outside].mean() > _FILLED:
        return [f"Only {_box_words(box, wrong.shape)} are right."]
    return []


def _whole_array(got: Array, wanted: Array, inputs: Mapping[str, Array]) -> Iterator[str]:
    yield from _is_input(got, inputs)
    yield from _transposed(got, wanted)
    yield from _repeated(got, wanted)
    yield from _moved(got, wanted)
    yield from _rounded(got, wanted)
    yield from _off_by_a_constant(got, wanted)
    yield from _off_by_a_factor(got, wanted)
    yield from _shuffled(got, wanted)


def _is_input(got: Array, inputs: Mapping[str, Array]) -> Iterator[str]:
    for name, array in inputs.items():
        if array.shape == got.shape and array.dtype == got.dtype and np.array_equal(array, got):
            yield f"The output is {name}, unchanged."


def _transposed(got: Array, wanted: Array) -> Iterator[str]:
    if wanted.ndim == 2 and wanted.shape[0] == wanted.shape[1] and _same(got, wanted.T):
        yield "It is the right answer, transposed."


def _repeated(got: Array, wanted: Array) -> Iterator[str]:
    """Every block does the work of the first: its index is not used."""
    for axis, length in enumerate(wanted.shape):
        for block in (n for n in range(length // 2, 0, -1) if length % n == 0):
            first = np.take(wanted, range(block), axis)
            if _same(np.take(got, range(block), axis), first) and _same(
                got, np.concatenate([first] * (length // block), axis)
            ):
                what = _span(axis, 0, block, wanted.ndim)
                why = "does each block, or each warp, use its own index?"
                yield f"What belongs in {what} is repeated over the rest: {why}"
                return


def _moved(got: Array, wanted: Array) -> Iterator[str]:
    """The right answer, reversed or shifted round along one axis."""
    for axis, length in enumerate(wanted.shape):
        unit = _AXIS.get((wanted.ndim, axis), f"step of axis {axis}")
        if length > 1 and _same(got, np.flip(wanted, axis)):
            yield f"It is the right answer with its {unit}s in reverse order."
        for shift in _shifts(got, wanted, axis):
            if _same(got, np.roll(wanted, -shift, axis)):
                yield f"It is the right answer, moved {_way(shift, length, unit)}."
                return


def _shifts(got: Array, wanted: Array, axis: int) -> list[int]:
    """Where along `axis` the first element of `got` is found in `wanted`; a few places at most."""
    line = np.moveaxis(wanted, axis, 0).reshape(wanted.shape[axis], -1)[:, 0]
    near = np.abs(_wide(line) - _wide(got).flat[0]) <= _CLOSE * np.abs(_wide(line)).max()
    return [int(i) for i in np.flatnonzero(near) if i][:_TRIED_SHIFTS]


def _way(shift: int, length: int, unit: str) -> str:
    """A shift round an axis in words, the shorter way round: "up by 8 rows"."""
    lower, higher = _WAYS.get(unit, ("towards lower indices", "towards higher indices"))
    n, way = (shift, lower) if shift <= length - shift else (length - shift, higher)
    head, *rest = unit.split()
    return " ".join([way, "by", str(n), head if n == 1 else f"{head}s", *rest])


def _rounded(got: Array, wanted: Array) -> Iterator[str]:
    if wanted.dtype != np.float32:
        return
    for dtype in _COARSER:
        with np.errstate(over="ignore"):
            if np.array_equal(wanted.astype(dtype).astype(np.float32), got):
                yield f"Each element is the right one, rounded to {dtype.name} on the way."


def _off_by_a_constant(got: Array, wanted: Array) -> Iterator[str]:
    difference = _wide(got) - _wide(wanted)
    constant = difference.flat[0]
    if np.isfinite(difference).all() and _same(
        difference, np.full_like(difference, constant), wanted
    ):
        yield f"Every element is off by the same amount: {_number(constant)}."


def _off_by_a_factor(got: Array, wanted: Array) -> Iterator[str]:
    g, w = _wide(got), _wide(wanted)
    if not (np.isfinite(g).all() and np.isfinite(w).all() and (w != 0).any()):
        return
    peak = np.unravel_index(np.abs(w).argmax(), w.shape)
    factor = g[peak] / w[peak]
    if factor and _same(g, factor * w):
        right = (
            "has the wrong sign"
            if np.isclose(factor, -1)
            else f"is {_number(factor)} times what it should be"
        )
        yield f"Every element {right}."


def _shuffled(got: Array, wanted: Array) -> Iterator[str]:
    distinct = len(np.unique(_wide(wanted)))
    if distinct > wanted.size // 2 and np.array_equal(np.sort(got, None), np.sort(wanted, None)):
        yield "All the right values are there, but in the wrong places."


def _same_value(got: Array, wrong: Array) -> Iterator[str]:
    values = got[wrong]
    if values.size > 1 and (values == values[0]).all():
        yield f"Every wrong element is {_number(values[0])}."


def _same(a: Array, b: Array, scale: Array | None = None) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    a, b = _wide(a), _wide(b)
    peak = float(np.max(np.abs(_wide(scale if scale is not None else b)), initial=0.0))
    return bool(np.isfinite(peak) and (np.abs(a - b) <= _CLOSE * peak).all())


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _number(value: Any) -> str:
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 2**53 else f"{number:.6g}"


def _block_of(mask: Array) -> tuple[slice, ...]:
    """The block that holds most of the elements of `mask`, a few strays apart."""
    block = np.ones(mask.shape, bool)
    for axis in range(mask.ndim):
        share = mask.mean(tuple(a for a in range(mask.ndim) if a != axis), keepdims=True)
        block &= share > share.max() / 2
    return _bounding_box(block)


def _bounding_box(mask: Array) -> tuple[slice, ...]:
    """The smallest block that holds all elements of `mask`, of which there is at least one."""
    places = np.argwhere(mask)
    low, high = places.min(0), places.max(0) + 1
    return tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))


_WAYS = {"row": ("up", "down"), "column": ("left", "right")}
_AXIS = {(1, 0): "element", (2, 0): "row", (2, 1): "column"}


def _box_words(box: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    parts = [
        _span(axis, s.start, s.stop, len(shape))
        for axis, (s, n) in enumerate(zip(box, shape, strict=True))
        if s.stop - s.start < n
    ]
    return ", ".join(parts)


def _span(axis: int, start: int, stop: int, ndim: int) -> str:
    unit = _AXIS.get((ndim, axis), f"axis {axis}:")
    if stop - start == 1:
        return f"{unit} {start}"
    plural = unit if unit.endswith(":") else f"{unit}s"
    return f"{plural} {start} to {stop - 1}"
