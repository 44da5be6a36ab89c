"""What the installed JAX itself says about layouts: the only file here with private JAX names.

Register layouts say who holds what by emitting MLIR (`thread_idxs`); `_Evaluator`
computes the values of those few arithmetic ops for all 128 threads at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax.experimental.mosaic.gpu import dialect, fragmented_array, tcgen05, utils
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, builtin

from course_lib.layouts import registers

THREADS = 128
DTYPES = {4: jnp.int4, 8: jnp.int8, 16: jnp.bfloat16, 32: jnp.float32}


@contextlib.contextmanager
def _mlir_module() -> Iterator[Any]:
    with mlir.make_ir_context() as context, ir.Location.unknown():
        dialect.register_dialect(context)
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module


class _Evaluator:
    """Values of index arithmetic in every thread of a warpgroup."""

    def __init__(self) -> None:
        self._known: dict[Any, np.ndarray] = {}

    def __call__(self, value: Any) -> np.ndarray:
        if value not in self._known:
            op = value.owner
            operands = [self(v) for v in op.operands]
            self._known[value] = np.asarray(_OPS[op.name](op, *operands), np.int64)
        return self._known[value]


def _shuffle(_: Any, value: np.ndarray, *__: Any) -> np.ndarray:
    """What lane 0 of each warp holds, in all its lanes."""
    return np.repeat(np.broadcast_to(value, THREADS).reshape(4, 32)[:, :1], 32)


def _compared(op: Any) -> Any:
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    return {0: np.equal, 1: np.not_equal}[predicate]


def _thread_id(op: Any) -> np.ndarray:
    is_x = "dim<x>" in str(op).replace(" ", "") or "dimension x" in str(op) or " x" in str(op)
    return np.arange(THREADS) if is_x else np.zeros(THREADS, np.int64)


def _pointer(op: Any, base: np.ndarray, *indices: np.ndarray) -> np.ndarray:
    """`llvm.getelementptr` in bytes: of elements of whole bytes, with one index."""
    [index] = indices or [np.int64(op.attributes["rawConstantIndices"][0])]
    bits = re.fullmatch(r"(?:vector<(\d+)x)?[a-z]+(\d+)>?", str(op.attributes["elem_type"]))
    assert bits is not None, str(op)
    return base + index * (int(bits[1] or 1) * int(bits[2]) // 8)


_OPS: dict[str, Any] = {
    "arith.select": lambda op, p, a, b: np.where(p, a, b),
    "arith.cmpi": lambda op, a, b: _compared(op)(a, b),
    "arith.xori": lambda op, a, b: a ^ b,
    "builtin.unrealized_conversion_cast": lambda op, a: np.zeros(1, np.int64),
    "llvm.extractvalue": lambda op, a: np.zeros(1, np.int64),
    "llvm.mul": lambda op, a, b: a * b,
    "llvm.add": lambda op, a, b: a + b,
    "llvm.ptrtoint": lambda op, a: a,
    "llvm.inttoptr": lambda op, a: a,
    "llvm.getelementptr": _pointer,
    "arith.constant": lambda op: ir.IntegerAttr(op.attributes["value"]).value,
    "arith.addi": lambda op, a, b: a + b,
    "arith.muli": lambda op, a, b: a * b,
    "arith.subi": lambda op, a, b: a - b,
    "arith.divui": lambda op, a, b: a // b,
    "arith.remui": lambda op, a, b: a % b,
    "arith.andi": lambda op, a, b: a & b,
    "arith.shrui": lambda op, a, b: a >> b,
    "arith.index_cast": lambda op, a: a,
    "arith.index_castui": lambda op, a: a,
    "gpu.thread_id": _thread_id,
    "gpu.block_dim": lambda op: THREADS if " x" in str(op) else 1,
    "nvvm.shfl.sync": _shuffle,
}


def register_layout(name: str, shape: Sequence[int], bits: int, vector: int) -> Any:
    """JAX's own layout of a name of `course_lib.layouts.registers.CATALOG`."""
    base, _, reduced = name.rpartition("_")
    layouts = plgpu.Layout
    if reduced in ("ROW", "COL") and base in ("WGMMA", "TCGEN05"):
        return layouts[base].to_mgpu().reduce((1 if reduced == "ROW" else 0,))
    if name.startswith("MMA_"):
        warps = registers.fitting_m_warps(name, tuple(shape))
        return layouts[name].to_mgpu(DTYPES[bits], m_warps=warps)
    if name == "SMEM_GMEM_COPY":
        swizzle = registers.fitting_swizzle(tuple(shape), bits)
        return layouts[name].to_mgpu(tuple(shape), DTYPES[bits], swizzle)
    if name == "WG_STRIDED":
        return layouts.WG_STRIDED.to_mgpu(tuple(shape), vector)
    if name.startswith("TCGEN05_M64"):
        return layouts[name].to_mgpu(shape[-1])
    return layouts[name].to_mgpu()


