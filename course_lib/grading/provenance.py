"""Whether an answer comes out of a kernel: what flows where in a program around its kernels.

Every value of the program outside of kernels has a set of sources: "input" (an argument,
relabelled at most), "kernel" (written by one), "constant", "table" (an array that was known
before the run) and, for whatever computes, the operation itself. An answer has the source
"kernel" alone. A product that JAX computed and a kernel merely copied has "dot_general", too.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from course_lib.simulator import checked, ir
from course_lib.simulator.machine import dataflow
from course_lib.tracing import BARRIER_OF_ALL, SLOTS_IN_TURN, Trace

INPUT, KERNEL, CONSTANT, TABLE = "input", "kernel", "constant", "table"
NO_KERNEL = "There is no GPU kernel in it. Do the work inside a `plgpu.kernel`."
_ORDERLY = frozenset({INPUT, KERNEL, CONSTANT, TABLE})
_MOST_STEPS = 200_000

Sources = frozenset[str]

# Which of JAX's own names an operation of the machine may have had.
_WAS: Mapping[str, frozenset[str]] = {
    "identity": frozenset({"layout_cast", "multiple_of"}),
    "get": frozenset({"load"}),
    "swap": frozenset({"store"}),
    "addupdate": frozenset({"addupdate"}),
    "async_load_tmem": frozenset({"async_load"}),
    "copy_smem_to_tmem": frozenset(
        {
            "async_copy_smem_to_tmem",
            "async_copy_scales_to_tmem",
            "async_copy_sparse_metadata_to_tmem",
        }
    ),
    "semaphore_signal": frozenset({"semaphore_signal_parallel", "semaphore_signal_multicast"}),
    "atomic": frozenset({"mgpu_atomic_store"}),
    "reduce_sum": frozenset({"mosaic_gpu_reduce_sum"}),
    "reduce_max": frozenset({"mosaic_gpu_reduce_max"}),
    "reduce_min": frozenset({"mosaic_gpu_reduce_min"}),
}
# The machine computes these; Mosaic GPU has no code for them inside of a kernel.
_NOT_IN_KERNELS = frozenset(
    {
        "acos", "argmax", "argmin", "asin", "atan", "cbrt", "ceil", "cosh", "cummax", "cummin",
        "cumprod", "cumsum", "dot_general", "dynamic_slice", "dynamic_update_slice", "expm1",
        "floor", "frexp", "is_finite", "ldexp", "log1p", "nextafter", "pad", "population_count",
        "pow", "reduce_and", "reduce_or", "rev", "sinh", "split", "tan", "transpose",
    }
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Around:
    """What stands around the kernels of a program.

    Attributes:
      kernels: how many kernels it calls.
      inside: how often each primitive stands in them, by JAX's names.
      outputs: the sources of each result.
      wrong: what is wrong with where the results come from, a sentence; "" if nothing is.
      unlowerable: operations inside of kernels that there is no GPU code for.
    """

    kernels: int
    inside: Counter[str]
    outputs: tuple[Sources, ...]
    wrong: str
    unlowerable: tuple[str, ...]


def look_around(program: ir.Program, allowed: frozenset[str], *, has_arrays: bool) -> Around:
    """Where the results of a program come from.

    Args:
      program: as read by `checked.read`.
      allowed: the operations that may stand around its kernels.
      has_arrays: whether the exercise has array arguments: where it has none, an array that is
        known beforehand is the answer.

    Raises:
      checked.Refused: the program goes round and round.
    """
    flow = _Flow(program, allowed)
    params = len(program.blocks[program.entry].params)
    outputs = tuple(flow.block(program.entry, [frozenset({INPUT})] * params))
    counts = _Counts(program)
    kernels, inside = counts.all()
    unlowerable = tuple(sorted(n for n in _NOT_IN_KERNELS if inside[n]))
    wrong = _wrong(outputs, kernels, has_arrays=has_arrays)
    return Around(kernels, inside, outputs, wrong, unlowerable)


def _wrong(outputs: Sequence[Sources], kernels: int, *, has_arrays: bool) -> str:
    if not kernels:
        return NO_KERNEL
    if not outputs:
        return "It returns nothing."
    for sources in outputs:
        work = sorted(sources - _ORDERLY)
        if work:
            names = ", ".join(f"`{n}`" for n in work[:3])
            return (
                f"Outside of the kernel stands {names}, and what comes of it is in the result. "
                "Let the kernel do that."
            )
        if KERNEL not in sources or sources & {INPUT, CONSTANT}:
            return "What is returned is not what a kernel wrote, or not all of it."
        if TABLE in sources and not has_arrays:
            return "The result was known before the kernel ran. Let the kernel compute it."
    return ""


class _Cell:
    """A ref of the program around the kernels: what is in it may change."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources


