"""Tensor memory, tcgen05 and cluster launch control."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax

from tests.simulator.litmus.pair import Pair

F16, F32 = jnp.float16, jnp.float32
LAYOUT = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
A, B = ((128, 64), "float16"), ((64, 128), "float16")
ARCH = "sm_100a"


def _mma(a, b, *, wait=True, orders=True, wait_loads=True, accumulate=False, twice=False, n=128):
    """One or two MMAs of loaded operands, read out of tensor memory."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=accumulate)
        if wait:
            plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)
        if not wait:
            plgpu.barrier_wait(done)
        if twice:
            if wait_loads:
                plgpu.wait_load_tmem()
            plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
            plgpu.barrier_wait(done)
            o_gmem[...] = o_gmem[...] + plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, n), F32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=orders),
    ]
    out = jax.ShapeDtypeStruct((128, 128), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


def _store_load(x, *, commit):
    def body(x_gmem, o_gmem, tmem):
        plgpu.async_store_tmem(tmem, x_gmem[...])
        if commit:
            plgpu.commit_tmem()
        o_gmem[...] = plgpu.async_load_tmem(tmem)

    scratch = [plgpu.TMEM((128, 128), F32)]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def _handoff(x, *, orders):
    """One thread stores to tensor memory, another one loads."""

    def body(x_gmem, o_gmem, tmem, ready):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            plgpu.async_store_tmem(tmem, x_gmem[...])
            plgpu.commit_tmem()
            plgpu.barrier_arrive(ready)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            plgpu.barrier_wait(ready)
            o_gmem[...] = plgpu.async_load_tmem(tmem)

    scratch = [plgpu.TMEM((128, 128), F32), plgpu.Barrier(orders_tensor_core=orders)]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch, num_threads=2, thread_name="t")(x)


