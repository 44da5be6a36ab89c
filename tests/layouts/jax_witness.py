"""What the installed JAX itself says about layouts: the only file here with private JAX names.

Register layouts say who holds what by emitting MLIR (`thread_idxs`); `_Evaluator`
computes the values of those few arithmetic ops for all 128 threads at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax.experimental.mosaic.gpu import dialect, fragmented_array, tcgen05
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir

THREADS = 128


@contextlib.contextmanager
def _mlir_module() -> Iterator[None]:
    with mlir.make_ir_context() as context, ir.Location.unknown():
        dialect.register_dialect(context)
        with ir.InsertionPoint(ir.Module.create().body):
            yield


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


def _thread_id(op: Any) -> np.ndarray:
    is_x = "dim<x>" in str(op).replace(" ", "") or "dimension x" in str(op) or " x" in str(op)
    return np.arange(THREADS) if is_x else np.zeros(THREADS, np.int64)


_OPS: dict[str, Any] = {
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


def tiled_index(tiles: Sequence[Sequence[int]], index: Sequence[int]) -> tuple[int, ...]:
    """An index after tiling, from JAX's own `Tiling`."""
    return fragmented_array.Tiling(tuple(map(tuple, tiles))).tile_indices(tuple(index))


def tiled_shape(tiles: Sequence[Sequence[int]], shape: Sequence[int]) -> tuple[int, ...]:
    """A shape after tiling, from JAX's own `Tiling`; raises ValueError where it does not fit."""
    return fragmented_array.Tiling(tuple(map(tuple, tiles))).tile_shape(tuple(shape))


def transposed_tile(tile: Sequence[int], permutation: Sequence[int]) -> tuple[int, ...]:
    """The tile of a transposed ref, as Pallas moves the transpose past the tiling."""
    from jax._src.pallas.mosaic_gpu.core import UntilingTransform
    from jax._src.state.types import TransposeTransform

    aval = jax.core.ShapedArray(tuple(8 * t for t in tile), jnp.dtype(jnp.float32))
    _, moved = UntilingTransform(tuple(tile)).commute_transpose(
        aval, TransposeTransform(tuple(permutation))
    )
    return moved.tiling