def copy_layout(shape: Sequence[int], dtype: Any, swizzle: int) -> Any:
    """JAX's own `SMEM_GMEM_COPY`."""
    return plgpu.Layout.SMEM_GMEM_COPY.to_mgpu(tuple(shape), dtype, swizzle)


def elements(layout: Any, shape: Sequence[int]) -> np.ndarray:
    """Row-major element numbers `[thread, register, element]`, as JAX's layout has them."""
    shape = tuple(shape)
    with _mlir_module():
        value = _Evaluator()
        first = [
            np.ravel_multi_index([np.broadcast_to(value(i), THREADS) for i in index], shape)
            for index in layout.thread_idxs(shape)
        ]
    held = np.stack(first, axis=1)
    return held[:, :, None] + _vector_steps(layout, shape)


def _vector_steps(layout: Any, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(layout, fragmented_array.WGStridedFragLayout):
        return np.arange(layout.vec_size)
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    step = layout.tiling.tile_strides(strides)[layout.vector_dim]
    return np.arange(layout.vector_length) * step


def tmem_layout(shape: tuple[int, int], packing: int, *, collective: bool) -> Any:
    """The layout that JAX infers for an array in tensor memory."""
    return tcgen05._infer_tmem_layout(shape, collective, packing)


def transfer_plan(
    shape: Sequence[int],
    tile: Sequence[int],
    permutation: Sequence[int] | None,
    layout: Any,
    bits: int,
    swizzle: int | None,
) -> str:
    """What JAX plans for a transfer to a tiled ref: "trivial", "staggered" or "conflicts".

    "other" where JAX has another objection than bank conflicts.
    """
    outer = [d // t for d, t in zip(shape, tile, strict=True)]
    memory = (*outer, *tile)
    steps = [int(np.prod(memory[i + 1 :])) for i in range(len(memory))]
    rank = len(shape)
    axes = range(rank) if permutation is None else permutation
    nested_shape = [(outer[a], tile[a]) if tile[a] != 1 else (outer[a],) for a in axes]
    nested_steps = [(steps[a], steps[rank + a]) if tile[a] != 1 else (steps[a],) for a in axes]
    if _is_unsupported(layout, nested_shape, nested_steps):
        return "other"
    try:
        plan = fragmented_array.plan_tiled_transfer(
            nested_shape, nested_steps, layout, bits, swizzle or 16
        )
    except fragmented_array.TransferPlanDerivationError as error:
        return "conflicts" if "bank conflicts" in str(error) else "other"
    trivial = isinstance(plan, fragmented_array.TrivialTransferPlan)
    return "trivial" if trivial else "staggered"


@dataclasses.dataclass(frozen=True)
class Store:
    """One store instruction of JAX's.

    Attributes:
      name: "llvm.store" or "nvvm.stmatrix".
      form: "vector"; of stmatrix "row" or "column".
      registers: what it stores, as numbers in row-major order.
      addresses: of each thread, in bytes: `(128,)`.
    """

    name: str
    form: str
    registers: tuple[int, ...]
    addresses: np.ndarray


def emitted_stores(
    memory_shape: Sequence[int],
    permutation: Sequence[int] | None,
    layout: Any,
    bits: int,
    swizzle: int | None,
    arch: str,
) -> list[Store] | str:
    """The stores that JAX emits for an array of registers, or why it emits none.

    Args:
      memory_shape: of the ref after one tiling: as many numbers of tiles as sizes of a tile.
      permutation: of the ref's axes.

    "conflicts" where JAX names bank conflicts, "other" where it has another objection,
    "assertion" where an assertion of its own fails (32-bit MMA_RHS, in both versions).
    """
    rank = len(memory_shape) // 2
    axes = tuple(range(rank)) if permutation is None else tuple(permutation)
    order = (*axes, *(rank + a for a in axes))
    steps = [int(np.prod(memory_shape[i + 1 :])) for i in range(2 * rank)]
    shape = [memory_shape[a] for a in order]
    i32 = ir.IntegerType.get_signless
    with _mlir_module() as module:
        for name, part in zip(("major", "minor"), (int(arch[3:-2]), 0), strict=True):
            number = ir.IntegerAttr.get(i32(32), part)
            module.operation.attributes[f"mosaic_gpu.arch_{name}"] = number
        element = {8: i32(8), 16: ir.BF16Type.get(), 32: ir.F32Type.get()}[bits]
        strided = ir.StridedLayoutAttr.get(0, [steps[a] for a in order])
        in_smem = ir.MemRefType.get(shape, element, strided, utils.smem())
        zero = arith.constant(i32(32), 0)
        ref = builtin.unrealized_conversion_cast([in_smem], [zero])
        logical = [shape[i] * shape[rank + i] for i in range(rank)]
        registers, array = _registers(layout, logical, element)
        try:
            array.store_tiled(ref, swizzle or 16)
        except fragmented_array.TransferPlanDerivationError as error:
            return "conflicts" if "bank conflicts" in str(error) else "other"
        except (fragmented_array.UnsupportedTransferError, ValueError, NotImplementedError):
            return "other"
        except AssertionError:
            return "assertion"
        return _stores(module, registers)


def _registers(layout: Any, shape: Sequence[int], element: Any) -> tuple[dict[Any, int], Any]:
    """Registers that can be told apart, and the array made of them."""
    vector_type = ir.VectorType.get((layout.vector_length,), element)
    values = np.empty(layout.registers_shape(tuple(shape)), dtype=object)
    numbers = {}
    for number, place in enumerate(np.ndindex(values.shape)):
        seed = arith.constant(ir.IntegerType.get_signless(32), 0)
        values[place] = builtin.unrealized_conversion_cast([vector_type], [seed])
        numbers[values[place]] = number
    array = fragmented_array.FragmentedArray(
        _registers=values,
        _layout=layout,
        _is_signed=True if isinstance(element, ir.IntegerType) else None,
    )
    return numbers, array


def _stores(module: Any, registers: dict[Any, int]) -> list[Store]:
    value = _Evaluator()
    found = []
    for op in module.body.operations:
        op = op.operation
        if op.name == "nvvm.stmatrix":
            pointer, *stored = op.operands
            form = "column" if "col" in str(op.attributes["layout"]) else "row"
        elif op.name == "llvm.store":
            stored, pointer, form = [op.operands[0]], op.operands[1], "vector"
        else:
            continue
        numbers = tuple(r for v in stored for r in _sources(v, registers))
        found.append(Store(op.name, form, numbers, np.broadcast_to(value(pointer), THREADS)))
    return found


def _sources(value: Any, registers: dict[Any, int]) -> tuple[int, ...]:
    """The registers that a stored value is made of; of a staggered one there are two."""
    if value in registers:
        return (registers[value],)
    operands = list(value.owner.operands)
    if value.owner.name == "arith.select":
        operands = operands[1:]
    return tuple(r for v in operands for r in _sources(v, registers))


def _is_unsupported(layout: Any, shape: Any, steps: Any) -> bool:
    """What `transfer_tiled` checks before it plans: a register's elements are neighbours."""
    _, tiled = layout.tiling.tile_nested_shape_strides(
        tuple(map(tuple, shape)), tuple(map(tuple, steps))
    )
    return bool(tiled[layout.vector_dim] != (1,))


def check_transforms(shape: Sequence[int], bits: int, tile: Sequence[int] | None, swizzle: int):
    """Makes JAX's own transforms and applies them; raises what they raise."""
    dtype = {8: jnp.int8, 16: jnp.bfloat16, 32: jnp.float32}[bits]
    aval = jax.core.ShapedArray(tuple(shape), jnp.dtype(dtype))
    if tile is not None:
        aval = plgpu.TilingTransform(tuple(tile)).transform_type(aval)
    plgpu.SwizzleTransform(swizzle).transform_type(aval)


def tiling(tiles: Sequence[Sequence[int]]) -> Any:
    """JAX's own `Tiling`."""
    return fragmented_array.Tiling(tuple(map(tuple, tiles)))


def tiled_index(tiles: Sequence[Sequence[int]], index: Sequence[int]) -> tuple[int, ...]:
    """An index after tiling, from JAX's own `Tiling`."""
    return tiling(tiles).tile_indices(tuple(index))


def tiled_shape(tiles: Sequence[Sequence[int]], shape: Sequence[int]) -> tuple[int, ...]:
    """A shape after tiling, from JAX's own `Tiling`; raises ValueError where it does not fit."""
    return tiling(tiles).tile_shape(tuple(shape))


def transposed_tile(tile: Sequence[int], permutation: Sequence[int]) -> tuple[int, ...]:
    """The tile of a transposed ref, as Pallas moves the transpose past the tiling."""
    from jax._src.pallas.mosaic_gpu.core import UntilingTransform
    from jax._src.state.types import TransposeTransform

    aval = jax.core.ShapedArray(tuple(8 * t for t in tile), jnp.dtype(jnp.float32))
    _, moved = UntilingTransform(tuple(tile)).commute_transpose(
        aval, TransposeTransform(tuple(permutation))
    )
    return moved.tiling
