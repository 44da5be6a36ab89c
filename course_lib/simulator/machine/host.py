"""Runs the program around the kernels: JAX does it where it can, else numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine.collectives import COLLECTIVES, SAME, axes_of
from course_lib.simulator.machine.faults import Unsupported
from course_lib.simulator.machine.machine import Machine, Stopped
from course_lib.simulator.machine.memory import Buffer
from course_lib.simulator.machine.plan import output_type
from course_lib.simulator.machine.shapes import VALUES
from course_lib.simulator.machine.threads import semaphores
from course_lib.simulator.machine.views import compile_ref

_CONTROL = ("cond", "while", "scan")


class Host:
    """Interprets the blocks of a program outside of its kernels.

    `mesh` gives the axes of the devices that it runs for (of a shard_map): each
    value is then a list, one per device.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.program = machine.program
        self._has_kernel: dict[int, bool] = {}

    def run(self, index: int, args: Sequence[Any]) -> list[Any]:
        """The results of a block."""
        block = self.program.blocks[index]
        env: list[Any] = [None] * len(block.types)
        for slot, const in block.consts:
            env[slot] = self.program.consts[const]
        for slot, value in zip(block.params, args, strict=True):
            env[slot] = value
        for op in block.ops:
            values = self._op(block, op, [env[s] for s in op.inputs], env)
            for slot, value in zip(op.outputs, values, strict=True):
                if slot >= 0:
                    env[slot] = value
        return [env[r] for r in block.results]

    def _op(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        if op.name in _CONTROL and not self.has_kernel(op) and not _holds_ref(args):
            values = self.machine.fallback(op, args)
            if values is not None:
                return values
        method = getattr(self, f"_{op.name}", None)
        if method is not None:
            return list(method(block, op, args, env))
        return self._leaf(block, op, args)

    def has_kernel(self, op: ir.Op) -> bool:
        return any(self._block_has_kernel(b) for b in ir.sub_blocks(op))

    def _block_has_kernel(self, index: int) -> bool:
        if index not in self._has_kernel:
            found = any(op.name == "kernel" for op, _ in self.program.walk(index))
            self._has_kernel[index] = found
        return self._has_kernel[index]

    def _leaf(self, block: ir.Block, op: ir.Op, args: list[Any]) -> list[Any]:
        values = self.machine.fallback(op, args)
        if values is not None:
            return values
        maker = VALUES.get(op.name)
        if maker is None:
            self.machine.recorder.add(
                "unsupported", f"The simulator does not model {op.name} outside of kernels.", op=op
            )
            raise Stopped
        ins = [block.types[s] for s in op.inputs]
        outs = [output_type(block, op, i) for i in range(len(op.outputs))]
        with np.errstate(all="ignore"):
            out = maker(op.params, ins, outs)(*(np.asarray(a)[()] for a in args))
        return [out] if len(op.outputs) == 1 else list(out)

    # Kernels.

    def _kernel(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        values = [a if _is_ref(a) else np.asarray(a) for a in args]
        [outputs] = self.machine.run_kernel(op, [values], [{}])
        return outputs

    def _shard_map(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        p = op.params
        mesh = MeshHost(self.machine, p["axes"])
        shards = [mesh.shard(a, s) for a, s in zip(args, p["in_specs"], strict=True)]
        parts = mesh.run(p["blocks"][0], shards)
        return [mesh.gather(v, s) for v, s in zip(parts, p["out_specs"], strict=True)]

    # Control flow around kernels.

    def _call(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        return self.run(op.params["blocks"][0], args)

    def _cond(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        blocks = op.params["blocks"]
        which = min(max(int(args[0]), 0), len(blocks) - 1)
        return self.run(blocks[which], args[1:])

    def _while(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        test, body = op.params["blocks"]
        n, m = op.params["cond_consts"], op.params["body_consts"]
        test_consts, body_consts, carry = args[:n], args[n : n + m], args[n + m :]
        while bool(self.run(test, [*test_consts, *carry])[0]):
            carry = self.run(body, [*body_consts, *carry])
        return carry

    def _scan(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        p = op.params
        n, m = p["consts"], p["carry"]
        consts, carry, xs = args[:n], args[n : n + m], args[n + m :]
        steps = range(p["length"])
        rows: dict[int, list[Any]] = {}
        for i in reversed(steps) if p["reverse"] else steps:
            out = self.run(p["blocks"][0], [*consts, *carry, *(x[i] for x in xs)])
            carry, rows[i] = out[:m], out[m:]
        columns = zip(*(rows[i] for i in steps), strict=True)
        return [*carry, *(np.stack([np.asarray(v) for v in c]) for c in columns)]

    # Refs of the host program.

    def _run_state(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        inner = self.program.blocks[op.params["blocks"][0]]
        given = iter(args)
        refs = []
        for slot, has_value in zip(inner.params, op.params["initialized"], strict=True):
            type_ = inner.types[slot]
            assert isinstance(type_, ir.RefType)
            refs.append(self._ref(type_, next(given) if has_value else None))
        self.run(op.params["blocks"][0], refs)
        return [r.data if isinstance(r, Buffer) else r for r in refs]

    def _ref(self, type_: ir.RefType, value: Any) -> Any:
        if _is_ref(value):
            return value
        if type_.dtype == "semaphore":
            return semaphores(type_, "a semaphore")
        if value is None:
            return Buffer.fresh(type_, "host", "a ref")
        return Buffer(np.array(value), "host", "a ref", written=True)

    def _run_scoped(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        inner = self.program.blocks[op.params["blocks"][0]]
        types = [inner.types[s] for s in inner.params[len(args) :]]
        refs = [self._ref(t, None) for t in types if isinstance(t, ir.RefType)]
        return self.run(op.params["blocks"][0], [*args, *refs])

    def _new_ref(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        return [Buffer(np.array(args[0]), "host", "a ref", written=True)]

    _ref_new = _new_ref

    def _freeze(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        return [args[0].data.copy()]

    _ref_freeze = _freeze

    def _free_ref(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        return []

    def _get(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        view = compile_ref(op.refs["ref"])(None, env)
        return [np.array(view.data)]

    def _swap(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        view = compile_ref(op.refs["ref"])(None, env)
        old = np.array(view.data)
        view.data[...] = np.asarray(args[0])
        view.buffer.mark_written(view)
        return [old] if op.outputs else []

    def _axis_index(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        raise Unsupported("an axis index outside of a kernel")


def _is_ref(value: Any) -> bool:
    return isinstance(value, Buffer) or (hasattr(value, "array") and hasattr(value, "type"))


def _holds_ref(args: Sequence[Any]) -> bool:
    return any(_is_ref(a) for a in args)


Spec = Sequence[Sequence[str]]


class MeshHost(Host):
    """Interprets a block on several devices at once: every value is a list, one per device."""

    def __init__(self, machine: Machine, axes: Sequence[tuple[str, int]]) -> None:
        super().__init__(machine)
        sizes = [n for _, n in axes]
        names = [n for n, _ in axes]
        self.sizes = dict(axes)
        self.coords = [
            {n: int(i) for n, i in zip(names, c, strict=True)} for c in np.ndindex(*sizes)
        ]

    def shard(self, value: Any, spec: Spec) -> list[Any]:
        """What each device has of an array."""
        array = np.asarray(value)
        return [array[self._part(array.shape, spec, c)] for c in self.coords]

    def gather(self, parts: Sequence[Any], spec: Spec) -> np.ndarray:
        """The array whose shards the devices have."""
        first = np.asarray(parts[0])
        shape = tuple(
            n * self._count(spec[d] if d < len(spec) else ()) for d, n in enumerate(first.shape)
        )
        out = np.empty(shape, first.dtype)
        for part, coords in zip(parts, self.coords, strict=True):
            out[self._part(shape, spec, coords)] = part
        return out

    def _count(self, axes: Sequence[str]) -> int:
        return int(np.prod([self.sizes[a] for a in axes], dtype=int))

    def _part(
        self, shape: tuple[int, ...], spec: Spec, coords: dict[str, int]
    ) -> tuple[slice, ...]:
        take = []
        for d, n in enumerate(shape):
            axes = spec[d] if d < len(spec) else ()
            index = 0
            for a in axes:
                index = index * self.sizes[a] + coords[a]
            size = n // self._count(axes)
            take.append(slice(index * size, (index + 1) * size))
        return tuple(take)

    def run(self, index: int, args: Sequence[Any]) -> list[Any]:
        """The results of a block on all devices; `args` are lists, one value per device."""
        block = self.program.blocks[index]
        env: list[Any] = [None] * len(block.types)
        for slot, const in block.consts:
            env[slot] = [self.program.consts[const]] * len(self.coords)
        for slot, value in zip(block.params, args, strict=True):
            env[slot] = value
        for op in block.ops:
            values = self._everywhere(block, op, [env[s] for s in op.inputs], env)
            for slot, value in zip(op.outputs, values, strict=True):
                if slot >= 0:
                    env[slot] = value
        return [env[r] for r in block.results]

    def _everywhere(self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]) -> list[Any]:
        method = getattr(self, f"_{op.name}_everywhere", None)
        if method is not None and (op.name not in _CONTROL or self._goes_between(op)):
            return list(method(block, op, args, env))
        if op.name in COLLECTIVES:
            return self._collective(op, args)
        if op.name in SAME:
            return args
        results = []
        for i in range(len(self.coords)):
            mine = [_of(slot, i) for slot in env]
            results.append(self._op(block, op, [_of(a, i) for a in args], mine))
        return [list(column) for column in zip(*results, strict=True)]

    def _goes_between(self, op: ir.Op) -> bool:
        """Whether a control op has something in it that the devices do together."""
        together = {"kernel", "axis_index", *COLLECTIVES, *SAME}
        return any(o.name in together for b in ir.sub_blocks(op) for o, _ in self.program.walk(b))

    def _kernel_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        per_device = [
            [a[i] if _is_ref(a[i]) else np.asarray(a[i]) for a in args]
            for i in range(len(self.coords))
        ]
        outputs = self.machine.run_kernel(op, per_device, self.coords)
        return [list(column) for column in zip(*outputs, strict=True)]

    def _axis_index_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        return [[np.int32(c[op.params["axis"]]) for c in self.coords]]

    def _call_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        return self.run(op.params["blocks"][0], args)

    def _cond_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        blocks = op.params["blocks"]
        which = min(max(int(self._agreed(op, args[0])), 0), len(blocks) - 1)
        return self.run(blocks[which], args[1:])

    def _while_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        test, body = op.params["blocks"]
        n, m = op.params["cond_consts"], op.params["body_consts"]
        test_consts, body_consts, carry = args[:n], args[n : n + m], args[n + m :]
        while self._agreed(op, self.run(test, [*test_consts, *carry])[0]):
            carry = self.run(body, [*body_consts, *carry])
        return carry

    def _agreed(self, op: ir.Op, values: Sequence[Any]) -> Any:
        """A condition, which must be the same on all devices around what they do together."""
        first = np.asarray(values[0])[()]
        if any(np.asarray(v)[()] != first for v in values):
            self.machine.recorder.add(
                "unsupported",
                f"The simulator does not model a {op.name} that goes different ways on different "
                "devices around a kernel or a collective operation.",
                op=op,
            )
            raise Stopped
        return first

    def _run_state_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        inner = self.program.blocks[op.params["blocks"][0]]
        given = iter(args)
        refs = []
        for slot, has_value in zip(inner.params, op.params["initialized"], strict=True):
            type_ = inner.types[slot]
            assert isinstance(type_, ir.RefType)
            values = next(given) if has_value else [None] * len(self.coords)
            refs.append([self._ref(type_, v) for v in values])
        self.run(op.params["blocks"][0], refs)
        return [[r.data if isinstance(r, Buffer) else r for r in column] for column in refs]

    def _run_scoped_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        inner = self.program.blocks[op.params["blocks"][0]]
        types = [inner.types[s] for s in inner.params[len(args) :]]
        refs = [
            [self._ref(t, None) for _ in self.coords] for t in types if isinstance(t, ir.RefType)
        ]
        return self.run(op.params["blocks"][0], [*args, *refs])

    def _scan_everywhere(
        self, block: ir.Block, op: ir.Op, args: list[Any], env: list[Any]
    ) -> list[Any]:
        p = op.params
        n, m = p["consts"], p["carry"]
        consts, carry, xs = args[:n], args[n : n + m], args[n + m :]
        rows: dict[int, list[Any]] = {}
        steps = range(p["length"])
        for i in reversed(steps) if p["reverse"] else steps:
            row = [[v[i] for v in x] for x in xs]
            out = self.run(p["blocks"][0], [*consts, *carry, *row])
            carry, rows[i] = out[:m], out[m:]
        columns = zip(*(rows[i] for i in steps), strict=True)
        stacked = [
            [np.stack([np.asarray(v[d]) for v in c]) for d in range(len(self.coords))]
            for c in columns
        ]
        return [*carry, *stacked]

    def _collective(self, op: ir.Op, args: list[Any]) -> list[Any]:
        """One collective operation; several operands are done one by one."""
        if op.params.get("axis_index_groups") is not None:
            self.machine.recorder.add(
                "unsupported",
                f"The simulator does not model axis_index_groups of {op.name}.",
                op=op,
            )
            raise Stopped
        function = COLLECTIVES[op.name]
        out = []
        for values in args:
            results: list[Any] = [None] * len(self.coords)
            for group in self._groups(axes_of(op.params)):
                parts = function([np.asarray(values[i]) for i in group], op.params)
                for i, part in zip(group, parts, strict=True):
                    results[i] = part
            out.append(results)
        return out

    def _groups(self, axes: Sequence[str]) -> list[list[int]]:
        """The devices that differ along the given axes only, each group in their order."""
        groups: dict[Any, list[int]] = {}
        for i, c in enumerate(self.coords):
            groups.setdefault(tuple(v for n, v in c.items() if n not in axes), []).append(i)
        return [sorted(g, key=lambda i: [self.coords[i][a] for a in axes]) for g in groups.values()]


def _of(value: Any, device: int) -> Any:
    """A device's own of a slot that was filled."""
    return value if value is None else value[device]
