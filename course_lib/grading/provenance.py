"""Whether an answer comes out of a kernel: what flows where in a program around its kernels.

Every value of the program outside of kernels has a set of sources: "input" (an argument,
relabelled at most), "kernel" (written by one), "constant", "table" (an array that was known
before the run) and, for whatever computes, the operation itself. An answer has the source
"kernel" alone. A product that JAX computed and a kernel merely copied has "dot_general", too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from course_lib.simulator import checked, ir
from course_lib.simulator.machine import dataflow
from course_lib.tracing import BARRIER_OF_ALL, SLOTS_IN_TURN

INPUT, KERNEL, CONSTANT, TABLE = "input", "kernel", "constant", "table"
_ORDERLY = frozenset({INPUT, KERNEL, CONSTANT, TABLE})
_MOST_STEPS = 200_000
_ROUNDS = 8

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
        "argmax", "argmin", "cummax", "cummin", "cumprod", "cumsum", "dot_general",
        "dynamic_slice", "dynamic_update_slice", "frexp", "ldexp", "pad", "rev", "split",
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
        return "There is no GPU kernel in it. Do the work inside a `plgpu.kernel`."
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
        for op in block.ops:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise checked.Refused("The program around the kernels is too long to follow.")
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
        """A broadcast repeats elements, unless it is of one number or only adds dimensions."""
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

    _do_shard_map = _do_call

    def _do_axis_index(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        return [frozenset({CONSTANT})]

    def _do_cond(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        which, *rest = args
        chosen = frozenset() if _join([which]) <= {CONSTANT} else frozenset({"cond"})
        branches = [self.block(b, rest) for b in op.params["blocks"]]
        return [_join(column) | chosen for column in zip(*branches, strict=False)]

    def _do_scan(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        n, m = op.params["consts"], op.params["carry"]
        carry, out = args[n : n + m], list[Any]()
        for _ in range(_ROUNDS):
            out = self.block(op.params["blocks"][0], [*args[:n], *carry, *args[n + m :]])
            grown = [_merged(a, b) for a, b in zip(carry, out[:m], strict=False)]
            if grown == carry:
                break
            carry = grown
        return [*carry, *out[m:]]

    def _do_while(self, block: ir.Block, op: ir.Op, args: list[Any], env: Any) -> list[Any]:
        n, m = op.params["cond_consts"], op.params["body_consts"]
        carry = args[n + m :]
        for _ in range(_ROUNDS):
            out = self.block(op.params["blocks"][1], [*args[n : n + m], *carry])
            grown = [_merged(a, b) for a, b in zip(carry, out, strict=False)]
            if grown == carry:
                break
            carry = grown
        return carry

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
            cell.sources |= _join(args)
        return [before]

    def _used(self, op: ir.Op, env: Any) -> Sources:
        """What a ref holds; a part of it is a slice."""
        use = op.refs["ref"]
        part = any(not _whole(t) for t in use.transforms) and "slice" not in self.allowed
        return _join([env[use.slot]]) | (frozenset({"slice"}) if part else frozenset())


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
