"""From a ref's use to the view it means: transforms applied to a buffer, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.faults import OutOfBounds, Unsupported
from course_lib.simulator.machine.memory import Buffer, Env, View


class _Walk:
    """A view in the making: transforms are applied to it one by one."""

    __slots__ = ("boxed", "cells", "clip", "dims", "hi", "lo", "pad", "steps", "view")

    def __init__(self, buffer: Buffer, clip: bool) -> None:
        self.view = View(buffer, buffer.data, *buffer.full)
        self.lo = [0] * buffer.data.ndim
        self.hi = list(buffer.data.shape)
        self.dims: list[int] = list(range(buffer.data.ndim))
        self.boxed = True  # still a box of whole elements, in some order of dimensions
        self.cells: np.ndarray | None = None
        self.pad: list[tuple[int, int]] = [(0, 0)] * buffer.data.ndim
        self.steps: list[tuple[str, Any]] = []
        self.clip = clip

    def _leave_box(self) -> None:
        """From here on, elements are followed one by one."""
        if self.cells is None:
            shape = self.view.buffer.data.shape
            cells = np.arange(math.prod(shape)).reshape(shape)[self._take()]
            for kind, arg in self.steps:
                cells = cells.transpose(arg) if kind == "transpose" else cells.reshape(arg)
            self.cells = cells

    def _take(self) -> tuple[Any, ...]:
        whole = list(zip(self.lo, self.hi, strict=True))
        kept = set(self.dims)
        return tuple(slice(lo, hi) if d in kept else lo for d, (lo, hi) in enumerate(whole))

    def index(self, items: list[Any]) -> None:
        if any(_is_rare(i) for i in items) or self.cells is not None:
            self._index_any(items)
            return
        dims, pad = [], []
        take: list[Any] = []
        for axis, item in enumerate(items):
            root = self.dims[axis]
            extent = self.view.data.shape[axis]
            if type(item) is tuple:
                start, size, _ = item
                before, after = self._bounds(start, start + size, extent, axis)
                first, last = start + before, start + size - after
                take.append(slice(first, last))
                base = self.lo[root]
                self.lo[root], self.hi[root] = base + first, base + last
                dims.append(root)
                pad.append((before, after))
            else:
                if not 0 <= item < extent:
                    why = _BY_TMA if self.clip else ""
                    raise OutOfBounds(self.view.buffer, axis, item, item + 1, extent, why)
                take.append(item)
                self.lo[root] += item
                self.hi[root] = self.lo[root] + 1
        self.view.data = self.view.data[(*take, ...)]  # a view, even of one element
        if self.steps:
            self._renumber(dims)
        self.dims, self.pad = dims, pad

    def _renumber(self, dims: list[int]) -> None:
        """Keeps the transposes right when an index drops dimensions."""
        order = sorted(dims)
        self.steps = [("transpose", tuple(order.index(d) for d in dims))]

    def _bounds(self, start: int, stop: int, extent: int, axis: int) -> tuple[int, int]:
        if start >= 0 and stop <= extent:
            return 0, 0
        if not self.clip or stop <= start + 0:
            raise OutOfBounds(self.view.buffer, axis, start, stop, extent)
        size = stop - start
        before = min(max(0, -start), size)
        return before, min(max(0, stop - extent), size - before)

    def _index_any(self, items: list[Any]) -> None:
        """Strides and arrays of indices: the elements are named one by one."""
        self._leave_box()
        take: list[Any] = []
        for axis, item in enumerate(items):
            extent = self.view.data.shape[axis]
            if type(item) is tuple:
                start, size, stride = item
                stop = start + (size - 1) * stride + 1 if size else start
                if start < 0 or stop > extent:
                    raise OutOfBounds(self.view.buffer, axis, start, stop, extent)
                take.append(slice(start, stop, stride))
            else:
                self._check_items(np.asarray(item), axis, extent)
                take.append(item)
        self.view.data = self.view.data[tuple(take)]
        assert self.cells is not None
        self.cells = self.cells[tuple(take)]
        self.pad = [(0, 0)] * self.view.data.ndim
        self.steps.append(("take", tuple(take)))

    def _check_items(self, item: np.ndarray, axis: int, extent: int) -> None:
        """An array of indices; a copy by one (`clip`) is done by the TMA engine."""
        bad = item[(item < 0) | (item >= extent)]
        if bad.size:
            first = int(bad.reshape(-1)[0])
            why = _BY_TMA if self.clip else ""
            raise OutOfBounds(self.view.buffer, axis, first, first + 1, extent, why)

    def transpose(self, perm: tuple[int, ...]) -> None:
        self.view.data = self.view.data.transpose(perm)
        self.pad = [self.pad[p] for p in perm]
        if self.cells is not None:
            self.cells = self.cells.transpose(perm)
            return
        self.dims = [self.dims[p] for p in perm]
        order = sorted(self.dims)
        self.steps = [("transpose", tuple(order.index(d) for d in self.dims))]

    def reshape(self, shape: tuple[int, ...]) -> None:
        self._leave_box()
        out = self.view.data.reshape(shape)
        if out.size and not np.shares_memory(out, self.view.data):
            raise Unsupported("a reshape of a part of a ref that is not contiguous")
        self.view.data = out
        assert self.cells is not None
        self.cells = self.cells.reshape(shape)
        self.pad = [(0, 0)] * len(shape)

    def bitcast(self, dtype: str) -> None:
        """The box stays that of the bytes; the elements are reinterpreted."""
        self._leave_box()
        data = self.view.data
        new = ir.numpy_dtype(dtype)
        if new.itemsize == data.dtype.itemsize:
            self.view.data = data.view(new)
            return
        # A ref is reinterpreted along its second to last dimension.
        swapped = np.ascontiguousarray(np.swapaxes(data, -1, -2)).view(new)
        raise Unsupported(f"a bitcast between sizes ({swapped.dtype.name})")

    def done(self) -> View:
        v = self.view
        v.lo, v.hi = tuple(self.lo), tuple(self.hi)
        v.take = self._take()
        if self.cells is not None:
            v.cells = np.ascontiguousarray(self.cells).reshape(-1)
        v.steps = tuple(self.steps)
        if any(b or a for b, a in self.pad):
            v.pad = self.pad
        return v


_BY_TMA = (
    "The TMA engine knows the array's bounds: a load from outside gives noughts, a store there is "
    "dropped (PTX ISA, tensors, out-of-bound access). Nobody asks for a whole row of that."
)


def _is_rare(item: Any) -> bool:
    return isinstance(item, np.ndarray) or (type(item) is tuple and item[2] != 1)


Resolver = Callable[[Any, Env], View]

# How a ref lies in its memory; buffers are in logical order, so there is nothing to undo.
_PHYSICAL = ("untile", "unswizzle", "batch")


def compile_ref(use: ir.RefUse, *, clip: bool = False) -> Resolver:
    """What gives the `View` of a ref's use, for a thread and its slots.

    With `clip`, a slice may reach out of bounds: the view is what lies inside
    and `pad` says how much does not. Raises OutOfBounds otherwise.
    """
    slot = use.slot
    steps = tuple(t for t in use.transforms if t.kind not in _PHYSICAL)
    alias = next((t for t in steps if t.kind == "alias"), None)
    if alias is not None:
        return _compile_alias(use, alias, clip)
    if not steps or (len(steps) == 1 and _trivial(steps[0])):
        return lambda t, env: whole(env[slot])
    appliers = tuple(_applier(t) for t in steps)
    numbers = tuple(_slots(steps))
    shape = _SHAPES.setdefault((_shape(steps), clip), len(_SHAPES))

    only = numbers[0] if len(numbers) == 1 else None
    fixed = (shape,)

    def resolve(t: Any, env: Env) -> View:
        buffer = env[slot]
        key: Any
        if only is not None:
            key = (shape, env[only])
        else:
            key = (shape, *[env[s] for s in numbers]) if numbers else fixed
        try:
            return buffer.views[key]
        except KeyError:
            pass
        except TypeError:  # indexed by an array
            key = ()
        model = _MODELS.get((key, buffer.data.shape)) if key else None
        if model is not None:
            view = model.on(buffer)
        else:
            walk = _Walk(buffer, clip)
            for apply in appliers:
                apply(walk, env)
            view = walk.done()
            if key and view.cells is None and len(_MODELS) < _MOST_VIEWS:
                _MODELS[key, buffer.data.shape] = view.on(None)
        if key and len(buffer.views) < _MOST_VIEWS:
            buffer.views[key] = view
        return view

    return resolve


# Views without a buffer: the same part of another buffer of the same shape is soon made.
_MODELS: dict[Any, View] = {}


# Chains of transforms that differ only in their slots share their views.
_SHAPES: dict[Any, int] = {}


def _shape(x: Any) -> Any:
    """A chain of transforms without its slots, as a key."""
    if isinstance(x, ir.Transform):
        return (x.kind, _shape(x.args))
    if isinstance(x, ir.Slice):
        return ("slice", _shape(x.start), _shape(x.size), x.stride)
    if isinstance(x, tuple):
        return tuple(_shape(y) for y in x)
    return "var" if isinstance(x, ir.Var) else x


_MOST_VIEWS = 4096  # of one buffer; a view is made again if there are more


def _slots(steps: tuple[ir.Transform, ...]) -> Iterator[int]:
    """The slots whose values a chain of transforms depends on."""

    def walk(x: Any) -> Iterator[int]:
        if isinstance(x, ir.Var):
            yield x.slot
        elif isinstance(x, ir.Slice):
            yield from walk(x.start)
            yield from walk(x.size)
        elif isinstance(x, tuple):
            for y in x:
                yield from walk(y)

    for step in steps:
        yield from walk(step.args)


def whole(buffer: Buffer) -> View:
    """All of a buffer."""
    view = buffer.views.get(None)
    if view is None:
        view = buffer.views[None] = View(buffer, buffer.data, *buffer.full)
    return view


def _trivial(t: ir.Transform) -> bool:
    return t.kind == "index" and not t.args


def _compile_alias(use: ir.RefUse, alias: ir.Transform, clip: bool) -> Resolver:
    untile: tuple[int, ...] = next((t.args for t in use.transforms if t.kind == "untile"), ())
    rest = tuple(t for t in use.transforms if t.kind != "alias")
    inner = compile_ref(ir.RefUse(0, rest), clip=clip)
    slot = use.slot

    def resolve(t: Any, env: Env) -> View:
        return inner(t, [env[slot].member(alias.args, untile)])

    if any(isinstance(a, ir.Slice | ir.Var) for s in rest for a in s.args):
        shifted = [_shift(t) for t in rest]
        inner_dynamic = compile_ref(ir.RefUse(0, tuple(shifted)), clip=clip)

        def resolve_dynamic(t: Any, env: Env) -> View:
            return inner_dynamic(t, [env[slot].member(alias.args, untile), *env])

        return resolve_dynamic
    return resolve


def _shift(t: ir.Transform) -> ir.Transform:
    """The transform with its slots moved up by one (the member takes slot 0)."""

    def move(x: Any) -> Any:
        if isinstance(x, ir.Var):
            return ir.Var(x.slot + 1)
        if isinstance(x, ir.Slice):
            return ir.Slice(move(x.start), move(x.size), x.stride)
        return x

    return ir.Transform(t.kind, tuple(move(a) for a in t.args))


def number(item: int | ir.Var) -> Callable[[Env], Any]:
    """A static number, or the value of a slot (an int, or an array of indices)."""
    if isinstance(item, ir.Var):
        slot = item.slot

        def value(env: Env) -> Any:
            x = env[slot]
            return x if isinstance(x, np.ndarray) and x.ndim else int(x)

        return value
    return lambda env: item


def _applier(t: ir.Transform) -> Callable[[_Walk, Env], None]:
    if t.kind == "index":
        items = tuple(_index_item(i) for i in t.args)
        return lambda walk, env: walk.index([i(env) for i in items])
    if t.kind == "peer":
        return _peer(t)
    if t.kind == "cluster":
        axes, where = t.args
        numbers = tuple(number(i) for i in where)

        def to_block(walk: _Walk, env: Env) -> None:
            walk.view.cluster = dict(zip(axes, (n(env) for n in numbers), strict=True))

        return to_block
    if t.kind in ("transpose", "reshape"):
        return lambda walk, env: getattr(walk, t.kind)(t.args)
    if t.kind == "bitcast":
        return lambda walk, env: walk.bitcast(t.args[0])
    what = t.args[0] if t.kind == "unsupported" else t.kind

    def refuse(walk: _Walk, env: Env) -> None:
        raise Unsupported(f"the ref transform {what}")

    return refuse


def _peer(t: ir.Transform) -> Callable[[_Walk, Env], None]:
    device = device_id(t.args[0])

    def to_device(walk: _Walk, env: Env) -> None:
        walk.view.device = device(env)

    return to_device


def device_id(spec: Any) -> Callable[[Env], Any]:
    """A device id, as frontend's `_Builder.device` wrote it, with its numbers filled in."""
    if spec is None:
        return lambda env: None
    kind, parts = spec
    if kind == "all":
        return lambda env: ("all", parts)
    if kind == "mesh":
        numbers = tuple(number(p) for p in parts)
        return lambda env: ("mesh", tuple(n(env) for n in numbers))
    pairs = tuple((axes, number(n)) for axes, n in parts)
    return lambda env: ("axes", tuple((axes, n(env)) for axes, n in pairs))


def _index_item(item: Any) -> Callable[[Env], Any]:
    """A slice as (start, size, stride), an int, or an array of indices."""
    if not isinstance(item, ir.Slice):
        return number(item)
    if isinstance(item.start, int) and isinstance(item.size, int):
        fixed = (item.start, item.size, item.stride)
        return lambda env: fixed
    start, size, stride = number(item.start), number(item.size), item.stride
    return lambda env: (start(env), size(env), stride)
