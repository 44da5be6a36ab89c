"""The kernels of chapter 07, each beside its NumPy reference: products on Hopper's TensorCore.

Each is one block with one Pallas thread, and needs Hopper (PTX ISA, wgmma.mma_async). No
buffer has `transforms=`: layout inference gives operands the tiles and the swizzle that the
TensorCore reads. The chapter's last kernel, a whole matmul, is step 0 of the ladder:
`course_lib.kernels.matmul_ladder.matmul0`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

ROWS = 64
"""Rows of the accumulator that one wgmma instruction adds to (PTX ISA, wgmma.mma_async, M)."""

MAX_N = 256
"""The most columns of it (the same, N)."""

K_BYTES = 32
"""How much of K one instruction takes, in bytes of a row of A (the same, K)."""

STEP = 64
"""How much of K `relu_product` takes at a time: what fills the widest swizzle with 16 bits."""

TF32_MANTISSA_BITS = 10
"""Of the 23 bits of a float32, those that the TensorCore reads (PTX ISA, Alternate formats)."""

_KEPT = np.uint32(0xFFFF_FFFF << (23 - TF32_MANTISSA_BITS) & 0xFFFF_FFFF)


@dataclasses.dataclass(frozen=True)
class Config:
    """How `product` gets its operands and where it adds up.

    Attributes:
      transpose_a: `a` comes as (k, m), and the TensorCore reads it transposed.
      transpose_b: `b` comes as (n, k), and goes in as `b_smem.transpose((1, 0))`.
      acc_dtype: the accumulator's dtype: float32, or float16 for float16 operands.
    """

    transpose_a: bool = False
    transpose_b: bool = False
    acc_dtype: str = "float32"


def product(a: jax.Array, b: jax.Array, *, config: Config = Config()) -> jax.Array:
    """a @ b in float32: one wgmma. (m, k) and (k, n) of one dtype.

    Args:
      a: (m, k), or (k, m) with `transpose_a`. 64 divides m.
      b: (k, n), or (n, k) with `transpose_b`. 8 divides n, which is 256 at most.
      config: see there.
    """
    m = a.shape[1] if config.transpose_a else a.shape[0]
    n = b.shape[0] if config.transpose_b else b.shape[1]
    acc_type = plgpu.ACC((m, n), jnp.dtype(config.acc_dtype))

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            left = a_smem.transpose((1, 0)) if config.transpose_a else a_smem
            right = b_smem.transpose((1, 0)) if config.transpose_b else b_smem
            plgpu.wgmma(acc, left, right)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, acc_type).astype(jnp.float32)

    out_type = jax.ShapeDtypeStruct((m, n), jnp.float32)
    return plgpu.kernel(body, out_type=out_type, scratch_types=_scratch(a, b))(a, b)


def product_reference(a: Array, b: Array, *, config: Config = Config()) -> Array:
    """`product` in NumPy, added up in float64; float32 operands as the TensorCore reads them."""
    left = tf32(a.T if config.transpose_a else a)
    right = tf32(b.T if config.transpose_b else b)
    return (left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)


def tf32(x: Array) -> Array:
    """x without the 13 low bits of each mantissa, if it is float32; else x itself."""
    if x.dtype != np.float32:
        return x
    return (np.ascontiguousarray(x).view(np.uint32) & _KEPT).view(np.float32)


def multiply_add(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """a @ b + c: the accumulator starts from c. (m, k), (k, n) of 16 bits; c float32[m, n]."""

    def body(
        a_gmem: Any, b_gmem: Any, c_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, c_smem: Any,
        loaded: Any,
    ) -> None:  # fmt: skip
        for source, target in ((a_gmem, a_smem), (b_gmem, b_smem), (c_gmem, c_smem)):
            plgpu.copy_gmem_to_smem(source, target, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> None:
            plgpu.wgmma(acc, a_smem, b_smem)

        y_gmem[...] = pl.run_state(multiply)(plgpu.ACC.init(c_smem[...]))

    scratch = _scratch(a, b)
    scratch |= dict(c_smem=plgpu.SMEM(c.shape, c.dtype), loaded=plgpu.Barrier(num_arrivals=3))
    return plgpu.kernel(body, out_type=c, scratch_types=scratch)(a, b, c)


def multiply_add_reference(a: Array, b: Array, c: Array) -> Array:
    """`multiply_add` in NumPy, added up in float64."""
    return (a.astype(np.float64) @ b.astype(np.float64) + c).astype(np.float32)


def gram(x: jax.Array) -> jax.Array:
    """x.T @ x for x of 16 bits, (k, n): both operands are the same buffer. 64 divides n."""
    k, n = x.shape

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, x_smem.transpose((1, 0)), x_smem)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((n, n), jnp.float32))

    scratch: dict[str, Any] = dict(x_smem=plgpu.SMEM((k, n), x.dtype), loaded=plgpu.Barrier())
    out_type = jax.ShapeDtypeStruct((n, n), jnp.float32)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)


def gram_reference(x: Array) -> Array:
    """`gram` in NumPy, added up in float64."""
    return product_reference(x, x, config=Config(transpose_a=True))


def upper(x: jax.Array) -> jax.Array:
    """Inside a kernel: float32 without the 13 low bits, which the TensorCore would not read."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & _KEPT
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def split_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x @ w.T in nearly float32's precision, from three products in tf32. x (m, k), w (n, k).

    Each operand is the sum of what the TensorCore reads and of a rest, `x = high + low`. The
    product of the two rests is too small to matter: 2**-20 of the whole.
    """
    (m, k), n = x.shape, w.shape[0]

    def body(
        x_gmem: Any, w_gmem: Any, y_gmem: Any, x_smem: Any, w_smem: Any, x_low_smem: Any,
        w_low_smem: Any, loaded: Any,
    ) -> None:  # fmt: skip
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.copy_gmem_to_smem(w_gmem, w_smem, loaded)
        plgpu.barrier_wait(loaded)
        for full_smem, low_smem in ((x_smem, x_low_smem), (w_smem, w_low_smem)):
            full = full_smem[...]
            low_smem[...] = full - upper(full)
            full_smem[...] = upper(full)
        plgpu.commit_smem()  # the TensorCore is to see what the lanes wrote

        def multiply(acc: Any) -> jax.Array:
            for left, right in ((x_low_smem, w_smem), (x_smem, w_low_smem), (x_smem, w_smem)):
                plgpu.wgmma(acc, left, right.transpose((1, 0)))
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((m, n), jnp.float32))

    x_type, w_type = plgpu.SMEM((m, k), jnp.float32), plgpu.SMEM((n, k), jnp.float32)
    scratch: dict[str, Any] = dict(
        x_smem=x_type,
        w_smem=w_type,
        x_low_smem=x_type,
        w_low_smem=w_type,
        loaded=plgpu.Barrier(num_arrivals=2),
    )
    out_type = jax.ShapeDtypeStruct((m, n), jnp.float32)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x, w)


def split_product_reference(x: Array, w: Array) -> Array:
    """x @ w.T in NumPy, added up in float64."""
    return (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32)


def relu_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """max(a, 0) @ b, with the left operand in registers. (m, k) and (k, n) of 16 bits.

    It goes along K in steps of 64, and each step waits for its product: until then the
    registers of `left` belong to the TensorCore (PTX ISA, wgmma.mma_async).
    """
    out_type = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32)

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            for start in range(0, a.shape[1], STEP):
                ks = pl.ds(start, STEP)
                left = jnp.maximum(a_smem[:, ks], 0)
                plgpu.wgmma(acc, left, b_smem.at[ks])
                plgpu.wgmma_wait(0)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(out_type.shape, out_type.dtype))

    return plgpu.kernel(body, out_type=out_type, scratch_types=_scratch(a, b))(a, b)


def relu_product_reference(a: Array, b: Array) -> Array:
    """`relu_product` in NumPy, added up in float64."""
    return product_reference(np.maximum(a, 0), b)


def wide_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b in float32 for any number of columns, 256 at a time. (m, k) and (k, n) of 16 bits.

    Each part has the accumulator's registers to itself, and is stored before the next begins.
    """
    m, n = a.shape[0], b.shape[1]

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        for start in range(0, n, MAX_N):
            width = min(MAX_N, n - start)
            columns = pl.ds(start, width)

            def multiply(acc: Any, columns: Any = columns) -> jax.Array:
                plgpu.wgmma(acc, a_smem, b_smem.at[:, columns])
                return acc[...]

            acc_type = plgpu.ACC((m, width), jnp.float32)
            y_gmem[:, columns] = pl.run_scoped(multiply, acc_type)

    out_type = jax.ShapeDtypeStruct((m, n), jnp.float32)
    return plgpu.kernel(body, out_type=out_type, scratch_types=_scratch(a, b))(a, b)


def two_calls(a: jax.Array, b: jax.Array) -> jax.Array:
    """2 * (a @ b): the same wgmma twice, into one accumulator."""
    out_type = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32)

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(out_type.shape, out_type.dtype))

    return plgpu.kernel(body, out_type=out_type, scratch_types=_scratch(a, b))(a, b)


def two_calls_reference(a: Array, b: Array) -> Array:
    """`two_calls` in NumPy, added up in float64."""
    return 2 * product_reference(a, b)


def matmul_reference(a: Array, b: Array) -> Array:
    """a @ b in the operands' dtype, added up in float64: what the chapter's last exercise asks."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)


def _scratch(a: jax.Array, b: jax.Array) -> dict[str, Any]:
    """A buffer for each operand and a barrier on which both copies arrive."""
    return dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        loaded=plgpu.Barrier(num_arrivals=2),
    )
