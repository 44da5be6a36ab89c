"""The kernels of chapter 11: right, clean in 20 schedules, and what the compiler makes of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import compile_for, tracing
from course_lib.kernels import collective_mma as k
from course_lib.layouts.schedules import schedule
from course_lib.simulator import simulate

ARCH = "sm_100a"
SCHEDULES = ["in_order", "adversarial", *range(20)]
Arrays = tuple[Any, ...]


def normal(*shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def scaled_arguments(rows: int, depth: int) -> Arrays:
    a, b = normal(256, depth, dtype=np.float32), normal(rows, depth, dtype=np.float32)
    (qa, sa), (qb, sb) = (tuple(map(np.asarray, k.quantized(jnp.asarray(x)))) for x in (a, b))
    return qa, qb, sa, sb


def lower(n: int) -> Any:
    return np.tril(normal(n, n))


def product(**config: Any) -> Callable[..., Any]:
    return functools.partial(k.matmul, config=k.Config(**config))


SMALL: dict[str, Any] = {"tile_n": 64, "max_concurrent_steps": 2, "epilogue_tile_n": 32}
# kernel, reference, its arguments, tolerance
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], Arrays], float]] = {
    "pair": (k.pair_product, k.pair_product_reference, lambda: (normal(256, 64), normal(64, 128)),
             1e-3),
    "pair, widest": (k.pair_product, k.pair_product_reference,
                     lambda: (normal(256, 128), normal(128, 256)), 1e-3),
    "pair, narrow": (k.pair_product, k.pair_product_reference,
                     lambda: (normal(256, 64), normal(64, 32)), 1e-3),
    "pairs": (k.pair_products, k.pair_products_reference,
              lambda: (normal(256, 64), normal(4, 64, 128)), 1e-3),
    "scaled": (k.scaled_pair_product, k.scaled_pair_product_reference,
               lambda: scaled_arguments(256, 256), 1e-3),
    "scaled, 128": (k.scaled_pair_product, k.scaled_pair_product_reference,
                    lambda: scaled_arguments(128, 128), 1e-3),
    "double": (k.double, k.double_reference, lambda: (normal(9, 128, dtype=np.float32),), 0.0),
    "add both": (k.add_both, k.add_both_reference,
                 lambda: (normal(9, 2, 128, dtype=np.float32),), 0.0),
    "total": (k.total, lambda x: np.array([x.sum()], np.int32),
              lambda: (np.random.default_rng().integers(-9, 9, 11).astype(np.int32),), 0.0),
    **{
        f"matmul, {name}": (product(schedule=name, num_clusters=2, **SMALL), k.matmul_reference,
                            lambda: (normal(768, 192), normal(192, 256)), 0.1)
        for name in k.SCHEDULES
    },
    **{
        f"triangular, {name}": (
            product(schedule=name, num_clusters=2, triangular=True, **SMALL), k.matmul_reference,
            lambda: (lower(512), normal(512, 256)), 0.1)
        for name in k.SCHEDULES
    },
}  # fmt: skip


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings_in_every_schedule(name: str) -> None:
    kernel, reference, draw, tolerance = CALLS[name]
    args = draw()
    wanted = reference(*args)
    for how in SCHEDULES:
        report = simulate(kernel, *args, arch=ARCH, schedule=how)
        assert report.findings == (), (how, report)
        got = np.asarray(report.value, np.float32)
        np.testing.assert_allclose(got, wanted, rtol=tolerance / 5, atol=tolerance)


@pytest.mark.two_jax
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_the_default_tiles(dtype: Any) -> None:
    a, b = (np.asarray(jnp.asarray(normal(512, 512), dtype)) for _ in range(2))
    report = simulate(k.matmul, a, b, arch=ARCH, sms=4)
    assert report.findings == ()
    assert report.resources.tmem_columns == 512
    wanted = k.matmul_reference(a, b)
    rtol = 2e-3 if dtype == jnp.float16 else 1.6e-2
    np.testing.assert_allclose(np.asarray(report.value, np.float32), wanted, rtol=rtol, atol=0.2)


def test_each_block_of_a_pair_holds_half() -> None:
    x = (jax.ShapeDtypeStruct((256, 64), jnp.float16), jax.ShapeDtypeStruct((64, 128), jnp.float16))
    assert tracing.trace(k.pair_product, *x).smem_bytes == 2 * (128 * 64 + 64 * 64)


def product_of_128_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """The smaller M of a collective MMA: 64 rows in each block."""
    (_, depth), n = a.shape, b.shape[1]

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, o_smem, acc, loaded, done):  # type: ignore[no-untyped-def]
        block = jax.lax.axis_index("pair")
        for axis, (source, target) in enumerate(((a_gmem, a_smem), (b_gmem, b_smem))):
            half = plgpu.CopyPartition.PARTITIONED(axis)
            plgpu.copy_gmem_to_smem(
                source, target, loaded, collective_axes="pair", leader_tracked=half
            )

        @pl.when(block == 0)
        def _() -> None:
            plgpu.barrier_wait(loaded)
            plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, collective_axis="pair")

        plgpu.barrier_wait(done)
        o_smem[...] = plgpu.async_load_tmem(acc).astype(jnp.float16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[pl.ds(block * 64, 64)])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128, n), jnp.float16),
        cluster=(2,),
        cluster_names=("pair",),
        scratch_types={
            "a_smem": plgpu.SMEM((64, depth), a.dtype),
            "b_smem": plgpu.SMEM((depth, n // 2), b.dtype),
            "o_smem": plgpu.SMEM((64, n), jnp.float16),
            "acc": plgpu.TMEM((64, n), jnp.float32, collective=True),
            "loaded": plgpu.Barrier(num_arrivals=2),
            "done": plgpu.Barrier(orders_tensor_core=True),
        },
    )(a, b)


def test_a_collective_mma_may_have_128_rows() -> None:
    a, b = normal(128, 64), normal(64, 128)
    report = simulate(product_of_128_rows, a, b, arch=ARCH)
    assert report.findings == ()
    wanted = k.pair_product_reference(a, b)
    np.testing.assert_allclose(report.value.astype(np.float32), wanted, rtol=2e-3, atol=0.05)
    code = compile_for(product_of_128_rows, *map(_like, (a, b)), arch=ARCH)
    assert len(code.instructions("tcgen05.mma.cta_group::2*")) == 4


def test_the_two_blocks_of_a_cluster_get_the_same_answers_and_carry_their_count() -> None:
    x = normal(13, 2, 128, dtype=np.float32)
    for how in SCHEDULES:
        report = simulate(k.tiles_by_cluster, x, arch=ARCH, schedule=how)
        y, counts = report.value
        assert report.findings == (), (how, report)
        np.testing.assert_array_equal(y, x + 1)
        assert counts.sum() == 13
    y, counts = simulate(k.tiles_by_cluster, x, arch=ARCH, sms=6).value
    assert counts.tolist() == [5, 4, 4] + [0] * 10


def cycles(schedule_name: str) -> tuple[float, list[int]]:
    """How long a triangular product takes on four pairs, and 1024 MMA cycles by cluster."""
    config = {"triangular": True, "tile_n": 64, "num_clusters": 4, "grid_tile_width": 4}
    a, b = lower(1024), normal(1024, 384)
    report = simulate(product(schedule=schedule_name, **config), a, b, arch=ARCH, sms=8)
    assert report.findings == ()
    spans = [s for s in report.timeline.spans if s.lane.startswith("tensor core")]
    lanes = dict.fromkeys(s.lane for s in spans)
    shares = [sum(s.end - s.start for s in spans if s.lane == lane) / 1024 for lane in lanes]
    return report.timeline.cycles, [round(share) for share in shares]


def test_taking_tiles_over_balances_what_is_uneven() -> None:
    """Where tiles are dealt out by their number the shares are those of `layouts.schedules`."""
    costs = [row + 1 for _ in range(3) for row in range(4)]
    taken: dict[str, float] = {}
    for way in k.SCHEDULES:
        taken[way], shares = cycles(way)
        made = schedule(way, costs, sms=4)
        by_block = {s.block: 0 for s in made.spans}
        for s in made.spans:
            by_block[s.block] += costs[s.tile]
        # taking over depends on more than the model has: the epilogue, and how long a start takes
        assert sum(shares) == sum(costs)
        assert way == "dynamic" or sorted(shares) == sorted(by_block.values())
        assert way != "dynamic" or max(shares) <= 10
    assert taken["dynamic"] < taken["blocks"] < taken["persistent"]


# ---- what the compiler makes of them ----


def _like(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


MMA, MULTICAST = "tcgen05.mma.cta_group::2*", "*multicast::cluster.cta_group::2"
HALVES = "cp.async.bulk.tensor*shared::cta*cta_group::2"
ASKS, LOOKS = "clusterlaunchcontrol.try_cancel*", "clusterlaunchcontrol.query_cancel*"
COMMIT = "tcgen05.commit.cta_group::2*multicast::cluster*"
LARGE = (jax.ShapeDtypeStruct((4096, 4096), jnp.float16),) * 2
EXPECTED: dict[str, tuple[Callable[..., Any], Callable[[], Any], dict[str, int]]] = {
    "pair": (k.pair_product, lambda: (normal(256, 64), normal(64, 128)),
             {MMA: 4, COMMIT: 1, MULTICAST: 0}),
    "pairs": (k.pair_products, lambda: (normal(256, 64), normal(3, 64, 128)),
              {MMA: 4, COMMIT: 1, "tcgen05.wait::ld*": 1}),
    "scaled": (k.scaled_pair_product, lambda: scaled_arguments(256, 256),
               {MMA: 8, COMMIT: 1, MULTICAST: 2, "tcgen05.cp.cta_group::2*": 6}),
    "double": (k.double, lambda: (normal(9, 128, dtype=np.float32),), {ASKS: 1, LOOKS: 2}),
    "add both": (k.add_both, lambda: (normal(9, 2, 128, dtype=np.float32),), {ASKS: 1, LOOKS: 2}),
    "total": (k.total, lambda: (np.arange(11, dtype=np.int32),), {"tcgen05.*": 0, ASKS: 0}),
    "counts": (k.tiles_by_cluster, lambda: (normal(9, 2, 128, dtype=np.float32),), {ASKS: 1}),
    "matmul": (k.matmul, lambda: LARGE,
               {MMA: 4, COMMIT: 2, ASKS: 1, LOOKS: 2, MULTICAST: 0, HALVES: 2}),
    "triangular": (product(triangular=True), lambda: LARGE, {MMA: 4, COMMIT: 2, ASKS: 1}),
    "persistent": (product(schedule="persistent"), lambda: LARGE,
                   {MMA: 4, COMMIT: 2, ASKS: 0}),
    "blocks": (product(schedule="blocks"), lambda: LARGE, {MMA: 4, COMMIT: 2, ASKS: 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_compiles_for_blackwell_with_the_expected_instructions_and_no_spills(name: str) -> None:
    kernel, draw, expected = EXPECTED[name]
    code = compile_for(kernel, *map(_like, draw()), arch=ARCH)
    counts = {pattern: len(code.instructions(pattern)) for pattern in expected}
    assert counts == expected
    assert code.spill_bytes == 0


WIDE, NARROW = scaled_arguments(256, 128), scaled_arguments(128, 128)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: k.pair_product(normal(128, 64), normal(64, 128)), r"must be \(256, k\)"),
        (lambda: k.pair_product(normal(256, 64), normal(64, 48)), "multiple of 32"),
        (lambda: k.pair_product(normal(256, 64), normal(64, 288)), "at most 256"),
        (lambda: k.scaled_pair_product(*WIDE[:2], *NARROW[2:]), "b_scales.shape"),
        (lambda: k.matmul(normal(256, 64), normal(128, 256)), "a has 64 columns and b has 128"),
        (lambda: k.matmul(normal(300, 64), normal(64, 256)), "m=300 must be divisible by 256"),
        (lambda: product(schedule="greedy")(normal(256, 64), normal(64, 256)), "must be one of"),
        (lambda: product(triangular=True)(normal(256, 64), normal(64, 256)), "must be square"),
        (lambda: product(epilogue_tile_n=96)(normal(256, 64), normal(64, 256)), "epilogue_tile_n"),
    ],
)  # fmt: skip
def test_refuses_what_it_cannot_do(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.two_jax
def test_an_answer_takes_16_bytes() -> None:
    x = jax.ShapeDtypeStruct((4, 128), jnp.float32)
    assert tracing.trace(k.double, x).smem_bytes == 2 * 16


def test_every_kernel_has_a_place_in_these_tests() -> None:
    """All public kernels are run in every schedule, and compiled."""
    public = {
        name
        for name, value in vars(k).items()
        if inspect.isfunction(value)
        and value.__module__ == k.__name__
        and not name.startswith("_")
        and "plgpu.kernel(" in inspect.getsource(value)
    }
    run = {getattr(c[0], "func", c[0]).__name__ for c in CALLS.values()}
    run.add("tiles_by_cluster")  # whose counts depend on the schedule: a test of its own
    compiled = {getattr(e[0], "func", e[0]).__name__ for e in EXPECTED.values()}
    frames = {"scaled_product"}  # of scaled_pair_product, which fills it in
    assert public - frames <= run
    assert public - frames <= compiled


@pytest.mark.two_jax
def test_jaxs_loop_takes_a_cluster_of_one_axis() -> None:
    """With two axes its barrier is a cross: the blocks on the diagonal never meet."""

    def body(y_gmem: Any, *, axes: tuple[str, ...]) -> None:
        @plgpu.dynamic_scheduling_loop(grid_names=("tile",), cluster_axes=axes)
        def tile(info: Any) -> None:
            rank = jax.lax.axis_index(axes[0])
            rank = rank if len(axes) == 1 else 2 * rank + jax.lax.axis_index(axes[1])
            y_gmem[info.index[0], rank] = rank

    def run(cluster: tuple[int, ...]) -> Any:
        axes = ("a", "b")[: len(cluster)]
        kernel = plgpu.kernel(
            functools.partial(body, axes=axes),
            out_type=jax.ShapeDtypeStruct((12, 4), jnp.int32),
            grid=(12,),
            grid_names=("tile",),
            cluster=cluster,
            cluster_names=axes,
        )
        return simulate(kernel, arch=ARCH)

    right, wrong = run((4,)), run((2, 2))
    assert right.findings == ()
    np.testing.assert_array_equal(right.value, np.tile(np.arange(4), (12, 1)))
    assert wrong.errors
    assert all("cancel" in f.what or f.rule == "deadlock" for f in wrong.errors)
