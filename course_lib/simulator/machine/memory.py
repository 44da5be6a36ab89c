"""Memories and the parts of them that an operation touches.

A `Buffer` is one allocation: its values in logical order (a tiled or swizzled
buffer is kept untiled: every operation looks through the tiling), which of its
elements were ever written, and the log of accesses that may still race with a
later one. A `View` is the part of a buffer that one access touches: a numpy
view of the values and the region, in the buffer's own coordinates. A region is a
box (`lo`, `hi`), narrowed by `cells` (flat indices) where it is not one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.faults import OutOfBounds, Unsupported

Env = list[Any]
Box = tuple[int, ...]


def fill_value(dtype: np.dtype) -> Any:
    """What memory that nobody wrote reads as: NaN, or the largest integer."""
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    if dtype.name in ("int4", "uint4", "int2", "uint2"):
        return 1
    return np.array(np.nan).astype(dtype)


class Buffer:
    """One allocation in a memory space.

    Attributes:
      data: the values, in the logical shape.
      space: "gmem", "smem", "tmem", "regs" or "host".
      name: what the learner calls it.
      unwritten: a mask of elements that nobody wrote, or None if there are none.
      log: the accesses that a later one is checked against (races.Log), or None.
      mirror: the same values in float32, for the matrix units; None if not kept.
      home: the block it belongs to (None for global memory).
    """

    __slots__ = (
        "_missing", "columns", "data", "full", "home", "log", "members", "mirror", "name",
        "offset", "peers", "space", "swizzle", "tiling", "type", "unwritten", "views", "watched",
    )  # fmt: skip

    def __init__(self, data: np.ndarray, space: str, name: str, *, written: bool) -> None:
        self.data = data
        self.space = space
        self.name = name
        self.home: Any = None
        self.log: Any = None
        self.mirror: np.ndarray | None = None
        self.unwritten: np.ndarray | None = None if written else np.ones(data.shape, bool)
        self._missing = 0 if written else data.size
        self.full: tuple[Box, Box] = ((0,) * data.ndim, data.shape)
        self.tiling: tuple[int, ...] = ()
        self.swizzle = 0
        self.columns = 0
        self.watched = True
        self.members: dict[Any, Buffer] | None = None  # of a union, by alias
        self.peers: Buffer | None = None  # the union that this is a member of
        self.offset = 0  # in the union, in bytes
        self.type: ir.RefType | None = None
        self.views: dict[Any, View] = {}  # by who asks and the numbers it asks with

    @staticmethod
    def fresh(type_: ir.RefType, space: str, name: str) -> Buffer:
        """A new allocation: nobody wrote it, and floats read as NaN."""
        dtype = ir.numpy_dtype(type_.dtype)
        data = np.full(type_.shape, fill_value(dtype), dtype)
        out = Buffer(data, space, name, written=False)
        out.tiling, out.swizzle, out.columns = type_.tiling, type_.swizzle, type_.columns
        out.type = type_
        if type_.union:
            out.members = {}
        return out

    def forget(self) -> None:
        """The allocation ends: lets go of everything that points back at it."""
        self.views = {}
        self.log = None
        self.watched = False
        for member in (self.members or {}).values():
            member.forget()
        self.members = None if self.members is None else {}

    def mark_written(self, view: View) -> None:
        """Notes that the elements of `view` hold a value now."""
        mask = self.unwritten
        if mask is None:
            return
        part = view.part(mask)
        self._missing -= int(np.count_nonzero(part))
        if self._missing <= 0:
            self.unwritten = None
        elif isinstance(view.take, tuple) and view.cells is None:
            mask[view.take] = False
        else:
            mask.reshape(-1)[view.flat()] = False

    def reads_unwritten(self, view: View) -> bool:
        """Whether an element of `view` was never written."""
        return self.unwritten is not None and bool(view.part(self.unwritten).any())

    def member(self, alias: tuple[Any, ...], untile: tuple[int, ...]) -> Buffer:
        """The member of a union that an alias names, made at its first use."""
        assert self.members is not None
        key = (alias, untile)
        if key not in self.members:
            dtype_name, shape, offset, _ = alias
            dtype = ir.numpy_dtype(dtype_name)
            raw = self.data.reshape(-1).view(np.uint8)[offset:]
            size = math.prod(shape) * dtype.itemsize
            logical = _untiled(shape, untile)
            data = np.frombuffer(raw[:size], dtype).reshape(logical)
            data.fill(fill_value(dtype))
            out = Buffer(data, self.space, self.name, written=False)
            out.home, out.peers, out.offset = self.home, self, offset
            out.tiling, out.swizzle = untile, self.swizzle
            out.log = type(self.log)() if self.log is not None else None
            self.members[key] = out
        return self.members[key]


def _untiled(shape: tuple[int, ...], tiling: tuple[int, ...]) -> tuple[int, ...]:
    if not tiling:
        return tuple(shape)
    n = len(tiling)
    lead, tiles = shape[: -2 * n], shape[-2 * n : -n]
    return (*lead, *(a * b for a, b in zip(tiles, tiling, strict=True)))


class View:
    """The part of a buffer that one access touches.

    Attributes:
      data: a numpy view of the values, as the operation sees them.
      lo, hi: the box in the buffer's coordinates.
      cells: flat indices of the elements, where the box says too much; else None.
      take: what indexes the buffer's root array to the box.
      steps: transposes after the box, so that another array can be viewed alike.
      pad: for copies out of bounds: (before, after) per dimension, or None.
      device: the device whose memory is meant (None: the thread's own).
    """

    __slots__ = (
        "aligned", "buffer", "cells", "cluster", "data", "device", "group", "hi", "lo", "pad",
        "reflected", "steps", "take",
    )  # fmt: skip

    def __init__(self, buffer: Buffer, data: np.ndarray, lo: Box, hi: Box) -> None:
        self.buffer = buffer
        self.data = data
        self.lo = lo
        self.hi = hi
        self.cells: np.ndarray | None = None
        self.take: Any = ()
        self.steps: tuple[tuple[str, Any], ...] = ()
        self.pad: list[tuple[int, int]] | None = None
        self.device: Any = None
        self.cluster: Any = None
        self.group: Any = None  # its region in the buffer's log, once it is known
        self.aligned = False  # it was found to fall on tiles
        self.reflected: tuple[Any, Any] | None = None  # a mirror, and this view of it

    def on(self, buffer: Buffer | None) -> View:
        """The same part of another buffer (or of none yet)."""
        out = View(buffer, None, self.lo, self.hi)  # type: ignore[arg-type]
        out.take, out.steps, out.pad, out.cells = self.take, self.steps, self.pad, self.cells
        out.device, out.cluster = self.device, self.cluster
        if buffer is not None:
            out.data = out.alike(buffer.data)
        return out

    def mirrored(self) -> np.ndarray:
        """This view of the buffer's float32 mirror."""
        mirror = self.buffer.mirror
        if self.reflected is None or self.reflected[0] is not mirror:
            assert mirror is not None
            self.reflected = (mirror, self.alike(mirror))
        return self.reflected[1]

    def part(self, other: np.ndarray) -> np.ndarray:
        """The same elements of another array of the buffer's shape, in any order."""
        if self.cells is not None:
            return other.reshape(-1)[self.cells]
        return other[self.take]

    def alike(self, other: np.ndarray) -> np.ndarray:
        """The same view of another array of the buffer's shape."""
        out = other[(*self.take, ...)]
        for kind, arg in self.steps:
            out = out.transpose(arg) if kind == "transpose" else out.reshape(arg)
        return out

    def flat(self) -> np.ndarray:
        """The flat indices of the elements."""
        if self.cells is not None:
            return self.cells
        shape = self.buffer.data.shape
        return np.arange(math.prod(shape)).reshape(shape)[self.take].reshape(-1)

    @property
    def nbytes(self) -> int:
        return self.data.size * self.data.dtype.itemsize

    def __str__(self) -> str:
        """As the learner would write it: `a_smem[0, 0:64, 0:64]`."""
        b = self.buffer
        if (self.lo, self.hi) == b.full or not self.lo:
            return b.name
        parts = [
            str(lo) if hi == lo + 1 and n != 1 else f"{lo}:{hi}"
            for lo, hi, n in zip(self.lo, self.hi, b.data.shape, strict=True)
        ]
        return f"{b.name}[{', '.join(parts)}]"


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
                self._bounds(item, item + 1, extent, axis)
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
                if np.any(np.asarray(item) < 0) or np.any(np.asarray(item) >= extent):
                    low, high = int(np.min(item)), int(np.max(item)) + 1
                    raise OutOfBounds(self.view.buffer, axis, low, high, extent)
                take.append(item)
        self.view.data = self.view.data[tuple(take)]
        assert self.cells is not None
        self.cells = self.cells[tuple(take)]
        self.pad = [(0, 0)] * self.view.data.ndim
        self.steps.append(("take", tuple(take)))

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


def _is_rare(item: Any) -> bool:
    return isinstance(item, np.ndarray) or (type(item) is tuple and item[2] != 1)


Resolver = Callable[[Any, Env], View]


def compile_ref(use: ir.RefUse, *, clip: bool = False) -> Resolver:
    """What gives the `View` of a ref's use, for a thread and its slots.

    With `clip`, a slice may reach out of bounds: the view is what lies inside
    and `pad` says how much does not. Raises OutOfBounds otherwise.
    """
    slot = use.slot
    steps = tuple(t for t in use.transforms if t.kind not in ("untile", "unswizzle"))
    alias = next((t for t in steps if t.kind == "alias"), None)
    if alias is not None:
        return _compile_alias(use, alias, clip)
    if not steps or (len(steps) == 1 and _trivial(steps[0])):
        return lambda t, env: whole(env[slot])
    appliers = tuple(_applier(t) for t in steps)
    numbers = tuple(_slots(steps))
    shape = _SHAPES.setdefault((_shape(steps), clip), len(_SHAPES))

    def resolve(t: Any, env: Env) -> View:
        buffer = env[slot]
        key = (shape, *[env[s] for s in numbers])
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
