"""Which tcgen05 operations exist: what is refused, in which words, and that lowering agrees."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from course_lib.compiler import lowering
from course_lib.simulator import simulate
from tests.simulator.litmus.blackwell import PAIRS
from tests.simulator.test_blackwell_kinds import (
    assert_is_product,
    bs_rows,
    draw,
    draw_positions,
    draw_scales,
    layout,
    packed_metadata,
    packed_scales,
    scaled,
    sparse_matmul,
)

F16, F32 = jnp.float16, jnp.float32
ARCH = "sm_100a"


@dataclasses.dataclass(frozen=True)
class Shape:
    """An MMA: of one block, or of a pair of blocks with `m` rows each."""

    m: int = 128
    n: int = 128
    dtype: Any = F16
    acc: Any = F32
    pair: bool = False
    a_in_tmem: bool = False
    a_packed: bool = True
    acc_packed: bool = False

    @property
    def k(self) -> int:
        return 128 // jnp.dtype(self.dtype).itemsize

    def specs(self) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
        """A of one block, and B of one block with K last, so that N has to fit nothing else."""
        columns = self.n // 2 if self.pair else self.n
        spec = jax.ShapeDtypeStruct
        return spec((self.m, self.k), self.dtype), spec((columns, self.k), self.dtype)


def product(a, b, *, shape: Shape):
    """Multiplies, and takes nothing out of tensor memory: that has rules of its own."""
    pair = dict(cluster=(2,), cluster_names=("c",)) if shape.pair else {}
    narrow = {} if jnp.dtype(shape.acc).itemsize == 4 else dict(packed=shape.acc_packed)

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done, met, a_tmem=None):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        if a_tmem is not None:
            plgpu.async_store_tmem(a_tmem, a_smem[...])
            plgpu.commit_tmem()
        left = a_smem if a_tmem is None else a_tmem
        options = dict(accumulate=False, **(dict(collective_axis="c") if shape.pair else {}))
        right = b_smem.transpose((1, 0))
        if shape.pair:
            plgpu.barrier_arrive(met)  # the other block's operands are there, too
            plgpu.barrier_wait(met)
            leader = lax.axis_index("c") == 0
            pl.when(leader)(lambda: plgpu.tcgen05_mma(acc, left, right, done, **options))
        else:
            plgpu.tcgen05_mma(acc, left, right, done, **options)
        plgpu.barrier_wait(done)

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        acc=plgpu.TMEM((shape.m, shape.n), shape.acc, collective=shape.pair, **narrow),
        loaded=plgpu.Barrier(num_arrivals=2),
        done=plgpu.Barrier(orders_tensor_core=True),
        met=plgpu.ClusterBarrier(collective_axes=("c",)) if shape.pair else plgpu.Barrier(),
    )
    if shape.a_in_tmem:
        scratch["a_tmem"] = plgpu.TMEM(a.shape, a.dtype, packed=shape.a_packed)
    out = jax.ShapeDtypeStruct((128,), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch, **pair)(a, b)


def what_is_wrong(shape: Shape) -> list[Any]:
    args = [draw(s.shape, s.dtype) for s in shape.specs()]
    report = simulate(functools.partial(product, shape=shape), *args, arch=ARCH)
    return list(report.errors)


REFUSED = {
    "N of 264": (Shape(n=264), "at most 256, or it is 512"),
    "N of 504": (Shape(n=504), "at most 256, or it is 512"),
    "N of 20": (Shape(n=20), "N must be a multiple of 8"),
    "int8 and N of 24": (Shape(n=24, dtype=jnp.int8, acc=jnp.int32), "multiple of 16"),
    "64 rows and N of 16": (Shape(m=64, n=16), "N of float16 is at least 32"),
    "64 rows of 8 bits and N of 32": (
        Shape(m=64, n=32, dtype=jnp.float8_e4m3fn), "N of float8_e4m3fn is at least 64",
    ),
    "a pair and N of 48": (Shape(n=48, pair=True), "N of a pair must be a multiple of 32"),
    "a pair and N of 512": (Shape(n=512, pair=True), "N of a pair is at most 256"),
    "A in tensor memory, 64 rows": (Shape(m=64, n=64, a_in_tmem=True), "has 128 rows"),
    "A in tensor memory, not packed": (
        Shape(n=64, a_in_tmem=True, a_packed=False), "a_tmem is not packed",
    ),
    "a packed accumulator": (Shape(n=64, acc=F16, acc_packed=True), "acc is packed"),
}  # fmt: skip
ALLOWED = {
    "N of 8": Shape(n=8),
    "N of 200": Shape(n=200),
    "N of 512": Shape(n=512),
    "int8 and N of 48": Shape(n=48, dtype=jnp.int8, acc=jnp.int32),
    "64 rows and N of 32": Shape(m=64, n=32),
    "64 rows and N of 192": Shape(m=64, n=192),
    "64 rows of 8 bits and N of 64": Shape(m=64, n=64, dtype=jnp.float8_e4m3fn),
    "a pair and N of 96": Shape(n=96, pair=True),
    "a pair of 64 rows": Shape(m=64, n=64, pair=True),
    "A in tensor memory": Shape(n=64, a_in_tmem=True),
    "an accumulator of 16 bits": Shape(n=64, acc=F16),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_tensor_core_does_not_have_is_refused_in_words(name: str) -> None:
    shape, words = REFUSED[name]
    found = what_is_wrong(shape)
    assert [f.rule for f in found] == ["illegal-mma"]
    assert words in found[0].what
    assert found[0].fix
    assert found[0].location is not None
    assert found[0].location.file == __file__


@pytest.mark.parametrize("name", ALLOWED)
def test_what_it_has_is_not(name: str) -> None:
    assert what_is_wrong(ALLOWED[name]) == []


@pytest.mark.parametrize("name", [*REFUSED, *ALLOWED])
def test_lowering_agrees(name: str) -> None:
    shape = REFUSED[name][0] if name in REFUSED else ALLOWED[name]
    answer = lowering.lower(functools.partial(product, shape=shape), shape.specs(), ARCH)
    assert not answer.remark
    assert (answer.finding is not None) == (name in REFUSED), answer.finding


def test_tensor_memory_of_a_block_is_not_a_pairs() -> None:
    """JAX says so itself, but where it has met the same function with a pair's before."""
    wrong = functools.partial(_pair_product, collective=False)
    a, b = draw((256, 64), F16), draw((64, 128), F16)
    for kernel in (wrong, functools.partial(_pair_product, collective=True), wrong):
        report = simulate(kernel, a, b, arch=ARCH)
        if kernel is not wrong:
            assert not report.findings, report
            want = a.astype(np.float32) @ b.astype(np.float32)
            np.testing.assert_allclose(report.value, want, rtol=1e-3, atol=1e-2)
            continue
        [found] = report.errors
        assert found.rule == "not-collective"
        assert "collective=True" in found.fix
        assert found.location is not None


