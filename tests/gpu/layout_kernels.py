"""Kernels that show where things really are: shared memory slot by slot, registers by thread.

The two refs of a `RefUnion` share their memory: what one wrote through its transforms,
the other reads plainly, in the order of addresses.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, vector

from course_lib.layouts.smem import SmemRef

ROW_BYTES = 128
# With Lane semantics refs have the transforms that are written, none is inferred.
PARAMS = plgpu.CompilerParams(lowering_semantics=mgpu.LoweringSemantics.Lane)


def transforms(ref: SmemRef) -> tuple[Any, ...]:
    """The `plgpu` transforms of a ref of the model."""
    made: list[Any] = [plgpu.TilingTransform(tile) for tile in ref.tiling.tiles]
    if ref.swizzle:
        made.append(plgpu.SwizzleTransform(ref.swizzle))
    return tuple(made)


def _plain_shape(ref: SmemRef, dtype: Any) -> tuple[int, int]:
    """Rows of 128 bytes, the rows of all 32 banks."""
    columns = ROW_BYTES // jnp.dtype(dtype).itemsize
    return ref.size // columns, columns


def _kernel(body: Any, ref: SmemRef, dtype: Any, barriers: tuple[Any, ...]) -> Any:
    plain = _plain_shape(ref, dtype)
    union = plgpu.RefUnion(
        plgpu.SMEM(ref.shape, dtype, transforms=transforms(ref)), plgpu.SMEM(plain, dtype)
    )
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(plain, dtype),
        scratch_types=[union, *barriers],
        compiler_params=PARAMS,
    )


def _copy_out(plain: Any, out_gmem: Any) -> None:
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(plain, out_gmem)
    plgpu.wait_smem_to_gmem(0)


def copied_in(ref: SmemRef, dtype: Any) -> Any:
    """Copies its argument into a ref by TMA; returns memory, slot after slot, in rows."""

    def body(x_gmem: Any, out_gmem: Any, union: Any, barrier: Any) -> None:
        tiled, plain = union
        plgpu.copy_gmem_to_smem(x_gmem, tiled, barrier)
        plgpu.barrier_wait(barrier)
        _copy_out(plain, out_gmem)

    return _kernel(body, ref, dtype, (plgpu.Barrier(),))


def stored(ref: SmemRef, dtype: Any, layout: Any) -> Any:
    """Stores its argument from registers of a layout; returns memory as `copied_in` does."""

    def body(x_gmem: Any, out_gmem: Any, union: Any) -> None:
        tiled, plain = union
        view = tiled if ref.permutation is None else tiled.transpose(ref.permutation)
        view[...] = _loaded(x_gmem, layout)
        _copy_out(plain, out_gmem)

    return _kernel(body, ref, dtype, ())


def _loaded(x_gmem: Any, layout: Any) -> Any:
    """The argument in a layout; pairs of rows are not neighbours in GMEM, so those are cast."""
    if layout is plgpu.Layout.WGMMA_TRANSPOSED:
        rows = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        return plgpu.layout_cast(rows, layout)
    return plgpu.load(x_gmem, layout=layout, optimized=False)


def places(shape: tuple[int, ...], layout: Any) -> Any:
    """Returns, for each element, who holds it: `thread << 16 | register << 4 | element`.

    For WGMMA_TRANSPOSED, which has to be stored into a transposed ref, transposed.
    """
    turned = layout is plgpu.Layout.WGMMA_TRANSPOSED
    stored_shape = shape[::-1] if turned else shape

    @plgpu.inline_mgpu(return_type=plgpu.ShapeDtypeStruct(shape, jnp.int32, layout=layout))
    def held(ctx: Any) -> Any:
        return _fill_with_places(layout, shape)

    def body(out_gmem: Any) -> None:
        out = out_gmem.transpose((1, 0)) if turned else out_gmem
        out[...] = held()

    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct(stored_shape, jnp.int32), compiler_params=PARAMS
    )


def _fill_with_places(layout: Any, shape: tuple[int, ...]) -> Any:
    made = layout.to_mgpu()
    i32 = ir.IntegerType.get_signless(32)
    vector_type = ir.VectorType.get((made.vector_length,), i32)
    steps = ir.DenseElementsAttr.get(
        np.arange(made.vector_length, dtype=np.int32), type=vector_type
    )
    thread = arith.muli(mgpu.utils.thread_idx(), mgpu.c(1 << 16, i32))
    registers = np.empty(made.registers_shape(shape), object)
    for number, index in enumerate(np.ndindex(registers.shape)):
        first = arith.addi(thread, mgpu.c(number << 4, i32))
        whole = vector.broadcast(vector_type, first)
        registers[index] = arith.addi(whole, arith.constant(vector_type, steps))
    return mgpu.FragmentedArray(_registers=registers, _layout=made, _is_signed=True)


def lower(function: Any, *args: Any) -> str:
    """The kernel lowered for a GPU, on a machine without one; raises what Mosaic GPU refuses."""
    traced = jax.jit(function).trace(*args)
    return traced.lower(lowering_platforms=("cuda",)).as_text()
