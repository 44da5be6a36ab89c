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
"""The room of a profiled `product`, in scopes. JAX enters one of its own, and a header takes most
of another, so 62 are left. It enters 3 for each step of K and one more: enough for 20 steps."""


# ---- small kernels to look into ----


def double(x: jax.Array) -> jax.Array:
    """2 x for x of shape (n,) float32, n a multiple of 128, from GMEM to GMEM."""

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = x_gmem[...] * 2

    return plgpu.kernel(kernel, out_type=x)(x)


def layouts(x: jax.Array) -> jax.Array:
    """x of shape (64, 64) float32 as it is; the compiler prints how it lies on its way.

    What is loaded without a wish, what is asked for as an accumulator of wgmma is, and a buffer.
    """

    def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any) -> None:
        x = x_gmem[...]
        plgpu.print_layout("x: {}", x)
        w = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        plgpu.print_layout("w: {}", w)
        x_smem[...] = w
        plgpu.print_layout("x_smem: {}", x_smem)
        y_gmem[...] = x

    scratch = dict(x_smem=plgpu.SMEM((64, 64), jnp.float32))
    return plgpu.kernel(kernel, out_type=x, scratch_types=scratch)(x)


def talkative(x: jax.Array) -> jax.Array:
    """x of shape (blocks, 2, 128) float32 as it is, by two threads a block that print a line each.

    The compiler prints one, too: the layout of what a thread loads.
    """

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        block, thread = jax.lax.axis_index("block"), jax.lax.axis_index("thread")
        x = x_gmem[block, thread]
        plgpu.print_layout("x: {}", x)
        pl.debug_print("block {}, thread {}: {}", block, thread, x_gmem[block, thread, 0])
        y_gmem[block, thread] = x

    return plgpu.kernel(
        kernel,
        out_type=x,
        grid=(x.shape[0],),
        grid_names=("block",),
        num_threads=2,
        thread_name="thread",
    )(x)


# ---- a kernel whose parts have names ----


def product(
    a: jax.Array, b: jax.Array, *, slots: int = 1, profile_dir: str | None = None
) -> jax.Array:
    """a @ b by one block and one thread, its parts in the scopes copy, arrive, multiply and store.

    Args:
      a, b: (128, k) and (k, 128) bfloat16, k a multiple of 64.
      slots: how many steps of K have room in SMEM. With one slot nothing overlaps.
      profile_dir: a folder that exists, for the profiler's trace, in which each scope has an event.
        Needs an NVIDIA GPU: JAX has no other place where it could run the recording.

    Returns:
      (128, 128) bfloat16.
    """
    steps = a.shape[1] // STEP

    def kernel(
        a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, y_smem: Any, loaded: Any
    ) -> None:
        def copy(ki: Any) -> None:
            slot, ks = jax.lax.rem(ki, slots), pl.ds(ki * STEP, STEP)
            with jax.named_scope("copy"):
                plgpu.copy_gmem_to_smem(a_gmem.at[:, ks], a_smem.at[slot], loaded.at[slot])
                plgpu.copy_gmem_to_smem(b_gmem.at[ks], b_smem.at[slot], loaded.at[slot])

        def multiply(acc: Any) -> jax.Array:
            for ki in range(min(slots, steps)):
                copy(jnp.int32(ki))

            @pl.loop(0, steps)
            def _step(ki: jax.Array) -> None:
                slot = jax.lax.rem(ki, slots)
                with jax.named_scope("arrive"):
                    plgpu.barrier_wait(loaded.at[slot])
                with jax.named_scope("multiply"):
                    plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                    plgpu.wgmma_wait(0)
                pl.when(ki + slots < steps)(lambda: copy(ki + slots))

            return acc[...]

        y = pl.run_scoped(multiply, plgpu.ACC((TILE, TILE), jnp.float32))
        with jax.named_scope("store"):
            y_smem[...] = y.astype(y_gmem.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(y_smem, y_gmem)
            plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), a.dtype),
        scratch_types=dict(
            a_smem=plgpu.SMEM((slots, TILE, STEP), a.dtype),
            b_smem=plgpu.SMEM((slots, STEP, TILE), a.dtype),
            y_smem=plgpu.SMEM((TILE, TILE), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=2, num_barriers=slots),
        ),
        compiler_params=plgpu.CompilerParams(
            profile_space=EVENTS if profile_dir else 0, profile_dir=profile_dir or ""
        ),
    )(a, b)


