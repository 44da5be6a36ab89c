"""Features beyond the basics: clusters, Blackwell, warps, devices, rarer copies."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as Spec

from course_lib.simulator import devices, simulate
from tests.simulator.test_simulator import LAYOUT, normal

F16, F32 = jnp.float16, jnp.float32
SCHEDULES = ["in_order", "adversarial", 0, 1, 2]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def clean(f, *args, **options):
    report = simulate(f, *args, **options)
    assert not report.findings, report
    return report.value


@schedules
def test_collective_mma(schedule) -> None:
    """Two blocks multiply together: each loads half of B, the first one issues the MMA."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done, used):
        rank = lax.axis_index("c")
        plgpu.copy_gmem_to_smem(
            a_gmem, a_smem, loaded, collective_axes="c",
            leader_tracked=plgpu.CopyPartition.PARTITIONED(0),
        )  # fmt: skip
        plgpu.copy_gmem_to_smem(
            b_gmem, b_smem, loaded, collective_axes="c",
            leader_tracked=plgpu.CopyPartition.PARTITIONED(1),
        )  # fmt: skip

        @pl.when(rank == 0)
        def _():
            plgpu.barrier_wait(loaded)
            plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, collective_axis="c")

        plgpu.barrier_wait(done)
        o_gmem[pl.ds(rank * 128, 128)] = plgpu.async_load_tmem(acc)
        plgpu.wait_load_tmem()
        plgpu.barrier_arrive(used)
        plgpu.barrier_wait(used)

    def f(a, b):
        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((256, 128), F32),
            cluster=(2,),
            cluster_names=("c",),
            scratch_types=[
                plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
                plgpu.SMEM((64, 64), F16, transforms=LAYOUT),
                plgpu.TMEM((128, 128), F32, collective=True),
                plgpu.Barrier(num_arrivals=2),
                plgpu.Barrier(orders_tensor_core=True),
                plgpu.ClusterBarrier(collective_axes=("c",)),
            ],
        )(a, b)

    a, b = normal(256, 64, dtype="float16"), normal(64, 128, dtype="float16")
    got = clean(f, a, b, arch="sm_100a", schedule=schedule)
    want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@schedules
@pytest.mark.parametrize("threads", [1, 2])
def test_dynamic_scheduling_loop(schedule, threads: int) -> None:
    mesh = {"num_threads": threads, "thread_name": "t"} if threads > 1 else {}

    def body(x_gmem, o_gmem):
        @plgpu.dynamic_scheduling_loop(grid_names=("g",), thread_axis="t" if threads > 1 else None)
        def _(info):
            (i,) = info.index
            half = pl.ds(lax.axis_index("t") * 64, 64) if threads > 1 else pl.ds(0, 128)
            o_gmem[i, half] = x_gmem[i, half] + 1

    def f(x):
        return plgpu.kernel(body, out_type=x, grid=(7,), grid_names=("g",), **mesh)(x)

    x = normal(7, 128)
    got = clean(f, x, arch="sm_100a", schedule=schedule)
    np.testing.assert_allclose(got, x + 1, rtol=1e-6)


@schedules
def test_warps_go_their_own_ways(schedule) -> None:
    def body(x_gmem, o_gmem, smem, loaded):
        @pl.core_map(plgpu.WarpMesh(axis_name="warp"))
        def _():
            warp = lax.axis_index("warp")
            for i in range(2):

                @pl.when(warp == i)
                def _(i=i):
                    plgpu.copy_gmem_to_smem(x_gmem.at[i], smem.at[i], loaded.at[i])

        for i in range(2):
            plgpu.barrier_wait(loaded.at[i])
        o_gmem[...] = smem[...] * 2

    def f(x):
        scratch = [plgpu.SMEM((2, 128), F32), plgpu.Barrier(num_barriers=2)]
        return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)

    x = normal(2, 128)
    np.testing.assert_allclose(clean(f, x, schedule=schedule), x * 2, rtol=1e-6)


@schedules
def test_union_of_refs(schedule) -> None:
    def body(x_gmem, o_gmem, union):
        one, two = union
        one[...] = x_gmem[...]
        value = one[...]
        two[...] = value.astype(F16)
        o_gmem[...] = two[...].astype(F32)

    def f(x):
        members = plgpu.RefUnion(plgpu.SMEM((64, 64), F32), plgpu.SMEM((64, 64), F16))
        return plgpu.kernel(body, out_type=x, scratch_types=[members])(x)

    x = normal(64, 64)
    got = clean(f, x, schedule=schedule)
    np.testing.assert_array_equal(got, x.astype(np.float16).astype(np.float32))