class _Flow:
    """Follows sources through blocks, kernels apart."""

    def __init__(self, program: ir.Program, allowed: frozenset[str]) -> None:
        self.program, self.allowed = program, allowed
        self._steps = 0

    def block(self, index: int, args: Sequence[Any]) -> list[Any]:
        """The sources of a block's results; refs are passed on as they are."""
        block = self.program.blocks[index]
        env: dict[int, Any] = dict(zip(block.params, args, strict=False))
        for slot in block.params[len(args) :]:
            env[slot] = _Cell(frozenset())
        for slot, const in block.consts:
            single = self.program.consts[const].size == 1
            env[slot] = frozenset({CONSTANT if single else TABLE})
        self._steps += 1 + len(block.ops)
        if self._steps > _MOST_STEPS:
            raise checked.Refused("The program around the kernels is too long to follow.")
        for op in block.ops:
            results = self._op(block, op, [env[s] for s in op.inputs], env)
            for slot, value in zip(op.outputs, results, strict=False):
                env[slot] = value
            for slot in op.outputs:
                env.setdefault(slot, frozenset({op.name}))
        return [env[r] for r in block.results]

    def _op(self, block: ir.Block, op: ir.Op, args: list[Any], env: dict[int, Any]) -> list[Any]:
        method = getattr(self, f"_do_{op.name}", None)
        if method is not None:
            return list(method(block, op, args, env))
        sources = _join(args)
        count = len(op.outputs)
        shapes = [block.types[s] for s in op.outputs if s >= 0]
        if op.name == "iota":
            return [frozenset({TABLE})] * count
        scalar = all(isinstance(t, ir.ArrayType) and not t.shape for t in shapes)
        if sources <= {CONSTANT} and scalar:
            return [frozenset({CONSTANT})] * count  # counting, as loops do
        if op.name in self.allowed and self._keeps_order(block, op):
            return [sources] * count
        return [sources | {op.name}] * count

    def _keeps_order(self, block: ir.Block, op: ir.Op) -> bool:
        """A broadcast repeats elements, unless it is of one number or only adds dimensions.

        And a reshape may transpose first: `jnp.ravel(x, order="F")` does.
        """
        if op.name == "reshape" and op.params.get("dimensions") is not None:
            return "transpose" in self.allowed
        if op.name != "broadcast_in_dim" or "broadcast_to" in self.allowed:
            return True
        new = next((block.types[s] for s in op.outputs if s >= 0), None)
        old = block.types[op.inputs[0]]
        if new is None or not isinstance(new, ir.ArrayType) or not old.shape:
            return True
        return [n for n in new.shape if n != 1] == [n for n in old.shape if n != 1]

    def _do_kernel(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        sources = frozenset({KERNEL}) | (_join(args) - {INPUT, CONSTANT, KERNEL})
        written = dataflow.written_params(self.program, op.params["blocks"][0])
        for i, arg in enumerate(args):
            if isinstance(arg, _Cell) and i in written:
                arg.sources = sources
        return [sources] * len(op.outputs)

    def _do_call(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return self.block(op.params["blocks"][0], args)

    def _do_shard_map(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        """Devices that get their own rows, one after the other, move nothing; others may."""
        axes = tuple(name for name, _ in op.params["axes"])
        came = [
            _join([a]) | self._dealt(block.types[s], spec, axes)
            for a, s, spec in zip(args, op.inputs, op.params["in_specs"], strict=False)
        ]
        out = self.block(op.params["blocks"][0], came)
        return [
            _join([v]) | (self._dealt(block.types[s], spec, axes) if s >= 0 else frozenset())
            for v, s, spec in zip(out, op.outputs, op.params["out_specs"], strict=False)
        ]

    def _dealt(self, kind: ir.Type, spec: Any, axes: tuple[str, ...]) -> Sources:
        """What a spec does beside giving each device its part of the first dimension."""
        in_order = spec == (axes, *[()] * (len(kind.shape) - 1))
        fine = not kind.shape or in_order or "transpose" in self.allowed
        return frozenset() if fine else frozenset({"shard_map"})

    def _do_axis_index(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return [frozenset({CONSTANT})]

    def _do_cond(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        which, *rest = args
        chosen = frozenset() if _join([which]) <= {CONSTANT} else frozenset({"cond"})
        branches = [self.block(b, rest) for b in op.params["blocks"]]
        return [_join(column) | chosen for column in zip(*branches, strict=False)]

    def _do_scan(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        n, m = op.params["consts"], op.params["carry"]
        # A step may keep its rows for a later one: that moves them.
        moved = frozenset() if "concatenate" in self.allowed else frozenset({"scan"})
        rows = [_join([a]) | moved for a in args[n + m :]]
        carry, out = self._settled(op.params["blocks"][0], args[:n], args[n : n + m], rows)
        last = out[:m] if op.params["length"] else carry  # what came first is not left over
        return [*last, *(_join([row]) | moved for row in out[m:])]

    def _do_while(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        n, m = op.params["cond_consts"], op.params["body_consts"]
        test, body = op.params["blocks"]
        carry, _ = self._settled(body, args[n : n + m], args[n + m :], [])
        # How often it went round says something of what it looked at.
        seen = _join(self.block(test, [*args[:n], *carry]))
        chosen = frozenset() if seen <= {CONSTANT} else frozenset({"while"})
        return [_merged(a, chosen) for a in carry]

    def _settled(
        self, body: int, consts: list[Any], carry: list[Any], rows: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """What a loop's carry may hold in any round, and what its body makes of that.

        Sources only grow, and there are not many, so this ends.
        """
        while True:
            out = self.block(body, [*consts, *carry, *rows])
            grown = [_merged(a, b) for a, b in zip(carry, out, strict=False)]
            if grown == carry:
                return carry, out
            carry = grown

    def _do_run_state(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        given = iter(args)
        cells = []
        for has_value in op.params["initialized"]:
            value: Any = next(given, frozenset()) if has_value else frozenset()
            cells.append(value if isinstance(value, _Cell) else _Cell(value))
        self.block(op.params["blocks"][0], cells)
        return [c.sources for c in cells]

    def _do_run_scoped(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return self.block(op.params["blocks"][0], args)

    def _do_new_ref(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return [_Cell(_join(args))]

    _do_ref_new = _do_new_ref

    def _do_freeze(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return [_join(args)]

    _do_ref_freeze = _do_freeze

    def _do_free_ref(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return []

    def _do_get(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return [self._used(op, env)]

    def _do_swap(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        before = self._used(op, env)
        cell = env[op.refs["ref"].slot]
        if isinstance(cell, _Cell):
            cell.sources |= _join(args) | self._part(op, env)
        return [before]

    def _used(self, op: ir.Op, env: Any) -> Sources:
        """What a ref holds, or a part of it."""
        return _join([env[op.refs["ref"].slot]]) | self._part(op, env)

    def _part(self, op: ir.Op, env: Any) -> Sources:
        """What it takes to choose a part of a ref: a slice, and what says where it begins."""
        transforms = op.refs["ref"].transforms
        part = any(not _whole(t) for t in transforms) and "slice" not in self.allowed
        where = _join([env[slot] for t in transforms for slot in _slots_in(t.args)])
        return (where - {CONSTANT}) | (frozenset({"slice"}) if part else frozenset())


def _slots_in(value: Any) -> Iterator[int]:
    """The slots of the numbers that index a ref."""
    if isinstance(value, ir.Var):
        yield value.slot
    elif isinstance(value, ir.Slice):
        yield from _slots_in((value.start, value.size))
    elif isinstance(value, tuple):
        for part in value:
            yield from _slots_in(part)


def _whole(transform: ir.Transform) -> bool:
    return transform.kind == "index" and all(
        isinstance(i, ir.Slice) and i.start == 0 and i.stride == 1 for i in transform.args
    )


def _join(values: Sequence[Any]) -> Sources:
    out: Sources = frozenset()
    for value in values:
        out |= value.sources if isinstance(value, _Cell) else value
    return out


def _merged(a: Any, b: Any) -> Any:
    return a if isinstance(a, _Cell) else a | _join([b])


class _Counts:
    """How often each primitive stands in kernels, counted as `tracing.analyse` counts."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._inside: dict[int, Counter[str]] = {}
        self._around: dict[int, tuple[int, Counter[str]]] = {}
        self._slots: dict[int, frozenset[int | None]] = {}

    def all(self) -> tuple[int, Counter[str]]:
        """The number of kernels, and what stands in them; Pallas' own scope for scratch apart."""
        kernels, inside = self._outside(self.program.entry)
        return kernels, inside - Counter(run_scoped=kernels)

    def _outside(self, index: int) -> tuple[int, Counter[str]]:
        if index not in self._around:
            kernels, inside = 0, Counter[str]()
            for op in self.program.blocks[index].ops:
                for sub in ir.sub_blocks(op):
                    if op.name == "kernel":
                        kernels += 1
                        slots = self.slots(sub)
                        turns = len(slots) if None in slots or len(slots) > 1 else 0
                        inside = inside + self.block(sub) + Counter({SLOTS_IN_TURN: turns})
                    else:
                        more, names = self._outside(sub)
                        kernels += more
                        inside += names
            self._around[index] = kernels, inside
        return self._around[index]

    def block(self, index: int) -> Counter[str]:
        if index not in self._inside:
            counter: Counter[str] = Counter()
            for op in self.program.blocks[index].ops:
                counter[own_name(op)] += 1
                if op.params.get("commit") is False:
                    counter["commit_group=False"] += 1
                for sub in ir.sub_blocks(op):
                    if op.name == "run_scoped":
                        counter[BARRIER_OF_ALL] += self._barriers_of_all(op, sub)
                    counter += self.block(sub)
            self._inside[index] = counter
        return self._inside[index]

    def _barriers_of_all(self, op: ir.Op, index: int) -> int:
        """How many cluster barriers a scope has with several axes as one."""
        block = self.program.blocks[index]
        types = [block.types[s] for s in block.params[len(op.inputs) :]]
        specs = [t.barrier for t in types if isinstance(t, ir.RefType) and t.barrier]
        return sum(
            any(isinstance(a, tuple) and len(a) > 1 for a in b.cluster_axes or ()) for b in specs
        )

    def slots(self, index: int) -> frozenset[int | None]:
        """The slots that answers of cluster launch control are read from; None: not a fixed one."""
        if index not in self._slots:
            found: set[int | None] = set()
            for op in self.program.blocks[index].ops:
                if op.name == "query_cluster_cancel":
                    found |= set(_indices(op.refs.get("ref")))
                for sub in ir.sub_blocks(op):
                    found |= self.slots(sub)
            self._slots[index] = frozenset(found)
        return self._slots[index]


def _indices(use: ir.RefUse | None) -> Iterator[int | None]:
    """What a ref is indexed with: numbers, and None for what is known only when it runs."""
    for transform in use.transforms if use else ():
        for index in transform.args if transform.kind == "index" else ():
            start = index.start if isinstance(index, ir.Slice) else index
            if isinstance(start, ir.Var):
                yield None
            elif isinstance(index, int):
                yield index


def own_name(op: ir.Op) -> str:
    """JAX's name of an operation, where the machine has another for it."""
    was = op.params.get("was")
    return str(was) if was in _WAS.get(op.name, ()) else op.name


def architecture(program: ir.Program) -> str:
    """What the kernels need: "sm_100a" for what only Blackwell has, else "sm_90a"."""
    names = {op.name for op, within in program.walk() if within}
    blackwell = {n for n in names if n.startswith("tcgen05") or n.endswith("_cluster_cancel")}
    tmem = any(
        isinstance(t, ir.RefType) and t.space == "tmem" for b in program.blocks for t in b.types
    )
    return "sm_100a" if blackwell or tmem or _gathers(program) else "sm_90a"


def _gathers(program: ir.Program) -> bool:
    """Whether a copy takes its rows by an array of indices."""
    for block in program.blocks:
        for op in block.ops:
            if op.name not in ("copy_gmem_to_smem", "copy_smem_to_gmem"):
                continue
            for use in op.refs.values():
                for transform in use.transforms:
                    for index in transform.args:
                        if isinstance(index, ir.Var) and block.types[index.slot].shape:
                            return True
    return False


def hardware(program: ir.Program) -> Trace:
    """What the kernels of a program ask of a device, as `tracing.trace` says it of a function."""
    inside = Counter(own_name(op) for op, within in program.walk() if within)
    around = [op for op, within in program.walk() if not within]
    kernels = [op for op in around if op.name == "kernel"]
    meshes = [op.params["axes"] for op in around if op.name == "shard_map"]
    return Trace(
        kernels=len(kernels),
        inside=inside,
        outside=Counter(),
        from_kernel=True,
        clusters=tuple(tuple(op.params["cluster"]) for op in kernels),
        smem_bytes=max((_smem_bytes(program, op) for op in kernels), default=0),
        gathers=int(_gathers(program)),
        tmem_buffers=sum(
            isinstance(t, ir.RefType) and t.space == "tmem" for b in program.blocks for t in b.types
        ),
        devices=max((math.prod(size for _, size in axes) for axes in meshes), default=1),
    )


def _smem_bytes(program: ir.Program, op: ir.Op, known: dict[int, int] | None = None) -> int:
    """Bytes of shared memory that an operation allocates; what follows each other shares it.

    `known` holds what is known of blocks: branches may run the same ones over and over.
    """
    known = {} if known is None else known
    most = 0
    for index in ir.sub_blocks(op):
        block = program.blocks[index]
        if index not in known:
            known[index] = max((_smem_bytes(program, o, known) for o in block.ops), default=0)
        scratch = block.params[len(op.inputs) :] if op.name == "run_scoped" else ()
        most = max(most, known[index] + sum(_bytes_in_smem(block.types[s]) for s in scratch))
    return most


def _bytes_in_smem(kind: ir.Type) -> int:
    if not isinstance(kind, ir.RefType) or kind.space != "smem" or kind.barrier:
        return 0
    bits = ir.dtype_bits(ir.numpy_dtype(kind.dtype))
    return math.prod(kind.shape) * bits // 8
