"""The only file of the compiler that touches names JAX does not promise to keep.

Runs in the worker only. While a kernel is lowered it looks at the module that
Mosaic builds: after layout inference, when every value has its layout, and
after the whole lowering, when the launch's sizes are known.

Written for jax 0.11.2 to 0.12.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from jax.experimental.mosaic.gpu import (
    constraints,
    core,
    dialect_lowering,
    layout_inference,
    utils,
)
from jaxlib.mlir import ir

from course_lib.compiler.layouts import describe

_LAYOUT_ATTRIBUTES = ("in_layouts", "out_layouts", "out_transforms", "out_tmem_layouts")
_FILE = re.compile(r'"([^"]+)":(\d+):\d+')
_PRIMITIVE = re.compile(r'loc\("([\w-]+)')
_SHAPED = re.compile(r"(?:vector|memref)<((?:\d+x)*)(!?[\w.]+)")
_NOTE = "written at "
_DEMAND = " demands:"  # ends the operation's type in a note
_CONFLICT_SECONDS = 5.0
_NO_LAYOUTS = "possible set of layouts"
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
    "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2", "i1": "bool", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64",
}  # fmt: skip
_HOST_SUFFIX = "_mosaic_gpu"
_counter = itertools.count()


@dataclasses.dataclass
class LoweredKernel:
    """What is known of a kernel before the compiler proper sees its module.

    Attributes:
      name: the kernel function's name.
      entry: the name of its PTX entry, unique in this process.
      grid: blocks along x, y and z.
      block: CUDA threads of a block along x, y and z.
      cluster: blocks of a cluster along x, y and z.
      smem_bytes: the shared memory that a block asks for, in bytes.
      tmem_columns: the columns of tensor memory that a block asks for.
      layouts: what layout inference decided, as plain data (see `course_lib.compiler.layouts`).
    """

    name: str
    entry: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    smem_bytes: int = 0
    tmem_columns: int = 0
    layouts: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def watch_lowering() -> Iterator[list[LoweredKernel]]:
    """Yields a list that every kernel lowered inside the block is appended to.

    Each kernel also gets an entry name of its own. Without it a kernel that this
    process has compiled before would be taken from XLA's cache, and show no PTX.
    """
    kernels: list[LoweredKernel] = []
    layouts: list[dict[str, Any]] = []
    infer_layout, lower_module = layout_inference.infer_layout, core.lower_mgpu_module

    def infer_and_look(module: ir.Module, **options: Any) -> Any:
        try:
            result = infer_layout(module, **options)
        except ValueError as error:
            if _NO_LAYOUTS in str(error):
                for place in _conflict(module, infer_layout, options):
                    error.add_note(place)
            raise
        layouts.extend(_layouts(module))
        return result

    def lower_and_look(module: ir.Module, *args: Any, **options: Any) -> Any:
        layouts.clear()
        columns = sum(_tmem_columns(op) for op in _walk(module))
        result = lower_module(module, *args, **options)
        kernel = _rename(module)
        kernel.layouts, kernel.tmem_columns = list(layouts), columns
        _read_launch(module, kernel)
        kernels.append(kernel)
        return result

    with (
        _replaced(layout_inference, "infer_layout", infer_and_look),
        _replaced(core, "lower_mgpu_module", lower_and_look),
        _replaced(dialect_lowering.LoweringContext, "lower_op", _lower_op_and_note_its_place),
    ):
        yield kernels


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def places(error: BaseException) -> list[tuple[str, int, str, str]]:
    """The operations that an exception is about, as `(file, line, operation, value)`."""
    found = []
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE) and (file := _FILE.search(note)):
            operation, shaped = _PRIMITIVE.search(note), _SHAPED.search(note)
            demand = note.rpartition(_DEMAND)[2]
            value = _array(shaped) + demand if shaped else ""
            found.append((file[1], int(file[2]), operation[1] if operation else "", value))
    return list(dict.fromkeys(found))


_lower_op = dialect_lowering.LoweringContext.lower_op


def _lower_op_and_note_its_place(context: Any, op: Any) -> Any:
    place = _place(op)
    try:
        return _lower_op(context, op)
    except Exception as error:
        error.add_note(place)  # innermost first
        raise


def _place(op: Any) -> str:
    values = (*op.results, *op.operands)
    demand = _demand(op)
    if demand.startswith(" along"):
        values = tuple(op.operands)  # of a reduction, what it reduces says more
    arrays = [str(v.type) for v in values if _SHAPED.search(str(v.type))]
    return f"{_NOTE}{op.location} {arrays[0] if arrays else ''}{_DEMAND}{demand}"


def _demand(op: Any) -> str:
    """What an operation wants of a layout, as words that follow its array's name."""
    attributes = op.operation.attributes
    if "new_layout" in attributes:
        return f" to {describe(str(attributes['new_layout']))[0]}"
    if op.operation.name == "mosaic_gpu.with_transforms":
        return f", {describe(str(attributes['transforms']))[0]}"
    if op.operation.name != "vector.multi_reduction" and op.operation.name != "vector.reduction":
        return ""
    rank = len(_SHAPED.search(str(op.operands[0].type))[1].rstrip("x").split("x"))  # type: ignore[index]
    axes = list(attributes["reduction_dims"]) if "reduction_dims" in attributes else range(rank)
    return " over all axes" if len(axes) == rank else f" along axis {axes[0]}"


