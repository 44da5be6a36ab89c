"""The kernels of chapter 14: kernels to look into, and kernels that other code calls.

`product` names its parts for the profiler. `nearest_tf32` and `reversed_bits` hold inline Mosaic
GPU code, each with its twin in NumPy. `swish` has a derivative of its own. `torch_says` tells what
`plgpu.as_torch_kernel` thinks of a function, with or without PyTorch. Each kernel has its NumPy
reference beside it.

Sources: reference page, "Inline Mosaic GPU", "Compiler parameters", "Debugging", "Calling kernels
from PyTorch"; `plgpu.CompilerParams`, `plgpu.inline_mgpu` and `plgpu.as_torch_kernel` of JAX
0.11.2 and 0.12; PTX ISA, "cvt" (.rna.tf32.f32), "brev", "ex2" (.approx).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, llvm

Array = np.ndarray[Any, Any]

TILE = 128
STEP = 64
EVENTS = 64
"""The events of one thread for which a profiled `product` has room; it has 3 scopes for each step
of K and one more, so this is enough for 20 steps."""


# ---- a kernel whose parts have names ----


def product(a: jax.Array, b: jax.Array, *, profile_dir: str | None = None) -> jax.Array:
    """a @ b by one block with one slot, its parts in the scopes copy, arrive, multiply and store.

    Args:
      a, b: (128, k) and (k, 128) bfloat16, k a multiple of 64.
      profile_dir: a folder that exists, for the profiler's trace, in which each scope has an event.
        Needs an NVIDIA GPU: JAX has no other place where it could run the recording.

    Returns:
      (128, 128) bfloat16.
    """
    k = a.shape[1]

    def kernel(
        a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, y_smem: Any, loaded: Any
    ) -> None:
        def multiply(acc: Any) -> jax.Array:
            @pl.loop(0, k // STEP)
            def _step(ki: jax.Array) -> None:
                ks = pl.ds(ki * STEP, STEP)
                with jax.named_scope("copy"):
                    plgpu.copy_gmem_to_smem(a_gmem.at[:, ks], a_smem, loaded)
                    plgpu.copy_gmem_to_smem(b_gmem.at[ks], b_smem, loaded)
                with jax.named_scope("arrive"):
                    plgpu.barrier_wait(loaded)
                with jax.named_scope("multiply"):
                    plgpu.wgmma(acc, a_smem, b_smem)
                    plgpu.wgmma_wait(0)

            return acc[...]

        y = pl.run_scoped(multiply, plgpu.ACC((TILE, TILE), jnp.float32))
        with jax.named_scope("store"):
            y_smem[...] = y.astype(y_gmem.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(y_smem, y_gmem)
            plgpu.wait_smem_to_gmem(0)

    profile = dict(profile_space=EVENTS, profile_dir=profile_dir) if profile_dir else {}
    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), a.dtype),
        scratch_types=dict(
            a_smem=plgpu.SMEM((TILE, STEP), a.dtype),
            b_smem=plgpu.SMEM((STEP, TILE), a.dtype),
            y_smem=plgpu.SMEM((TILE, TILE), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2),
        ),
        compiler_params=plgpu.CompilerParams(**profile),
    )(a, b)


def product_reference(a: Array, b: Array) -> Array:
    """`product` in NumPy, summed in float32."""
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


# ---- inline Mosaic GPU ----


def elementwise(
    instruction: str, constraints: str, twin: Callable[[Array], Array], *, bits: bool = False
) -> Callable[[jax.Array], jax.Array]:
    """A function for kernels that applies one PTX instruction to each element of a vector.

    Args:
      instruction: in PTX, `$0` its result, `$1` its operand.
      constraints: LLVM's names for the registers of both, "=r,f" for example: r has 32 bits, f is a
        float32.
      twin: the same in NumPy, for the simulator.
      bits: whether the operand is an int32; else it is a float32. The result is like it.

    Returns:
      A function of a one-dimensional array in `Layout.WG_STRIDED(shape, vec_size=1)`.
    """
    dtype = np.dtype(np.int32 if bits else np.float32)

    def call(x: jax.Array) -> jax.Array:
        layout = plgpu.Layout.WG_STRIDED(x.shape, vec_size=1)

        def apply(_context: Any, x: Any) -> Any:
            i32 = ir.IntegerType.get_signless(32)

            def one(value: ir.Value, _index: Any) -> ir.Value:
                result = llvm.inline_asm(
                    i32, [value], instruction, constraints, has_side_effects=False
                )
                return result if bits else arith.bitcast(ir.F32Type.get(), result)

            return x.foreach(one, create_array=True, is_signed=True if bits else None)

        # What the simulator looks for: course_lib.simulator.simulated_by sets it, too.
        apply.numpy_model = twin  # type: ignore[attr-defined]
        inline = plgpu.inline_mgpu(
            arg_types=(layout,),
            return_type=plgpu.ShapeDtypeStruct(x.shape, dtype, layout=layout),
        )
        return inline(apply)(x)

    return call


def nearest_tf32_reference(x: Array) -> Array:
    """float32 rounded to 10 bits of mantissa, ties away from zero (PTX ISA, cvt.rna.tf32.f32)."""
    rounded = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return rounded.view(np.float32)


def reversed_bits_reference(x: Array) -> Array:
    """Each int32 with its 32 bits in the other order (PTX ISA, brev.b32)."""
    bits = np.unpackbits(np.ascontiguousarray(x).view(np.uint8), bitorder="little")
    turned = np.packbits(bits.reshape(-1, 32)[:, ::-1], bitorder="little")
    return turned.view(np.int32).reshape(x.shape)


def nearest_tf32(x: jax.Array) -> jax.Array:
    """x of shape (n,) float32, rounded to the nearest tf32; n a multiple of 128."""
    to_tf32 = elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,f", nearest_tf32_reference)
    return _of_registers(to_tf32, x)


def reversed_bits(x: jax.Array) -> jax.Array:
    """x of shape (n,) int32 with the bits of each element reversed; n a multiple of 128."""
    reverse = elementwise("brev.b32 $0, $1;", "=r,r", reversed_bits_reference, bits=True)
    return _of_registers(reverse, x)


def _of_registers(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Loads x in the layout that `elementwise` wants, applies the function, stores."""

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        layout = plgpu.Layout.WG_STRIDED(x.shape, vec_size=1)
        y_gmem[...] = function(plgpu.load(x_gmem, layout=layout))

    return plgpu.kernel(kernel, out_type=x)(x)