def _operand_overwritten(a, b, *, wait):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
        if wait:
            plgpu.barrier_wait(done)
        a_smem[...] = jnp.zeros((128, 64), F16)
        if not wait:
            plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, 128), F32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((128, 128), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


def _written_operand(a, b, *, commit):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, done):
        a_smem[...] = a_gmem[...]
        b_smem[...] = b_gmem[...]
        if commit:
            plgpu.commit_smem()
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, 128), F32),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((128, 128), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


def _two_commits(a, b):
    """Two MMAs, one commit."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, accumulate=False)
        plgpu.tcgen05_mma(acc, a_smem, b_smem)
        plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, 128), F32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((128, 128), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


def _columns(x, *, n):
    def body(x_gmem, o_gmem, one, two):
        plgpu.async_store_tmem(one, x_gmem[...])
        plgpu.commit_tmem()
        o_gmem[...] = plgpu.async_load_tmem(one)

    scratch = [plgpu.TMEM((128, 128), F32), plgpu.TMEM((128, n), F32)]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def _cancel(x, *, wait, steps=8):
    """Each running cluster takes over clusters that have not started."""

    def body(x_gmem, o_gmem, result, answered):
        def work(carry):
            index, _ = carry
            plgpu.try_cluster_cancel(result, answered)
            o_gmem[index] = x_gmem[index] + 1
            if wait:
                plgpu.barrier_wait(answered)
            (index,), more = plgpu.query_cluster_cancel(result, ("g",))
            if not wait:
                plgpu.barrier_wait(answered)
            plgpu.commit_smem()
            return index, more

        lax.while_loop(lambda c: c[1], work, (lax.axis_index("g"), True))

    scratch = [plgpu.TryClusterCancelResult(), plgpu.Barrier()]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch, grid=(steps,), grid_names=("g",))(
        x
    )


def _cancel_counted(x, *, steps):
    """Asks a number of times, whatever the answers; works only on what it got."""

    def body(x_gmem, o_gmem, result, answered):
        def work(_, index):
            plgpu.try_cluster_cancel(result, answered)

            @pl.when(index < x.shape[0])
            def _():
                o_gmem[index] = x_gmem[index] + 1

            plgpu.barrier_wait(answered)
            (following,), more = plgpu.query_cluster_cancel(result, ("g",))
            plgpu.commit_smem()
            return jnp.where(more, following, x.shape[0])

        lax.fori_loop(0, steps, work, lax.axis_index("g"))

    scratch = [plgpu.TryClusterCancelResult(), plgpu.Barrier()]
    return plgpu.kernel(
        body, out_type=x, scratch_types=scratch, grid=(x.shape[0],), grid_names=("g",)
    )(x)


def _steals(x, *, cluster_axes=("c",), thread_axis="t"):
    """Both blocks of a cluster, with two threads each, work on the same tile."""

    def body(x_gmem, o_gmem):
        @plgpu.dynamic_scheduling_loop(
            grid_names=("g",), cluster_axes=cluster_axes, thread_axis=thread_axis
        )
        def _(info):
            part = (info.index[0], lax.axis_index("c"), lax.axis_index("t"))
            o_gmem[part] = x_gmem[part] + 1

    mesh = {"grid": (5,), "grid_names": ("g",), "cluster": (2,), "cluster_names": ("c",),
            "num_threads": 2, "thread_name": "t"}  # fmt: skip
    return plgpu.kernel(body, out_type=x, **mesh)(x)


def _two_threads_cancel(x, *, axes):
    """Two threads ask for the next tile together, or each for itself."""

    def body(x_gmem, o_gmem, result, answered, used):
        half = lax.axis_index("t")

        def work(carry):
            index, _ = carry
            plgpu.try_cluster_cancel(result, answered, collective_axes=axes)
            o_gmem[index, half] = x_gmem[index, half] + 1
            plgpu.barrier_wait(answered)
            (index,), more = plgpu.query_cluster_cancel(result, ("g",))
            plgpu.commit_smem()
            plgpu.barrier_arrive(used)
            plgpu.barrier_wait(used)
            return index, more

        lax.while_loop(lambda c: c[1], work, (lax.axis_index("g"), True))

    scratch = [plgpu.TryClusterCancelResult(), plgpu.Barrier(num_arrivals=2),
               plgpu.Barrier(num_arrivals=2)]  # fmt: skip
    return plgpu.kernel(body, out_type=x, scratch_types=scratch, grid=(6,), grid_names=("g",),
                        num_threads=2, thread_name="t")(x)  # fmt: skip


def _pair_twice(a, b, *, meet):
    """Two MMAs of a pair of blocks into the same accumulator, each read by both blocks."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done, used):
        rank = lax.axis_index("c")
        for axis, (src, dst) in enumerate(((a_gmem, a_smem), (b_gmem, b_smem))):
            plgpu.copy_gmem_to_smem(
                src, dst, loaded, collective_axes="c",
                leader_tracked=plgpu.CopyPartition.PARTITIONED(axis),
            )  # fmt: skip
        pl.when(rank == 0)(lambda: plgpu.barrier_wait(loaded))
        for i in range(2):

            @pl.when(rank == 0)
            def _():
                plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False, collective_axis="c")

            plgpu.barrier_wait(done)
            o_gmem[i, pl.ds(rank * 128, 128)] = plgpu.async_load_tmem(acc)
            plgpu.wait_load_tmem()
            if meet:
                plgpu.barrier_arrive(used)
                plgpu.barrier_wait(used)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((2, 256, 128), F32),
        cluster=(2,),
        cluster_names=("c",),
        scratch_types=[
            plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
            plgpu.SMEM((64, 64), F16, transforms=LAYOUT),
            plgpu.TMEM((128, 128), F32, collective=True),
            plgpu.Barrier(num_arrivals=2),
            plgpu.Barrier(orders_tensor_core=True),
            plgpu.ClusterBarrier(collective_axes=("c",), orders_tensor_core=True),
        ],
    )(a, b)


