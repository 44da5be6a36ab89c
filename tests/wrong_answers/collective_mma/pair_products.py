"""Wrong answers to collective_mma.pair_products."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

HALF = plgpu.CopyPartition.PARTITIONED


def _run(a, b, read, between, *, wait_loads=True):
    """The notebook's kernel; `between(block, read)` stands where the learner's lines do."""
    k, n = a.shape[1], b.shape[-1]

    def kernel(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done, read):
        block = jax.lax.axis_index("pair")
        copy = plgpu.copy_gmem_to_smem
        copy(a_gmem, a_smem, loaded.at[0], collective_axes="pair", leader_tracked=HALF(0))
        pl.when(block == 0)(lambda: plgpu.barrier_wait(loaded.at[0]))

        @pl.loop(0, b.shape[0])
        def product(i):
            copy(b_gmem.at[i], b_smem, loaded.at[1], collective_axes="pair", leader_tracked=HALF(1))

            @pl.when(block == 0)
            def leader():
                plgpu.barrier_wait(loaded.at[1])
                options = dict(accumulate=False, collective_axis="pair")
                plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, **options)

            plgpu.barrier_wait(done)
            c_gmem[i, pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)
            if wait_loads:
                plgpu.wait_load_tmem()
            between(block, read)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((b.shape[0], 256, n), jnp.float32),
        scratch_types=dict(
            a_smem=plgpu.SMEM((128, k), a.dtype),
            b_smem=plgpu.SMEM((k, n // 2), b.dtype),
            acc_tmem=plgpu.TMEM((128, n), jnp.float32, collective=True),
            loaded=plgpu.Barrier(num_barriers=2),
            done=plgpu.Barrier(orders_tensor_core=True),
            read=read,
        ),
        cluster=(2,),
        cluster_names=("pair",),
    )(a, b)


def _meet(_, read):
    plgpu.barrier_arrive(read)
    plgpu.barrier_wait(read)


def _cluster(*, orders):
    return plgpu.ClusterBarrier(collective_axes=("pair",), orders_tensor_core=orders)


def nothing(a, b):
    """Goes on at once."""
    return _run(a, b, _cluster(orders=True), lambda *_: None)


def own_barrier(a, b):
    """A Barrier of each block's own: each meets itself."""
    return _run(a, b, plgpu.Barrier(orders_tensor_core=True), _meet)


def unordered(a, b):
    """A ClusterBarrier that does not order the tensor core."""
    return _run(a, b, _cluster(orders=False), _meet)


def only_arrives(a, b):
    """Says that it has read, and does not listen."""
    return _run(a, b, _cluster(orders=True), lambda _, read: plgpu.barrier_arrive(read))


def only_the_leader(a, b):
    """Only the leader arrives and waits."""
    return _run(
        a,
        b,
        _cluster(orders=True),
        lambda block, read: pl.when(block == 0)(lambda: _meet(block, read)),
    )


WRONG = {
    "nothing": Wrong(nothing, "cluster-smem-reuse", ("acc_tmem", "ClusterBarrier")),
    "own barrier": Wrong(own_barrier, "cluster-smem-reuse", ("acc_tmem",)),
    "unordered": Wrong(unordered, "cluster-smem-reuse", ("orders_tensor_core=True",)),
    "only arrives": Wrong(only_arrives, "race", ("acc_tmem",)),
    "only the leader": Wrong(only_the_leader, "deadlock", ("1 of 2 arrivals",)),
}
