"""Clusters: collective copies and the barriers between blocks."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax

from tests.simulator.litmus.pair import Pair

F32 = jnp.float32
CLUSTER = {"cluster": (2,), "cluster_names": ("c",)}
AXES = ("c",)


def _kernel(body, x, scratch, out):
    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct(out, F32), scratch_types=scratch, **CLUSTER
    )(x)


def _reuse(x, *, barrier):
    """Two collective copies into the same memory."""

    def body(x_gmem, o_gmem, smem, loaded, used):
        rank = lax.axis_index("c")
        for i in range(2):
            plgpu.copy_gmem_to_smem(x_gmem.at[i], smem, loaded, collective_axes="c")
            plgpu.barrier_wait(loaded)
            o_gmem[rank, i] = smem[...]
            plgpu.commit_smem()
            if barrier and i == 0:
                plgpu.barrier_arrive(used)
                plgpu.barrier_wait(used)

    scratch = [
        plgpu.SMEM((128,), F32),
        plgpu.Barrier(),
        plgpu.ClusterBarrier(collective_axes=AXES),
    ]
    return _kernel(body, x, scratch, (2, 2, 128))


def _slices(x, *, same):
    """A slice per block is no collective copy."""

    def body(x_gmem, o_gmem, smem, loaded):
        rank = lax.axis_index("c")
        axes = "c" if same is not None else None
        part = 0 if same else rank
        if same is None:
            plgpu.copy_gmem_to_smem(x_gmem.at[rank], smem, loaded)
        else:
            plgpu.copy_gmem_to_smem(x_gmem.at[part], smem, loaded, collective_axes=axes)
        plgpu.barrier_wait(loaded)
        o_gmem[rank] = smem[...]

    return _kernel(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()], (2, 128))


def _one_block_only(x, *, both):
    def body(x_gmem, o_gmem, smem, loaded):
        rank = lax.axis_index("c")

        def load():
            plgpu.copy_gmem_to_smem(x_gmem, smem, loaded, collective_axes="c")

        if both:
            load()
        else:
            pl.when(rank == 0)(load)
        plgpu.barrier_wait(loaded)
        o_gmem[rank] = smem[...]

    return _kernel(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()], (2, 128))


def _along(x, *, axis):
    """A collective copy along an axis that the kernel has, or has not."""

    def body(x_gmem, o_gmem, smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded, collective_axes=axis)
        plgpu.barrier_wait(loaded)
        o_gmem[lax.axis_index("c")] = smem[...]

    return _kernel(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()], (2, 128))


def _leader_tracked(x, *, follower_waits, mode):
    """Only the leader's barrier sees the copy; the other block learns by a ClusterBarrier."""

    def body(x_gmem, o_gmem, smem, loaded, told):
        rank = lax.axis_index("c")
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded, collective_axes="c", leader_tracked=mode)

        def wait():
            plgpu.barrier_wait(loaded)

        if follower_waits:
            wait()
        else:
            pl.when(rank == 0)(wait)
        plgpu.barrier_arrive(told)
        plgpu.barrier_wait(told)
        o_gmem[rank] = smem[...]

    scratch = [
        plgpu.SMEM((64, 64), F32),
        plgpu.Barrier(),
        plgpu.ClusterBarrier(collective_axes=AXES),
    ]
    return _kernel(body, x, scratch, (2, 64, 64))


def _exchange(x, *, met=True, wait=True):
    """Two blocks send each other a tile, into the memory that they have just read."""

    def body(x_gmem, o_gmem, smem, loaded, came, meet):
        rank = lax.axis_index("c")
        plgpu.copy_gmem_to_smem(x_gmem.at[rank], smem, loaded)
        plgpu.barrier_wait(loaded)
        mine = smem[...] * 2
        if met:
            plgpu.barrier_arrive(meet)
            plgpu.barrier_wait(meet)
        plgpu.async_store_smem(mine, smem, came, cluster_idx=1 - rank, cluster_dim="c")
        if wait:
            plgpu.barrier_wait(came)
        o_gmem[rank] = smem[...]
        if not wait:
            plgpu.barrier_wait(came)

    transforms = (plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(128))
    scratch = [
        plgpu.SMEM((64, 32), F32, transforms=transforms),
        plgpu.Barrier(),
        plgpu.Barrier(),
        plgpu.ClusterBarrier(collective_axes=AXES),
    ]
    return _kernel(body, x, scratch, x.shape)