def product_reference(a: Array, b: Array) -> Array:
    """`product` in NumPy, summed in float32."""
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype)


# ---- an array that is too large for the registers ----

PIECE = 16


def softmax_whole(x: jax.Array) -> jax.Array:
    """The softmax of each x[i] as a whole, which its block holds in registers at once.

    Args:
      x: (blocks, 128, n) float32. With n = 512 a lane holds 512 numbers, and has 255 registers: the
        rest spills.
    """

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        block = jax.lax.axis_index("block")
        x = x_gmem[block]
        e = jnp.exp(x - jnp.max(x))
        y_gmem[block] = e / jnp.sum(e)

    return plgpu.kernel(kernel, out_type=x, grid=(x.shape[0],), grid_names=("block",))(x)


def softmax_pieces(x: jax.Array) -> jax.Array:
    """The same from 16 rows at a time, which are read three times: for the maximum, the sum and y.

    Args:
      x: (blocks, rows, n) float32, rows a multiple of 16.
    """

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        x_tile, y_tile = (ref.at[jax.lax.axis_index("block")] for ref in (x_gmem, y_gmem))
        pieces = x.shape[1] // PIECE

        def rows(i: Any) -> Any:
            return pl.ds(i * PIECE, PIECE)

        def larger(i: Any, largest: jax.Array) -> jax.Array:
            return jnp.maximum(largest, jnp.max(x_tile[rows(i)]))

        largest = jax.lax.fori_loop(0, pieces, larger, -jnp.inf)

        def more(i: Any, total: jax.Array) -> jax.Array:
            return total + jnp.sum(jnp.exp(x_tile[rows(i)] - largest))

        total = jax.lax.fori_loop(0, pieces, more, 0.0)

        @pl.loop(0, pieces)
        def _store(i: jax.Array) -> None:
            y_tile[rows(i)] = jnp.exp(x_tile[rows(i)] - largest) / total

    return plgpu.kernel(kernel, out_type=x, grid=(x.shape[0],), grid_names=("block",))(x)


def softmax_reference(x: Array) -> Array:
    """Both softmaxes in NumPy."""
    e = np.exp(x - x.max(axis=(1, 2), keepdims=True))
    return np.asarray(e / e.sum(axis=(1, 2), keepdims=True))


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


def tanh(x: jax.Array, *, approx: bool = False) -> jax.Array:
    """tanh(x) for x of shape (n,) float32; with `approx` as roughly as the hardware has it."""
    return _elementwise(jnp.tanh, x, approx)


def reciprocal(x: jax.Array, *, approx: bool = False) -> jax.Array:
    """1 / x for x of shape (n,) float32."""
    return _elementwise(jnp.reciprocal, x, approx)


def _elementwise(
    function: Callable[[jax.Array], jax.Array], x: jax.Array, approx: bool
) -> jax.Array:
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = function(x_gmem[...])

    params = plgpu.CompilerParams(approx_math=approx)
    return plgpu.kernel(kernel, out_type=x, compiler_params=params)(x)


# ---- a batch ----


def halves(x: jax.Array) -> jax.Array:
    """2 x for x of shape (256,) float32, by two blocks."""

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        part = pl.ds(jax.lax.axis_index("block") * TILE, TILE)
        y_gmem[part] = x_gmem[part] * 2

    return plgpu.kernel(kernel, out_type=x, grid=(2,), grid_names=("block",))(x)


def halves_of_each(x: jax.Array) -> jax.Array:
    """`halves` of each row of x, of shape (n, 256), in one launch."""
    return jax.vmap(halves)(x)


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
    constants, and all that is returned is the kernel's.
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
    if not kernels:
        return "no kernel"
    [returned] = re.findall(r"@main.*?^ *return ([^:]*)", text, re.M | re.S)
    return "an argument is returned" if "%arg" in returned else "fine"