def _through_tmem(x, *, plain):
    """Into tensor memory and out again, as if it was shared memory or as it is meant."""

    def body(x_gmem, o_gmem, tmem):
        if plain:
            tmem[...] = x_gmem[...]
            o_gmem[...] = tmem[...]
        else:
            plgpu.async_store_tmem(tmem, x_gmem[...])
            plgpu.commit_tmem()
            o_gmem[...] = plgpu.async_load_tmem(tmem)

    scratch = [plgpu.TMEM((128, 128), F32)]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def _own_mma_in_a_cluster(a, b, *, collective):
    """Each block multiplies by itself, in tensor memory of its own or of a pair."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, acc, loaded, done):
        rows = pl.ds(lax.axis_index("c") * 128, 128)
        plgpu.copy_gmem_to_smem(a_gmem.at[rows], a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        o_gmem[rows] = plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, 128), F32, collective=collective),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((256, 128), F32)
    return plgpu.kernel(
        body, out_type=out, scratch_types=scratch, cluster=(2,), cluster_names=("c",)
    )(a, b)


def _copied_operand(a, b, *, commit):
    """A goes from shared to tensor memory by the tensor core, and its source is used again."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, a_tmem, acc, loaded, copied, done):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.async_copy_smem_to_tmem(a_smem, a_tmem)
        plgpu.tcgen05_commit_arrive(copied)
        if commit:
            plgpu.barrier_wait(copied)
        a_smem[...] = jnp.zeros((128, 64), F16)
        if not commit:
            plgpu.barrier_wait(copied)
        plgpu.tcgen05_mma(acc, a_tmem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        o_gmem[...] = plgpu.async_load_tmem(acc)

    scratch = [
        plgpu.SMEM((128, 64), F16, transforms=LAYOUT),
        plgpu.SMEM((64, 128), F16, transforms=LAYOUT),
        plgpu.TMEM((128, 64), F16, packed=True),
        plgpu.TMEM((128, 128), F32),
        plgpu.Barrier(num_arrivals=2),
        plgpu.Barrier(orders_tensor_core=True),
        plgpu.Barrier(orders_tensor_core=True),
    ]
    out = jax.ShapeDtypeStruct((128, 128), F32)
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(a, b)


def _both(a, b):
    return jnp.stack([product(a, b)] * 2)


def product(a, b, times=1):
    return times * (a.astype("float32") @ b.astype("float32"))


P = functools.partial
SQUARE = (((128, 128), "float32"),)

PAIRS = [
    Pair("tmem-mma-not-waited", P(_mma, wait=False), _mma, (A, B), arch=ARCH,
         reference=product, differs=True),
    Pair("tmem-mma-not-waited", P(_mma, wait=False), _two_commits, (A, B), arch=ARCH,
         name="commit", reference=P(product, times=2)),
    Pair("missing-orders-tensor-core", P(_handoff, orders=False), P(_handoff, orders=True),
         SQUARE, ("orders_tensor_core=True",), arch=ARCH, reference=lambda x: x),
    Pair("tmem-load-not-waited", P(_mma, twice=True, wait_loads=False), P(_mma, twice=True),
         (A, B), ("wait_load_tmem",), arch=ARCH, reference=P(product, times=2)),
    Pair("tmem-store-not-committed", P(_store_load, commit=False), P(_store_load, commit=True),
         SQUARE, ("commit_tmem",), arch=ARCH, reference=lambda x: x, differs=True),
    Pair("uninitialized-read", P(_mma, accumulate=True), P(_mma, accumulate=False), (A, B),
         ("accumulate",), arch=ARCH, name="tensor memory", reference=product),
    Pair("mma-operand-overwritten", P(_operand_overwritten, wait=False),
         P(_operand_overwritten, wait=True), (A, B),
         ("pass a barrier to it", "plgpu.tcgen05_commit_arrive"), arch=ARCH, name="tcgen05",
         reference=product, differs=True),
    Pair("mma-operand-overwritten", P(_copied_operand, commit=False),
         P(_copied_operand, commit=True), (A, B),
         ("a copy to tensor memory may still read it", "Wait for the copy first"), arch=ARCH,
         name="copy to tensor memory", reference=product, differs=True),
    Pair("tmem-indexed", P(_through_tmem, plain=True), P(_through_tmem, plain=False), SQUARE,
         ("in tensor memory", "plgpu.async_load_tmem(ref)", "plgpu.async_store_tmem(ref, value)"),
         arch=ARCH, reference=lambda x: x),
    Pair("not-collective", P(_own_mma_in_a_cluster, collective=True),
         P(_own_mma_in_a_cluster, collective=False), (((256, 64), "float16"), B),
         ("a pair of blocks (collective=True)", "collective_axis="), arch=ARCH,
         name="tensor memory", reference=product),
    Pair("missing-commit-smem", P(_written_operand, commit=False),
         P(_written_operand, commit=True), (A, B), arch=ARCH, name="before tcgen05",
         reference=product),
    Pair("over-capacity", P(_columns, n=512), P(_columns, n=256), SQUARE, ("512",), arch=ARCH,
         name="tensor memory", reference=lambda x: x),
    Pair("cancel-result-early", P(_cancel, wait=False), P(_cancel, wait=True),
         (((8, 128), "float32"),), arch=ARCH, reference=lambda x: x + 1),
    Pair("cluster-smem-reuse", P(_pair_twice, meet=False), P(_pair_twice, meet=True),
         (((256, 64), "float16"), B), ("ClusterBarrier",), arch=ARCH, name="tensor memory",
         reference=_both),
    Pair("cancel-not-collective", P(_steals, cluster_axes=()), _steals,
         (((5, 2, 2, 128), "float32"),),
         ("cluster_axes=('c',) of dynamic_scheduling_loop", "collective_axes=('c', 't')"),
         arch=ARCH, name="blocks",
         reference=lambda x: x + 1),
    Pair("cancel-after-failure", P(_cancel_counted, steps=10), P(_cancel, wait=True),
         (((8, 128), "float32"),), ("none is left",), arch=ARCH, reference=lambda x: x + 1),
    Pair("cancel-not-collective", P(_two_threads_cancel, axes=()),
         P(_two_threads_cancel, axes=("t",)), (((6, 2, 128), "float32"),),
         ("collective_axes",), arch=ARCH, name="threads", reference=lambda x: x + 1),
]  # fmt: skip