def _neighbour(x, *, meet):
    """Each block writes into the other one's shared memory with a plain store."""

    def body(x_gmem, o_gmem, smem, barrier):
        rank = lax.axis_index("c")
        plgpu.cluster_ref(smem, {"c": 1 - rank})[...] = x_gmem[rank]
        if meet:
            plgpu.barrier_arrive(barrier)
            plgpu.barrier_wait(barrier)
        o_gmem[rank] = smem[...]

    scratch = [plgpu.SMEM((64, 32), F32), plgpu.ClusterBarrier(collective_axes=AXES)]
    return _kernel(body, x, scratch, x.shape)


def _fetch(x, *, ready=True, inner=False, meet=True):
    """Each block reads the other one's tile, from the kernel's scratch or from an inner scope."""

    def body(x_gmem, o_gmem, barrier, *outer):
        rank = lax.axis_index("c")

        def scope(smem):
            smem[...] = x_gmem[rank]
            if ready:
                plgpu.barrier_arrive(barrier)
                plgpu.barrier_wait(barrier)
            o_gmem[rank] = plgpu.cluster_ref(smem, {"c": 1 - rank})[...]
            if meet:
                plgpu.barrier_arrive(barrier)
                plgpu.barrier_wait(barrier)

        if inner:
            pl.run_scoped(scope, plgpu.SMEM((64, 32), F32))
            o_gmem[rank] = o_gmem[rank] * 1
        else:
            scope(*outer)

    scratch = [plgpu.ClusterBarrier(collective_axes=AXES)]
    scratch += [] if inner else [plgpu.SMEM((64, 32), F32)]
    return _kernel(body, x, scratch, x.shape)


def _last_word(x, *, wait):
    """One block tells the other something at its very end; is anybody still there?"""

    def body(x_gmem, o_gmem, told):
        rank = lax.axis_index("c")
        o_gmem[rank] = x_gmem[rank]
        plgpu.barrier_arrive(told)
        if wait:
            plgpu.barrier_wait(told)
        else:
            pl.when(rank == 1)(lambda: plgpu.barrier_wait(told))

    return _kernel(body, x, [plgpu.ClusterBarrier(collective_axes=AXES)], x.shape)


def _square(x, *, axes):
    """Four blocks load together, twice; the barrier has to be one of all four."""

    def body(x_gmem, o_gmem, smem, loaded, used):
        rank = 2 * lax.axis_index("a") + lax.axis_index("b")
        for i in range(2):
            plgpu.copy_gmem_to_smem(x_gmem.at[i], smem, loaded, collective_axes=("a", "b"))
            plgpu.barrier_wait(loaded)
            o_gmem[rank, i] = smem[...]
            plgpu.commit_smem()
            if i == 0:
                plgpu.barrier_arrive(used)
                plgpu.barrier_wait(used)

    scratch = [
        plgpu.SMEM((128,), F32),
        plgpu.Barrier(),
        plgpu.ClusterBarrier(collective_axes=axes),
    ]
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((4, 2, 128), F32),
        scratch_types=scratch,
        cluster=(2, 2),
        cluster_names=("a", "b"),
    )(x)


def _one_row(x, *, own):
    """Both blocks write a row of the output: each its own, or both the same."""

    def body(x_gmem, o_gmem):
        rank = lax.axis_index("c")
        o_gmem[rank if own else 0] = x_gmem[rank]

    return plgpu.kernel(body, out_type=x, cluster=(2,), cluster_names=("c",))(x)


def _parts(x, *, own):
    """Both blocks send their tile to block 0, which adds them: a slot for each, or one for both."""

    def body(x_gmem, o_gmem, parts_smem, came, met):
        rank = lax.axis_index("c")
        tile = plgpu.load(x_gmem.at[rank], layout=plgpu.Layout.WGMMA, optimized=False)
        slot = parts_smem.at[rank if own else 0]
        plgpu.async_store_smem(tile, slot, came, cluster_idx=0, cluster_dim="c")

        @pl.when(rank == 0)
        def _():
            plgpu.barrier_wait(came)
            o_gmem[...] = parts_smem[0] + parts_smem[1 if own else 0]

        plgpu.barrier_arrive(met)
        plgpu.barrier_wait(met)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        cluster=(2,),
        cluster_names=("c",),
        scratch_types=[
            plgpu.SMEM(x.shape, x.dtype),
            plgpu.Barrier(num_arrivals=2),
            plgpu.ClusterBarrier(collective_axes=("c",)),
        ],
    )(x)