@schedules
def test_reduction_predicate_and_out_of_bounds(schedule) -> None:
    """Blocks add their parts to one tile; loads past the end give noughts."""

    def body(x_gmem, o_gmem, smem, loaded):
        i = lax.axis_index("g")
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(i * 64, 64)], smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_gmem, reduction_op="add", predicate=i < 2)
        plgpu.wait_smem_to_gmem(0)

    def f(x):
        def start(refs):
            x_ref, o_ref = refs
            plgpu.kernel(
                lambda s, b: body(x_ref, o_ref, s, b),
                grid=(3,),
                grid_names=("g",),
                scratch_types=[plgpu.SMEM((64,), F32), plgpu.Barrier()],
            )()

        return pl.run_state(start)((x, jnp.zeros((64,), F32)))[1]

    x = normal(96)
    got = clean(f, x, schedule=schedule)
    want = x[:64] + np.pad(x[64:], (0, 32))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@schedules
def test_gather_by_an_index_array(schedule) -> None:
    rows = np.random.default_rng().permutation(64)[:16].astype(np.int32)

    def body(x_gmem, i_gmem, o_gmem, smem, loaded):
        index = plgpu.load(i_gmem, layout=plgpu.Layout.TMA_INDICES)
        plgpu.copy_gmem_to_smem(x_gmem.at[index], smem, loaded)
        plgpu.barrier_wait(loaded)
        o_gmem[...] = smem[...]

    def f(x, i):
        scratch = [plgpu.SMEM((16, 64), F32), plgpu.Barrier()]
        out = jax.ShapeDtypeStruct((16, 64), F32)
        return plgpu.kernel(body, out_type=out, scratch_types=scratch)(x, i)

    x = normal(64, 64)
    got = clean(f, x, rows, schedule=schedule, arch="sm_100a")
    np.testing.assert_array_equal(got, x[rows])


@schedules
@pytest.mark.parametrize("update", ["add", "max"])
def test_remote_updates(schedule, update: str) -> None:
    """Three blocks add to the fourth one's tile, each with one arrival on its barrier."""

    def body(x_gmem, o_gmem, smem, came, meet):
        rank = lax.axis_index("c")
        smem[...] = x_gmem[rank]
        plgpu.barrier_arrive(meet)
        plgpu.barrier_wait(meet)

        @pl.when(rank > 0)
        def _():
            plgpu.async_store_smem(
                x_gmem[rank], smem, came, cluster_idx=0, cluster_dim="c", atomic=update
            )

        @pl.when(rank == 0)
        def _():
            plgpu.barrier_wait(came)
            o_gmem[...] = smem[...]

    def f(x):
        layout = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(128))
        scratch = [
            plgpu.SMEM((64, 32), F32, transforms=layout),
            plgpu.Barrier(num_arrivals=3),
            plgpu.ClusterBarrier(collective_axes=("c",)),
        ]
        out = jax.ShapeDtypeStruct((64, 32), F32)
        return plgpu.kernel(
            body, out_type=out, scratch_types=scratch, cluster=(4,), cluster_names=("c",)
        )(x)

    x = normal(4, 64, 32)
    want = x.sum(0) if update == "add" else x.max(0)
    np.testing.assert_allclose(clean(f, x, schedule=schedule), want, rtol=1e-5, atol=1e-5)


