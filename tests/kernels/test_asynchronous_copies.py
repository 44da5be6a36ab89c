"""The kernels of chapter 05: right on the CPU model, free of findings, and fit for CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import tracing
from course_lib.compiler import compile_for
from course_lib.kernels import asynchronous_copies as k
from course_lib.runtime import requirements
from course_lib.simulator import simulate

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# kernel, reference, shapes of its arguments, their dtype, keywords of the kernel
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Shape, ...], str, dict[str, Any]]

COPY = (k.copy, k.copy_reference)
RING = (k.ring_copy, k.copy_reference)
ADD = (k.multiply_add, k.multiply_add_reference)
BOTH = (k.sum_and_difference, k.sum_and_difference_reference)
TRIPLE = (k.triple, k.triple_reference)
DIFFERENCE = (k.difference, k.difference_reference)


def _tile(tile_m: int, tile_n: int) -> dict[str, Any]:
    return {"config": k.Config(tile_m, tile_n)}


def _ring(**fields: int) -> dict[str, Any]:
    return {"config": k.RingConfig(**{"num_sms": 3, **fields})}


CALLS: dict[str, Call] = {
    "copy": (*COPY, ((64, 256),), "float32", {}),
    "copy, sticks out": (*COPY, ((33, 300),), "float32", {}),
    "copy, other tiles": (*COPY, ((100, 128),), "bfloat16", _tile(16, 64)),
    "copy, one tile": (*COPY, ((3, 8),), "float16", {}),
    "ring": (*RING, ((1024, 256),), "float32", _ring()),
    "ring, one slot": (*RING, ((640, 256),), "float32", _ring(stages=1, unread_stores=0)),
    "ring, no store under way": (*RING, ((640, 256),), "float32", _ring(unread_stores=0)),
    "ring, deep": (*RING, ((512, 64),), "bfloat16", _ring(tile_m=16, stages=8, unread_stores=3)),
    "ring, two blocks per SM": (*RING, ((900, 256),), "float32", _ring(blocks_per_sm=2)),
    "ring, sticks out": (*RING, ((333, 300),), "float32", _ring(tile_n=128)),
    "ring, fewer tiles than blocks": (*RING, ((100, 128),), "float16", _ring(num_sms=9)),
    "multiply_add": (*ADD, ((128, 128),) * 3, "float32", {}),
    "multiply_add, narrow": (*ADD, ((64, 64),) * 3, "float32", {}),
    "triple": (*TRIPLE, ((320, 128),), "float32", {}),
    "triple, one tile": (*TRIPLE, ((64, 64),), "float32", {}),
    "sum and difference": (*BOTH, ((256, 128),) * 2, "float32", {}),
    "sum and difference, three tiles": (*BOTH, ((192, 64),) * 2, "float32", {}),
    "difference": (*DIFFERENCE, ((200, 128),), "float32", {}),
    "difference, whole tiles": (*DIFFERENCE, ((128, 64),), "float32", {}),
    "difference, few rows": (*DIFFERENCE, ((5, 128),), "float32", {}),
}
SCHEDULES: tuple[str | int, ...] = ("in_order", "adversarial", 1, 2)


def _draw(shapes: tuple[Shape, ...], dtype: str) -> tuple[Array, ...]:
    rng = np.random.default_rng()
    return tuple(rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, shapes, dtype, static = CALLS[name]
    args = _draw(shapes, dtype)
    wanted = reference(*args)
    for schedule in SCHEDULES:
        report = simulate(lambda *a: kernel(*a, **static), *args, schedule=schedule)
        assert report.findings == ()
        for got, expected in zip(
            jax.tree.leaves(report.value), jax.tree.leaves(wanted), strict=True
        ):
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(
                got.astype(np.float64), expected.astype(np.float64), rtol=1e-6, atol=1e-6
            )


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shapes, dtype, static = CALLS[name]
    args = [jax.ShapeDtypeStruct(s, jnp.dtype(dtype)) for s in shapes]
    traced = jax.jit(lambda *a: kernel(*a, **static)).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.two_jax
@pytest.mark.parametrize(("rows", "columns", "count"), [(1000, 128, 64), (70, 64, 192)])
def test_gathers_rows_on_blackwell(rows: int, columns: int, count: int) -> None:
    rng = np.random.default_rng()
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    indices = rng.integers(0, rows, count).astype(np.int32)
    report = simulate(k.gather_rows, x, indices, arch="sm_100a")
    assert report.findings == ()
    np.testing.assert_array_equal(report.value, k.gather_rows_reference(x, indices))


@pytest.mark.two_jax
def test_only_the_gather_needs_blackwell() -> None:
    x = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    indices = jax.ShapeDtypeStruct((64,), jnp.int32)
    assert requirements(k.gather_rows, x, indices).features == {"tma", "tma gather"}
    assert requirements(k.difference, x).features == {"tma"}
    assert tracing.arch_for(tracing.trace(k.gather_rows, x, indices)) == "sm_100a"
    assert tracing.arch_for(tracing.trace(k.copy, x)) == "sm_90a"


@pytest.mark.parametrize(
    ("kernel", "shapes", "words"),
    [
        (k.copy, ((64,),), "two axes"),
        (k.copy, ((64, 129),), "multiple of 16 bytes"),
        (k.ring_copy, ((64, 6),), "multiple of 16 bytes"),
        (k.multiply_add, ((64, 128), (64, 128), (128, 128)), "differ"),
        (k.triple, ((100, 128),), "multiple of 64 rows"),
        (k.sum_and_difference, ((64, 128), (64, 64)), "differ"),
        (k.difference, ((64, 2),), "multiple of 16 bytes"),
        (k.gather_rows, ((64, 128), (63,)), "multiple of 64"),
    ],
)
def test_refuses_shapes_it_cannot_take(
    kernel: Callable[..., Any], shapes: tuple[Shape, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        kernel(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tile_m": 257}, "tile_m=257"),
        ({"tile_n": 0}, "tile_n=0"),
        ({"stages": 2, "unread_stores": 2}, "less than"),
        ({"stages": 0, "unread_stores": 0}, "less than"),
        ({"num_sms": 0}, "at least 1"),
        ({"blocks_per_sm": 0}, "at least 1"),
    ],
)
def test_refuses_a_config_that_cannot_run(fields: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        k.RingConfig(**fields)


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("kernel", "grid", "smem_bytes"),
    [(k.copy, 1 << 20, 4096), (k.ring_copy, 132, 3 * 65536)],
)
def test_a_copy_touches_no_register(kernel: Callable[..., Any], grid: int, smem_bytes: int) -> None:
    traced = tracing.trace(kernel, jax.ShapeDtypeStruct((1 << 22, 256), np.float32))
    assert not {"get", "swap", "commit_smem"} & set(traced.inside)
    assert traced.grids == ((grid,),)
    assert traced.smem_bytes == smem_bytes


TILE = plgpu.SMEM((64, 128), jnp.float32)


def _ring_out(x: jax.Array, *, n: int, slots: int) -> jax.Array:
    """Sends tiles out of `slots` slots; waits with `n` before it writes one."""

    def body(x_gmem: Any, y_gmem: Any, slots_smem: Any) -> None:
        @pl.loop(0, x.shape[0] // 64)
        def _(i: Any) -> None:
            plgpu.wait_smem_to_gmem(n, wait_read_only=True)
            slots_smem[i % slots] = x_gmem[pl.ds(i * 64, 64)]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(slots_smem.at[i % slots], y_gmem.at[pl.ds(i * 64, 64)])

        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(slots_smem=plgpu.SMEM((slots, 64, x.shape[1]), x.dtype))
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_with_a_ring_of_slots_all_but_one_copy_may_go_on(slots: int) -> None:
    (x,) = _draw(((512, 128),), "float32")
    for n in range(slots + 2):
        kernel = functools.partial(_ring_out, n=n, slots=slots)
        rules = {f.rule for f in simulate(kernel, x).findings}
        assert rules == (set() if n < slots else {"store-source-overwritten"})


@pytest.mark.parametrize("closes", ["the next copy", "a call", "nobody"])
def test_a_group_is_waited_for_once_it_is_closed(closes: str) -> None:
    def body(x_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
        a_smem[...] = x_gmem[pl.ds(0, 64)]
        b_smem[...] = x_gmem[pl.ds(64, 64)]
        plgpu.commit_smem()
        last = closes == "the next copy"
        plgpu.copy_smem_to_gmem(a_smem, y_gmem.at[pl.ds(0, 64)], commit_group=False)
        plgpu.copy_smem_to_gmem(b_smem, y_gmem.at[pl.ds(64, 64)], commit_group=last)
        if closes == "a call":
            plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0)

    (x,) = _draw(((128, 128),), "float32")
    scratch: dict[str, Any] = dict(a_smem=TILE, b_smem=TILE)
    kernel = plgpu.kernel(body, out_type=jnp.asarray(x), scratch_types=scratch)
    rules = {f.rule for f in simulate(kernel, x, schedule="adversarial").findings}
    assert rules == ({"uncommitted-copy"} if closes == "nobody" else set())


def _copied(x: jax.Array, *, prefetch: bool) -> jax.Array:
    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        plgpu.wait_smem_to_gmem(0)  # nothing to wait for
        if prefetch:
            plgpu.async_prefetch(x_gmem)
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(x_smem=TILE, loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


@pytest.mark.two_jax
@pytest.mark.parametrize("prefetch", [False, True])
def test_a_prefetch_and_a_wait_for_nothing_change_nothing(prefetch: bool) -> None:
    (x,) = _draw(((64, 128),), "float32")
    report = simulate(functools.partial(_copied, prefetch=prefetch), x)
    assert report.findings == ()
    np.testing.assert_array_equal(report.value, x)


def _padded(x: jax.Array, *, mode: plgpu.OOBFillMode) -> jax.Array:
    def body(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
        rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded, oob_mode=mode)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(x_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(x_smem=TILE, loaded=plgpu.Barrier())
    out = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    kernel = plgpu.kernel(
        body, out_type=out, grid=(2,), grid_names=("tile",), scratch_types=scratch
    )
    return kernel(x)


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        (plgpu.OOBFillMode.ZEROS, ""),
        (plgpu.OOBFillMode.UNDEFINED, "uninitialized-read"),
        (plgpu.OOBFillMode.PROMISE_IN_BOUNDS, "out-of-bounds"),
    ],
)
def test_what_lies_outside_is_zero_by_default_only(mode: plgpu.OOBFillMode, rule: str) -> None:
    (short,) = _draw(((100, 128),), "float32")
    kernel = functools.partial(_padded, mode=mode)
    report = simulate(kernel, short)
    assert [f.rule for f in report.findings] == ([rule] if rule else [])
    if not rule:
        np.testing.assert_array_equal(report.value[:100], short)
        assert not report.value[100:].any()
    (whole,) = _draw(((128, 128),), "float32")
    assert simulate(kernel, whole).findings == ()


@pytest.mark.parametrize("mode", list(plgpu.OOBFillMode))
def test_without_zeros_to_fill_in_a_contiguous_tile_needs_no_tensor_map(
    mode: plgpu.OOBFillMode,
) -> None:
    x = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    code = compile_for(functools.partial(_padded, mode=mode), x)
    with_map = code.count("cp.async.bulk.tensor")
    assert with_map == (1 if mode is plgpu.OOBFillMode.ZEROS else 0)
    assert code.count("cp.async.bulk*global") == 2


def _scatter(x: jax.Array, indices: jax.Array) -> jax.Array:
    def body(x_gmem: Any, indices_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, rows_smem, loaded)
        plgpu.barrier_wait(loaded)
        layout = plgpu.Layout.TMA_INDICES
        indices = plgpu.load(indices_gmem, layout=layout, optimized=False)
        plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[indices])
        plgpu.wait_smem_to_gmem(0)

    scratch: dict[str, Any] = dict(rows_smem=TILE, loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x, indices)


def test_a_copy_out_scatters_rows_by_indices() -> None:
    (x,) = _draw(((64, 128),), "float32")
    indices = np.random.default_rng().permutation(64).astype(np.int32)
    report = simulate(_scatter, x, indices, arch="sm_100a")
    assert report.findings == ()
    np.testing.assert_array_equal(report.value[indices], x)
    assert compile_for(_scatter, x, indices, arch="sm_100a").count("*scatter4*") == 4