def _pair_body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
    rank = lax.axis_index("c")
    for axis, (src, dst) in enumerate(((a_gmem, a_smem), (b_gmem, b_smem))):
        part = plgpu.CopyPartition.PARTITIONED(axis)
        plgpu.copy_gmem_to_smem(src, dst, loaded, collective_axes="c", leader_tracked=part)

    @pl.when(rank == 0)
    def _():
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, collective_axis="c")

    plgpu.barrier_wait(done)
    o_gmem[pl.ds(rank * 128, 128)] = plgpu.async_load_tmem(acc)


def _pair_product(a, b, *, collective):
    scratch = [
        plgpu.SMEM((128, 64), F16),
        plgpu.SMEM((64, 64), F16),
        plgpu.TMEM((128, 128), F32, collective=collective),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((256, 128), F32)
    return plgpu.kernel(
        _pair_body, out_type=out, scratch_types=scratch, cluster=(2,), cluster_names=("c",)
    )(a, b)


# --- scales and sparsity ---

SCALE, E4M3 = jnp.float8_e8m0fnu, jnp.float8_e4m3fn
K, N = 256, 128


@dataclasses.dataclass(frozen=True)
class Scaling:
    """How a block-scaled product brings its scales to the tensor core."""

    when: str = "before"  # before the MMA, or "early" (not loaded yet), "never", "after", "apart"
    layout: Any = plgpu.TMEMLayout.SCALES_LAYOUT
    block: int = 32
    tmem_dtype: Any = None
    commit: bool = True


def scaled_product(a, b, a_scales, b_scales, *, how: Scaling):
    """(128, K) @ (N, K).T with scales; `how` may be wrong."""
    in_tmem = dict(packed=True) if how.layout is None else dict(layout=how.layout)
    threads = dict(num_threads=2, thread_name="t") if how.when == "apart" else {}

    def body(a_gmem, b_gmem, as_gmem, bs_gmem, o_gmem, a_smem, b_smem, as_smem, bs_smem,
             acc, as_tmem, bs_tmem, loaded, copied, done):  # fmt: skip
        def load():
            pairs = (a_gmem, a_smem), (b_gmem, b_smem), (as_gmem, as_smem), (bs_gmem, bs_smem)
            for source, target in pairs:
                plgpu.copy_gmem_to_smem(source, target, loaded)
            if how.when == "early":
                copy()
            plgpu.barrier_wait(loaded)

        def copy():
            plgpu.async_copy_scales_to_tmem(as_smem, as_tmem)
            if how.when != "never":
                plgpu.async_copy_scales_to_tmem(bs_smem, bs_tmem)

        def multiply():
            plgpu.tcgen05_mma(
                acc, a_smem, b_smem.transpose((1, 0)), done,
                a_scale=as_tmem, b_scale=bs_tmem, accumulate=False,
            )  # fmt: skip
            if how.when == "after":
                copy()
            plgpu.barrier_wait(done)
            o_gmem[...] = plgpu.async_load_tmem(acc)

        if how.when == "apart":
            thread = lax.axis_index("t")

            @pl.when(thread == 0)
            def _():
                load()
                copy()
                (plgpu.tcgen05_commit_arrive if how.commit else plgpu.barrier_arrive)(copied)

            @pl.when(thread == 1)
            def _():
                plgpu.barrier_wait(copied)
                multiply()

        else:
            load()
            if how.when in ("before", "never"):
                copy()
            multiply()

    k_scales = K // how.block
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128, N), F32),
        scratch_types=[
            plgpu.SMEM(a.shape, a.dtype, transforms=layout(a.dtype, K)),
            plgpu.SMEM(b.shape, b.dtype, transforms=layout(b.dtype, K)),
            plgpu.SMEM(a_scales.shape, a_scales.dtype),
            plgpu.SMEM(b_scales.shape, b_scales.dtype),
            plgpu.TMEM((128, N), F32),
            plgpu.TMEM((128, k_scales), how.tmem_dtype or a_scales.dtype, **in_tmem),
            plgpu.TMEM((bs_rows(N), k_scales), how.tmem_dtype or b_scales.dtype, **in_tmem),
            plgpu.Barrier(num_arrivals=4),
            plgpu.Barrier(orders_tensor_core=True),
            plgpu.Barrier(orders_tensor_core=True),
        ],
        **threads,
    )(a, b, a_scales, b_scales)