def _array(shaped: re.Match[str] | None) -> str:
    """An MLIR type as NumPy names it: "float32[128, 64]"."""
    if shaped is None:
        return ""
    sizes = ", ".join(n for n in shaped[1].split("x") if n)
    return f"{_DTYPES.get(shaped[2], shaped[2])}[{sizes}]"


def _conflict(module: ir.Module, infer_layout: Any, options: dict[str, Any]) -> list[str]:
    """The places of operations that have no layouts together, and would without any one of them.

    Mosaic only says that there is no solution. So operations are relieved of their
    demands one after the other, last first; one whose demands make no difference
    stays relieved, and the rest is a smallest contradiction. Where that is layout_casts
    alone, the operation that brings their values together, an addition say, is named too.
    """
    operations, producers = _operations_with_rules(module, infer_layout, options)
    ends = time.monotonic() + _CONFLICT_SECONDS
    core = set(range(len(operations)))
    for i in reversed(range(len(operations))):
        if time.monotonic() > ends:
            return []
        fewer = core - {i}
        if not _infer(module, infer_layout, options, lambda _, n, keep=fewer: n in keep):  # type: ignore[misc]
            core = fewer
    if all("layout_cast" in operations[i] for i in core):
        joins = (i for i, made_by in enumerate(producers) if len(made_by & core) > 1)
        core |= set(itertools.islice(joins, 1))
    return [operations[i] for i in sorted(core)]


def _operations_with_rules(
    module: ir.Module, infer_layout: Any, options: dict[str, Any]
) -> tuple[list[str], list[set[int]]]:
    """The places of the operations that make demands; and which of them each takes results of."""
    places: list[str] = []
    producers: list[set[int]] = []
    seen: list[Any] = []

    def look(op: Any, _: int) -> bool:
        owners = [v.owner for v in op.operands]
        producers.append({i for i, other in enumerate(seen) if other in owners})
        places.append(_place(op))
        seen.append(op.operation)
        return True

    _infer(module, infer_layout, options, look)
    return places, producers


