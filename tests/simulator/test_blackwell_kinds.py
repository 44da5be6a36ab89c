"""The kinds of tcgen05.mma: narrow dtypes, block scaling and sparsity, against float references."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from course_lib.simulator import simulate

F32 = jnp.float32
ARCH = "sm_100a"
SCHEDULES = ["in_order", "adversarial", 0, 1]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def layout(dtype, k: int) -> tuple:
    """The tiling and swizzle of an operand whose minor dimension has `k` elements."""
    bits = 4 if dtype == jnp.float4_e2m1fn else jnp.dtype(dtype).itemsize * 8
    swizzle = plgpu.find_swizzle(k * bits)
    return (plgpu.TilingTransform((8, swizzle * 8 // bits)), plgpu.SwizzleTransform(swizzle))


def draw(shape: tuple[int, ...], dtype) -> np.ndarray:
    rng = np.random.default_rng()
    if jnp.dtype(dtype).kind in "iu":
        return rng.integers(-8, 8, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def assert_is_product(got, a: np.ndarray, b: np.ndarray) -> None:
    """`got` is `a @ b`, as exact as a sum of float32 can be, in whatever order it is summed.

    The bound is the textbook one for a dot product of length k (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1): k roundings of the sum of the absolute products.
    """
    unit = float(np.finfo(np.float32).eps) / 2
    bound = (a.shape[1] + 1) * unit * (np.abs(a) @ np.abs(b))
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - a @ b), bound)


def packed_scales(scales: np.ndarray) -> np.ndarray:
    """Scales (rows, k) in the order that the copy to tensor memory expects."""
    rows, k = scales.shape
    scales = np.pad(scales, ((0, -rows % 128), (0, 0)))
    rows = scales.shape[0]
    return (
        scales.reshape(rows // 128, 4, 32, k // 4, 4)
        .transpose(0, 3, 2, 1, 4)
        .reshape(rows // 128, k // 4, 32, 16)
    )


def packed_metadata(meta: np.ndarray, itemsize: int) -> np.ndarray:
    """Positions (rows, k / 2) in the order that the copy to tensor memory expects."""
    rows, k = meta.shape
    if itemsize == 1:
        tiles = meta.reshape(rows // 128, 128, k // 64, 64).transpose(0, 2, 1, 3)
    else:
        tiles = meta.reshape(rows // 128, 8, 2, 8, k // 64, 4, 2, 8)
        tiles = tiles.transpose(0, 4, 1, 6, 3, 5, 2, 7)
    return tiles.reshape(rows // 128, k // 64, 128, 64).astype(ml_dtypes.uint2)


def scaled_matmul(a, b, a_scales, b_scales, *, wait: bool = True):
    """(128, k) @ (n, k).T with a scale per row and block of k; scales come packed."""
    m, k = a.shape
    n = b.shape[0]
    k_scales = a_scales.shape[1] * 4

    def body(a_gmem, b_gmem, as_gmem, bs_gmem, o_gmem, a_smem, b_smem, as_smem, bs_smem,
             acc, as_tmem, bs_tmem, loaded, done):  # fmt: skip
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.copy_gmem_to_smem(as_gmem, as_smem, loaded)
        plgpu.copy_gmem_to_smem(bs_gmem, bs_smem, loaded)
        if wait:
            plgpu.barrier_wait(loaded)
        plgpu.async_copy_scales_to_tmem(as_smem, as_tmem)
        plgpu.async_copy_scales_to_tmem(bs_smem, bs_tmem)
        if not wait:
            plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(
            acc, a_smem, b_smem.transpose((1, 0)), done,
            a_scale=as_tmem, b_scale=bs_tmem, accumulate=False,
        )  # fmt: skip
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scale_layout = plgpu.TMEMLayout.SCALES_LAYOUT
    padded = bs_rows(n)
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), F32),
        scratch_types=[
            plgpu.SMEM(a.shape, a.dtype, transforms=layout(a.dtype, k)),
            plgpu.SMEM(b.shape, b.dtype, transforms=layout(b.dtype, k)),
            plgpu.SMEM(a_scales.shape, a_scales.dtype),
            plgpu.SMEM(b_scales.shape, b_scales.dtype),
            plgpu.TMEM((m, n), F32),
            plgpu.TMEM((m, k_scales), a_scales.dtype, layout=scale_layout),
            plgpu.TMEM((padded, k_scales), b_scales.dtype, layout=scale_layout),
            plgpu.Barrier(num_arrivals=4),
            plgpu.Barrier(orders_tensor_core=True),
        ],
    )(a, b, a_scales, b_scales)


def bs_rows(n: int) -> int:
    return -(-n // 128) * 128


def scaled(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    block = values.shape[1] // scales.shape[1]
    return values.astype(np.float64) * np.repeat(scales.astype(np.float64), block, axis=1)


KINDS = [
    ("float8_e4m3fn", "float8_e4m3fn", "float8_e8m0fnu", 32),
    ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", 32),
    ("float4_e2m1fn", "float4_e2m1fn", "float8_e8m0fnu", 32),
    ("float4_e2m1fn", "float4_e2m1fn", "float8_e8m0fnu", 16),
    ("float4_e2m1fn", "float4_e2m1fn", "float8_e4m3fn", 16),
]


def draw_scales(shape: tuple[int, int], dtype: str) -> np.ndarray:
    rng = np.random.default_rng()
    return np.exp2(rng.integers(-3, 4, shape)).astype(getattr(ml_dtypes, dtype))


@schedules
@pytest.mark.parametrize("n", [64, 128, 192])
@pytest.mark.parametrize("kind", KINDS, ids=["-".join(map(str, k)) for k in KINDS])
def test_block_scaled_mma(kind, n: int, schedule) -> None:
    a_type, b_type, scale_type, block = kind
    k = 256
    a, b = draw((128, k), getattr(ml_dtypes, a_type)), draw((n, k), getattr(ml_dtypes, b_type))
    a_scales = draw_scales((128, k // block), scale_type)
    b_scales = draw_scales((n, k // block), scale_type)
    report = simulate(
        scaled_matmul, a, b, packed_scales(a_scales), packed_scales(b_scales),
        arch=ARCH, schedule=schedule,
    )  # fmt: skip
    assert not report.findings, report
    assert_is_product(report.value, scaled(a, a_scales), scaled(b, b_scales).T)


def test_block_scaling_agrees_with_jax() -> None:
    """jax.nn.scaled_matmul knows the same arithmetic (its CPU form multiplies in bfloat16)."""
    k, n = 256, 128
    a, b = (draw((s, k), ml_dtypes.float8_e4m3fn) for s in (128, n))
    a_scales, b_scales = (draw_scales((s, k // 32), "float8_e8m0fnu") for s in (128, n))
    want = jax.nn.scaled_matmul(
        a[None], b[None], a_scales[None], b_scales[None], preferred_element_type=jnp.float32
    )[0]
    report = simulate(
        scaled_matmul, a, b, packed_scales(a_scales), packed_scales(b_scales), arch=ARCH
    )
    np.testing.assert_allclose(report.value, want, rtol=2e-2, atol=2e-2 * float(np.abs(want).max()))


def test_scales_must_have_arrived() -> None:
    k = 128
    a, b = (draw((128, k), ml_dtypes.float8_e4m3fn) for _ in range(2))
    scales = packed_scales(draw_scales((128, k // 32), "float8_e8m0fnu"))
    for schedule in SCHEDULES:
        report = simulate(
            lambda *x: scaled_matmul(*x, wait=False), a, b, scales, scales,
            arch=ARCH, schedule=schedule,
        )  # fmt: skip
        assert "mma-operand-not-arrived" in {f.rule for f in report.errors}, report


def test_illegal_scales_name_what_is_wrong() -> None:
    a, b = (draw((128, 128), ml_dtypes.float8_e4m3fn) for _ in range(2))
    scales = packed_scales(draw_scales((128, 128 // 16), "float8_e8m0fnu"))
    report = simulate(scaled_matmul, a, b, scales, scales, arch=ARCH)
    assert [f.rule for f in report.errors] == ["illegal-mma"]
    assert "is for 32 elements of float8_e4m3fn" in report.errors[0].what
    assert "as_tmem is 128 x 8" in report.errors[0].what


@schedules
def test_collective_block_scaled_mma(schedule) -> None:
    """Two blocks: each holds its rows of A and of A's scales, and the scales of all of B."""
    m, n, k = 128, 64, 128  # of one block
    dtype = jnp.float8_e4m3fn

    def body(a_gmem, b_gmem, as_gmem, bs_gmem, o_gmem, a_smem, b_smem, as_smem, bs_smem,
             acc, as_tmem, bs_tmem, loaded, here, done, ready):  # fmt: skip
        rank = lax.axis_index("c")
        rows = plgpu.CopyPartition.PARTITIONED(0)
        for src, dst in ((a_gmem, a_smem), (b_gmem, b_smem)):
            plgpu.copy_gmem_to_smem(src, dst, loaded, collective_axes="c", leader_tracked=rows)
        plgpu.copy_gmem_to_smem(as_gmem.at[pl.ds(rank, 1)], as_smem, here)
        plgpu.copy_gmem_to_smem(bs_gmem, bs_smem, here)
        plgpu.barrier_wait(here)
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)

        @pl.when(rank == 0)
        def _():
            plgpu.barrier_wait(loaded)
            plgpu.async_copy_scales_to_tmem(as_smem, as_tmem, collective_axis="c")
            plgpu.async_copy_scales_to_tmem(bs_smem, bs_tmem, collective_axis="c")
            plgpu.tcgen05_mma(
                acc, a_smem, b_smem.transpose((1, 0)), done, a_scale=as_tmem, b_scale=bs_tmem,
                accumulate=False, collective_axis="c",
            )  # fmt: skip

        plgpu.barrier_wait(done)
        o_gmem[pl.ds(rank * m, m)] = plgpu.async_load_tmem(acc)

    def f(a, b, a_scales, b_scales):
        scale = plgpu.TMEMLayout.SCALES_LAYOUT
        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((2 * m, 2 * n), F32),
            cluster=(2,),
            cluster_names=("c",),
            scratch_types=[
                plgpu.SMEM((m, k), dtype, transforms=layout(dtype, k)),
                plgpu.SMEM((n, k), dtype, transforms=layout(dtype, k)),
                plgpu.SMEM((1, k // 128, 32, 16), a_scales.dtype),
                plgpu.SMEM((1, k // 128, 32, 16), b_scales.dtype),
                plgpu.TMEM((m, 2 * n), F32, collective=True),
                plgpu.TMEM((m, k // 32), a_scales.dtype, layout=scale, collective=True),
                plgpu.TMEM((128, k // 32), b_scales.dtype, layout=scale, collective=True),
                plgpu.Barrier(num_arrivals=2),
                plgpu.Barrier(num_arrivals=2),
                plgpu.Barrier(orders_tensor_core=True),
                plgpu.ClusterBarrier(collective_axes=("c",)),
            ],
        )(a, b, a_scales, b_scales)

    a, b = draw((2 * m, k), dtype), draw((2 * n, k), dtype)
    a_scales = draw_scales((2 * m, k // 32), "float8_e8m0fnu")
    b_scales = draw_scales((2 * n, k // 32), "float8_e8m0fnu")
    report = simulate(
        f, a, b, packed_scales(a_scales), packed_scales(b_scales), arch=ARCH, schedule=schedule
    )
    assert not report.findings, report
    assert_is_product(report.value, scaled(a, a_scales), scaled(b, b_scales).T)


def sparse_matmul(a, b, meta, *, acc_type=F32):
    """A sparse (m, k) @ (k, n): `a` has (m, k / 2) values, `meta` says where they belong."""
    m, n = a.shape[0], b.shape[1]
    k = b.shape[0]

    def body(a_gmem, b_gmem, m_gmem, o_gmem, a_smem, b_smem, m_smem, acc, m_tmem, loaded, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.copy_gmem_to_smem(m_gmem, m_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_copy_sparse_metadata_to_tmem(m_smem, m_tmem)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, a_sparse_metadata=m_tmem, accumulate=False)
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    meta_layout = plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), acc_type),
        scratch_types=[
            plgpu.SMEM(a.shape, a.dtype, transforms=layout(a.dtype, k // 2)),
            plgpu.SMEM(b.shape, b.dtype, transforms=layout(b.dtype, n)),
            plgpu.SMEM(meta.shape, meta.dtype),
            plgpu.TMEM((m, n), acc_type),
            plgpu.TMEM((m, k // 2), meta.dtype, layout=meta_layout),
            plgpu.Barrier(num_arrivals=3),
            plgpu.Barrier(orders_tensor_core=True),
        ],
    )(a, b, meta)


def draw_positions(m: int, k: int, *, rising: bool = True) -> np.ndarray:
    """(m, k / 2) positions: a pair for every four elements."""
    rng = np.random.default_rng()
    pairs = np.array([(i, j) for i in range(4) for j in range(4) if (i < j) == rising and i != j])
    return pairs[rng.integers(0, len(pairs), (m, k // 4))].reshape(m, k // 2)


@schedules
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_sparse_mma(dtype: str, schedule) -> None:
    m, n, k = 128, 128, 256
    kind = jnp.dtype(dtype)
    a, b = draw((m, k // 2), kind), draw((k, n), kind)
    positions = draw_positions(m, k)
    dense = np.zeros((m, k // 4, 4))
    pairs = positions.reshape(m, k // 4, 2)
    np.put_along_axis(dense, pairs, a.astype(np.float64).reshape(pairs.shape), axis=-1)
    acc = jnp.int32 if dtype == "int8" else F32
    report = simulate(
        lambda a, b, p: sparse_matmul(a, b, p, acc_type=acc),
        a, b, packed_metadata(positions, kind.itemsize), arch=ARCH, schedule=schedule,
    )  # fmt: skip
    assert not report.findings, report
    if dtype == "int8":
        np.testing.assert_array_equal(report.value, dense.reshape(m, k) @ b.astype(np.float64))
    else:
        assert_is_product(report.value, dense.reshape(m, k), b.astype(np.float64))


def test_positions_must_rise() -> None:
    a, b = draw((128, 64), jnp.float16), draw((128, 128), jnp.float16)
    meta = packed_metadata(draw_positions(128, 128, rising=False), 2)
    report = simulate(sparse_matmul, a, b, meta, arch=ARCH)
    assert [f.rule for f in report.errors] == ["illegal-mma"]
    assert "rising order" in report.errors[0].what


def test_tf32() -> None:
    """float32 operands are rounded to tf32: ten bits of mantissa."""

    def f(a, b):
        def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
            plgpu.barrier_wait(done)
            o_gmem[...] = plgpu.async_load_tmem(acc)

        scratch = [
            plgpu.SMEM((128, 32), F32, transforms=layout(F32, 32)),
            plgpu.SMEM((32, 64), F32, transforms=layout(F32, 32)),
            plgpu.TMEM((128, 64), F32),
            plgpu.Barrier(num_arrivals=2),
            plgpu.Barrier(orders_tensor_core=True),
        ]
        out = jax.ShapeDtypeStruct((128, 64), F32)
        return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)

    a, b = draw((128, 32), jnp.float32), draw((32, 64), jnp.float32)
    report = simulate(f, a, b, arch=ARCH)
    assert not report.findings, report
    exact = a.astype(np.float64) @ b
    assert 1e-5 < np.abs(report.value - exact).max() < 1e-1
