"""The kernels of chapter 10: tensor memory (TMEM) and Blackwell's tensor core, `tcgen05`.

From a tile that goes through TMEM and back, to products with narrow, scaled and sparse
operands. Each has its NumPy reference beside it. They need Blackwell (sm_100a); everywhere
else they run on the model.

Who may read what, and when (PTX ISA, "Memory Consistency Model for 5th generation of
TensorCore operations"): MMAs and copies into TMEM run in the order in which one thread
issued them, and a commit arrives on a barrier when they are done; loads from and stores to
TMEM are ordered with nothing before `wait_load_tmem` and `commit_tmem`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Array = np.ndarray[Any, Any]

LANES = 128
"""Rows of TMEM (PTX ISA, "Tensor Memory")."""

SCALE_BLOCK = 32
"""Elements of 8 bits along K that share a scale (PTX ISA, block scaling, `.scale_vec::1X`)."""

_E4M3_MAX = 448.0  # the largest float8_e4m3fn (Micikevicius et al., "FP8 formats", table 1)


# ---- in and out of TMEM ----


def keep(x: jax.Array, *, packed: bool | None = None) -> jax.Array:
    """x for x of shape (128, n): by way of TMEM.

    Args:
      x: of 32 bits or fewer per element.
      packed: whether elements of fewer than 32 bits share a column of TMEM.
    """
    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        x_tmem=plgpu.TMEM(x.shape, x.dtype, packed=packed),
        loaded=plgpu.Barrier(),
    )

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, x_tmem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_store_tmem(x_tmem, x_smem[...])
        plgpu.commit_tmem()
        x_smem[...] = plgpu.async_load_tmem(x_tmem)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def add_one(x: jax.Array) -> jax.Array:
    """x + 1 for float32 x of shape (128, n): out of TMEM, and straight on to GMEM."""
    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        x_tmem=plgpu.TMEM(x.shape, x.dtype),
        loaded=plgpu.Barrier(),
    )

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, x_tmem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_store_tmem(x_tmem, x_smem[...])
        plgpu.commit_tmem()
        y_gmem[...] = plgpu.async_load_tmem(x_tmem) + 1

    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def sum_in_tmem(x: jax.Array) -> jax.Array:
    """x[0] + x[1] + ... for float32 x of shape (tiles, 128, n), kept in TMEM."""

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, total_tmem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_store_tmem(total_tmem, x_smem[0])
        plgpu.commit_tmem()

        @pl.loop(1, x.shape[0])
        def _add(ti: Any) -> None:
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.wait_load_tmem()
            plgpu.async_store_tmem(total_tmem, total)
            plgpu.commit_tmem()

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    out_type = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        total_tmem=plgpu.TMEM(out_type.shape, x.dtype),
        loaded=plgpu.Barrier(),
    )
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)


def sum_in_tmem_reference(x: Array) -> Array:
    """`sum_in_tmem` in NumPy, in its order."""
    total = x[0]
    for tile in x[1:]:
        total = total + tile
    return total


# ---- products ----


def product(a: jax.Array, b: jax.Array, *, acc_dtype: Any = jnp.float32) -> jax.Array:
    """a @ b by one `tcgen05_mma`: (m, k) times (k, n), with m = 128 or 64.

    Args:
      a: float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8.
      b: of the same dtype, or the other float8.
      acc_dtype: of the accumulator and the result: float32, float16 or int32.
    """
    shape = (a.shape[0], b.shape[1])
    packed = None if jnp.dtype(acc_dtype).itemsize == 4 else False
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        c_smem=plgpu.SMEM(shape, acc_dtype),
        acc_tmem=plgpu.TMEM(shape, acc_dtype, packed=packed),
        loaded=plgpu.Barrier(num_arrivals=2),
        done=plgpu.Barrier(orders_tensor_core=True),
    )

    def body(
        a_gmem: Any,
        b_gmem: Any,
        c_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        c_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        _take_out(acc_tmem, c_smem)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(c_smem, c_gmem)
        plgpu.wait_smem_to_gmem(0)

    out_type = jax.ShapeDtypeStruct(shape, acc_dtype)
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(a, b)


def _take_out(acc_tmem: Any, c_smem: Any) -> None:
    """TMEM to SMEM. 256 columns would take all registers of a lane, so they come in halves."""
    rows, columns = c_smem.shape
    if rows < 128 or columns <= 128:
        c_smem[...] = plgpu.async_load_tmem(acc_tmem)
        return
    for first in range(0, columns, 128):
        piece = pl.ds(first, 128)
        c_smem[:, piece] = plgpu.async_load_tmem(acc_tmem.at[:, piece])


def one_commit(a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b for a (128, k) and b (k, n), k a multiple of 64: all MMAs under one commit.

    All of A and B is in SMEM at once, a barrier for each tile of 64 of K.

    Raises:
      ValueError: k is no multiple of 64.
    """
    if a.shape[1] % 64:
        raise ValueError(f"k={a.shape[1]} must be a multiple of 64")
    steps, n = a.shape[1] // 64, b.shape[1]

    def body(
        a_gmem: Any,
        b_gmem: Any,
        c_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        acc_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        for ki in range(steps):
            ks = pl.ds(ki * 64, 64)
            plgpu.copy_gmem_to_smem(a_gmem.at[:, ks], a_smem.at[ki], loaded.at[ki])
            plgpu.copy_gmem_to_smem(b_gmem.at[ks], b_smem.at[ki], loaded.at[ki])
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)
        plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    out_type = jax.ShapeDtypeStruct((LANES, n), jnp.float32)
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM((steps, LANES, 64), a.dtype),
        b_smem=plgpu.SMEM((steps, 64, n), b.dtype),
        acc_tmem=plgpu.TMEM((LANES, n), jnp.float32),
        loaded=plgpu.Barrier(num_arrivals=2, num_barriers=steps),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(a, b)