def _infer(
    module: ir.Module,
    infer_layout: Any,
    options: dict[str, Any],
    keep: Callable[[Any, int], bool],
) -> bool:
    """Whether there are layouts for a copy of the module if only some operations make demands."""
    counter = itertools.count()

    def weakened(rule: Any) -> Any:
        def derive(context: Any, op: Any) -> Any:
            system, mapping = rule(context, op)
            return (system if keep(op, next(counter)) else constraints.ConstraintSystem()), mapping

        return derive

    rules = layout_inference._constraint_system_derivation_rules
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    copy = ir.Module.parse(buffer.getvalue(), context=module.context)
    with (
        _replaced(
            layout_inference,
            "_constraint_system_derivation_rules",
            {name: weakened(rule) for name, rule in rules.items()},
        ),
        _replaced(layout_inference, "find_assignments_for", _find_what_matters),
    ):
        try:
            infer_layout(copy, **options)
        except _SolvedError:
            return True
        except (ValueError, RuntimeError, AssertionError):
            return False
    return True


class _SolvedError(Exception):
    """There are layouts; which ones does not matter here."""


_find_assignments_for = layout_inference.find_assignments_for


def _find_what_matters(unknowns: Any, system: Any, **options: Any) -> Any:
    """Mosaic's search, over those values only that something is demanded of.

    An operation without demands leaves values that can have any layout, and the
    search would try them all.
    """
    system = _without_loose_ends(system)
    wanted = set(system.unknowns())
    with _replaced(layout_inference, "find_assignments_for", _find_assignments_for):
        solution, fuel = _find_assignments_for(
            [u for u in unknowns if u in wanted], system, **options
        )
    if isinstance(solution, constraints.Unsatisfiable):
        return solution, fuel
    raise _SolvedError


def _without_loose_ends(system: Any) -> Any:
    """Drops "this must be convertible to that" where one of the two is free otherwise."""
    rest = list(system.constraints)
    while True:
        uses = [set(constraints.ConstraintSystem(constraints=[c]).unknowns()) for c in rest]
        count = collections.Counter(itertools.chain.from_iterable(uses))
        loose = [
            isinstance(c, constraints.Relayout)
            and any(count[v] == 1 and v not in system.assignments for v in used)
            for c, used in zip(rest, uses, strict=True)
        ]
        if not any(loose):
            return constraints.ConstraintSystem(assignments=system.assignments, constraints=rest)
        rest = [c for c, gone in zip(rest, loose, strict=True) if not gone]


def lowering_for(capability: tuple[int, int]) -> contextlib.AbstractContextManager[None]:
    """Makes Mosaic lower for an architecture, whatever devices the process has.

    It takes the architecture from the default device, which is a CPU without the toolchain.
    """
    return _replaced(utils, "_infer_arch", lambda: capability)


def smem_limit(smem_bytes: int) -> contextlib.AbstractContextManager[None]:
    """Makes Mosaic refuse blocks with more shared memory than the target has.

    It takes the limit from the first device of the process, which is a CPU here.
    """
    return core.artificial_shared_memory_limit(smem_bytes)


def _walk(module: ir.Module) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> ir.WalkResult:
        found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _rename(module: ir.Module) -> LoweredKernel:
    """Gives the module's host function, and with it the PTX entry, a name of its own."""
    for op in module.body.operations:
        if "llvm.emit_c_interface" in op.attributes:
            symbol = ir.StringAttr(op.attributes["sym_name"]).value
            name = symbol.removesuffix(_HOST_SUFFIX)
            unique = f"{name}_{next(_counter)}{_HOST_SUFFIX}"
            op.attributes["sym_name"] = ir.StringAttr.get(unique, module.context)
            return LoweredKernel(name=name, entry=f"{unique}_kernel")
    raise RuntimeError("Mosaic's module has no host function")


def _read_launch(module: ir.Module, kernel: LoweredKernel) -> None:
    for op in _walk(module):
        if op.name != "gpu.launch":
            continue
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        ends = list(itertools.accumulate(sizes))
        segments = [list(op.operands)[e - s : e] for s, e in zip(sizes, ends, strict=True)]
        # Operands: async tokens, grid (3), block (3), cluster (3), shared memory, and memory lists.
        values = [[_constant(v) for v in segment] for segment in segments]
        kernel.grid = tuple(v[0] for v in values[1:4])
        kernel.block = tuple(v[0] for v in values[4:7])
        kernel.cluster = tuple(v[0] if v else 1 for v in values[7:10])
        kernel.smem_bytes = values[10][0] if values[10] else 0