def ordered(scales: np.ndarray) -> np.ndarray:
    return packed_scales(scales)


def in_float32(scales: np.ndarray) -> np.ndarray:
    return packed_scales(scales.astype(np.float32))


def in_e4m3(scales: np.ndarray) -> np.ndarray:
    return packed_scales(scales.astype(np.float32).astype(ml_dtypes.float8_e4m3fn))


def as_they_are(scales: np.ndarray) -> np.ndarray:
    return scales


MISTAKES = {
    "never copied": (Scaling("never"), ordered, "uninitialized-read", "async_copy_scales_to_tmem"),
    "after the MMA": (Scaling("after"), ordered, "uninitialized-read", "before the MMA"),
    "not loaded yet": (
        Scaling("early"), ordered, "mma-operand-not-arrived", "A copy to tensor memory reads",
    ),
    "no commit": (
        Scaling("apart", commit=False), ordered, "tmem-mma-not-waited", "tcgen05_commit_arrive",
    ),
    "another layout": (Scaling(layout=None), ordered, "illegal-mma", "TMEMLayout.SCALES_LAYOUT"),
    "not ordered": (Scaling(), as_they_are, "illegal-mma", "1 x 2 x 32 x 16"),
    "another block": (Scaling(block=16), ordered, "illegal-mma", "1 x 4 x 32 x 16"),
    "float32": (Scaling(), in_float32, "illegal-mma", "Scales have 8 bits"),
    "another dtype": (Scaling(), in_e4m3, "illegal-mma", "Scales for float8_e4m3fn are"),
    "converted": (Scaling(tmem_dtype=E4M3), ordered, "illegal-mma", "does not convert"),
}  # fmt: skip
RIGHT = {"in one thread": Scaling(), "in two threads": Scaling("apart")}