# ---- arithmetic that may be rough ----


def exponential(x: jax.Array, *, approx: bool = False) -> jax.Array:
    """exp(x) for x of shape (n,) float32, with the hardware's own exp2 if `approx`."""

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = jnp.exp(x_gmem[...])

    params = plgpu.CompilerParams(approx_math=approx)
    return plgpu.kernel(kernel, out_type=x, compiler_params=params)(x)


# ---- derivatives ----


def _swish_kernel(x: jax.Array) -> jax.Array:
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        x = x_gmem[...]
        y_gmem[...] = x / (1 + jnp.exp(-x))

    return plgpu.kernel(kernel, out_type=x)(x)


def _swish_slope_kernel(x: jax.Array, ct: jax.Array) -> jax.Array:
    def kernel(x_gmem: Any, ct_gmem: Any, y_gmem: Any) -> None:
        x = x_gmem[...]
        s = 1 / (1 + jnp.exp(-x))
        y_gmem[...] = ct_gmem[...] * (s + x * s * (1 - s))

    return plgpu.kernel(kernel, out_type=x)(x, ct)


@jax.custom_vjp
def swish(x: jax.Array) -> jax.Array:
    """x / (1 + exp(-x)) for x of shape (n,) float32; its derivative is a kernel, too."""
    return _swish_kernel(x)


swish.defvjp(lambda x: (_swish_kernel(x), x), lambda x, ct: (_swish_slope_kernel(x, ct),))


def swish_reference(x: Array) -> Array:
    """`swish` in NumPy."""
    return x / (1 + np.exp(-x))


def swish_slope_reference(x: Array) -> Array:
    """The derivative of `swish` in NumPy."""
    s = 1 / (1 + np.exp(-x))
    return s + x * s * (1 - s)


# ---- what others make of a function with a kernel ----

KERNEL_CALL = "mosaic_gpu_v2"
"""The custom call that a Mosaic GPU kernel is in StableHLO."""


def exported(function: Callable[..., Any], *args: Any) -> export.Exported:
    """The function for CUDA devices, as data: `jax.export` made anywhere, without a GPU.

    A custom call may change from one JAX to the next, so JAX exports one only if it is named.
    """
    return export.export(
        jax.jit(function),
        platforms=("cuda",),
        disabled_checks=[export.DisabledSafetyCheck.custom_call(KERNEL_CALL)],
    )(*args)


def torch_says(function: Callable[..., Any], *args: Any) -> str:
    """Whether `plgpu.as_torch_kernel` takes a function: "fine", or why it does not.

    It reads the function's StableHLO, as `as_torch_kernel` does, and needs neither PyTorch nor a
    GPU. Beside the one kernel there may be nothing but the allocation of its outputs and integer
    constants.
    """
    text = exported(function, *args).mlir_module()
    operations = re.findall(r"(?:= |^\s*)(stablehlo\.[a-z_]+)(?: @([A-Za-z_0-9]+))?", text, re.M)
    kernels = sum(target == KERNEL_CALL for _, target in operations)
    others = [
        name.removeprefix("stablehlo.")
        for name, target in operations
        if target not in (KERNEL_CALL, "AllocateBuffer")
        and name not in ("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.return")
    ]
    if kernels > 1:
        return f"{kernels} kernels"
    if others:
        return f"an operation that is no kernel: {others[0]}"
    return "fine" if kernels else "no kernel"