def _constant(value: Any) -> int:
    owner = value.owner
    attributes = getattr(owner, "attributes", {})
    return ir.IntegerAttr(attributes["value"]).value if "value" in attributes else 0


def _tmem_columns(op: Any) -> int:
    """The columns that a TMEM allocation takes: a power of two, at least 32."""
    if op.name != "mosaic_gpu.tmem_alloc":
        return 0
    packing = ir.IntegerAttr(op.attributes["packing"]).value if "packing" in op.attributes else 1
    columns = ir.MemRefType(op.results[0].type).shape[1] // packing
    return max(32, 1 << (columns - 1).bit_length())


def _layouts(module: ir.Module) -> list[dict[str, Any]]:
    """One entry for each value in registers, each SMEM or TMEM buffer, each conversion."""
    found: list[dict[str, Any]] = []
    for op in _walk(module):
        attributes = {k: op.attributes[k] for k in _LAYOUT_ATTRIBUTES if k in op.attributes}
        if op.name == "mosaic_gpu.slice_smem" and "out_transforms" in attributes:
            transforms = ir.ArrayAttr(ir.ArrayAttr(attributes["out_transforms"])[0])
            found.append(_entry(op, "SMEM", op.results[0], " ".join(map(str, transforms))))
        elif op.name == "mosaic_gpu.slice_tmem" and "out_tmem_layouts" in attributes:
            raw = str(ir.ArrayAttr(attributes["out_tmem_layouts"])[0])
            found.append(_entry(op, "TMEM", op.results[0], raw))
        else:
            found += _register_layouts(op, attributes)
    return found


def _register_layouts(op: Any, attributes: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    if "in_layouts" in attributes:
        vectors = [v for v in op.operands if _is_vector(v)]
        for value, layout in zip(vectors, ir.ArrayAttr(attributes["in_layouts"]), strict=False):
            before = _producer_layout(value)
            if before is not None and before != str(layout) and "WGSplat" not in before:
                found.append({**_entry(op, "conversion", value, str(layout)), "before": before})
    if "out_layouts" in attributes and op.name not in (
        "arith.constant",
        "mosaic_gpu.optimization_barrier",
    ):
        vectors = [v for v in op.results if _is_vector(v)]
        for value, layout in zip(vectors, ir.ArrayAttr(attributes["out_layouts"]), strict=False):
            found.append(_entry(op, "registers", value, str(layout)))
    return found


def _is_vector(value: Any) -> bool:
    return str(value.type).startswith("vector<")


def _producer_layout(value: Any) -> str | None:
    """The layout that a value has where it is made, None where that is not written down."""
    owner = value.owner
    attributes = getattr(owner, "attributes", {})
    if "out_layouts" not in attributes:
        return None
    vectors = [r for r in owner.results if _is_vector(r)]
    layouts = list(ir.ArrayAttr(attributes["out_layouts"]))
    found = [str(a) for r, a in zip(vectors, layouts, strict=False) if r == value]
    return found[0] if found else None


def _entry(op: Any, kind: str, value: Any, layout: str) -> dict[str, Any]:
    where = str(op.location)
    file, primitive = _FILE.search(where), _PRIMITIVE.search(where)
    shaped = _SHAPED.search(str(value.type))
    return {
        "kind": kind,
        "by": primitive[1] if primitive else op.name.rpartition(".")[2],
        "file": file[1] if file else "",
        "line": int(file[2]) if file else 0,
        "shape": [int(n) for n in shaped[1].split("x") if n] if shaped else [],
        "dtype": _DTYPES.get(shaped[2], shaped[2]) if shaped else "",
        "layout": layout,
    }