@schedules
def test_barriers_picked_in_two_steps(schedule) -> None:
    """A slice of an array of barriers, and one of the slice."""

    def body(x_gmem, o_gmem, smem, loaded):
        for i in range(4):
            half = loaded.at[pl.ds(2 * (i // 2), 2)]
            plgpu.copy_gmem_to_smem(x_gmem.at[i], smem.at[i], half.at[i % 2])
        for i in range(4):
            plgpu.barrier_wait(loaded.at[i])
        o_gmem[...] = smem[...]

    def f(x):
        scratch = [plgpu.SMEM((4, 128), F32), plgpu.Barrier(num_barriers=4)]
        return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)

    x = normal(4, 128)
    np.testing.assert_array_equal(clean(f, x, schedule=schedule), x)


@schedules
def test_scatter_by_an_index_array(schedule) -> None:
    rows = np.random.default_rng().permutation(64).astype(np.int32)

    def body(x_gmem, i_gmem, o_gmem, smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded)
        plgpu.barrier_wait(loaded)
        index = plgpu.load(i_gmem, layout=plgpu.Layout.TMA_INDICES)
        plgpu.copy_smem_to_gmem(smem, o_gmem.at[index])
        plgpu.wait_smem_to_gmem(0)

    def f(x, i):
        scratch = [plgpu.SMEM((64, 64), F32), plgpu.Barrier()]
        return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x, i)

    x = normal(64, 64)
    got = clean(f, x, rows, schedule=schedule, arch="sm_100a")
    np.testing.assert_array_equal(got[rows], x)


@schedules
def test_atomic_add(schedule) -> None:
    if not hasattr(plgpu, "atomic_add"):
        pytest.skip("this jax has no atomic_add")

    def f(x):
        def start(refs):
            x_ref, o_ref = refs

            def body():
                plgpu.atomic_add(o_ref, x_ref[lax.axis_index("g")])

            plgpu.kernel(body, grid=(4,), grid_names=("g",))()

        return pl.run_state(start)((x, jnp.zeros((128,), F32)))[1]

    x = normal(4, 128)
    np.testing.assert_allclose(clean(f, x, schedule=schedule), x.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8", "bfloat16", "float32"])
def test_wgmma_dtypes(dtype: str) -> None:
    rng = np.random.default_rng()
    if dtype == "int8":
        a, b = (rng.integers(-128, 127, (64, 128), dtype=np.int8) for _ in range(2))
    else:
        a, b = (np.asarray(jnp.asarray(rng.standard_normal((64, 128)), dtype)) for _ in range(2))
    acc_dtype = jnp.int32 if dtype == "int8" else F32
    elems = 128 // a.dtype.itemsize
    layout = (plgpu.TilingTransform((8, elems)), plgpu.SwizzleTransform(128))

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, loaded):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem.T)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), acc_dtype))

    def f(a, b):
        operand = plgpu.SMEM((64, 128), a.dtype, transforms=layout)
        scratch = [operand, operand, plgpu.Barrier(num_arrivals=2)]
        out = jax.ShapeDtypeStruct((64, 64), acc_dtype)
        return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)

    got = clean(f, a, b)
    wide = np.int32 if dtype == "int8" else np.float64
    want = a.astype(wide) @ b.astype(wide).T
    tol = 2e-2 if dtype == "float32" else 1e-4  # tf32 keeps ten bits of the mantissa
    np.testing.assert_allclose(got, want, rtol=tol, atol=10 * tol)
    if dtype == "float32":
        assert np.abs(got - want).max() > 1e-4  # and it does round


@schedules
def test_left_operand_in_tensor_memory_and_scales(schedule) -> None:
    def body(a_gmem, b_gmem, o_gmem, b_smem, lhs, acc, loaded, done):
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.async_store_tmem(lhs, a_gmem[...])
        plgpu.commit_tmem()
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, lhs, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    def f(a, b):
        scratch = [
            plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
            plgpu.TMEM((128, 64), F16, packed=True),
            plgpu.TMEM((128, 128), F32),
            plgpu.Barrier(),
            plgpu.Barrier(orders_tensor_core=True),
        ]
        out = jax.ShapeDtypeStruct((128, 128), F32)
        return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)

    a, b = normal(128, 64, dtype="float16"), normal(64, 128, dtype="float16")
    got = clean(f, a, b, arch="sm_100a", schedule=schedule)
    want = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def exchange(x, *, mesh, wait=True):
    """Two devices swap their shards through remote memory."""

    def body(x_ref, y_ref, sem):
        other = 1 - lax.axis_index("x")
        remote = plgpu.remote_ref(y_ref, other)
        remote[...] = x_ref[...]
        pl.semaphore_signal(sem, device_id=other)
        if wait:
            pl.semaphore_wait(sem)
        y_ref[...] = y_ref[...] + 1

    def shard(x):
        return plgpu.kernel(body, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)

    return jax.shard_map(
        shard, mesh=mesh, in_specs=Spec("x"), out_specs=Spec("x"), check_vma=False
    )(x)


@schedules
def test_two_devices_exchange_shards(schedule) -> None:
    x = normal(2, 128)
    got = clean(lambda x: exchange(x, mesh=devices(2)), x, schedule=schedule)
    np.testing.assert_allclose(got, x[::-1] + 1, rtol=1e-6)