def _twice(x):
    return jax.numpy.stack([x, x])


P = functools.partial
TILES = ((2, 64, 32), "float32")
PARTITIONED = plgpu.CopyPartition.PARTITIONED(0)
REPLICATED = plgpu.CopyPartition.REPLICATED

PAIRS = [
    Pair("cluster-smem-reuse", P(_reuse, barrier=False), P(_reuse, barrier=True),
         (((2, 128), "float32"),), ("ClusterBarrier", "block 0", "block 1"), reference=_twice),
    Pair("collective-mismatch", P(_slices, same=False), P(_slices, same=None),
         (((2, 128), "float32"),), reference=lambda x: x),
    Pair("collective-mismatch", P(_along, axis="cluster"), P(_along, axis="c"),
         (((128,), "float32"),), ("'cluster'", "its cluster axes are c"), name="unknown axis",
         reference=_twice),
    Pair("deadlock", P(_one_block_only, both=False), P(_one_block_only, both=True),
         (((128,), "float32"),), ("bytes",), name="one block", reference=_twice),
    Pair("leader-tracked-wait", P(_leader_tracked, follower_waits=True, mode=PARTITIONED),
         P(_leader_tracked, follower_waits=False, mode=PARTITIONED), (((128, 64), "float32"),),
         arch="sm_100a", reference=lambda x: x.reshape(2, 64, 64)),
    Pair("leader-tracked-wait", P(_leader_tracked, follower_waits=True, mode=REPLICATED),
         P(_leader_tracked, follower_waits=False, mode=REPLICATED), (((64, 64), "float32"),),
         arch="sm_100a", name="replicated", reference=_twice),
    Pair("cluster-smem-reuse", P(_exchange, met=False), _exchange, (TILES,),
         ("ClusterBarrier",), name="remote store", reference=lambda x: x[::-1] * 2),
    Pair("read-before-arrival", P(_exchange, wait=False), _exchange, (TILES,),
         ("barrier_wait",), name="remote store", reference=lambda x: x[::-1] * 2, differs=True),
    Pair("data-race", P(_neighbour, meet=False), P(_neighbour, meet=True), (TILES,),
         ("Give the two blocks a plgpu.ClusterBarrier",), name="neighbour",
         reference=lambda x: x[::-1]),
    Pair("data-race", P(_fetch, ready=False), _fetch, (TILES,),
         ("Give the two blocks a plgpu.ClusterBarrier",), name="fetch",
         reference=lambda x: x[::-1]),
    Pair("data-race", P(_one_row, own=False), P(_one_row, own=True), (((2, 128), "float32"),),
         ("give each block a part of its own", 'jax.lax.axis_index("c")', "plgpu.ClusterBarrier"),
         name="one row", reference=lambda x: x),
    Pair("cluster-smem-reuse", P(_parts, own=False), P(_parts, own=True), (TILES,),
         ("a slot of its own", 'jax.lax.axis_index("c")', "plgpu.ClusterBarrier"),
         name="one slot", reference=lambda x: x[0] + x[1]),
    Pair("cluster-memory-ended", P(_fetch, meet=False), _fetch, (TILES,),
         ("scope",), reference=lambda x: x[::-1]),
    Pair("cluster-memory-ended", P(_fetch, inner=True, meet=False), P(_fetch, inner=True),
         (TILES,), ("scope",), name="inner", reference=lambda x: x[::-1]),
    Pair("cluster-memory-ended", P(_last_word, wait=False), P(_last_word, wait=True),
         (TILES,), ("scope",), name="arrival", reference=lambda x: x),
    Pair("cluster-smem-reuse", P(_square, axes=("a", "b")), P(_square, axes=(("a", "b"),)),
         (((2, 128), "float32"),), ("ClusterBarrier",), name="rows and columns only",
         reference=lambda x: jax.numpy.stack([x] * 4)),
]  # fmt: skip