def product_reference(a: Array, b: Array) -> Array:
    """a @ b in float64, then float32."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def hand_over(x: jax.Array, *, orders: bool = True) -> jax.Array:
    """x for float32 x of shape (128, n): one thread stores to TMEM, another one loads.

    Args:
      x: the matrix.
      orders: whether the barrier between the two orders tensor-core work; without, it is wrong.
    """

    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, x_tmem: Any, loaded: Any, ready: Any) -> None:
        thread = lax.axis_index("thread")

        @pl.when(thread == 0)
        def _store() -> None:
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.async_store_tmem(x_tmem, x_smem[...])
            plgpu.commit_tmem()
            plgpu.barrier_arrive(ready)

        @pl.when(thread == 1)
        def _load() -> None:
            plgpu.barrier_wait(ready)
            y_gmem[...] = plgpu.async_load_tmem(x_tmem)

    scratch: dict[str, Any] = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        x_tmem=plgpu.TMEM(x.shape, x.dtype),
        loaded=plgpu.Barrier(),
        ready=plgpu.Barrier(orders_tensor_core=orders),
    )
    return plgpu.kernel(
        body, out_type=x, scratch_types=scratch, num_threads=2, thread_name="thread"
    )(x)


def batched(a: jax.Array, b: jax.Array) -> jax.Array:
    """a[i] @ b for a (batches, 128, k) and b (k, n): one thread multiplies, one stores.

    All products go through the same accumulator, so the two threads take turns.
    """
    batches, shape = a.shape[0], (LANES, b.shape[1])

    def body(
        a_gmem: Any,
        b_gmem: Any,
        c_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        acc_tmem: Any,
        a_loaded: Any,
        b_loaded: Any,
        done: Any,
        stored: Any,
    ) -> None:
        thread = lax.axis_index("thread")

        @pl.when(thread == 0)
        def _multiply() -> None:
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, b_loaded)
            for i in range(batches):
                plgpu.copy_gmem_to_smem(a_gmem.at[i], a_smem.at[i], a_loaded.at[i])
            plgpu.barrier_wait(b_loaded)
            for i in range(batches):
                plgpu.barrier_wait(a_loaded.at[i])
                if i > 0:
                    plgpu.barrier_wait(stored)
                plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=False)
            plgpu.barrier_wait(stored)

        @pl.when(thread == 1)
        def _store() -> None:
            for i in range(batches):
                plgpu.barrier_wait(done)
                c_gmem[i] = plgpu.async_load_tmem(acc_tmem)
                plgpu.wait_load_tmem()
                plgpu.barrier_arrive(stored)

    out_type = jax.ShapeDtypeStruct((batches, *shape), jnp.float32)
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        acc_tmem=plgpu.TMEM(shape, jnp.float32),
        a_loaded=plgpu.Barrier(num_barriers=batches),
        b_loaded=plgpu.Barrier(),
        done=plgpu.Barrier(orders_tensor_core=True),
        stored=plgpu.Barrier(orders_tensor_core=True),
    )
    return plgpu.kernel(
        body, out_type=out_type, scratch_types=scratch, num_threads=2, thread_name="thread"
    )(a, b)


def two_products(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    """relu(a @ b) @ c: the first product is the second one's left operand, in TMEM.

    Args:
      a: (128, k), float16.
      b: (k, n), float16.
      c: (n, p), float16.

    Returns:
      (128, p), float32; relu(a @ b) is rounded to float16 in between.
    """
    n, p = c.shape

    def body(
        a_gmem: Any,
        b_gmem: Any,
        c_gmem: Any,
        d_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        c_smem: Any,
        acc_tmem: Any,
        relu_tmem: Any,
        out_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.copy_gmem_to_smem(c_gmem, c_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        relu = jnp.maximum(plgpu.async_load_tmem(acc_tmem), 0)
        plgpu.async_store_tmem(relu_tmem, relu.astype(relu_tmem.dtype))
        plgpu.commit_tmem()
        plgpu.tcgen05_mma(out_tmem, relu_tmem, c_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        d_gmem[...] = plgpu.async_load_tmem(out_tmem)

    out_type = jax.ShapeDtypeStruct((LANES, p), jnp.float32)
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        c_smem=plgpu.SMEM(c.shape, c.dtype),
        acc_tmem=plgpu.TMEM((LANES, n), jnp.float32),
        relu_tmem=plgpu.TMEM((LANES, n), a.dtype, packed=True),
        out_tmem=plgpu.TMEM((LANES, p), jnp.float32),
        loaded=plgpu.Barrier(num_arrivals=3),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(a, b, c)


def two_products_reference(a: Array, b: Array, c: Array) -> Array:
    """`two_products` in NumPy: sums in float64, rounded where the kernel rounds."""
    first = np.maximum(product_reference(a, b), 0).astype(a.dtype)
    return product_reference(first, c)


# ---- scaled ----


def quantize(x: Any) -> tuple[Any, Any]:
    """x in 8 bits: float8_e4m3fn values, and a power of two for each 32 of them along a row.

    Args:
      x: (rows, k), float32, k a multiple of 32. A NumPy array gives NumPy arrays.

    Returns:
      values (rows, k) and scales (rows, k / 32), float8_e8m0fnu: x is about values * scales.
    """
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    blocks = x.reshape(x.shape[0], -1, SCALE_BLOCK)
    largest = xp.maximum(abs(blocks).max(-1), 2.0**-100)
    scales = xp.exp2(xp.ceil(xp.log2(largest / _E4M3_MAX))).astype(xp.float32)
    values = (blocks / scales[..., None]).reshape(x.shape).astype(ml_dtypes.float8_e4m3fn)
    return values, scales.astype(ml_dtypes.float8_e8m0fnu)


def pack_scales(scales: Any) -> Any:
    """Scales (rows, k / 32) in the order in which TMEM wants them: (rows / 128, k / 128, 32, 16).

    A scale of row r and block j goes to [r / 128, j / 4, r % 32, r / 32 % 4 * 4 + j % 4]: a
    lane of TMEM holds four rows and four blocks, in 16 bytes (PTX ISA, "Scale factor A layout").

    Raises:
      ValueError: rows is no multiple of 128, or k none.
    """
    rows, blocks = scales.shape
    if rows % LANES or blocks % 4:
        raise ValueError(f"{scales.shape=} must be multiples of 128 rows and 4 blocks")
    parts = scales.reshape(rows // LANES, 4, 32, blocks // 4, 4)
    return parts.transpose(0, 3, 2, 1, 4).reshape(rows // LANES, blocks // 4, 32, 16)


def scaled_product(
    a: jax.Array, b: jax.Array, a_scales: jax.Array, b_scales: jax.Array
) -> jax.Array:
    """(a * its scales) @ (b * its scales).T, by one block-scaled MMA.

    Args:
      a: (128, k), float8_e4m3fn.
      b: (n, k), float8_e4m3fn, n a multiple of 128.
      a_scales: of `pack_scales`.
      b_scales: of `pack_scales`.

    Returns:
      (128, n), float32.
    """
    n, k = b.shape
    scales = plgpu.TMEMLayout.SCALES_LAYOUT

    def body(
        a_gmem: Any,
        b_gmem: Any,
        a_scales_gmem: Any,
        b_scales_gmem: Any,
        c_gmem: Any,
        a_smem: Any,
        b_smem: Any,
        a_scales_smem: Any,
        b_scales_smem: Any,
        acc_tmem: Any,
        a_scales_tmem: Any,
        b_scales_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.copy_gmem_to_smem(a_scales_gmem, a_scales_smem, loaded)
        plgpu.copy_gmem_to_smem(b_scales_gmem, b_scales_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_copy_scales_to_tmem(a_scales_smem, a_scales_tmem)
        plgpu.async_copy_scales_to_tmem(b_scales_smem, b_scales_tmem)
        plgpu.tcgen05_mma(
            acc_tmem,
            a_smem,
            b_smem.transpose((1, 0)),
            done,
            a_scale=a_scales_tmem,
            b_scale=b_scales_tmem,
            accumulate=False,
        )
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        a_scales_smem=plgpu.SMEM(a_scales.shape, a_scales.dtype),
        b_scales_smem=plgpu.SMEM(b_scales.shape, b_scales.dtype),
        acc_tmem=plgpu.TMEM((LANES, n), jnp.float32),
        a_scales_tmem=plgpu.TMEM((LANES, k // SCALE_BLOCK), a_scales.dtype, layout=scales),
        b_scales_tmem=plgpu.TMEM((n, k // SCALE_BLOCK), b_scales.dtype, layout=scales),
        loaded=plgpu.Barrier(num_arrivals=4),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    out_type = jax.ShapeDtypeStruct((LANES, n), jnp.float32)
    kernel = plgpu.kernel(body, out_type=out_type, scratch_types=scratch)
    return kernel(a, b, a_scales, b_scales)


def eight_bit_product(x: jax.Array, w: jax.Array) -> jax.Array:
    """x @ w.T for float32 x (128, k) and w (n, k), both rounded to 8 bits with scales."""
    (a, a_scales), (b, b_scales) = quantize(x), quantize(w)
    return scaled_product(a, b, pack_scales(a_scales), pack_scales(b_scales))


def eight_bit_product_reference(x: Array, w: Array) -> Array:
    """`eight_bit_product` in NumPy: sums in float64, rounded where it rounds."""
    a, b = (scaled(*quantize(operand)) for operand in (x, w))
    return (a @ b.T).astype(np.float32)


def scaled(values: Array, scales: Array) -> Array:
    """values times their scales, float64; scales (rows, k / 32), not packed."""
    every = np.repeat(scales.astype(np.float64), values.shape[1] // scales.shape[1], axis=1)
    return values.astype(np.float64) * every


# ---- sparse ----


def prune(x: Array) -> tuple[Array, Array]:
    """The two largest of every four elements along a row, and where they stood.

    Args:
      x: (rows, k), k a multiple of 4.

    Returns:
      values (rows, k / 2) and positions (rows, k / 2): 0 to 3, rising in each pair.
    """
    groups = x.reshape(x.shape[0], -1, 4)
    largest = np.argsort(-np.abs(groups.astype(np.float64)), axis=-1, kind="stable")[..., :2]
    positions = np.sort(largest, axis=-1)
    values = np.take_along_axis(groups, positions, axis=-1)
    return values.reshape(x.shape[0], -1), positions.reshape(x.shape[0], -1)


def pack_positions(positions: Array) -> Array:
    """Positions of 16-bit elements in the order in which TMEM wants them, as 2-bit integers.

    Args:
      positions: (rows, k / 2), rows a multiple of 128, k of 128.

    Returns:
      (rows / 128, k / 128, 128, 64), uint2 (PTX ISA, "Sparse matrices", metadata in TMEM).

    Raises:
      ValueError: the shape does not fit.
    """
    rows, half = positions.shape
    if rows % LANES or half % 64:
        raise ValueError(f"{positions.shape=} must be multiples of 128 and 64")
    tiles = positions.reshape(rows // LANES, 8, 2, 8, half // 64, 4, 2, 8)
    tiles = tiles.transpose(0, 4, 1, 6, 3, 5, 2, 7)
    return tiles.reshape(rows // LANES, half // 64, LANES, 64).astype(ml_dtypes.uint2)


def sparse_product(values: jax.Array, positions: jax.Array, b: jax.Array) -> jax.Array:
    """A @ b for an A of which `prune` kept half: values (128, k / 2), b (k, n).

    Args:
      values: float16 or bfloat16.
      positions: of `pack_positions`.
      b: of the dtype of values, n a multiple of 16.

    Returns:
      (128, n), float32.
    """
    (k, n), metadata = b.shape, plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT

    def body(
        a_gmem: Any,
        positions_gmem: Any,
        b_gmem: Any,
        c_gmem: Any,
        a_smem: Any,
        positions_smem: Any,
        b_smem: Any,
        acc_tmem: Any,
        positions_tmem: Any,
        loaded: Any,
        done: Any,
    ) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(positions_gmem, positions_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_copy_sparse_metadata_to_tmem(positions_smem, positions_tmem)
        plgpu.tcgen05_mma(
            acc_tmem, a_smem, b_smem, done, a_sparse_metadata=positions_tmem, accumulate=False
        )
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    out_type = jax.ShapeDtypeStruct((LANES, n), jnp.float32)
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(values.shape, values.dtype),
        positions_smem=plgpu.SMEM(positions.shape, positions.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        acc_tmem=plgpu.TMEM((LANES, n), jnp.float32),
        positions_tmem=plgpu.TMEM((LANES, k // 2), positions.dtype, layout=metadata),
        loaded=plgpu.Barrier(num_arrivals=3),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    kernel = plgpu.kernel(body, out_type=out_type, scratch_types=scratch)
    return kernel(values, positions, b)


def sparse_product_reference(values: Array, positions: Array, b: Array) -> Array:
    """`sparse_product` in NumPy, of positions that are not packed."""
    groups = np.zeros((len(values), b.shape[0] // 4, 4))
    pairs = positions.reshape(len(values), -1, 2)
    np.put_along_axis(groups, pairs, values.astype(np.float64).reshape(pairs.shape), axis=-1)
    return (groups.reshape(len(values), -1) @ b.astype(np.float64)).astype(np.float32)