@schedules
def test_a_remote_write_without_a_wait_is_a_race(schedule) -> None:
    x = normal(2, 128)
    report = simulate(lambda x: exchange(x, mesh=devices(2), wait=False), x, schedule=schedule)
    rules = {f.rule for f in report.findings}
    assert "data-race" in rules or "uninitialized-read" in rules, report


@schedules
def test_remote_copies(schedule) -> None:
    def body(x_ref, y_ref, smem, loaded, sem):
        plgpu.copy_gmem_to_smem(x_ref, smem, loaded)
        plgpu.barrier_wait(loaded)
        other = 1 - lax.axis_index("x")
        plgpu.copy_smem_to_gmem(smem, plgpu.remote_ref(y_ref, other))
        plgpu.wait_smem_to_gmem(0)
        pl.semaphore_signal(sem, device_id=other)
        pl.semaphore_wait(sem)

    def shard(x):
        scratch = [plgpu.SMEM((1, 128), F32), plgpu.Barrier(), plgpu.SemaphoreType.REGULAR]
        return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)

    f = jax.shard_map(
        shard, mesh=devices(2), in_specs=Spec("x"), out_specs=Spec("x"), check_vma=False
    )
    x = normal(2, 128)
    np.testing.assert_allclose(clean(f, x, schedule=schedule), x[::-1], rtol=1e-6)


def test_two_kernels_share_a_ref_of_the_host() -> None:
    """Host refs: a kernel that reads and writes the caller's own ref, twice."""

    def f(x):
        def start(ref):
            def body():
                ref[...] = ref[...] + 1

            plgpu.kernel(body)()
            plgpu.kernel(body)()

        return pl.run_state(start)(x)

    x = normal(128)
    np.testing.assert_allclose(clean(f, x), x + 2, rtol=1e-6)


def _arrivals(producers: int, needed: int):
    """Some threads arrive once each, and one more waits once."""

    def body(x_gmem, o_gmem, ready):
        thread = lax.axis_index("thread")
        pl.when(thread < producers)(lambda: plgpu.barrier_arrive(ready))

        @pl.when(thread == producers)
        def _():
            plgpu.barrier_wait(ready)
            o_gmem[...] = x_gmem[...]

    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((128,), F32), num_threads=producers + 1,
        thread_name="thread", scratch_types=[plgpu.Barrier(num_arrivals=needed)],
    )  # fmt: skip


@schedules
def test_too_few_arrivals_of_several_threads(schedule) -> None:
    x = normal(128)
    report = simulate(_arrivals(2, 1), x, schedule=schedule)
    (found,) = (f for f in report.findings if f.rule == "barrier-overrun")
    assert "num_arrivals= their number" in found.fix
    np.testing.assert_array_equal(clean(_arrivals(2, 2), x, schedule=schedule), x)


def test_too_many_arrivals_of_one_thread_need_back_pressure() -> None:
    def body(x_gmem, o_gmem, ready):
        thread = lax.axis_index("thread")

        @pl.when(thread == 0)
        def _():
            plgpu.barrier_arrive(ready)
            plgpu.barrier_arrive(ready)

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_wait(ready)
            plgpu.barrier_wait(ready)
            o_gmem[...] = x_gmem[...]

    kernel = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((128,), F32), num_threads=2, thread_name="thread",
        scratch_types=[plgpu.Barrier()],
    )  # fmt: skip
    (found,) = simulate(kernel, normal(128)).findings
    assert found.rule == "barrier-overrun"
    assert found.fix.startswith("Add back pressure")


@pytest.mark.parametrize("everybody", [False, True])
def test_a_collective_scope_of_one_thread(everybody: bool) -> None:
    def body(x_gmem, o_gmem):
        thread = lax.axis_index("thread")

        def scope(x_smem):
            @pl.when(thread == 1)
            def _():
                x_smem[...] = x_gmem[...]
                o_gmem[...] = x_smem[...]

        @pl.when((thread == 1) | everybody)
        def _():
            pl.run_scoped(scope, plgpu.SMEM((128,), F32), collective_axes="thread")

    kernel = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((128,), F32), num_threads=2, thread_name="thread"
    )
    found = simulate(kernel, normal(128)).findings
    assert [f.rule for f in found] == ([] if everybody else ["not-collective"])
    if found:
        assert [a.who for a in found[0].accesses] == ["thread 1"]
        assert "every thread" in found[0].fix