def _operands(order) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The arguments of `scaled_product`, and the two matrices that it multiplies."""
    a, b = draw((128, K), ml_dtypes.float8_e4m3fn), draw((N, K), ml_dtypes.float8_e4m3fn)
    a_scales, b_scales = (draw_scales((r, K // 32), "float8_e8m0fnu") for r in (128, N))
    args = [a, b, order(a_scales), order(b_scales)]
    return args, (scaled(a, a_scales), scaled(b, b_scales).T)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial", 3])
@pytest.mark.parametrize("name", MISTAKES)
def test_what_goes_wrong_with_scales(name: str, schedule) -> None:
    how, order, rule, words = MISTAKES[name]
    args, _ = _operands(order)
    report = simulate(
        functools.partial(scaled_product, how=how), *args, arch=ARCH, schedule=schedule
    )
    assert {f.rule for f in report.errors} == {rule}, report
    assert words in str(report.errors[0]).replace("\n    ", " ")
    assert report.errors[0].location is not None


@pytest.mark.parametrize("schedule", ["in_order", "adversarial", *range(8)])
@pytest.mark.parametrize("name", RIGHT)
def test_what_does_not(name: str, schedule) -> None:
    args, factors = _operands(ordered)
    kernel = functools.partial(scaled_product, how=RIGHT[name])
    report = simulate(kernel, *args, arch=ARCH, schedule=schedule)
    assert not report.findings, report
    assert_is_product(report.value, *factors)


def test_positions_that_nobody_ordered() -> None:
    """Right in `test_blackwell_kinds.test_sparse_mma`."""
    a, b = draw((128, 128), F16), draw((256, 128), F16)
    positions = draw_positions(128, 256)
    swapped = packed_metadata(positions, 2)[:, :, ::-1].reshape(1, 4, 128, 32)
    report = simulate(sparse_matmul, a, b, swapped.astype(ml_dtypes.uint2), arch=ARCH)
    assert [f.rule for f in report.errors] == ["illegal-mma"]
    assert "positions" in report.errors[0].what


# --- leading axes, and words ---


def stacked(x, *, swap: bool = True):
    """Two tiles in one ref of tensor memory, and out again in the other order."""
    rows, columns = x.shape[-2:]

    def body(x_gmem, o_gmem, x_smem, tiles_tmem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)

        @pl.loop(0, 2)
        def _(i):
            plgpu.async_store_tmem(tiles_tmem.at[i], x_smem[i])

        plgpu.commit_tmem()
        for i in range(2):
            o_gmem[i] = plgpu.async_load_tmem(tiles_tmem.at[1 - i if swap else i])

    scratch = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        tiles_tmem=plgpu.TMEM((2, rows, columns), x.dtype),
        loaded=plgpu.Barrier(),
    )
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial", 1, 2])
def test_leading_axes_in_tensor_memory(schedule) -> None:
    x = draw((2, 128, 64), F32)
    report = simulate(stacked, x, arch=ARCH, schedule=schedule)
    assert not report.findings, report
    np.testing.assert_array_equal(report.value, x[::-1])
    assert report.resources.tmem_columns == 128


def test_lowering_takes_leading_axes_too() -> None:
    answer = lowering.lower(stacked, (jax.ShapeDtypeStruct((2, 128, 64), F32),), ARCH)
    assert answer.finding is None, answer.finding


@pytest.mark.parametrize("rows", [False, True])
def test_slices_go_along_columns(rows: bool) -> None:
    at = (pl.ds(0, 64), slice(None)) if rows else (slice(None), pl.ds(0, 32))

    def half(x):
        def body(x_gmem, o_gmem, x_smem, x_tmem, loaded):
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.async_store_tmem(x_tmem, x_smem[...])
            plgpu.commit_tmem()
            o_gmem[...] = plgpu.async_load_tmem(x_tmem.at[at])

        scratch = [plgpu.SMEM(x.shape, F32), plgpu.TMEM(x.shape, F32), plgpu.Barrier()]
        out = jax.ShapeDtypeStruct((64, 64) if rows else (128, 32), F32)
        return plgpu.kernel(body, out_type=out, scratch_types=scratch)(x)

    x = draw((128, 64), F32)
    report = simulate(half, x, arch=ARCH)
    if rows:
        assert [f.rule for f in report.errors] == ["unaligned-offset"]
        assert "along columns only" in report.errors[0].what
        assert ".at[:, pl.ds(...)]" in report.errors[0].fix
    else:
        assert not report.findings, report
        np.testing.assert_array_equal(report.value, x[:, :32])
    answer = lowering.lower(half, (jax.ShapeDtypeStruct(x.shape, F32),), ARCH)
    assert (answer.finding is not None) == rows, answer.finding


def two_products(a, b, *, accumulators: int, at: int):
    """Two MMAs into different parts of one ref, or into the same one without a wait."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc.at[0], a_smem, b_smem, done.at[0], accumulate=False)
        plgpu.barrier_wait(done.at[0])
        plgpu.tcgen05_mma(acc.at[at], a_smem, b_smem, done.at[1], accumulate=False)
        o_gmem[...] = plgpu.async_load_tmem(acc.at[0])
        plgpu.barrier_wait(done.at[1])

    scratch = [
        plgpu.SMEM(a.shape, F16),
        plgpu.SMEM(b.shape, F16),
        plgpu.TMEM((accumulators, 128, b.shape[1]), F32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((128, b.shape[1]), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


@pytest.mark.parametrize("at", [0, 1])
def test_each_of_them_is_a_place_of_its_own(at: int) -> None:
    a, b = draw((128, 64), F16), draw((64, 128), F16)
    report = simulate(functools.partial(two_products, accumulators=2, at=at), a, b, arch=ARCH)
    assert {f.rule for f in report.errors} == ({"tmem-mma-not-waited"} if at == 0 else set())


@pytest.mark.parametrize("pair", PAIRS, ids=[p.label for p in PAIRS])
def test_no_finding_on_blackwell_names_what_hopper_has(pair) -> None:
    report = simulate(pair.wrong, *pair.draw(), arch=ARCH, max_steps=pair.max_steps)
    assert "wgmma" not in str(report)


def test_tensor_memory_on_hopper() -> None:
    report = simulate(stacked, draw((2, 128, 64), F32), arch="sm_90a")
    assert {f.rule for f in report.errors} == {"wrong-architecture"}
    assert "sm_90a has no tensor memory" in report.errors[0].what
