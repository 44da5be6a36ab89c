"""Copies, fences and groups."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax

from tests.simulator.litmus.pair import Pair

F32 = jnp.float32
TILE = ((128,), "float32")


def _launch(body, x, scratch, out=None, **mesh):
    return plgpu.kernel(body, out_type=out or x, scratch_types=scratch, **mesh)(x)


def _store(x, *, commit=True, wait=True, read_only=False):
    def body(x_gmem, o_gmem, smem):
        smem[...] = x_gmem[...] * 2
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_gmem)
        if wait:
            plgpu.wait_smem_to_gmem(0, wait_read_only=read_only)

    return _launch(body, x, [plgpu.SMEM((128,), F32)])


def _load(x, *, wait=True, wait_after=False):
    def body(x_gmem, o_gmem, smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        if wait:
            plgpu.barrier_wait(barrier)
        o_gmem[...] = smem[...]
        if wait_after:
            plgpu.barrier_wait(barrier)

    return _launch(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()])


def _refill_after_write(x, *, commit):
    def body(x_gmem, o_gmem, smem, barrier):
        smem[...] = jnp.ones((128,), F32)
        if commit:
            plgpu.commit_smem()
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        plgpu.barrier_wait(barrier)
        o_gmem[...] = smem[...]

    return _launch(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()])


def _refill_after_read(x, *, commit):
    def body(x_gmem, o_gmem, smem, barrier):
        total = jnp.zeros((128,), F32)
        for i in range(2):
            plgpu.copy_gmem_to_smem(x_gmem.at[i], smem, barrier)
            plgpu.barrier_wait(barrier)
            total += smem[...]
            if commit:
                plgpu.commit_smem()
        o_gmem[...] = total

    out = jax.ShapeDtypeStruct((128,), F32)
    return _launch(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()], out)


def _reuse_source(x, *, wait):
    def body(x_gmem, o_gmem, smem):
        for i in range(2):
            smem[...] = x_gmem[i]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem, o_gmem.at[i])
            if wait:
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        plgpu.wait_smem_to_gmem(0)

    return _launch(body, x, [plgpu.SMEM((128,), F32)])


def _wrong_group_count(x, *, n):
    """Two buffers in turn: before one is used again, all but one group must be over."""

    def body(x_gmem, o_gmem, smem):
        for i in range(4):
            if i >= 2:
                plgpu.wait_smem_to_gmem(n, wait_read_only=True)
            smem[i % 2] = x_gmem[i]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem.at[i % 2], o_gmem.at[i])
        plgpu.wait_smem_to_gmem(0)

    return _launch(body, x, [plgpu.SMEM((2, 128), F32)])


def _read_back(x, *, read_only):
    def body(x_gmem, o_gmem, smem):
        smem[...] = x_gmem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_gmem)
        plgpu.wait_smem_to_gmem(0, wait_read_only=read_only)
        o_gmem[...] = o_gmem[...] + 1

    return _launch(body, x, [plgpu.SMEM((128,), F32)])


def _group(x, *, commit):
    def body(x_gmem, o_gmem, smem):
        smem[...] = x_gmem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_gmem, commit_group=False)
        if commit:
            plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0)

    return _launch(body, x, [plgpu.SMEM((128,), F32)])


def _other_threads_wait(x, *, right):
    def body(x_gmem, o_gmem, smem, written, stored):
        thread = lax.axis_index("t")

        @pl.when(thread == 0)
        def _():
            smem[...] = x_gmem[...]
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(smem, o_gmem)
            if not right:
                plgpu.barrier_arrive(stored)
            plgpu.wait_smem_to_gmem(0)
            if right:
                plgpu.barrier_arrive(stored)

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_wait(stored)
            plgpu.wait_smem_to_gmem(0)
            smem[...] = jnp.ones((128,), F32)

    scratch = [plgpu.SMEM((128,), F32), plgpu.Barrier(), plgpu.Barrier()]
    return _launch(body, x, scratch, num_threads=2, thread_name="t")


def _unfinished_load(x, *, wait):
    def body(x_gmem, o_gmem, smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        o_gmem[...] = x_gmem[...]
        if wait:
            plgpu.barrier_wait(barrier)

    return _launch(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()])


def _tiled_slice(x, *, start):
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def body(x_gmem, o_gmem, smem, barrier):
        at = lax.axis_index("g") + start
        plgpu.copy_gmem_to_smem(x_gmem, smem.at[pl.ds(at, 8)], barrier)
        plgpu.barrier_wait(barrier)
        o_gmem[...] = smem[pl.ds(at, 8)]

    scratch = [plgpu.SMEM((16, 64), jnp.float16, transforms=transforms), plgpu.Barrier()]
    return _launch(body, x, scratch, grid=(1,), grid_names=("g",))


def _global_slice(x, *, start):
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def body(x_gmem, o_gmem, smem, barrier):
        at = lax.axis_index("g") + start
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(at, 8)], smem, barrier)
        plgpu.barrier_wait(barrier)
        o_gmem[...] = smem[...]

    scratch = [plgpu.SMEM((8, 64), jnp.float16, transforms=transforms), plgpu.Barrier()]
    out = jax.ShapeDtypeStruct((8, 64), jnp.float16)
    return _launch(body, x, scratch, out, grid=(1,), grid_names=("g",))


def _two_copies(x, *, arrivals):
    """Two copies arrive on one barrier before the wait."""

    def body(x_gmem, o_gmem, a, b, loaded):
        plgpu.copy_gmem_to_smem(x_gmem.at[0], a, loaded)
        plgpu.copy_gmem_to_smem(x_gmem.at[1], b, loaded)
        plgpu.barrier_wait(loaded)
        o_gmem[...] = a[...] + b[...]

    tile = plgpu.SMEM((128,), F32)
    out = jax.ShapeDtypeStruct((128,), F32)
    return _launch(body, x, [tile, tile, plgpu.Barrier(num_arrivals=arrivals)], out)


def _past_the_end(x, *, mode):
    """The second block's slice sticks out of the array by 32 rows."""

    def body(x_gmem, o_gmem, smem, loaded):
        rows = pl.ds(lax.axis_index("g") * 64, 64)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], smem, loaded, oob_mode=mode)
        plgpu.barrier_wait(loaded)
        plgpu.copy_smem_to_gmem(smem, o_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM((64, 32), F32), plgpu.Barrier()]
    out = jax.ShapeDtypeStruct((128, 32), F32)
    return _launch(body, x, scratch, out, grid=(2,), grid_names=("g",))


def _one_tile(x, *, start):
    """A copy out of shared memory to columns of an array that is one tile wide."""

    def body(x_gmem, o_gmem, smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, smem, loaded)
        plgpu.barrier_wait(loaded)
        columns = pl.ds(lax.axis_index("g") + start, 64)
        plgpu.copy_smem_to_gmem(smem, o_gmem.at[:, columns])
        plgpu.wait_smem_to_gmem(0)

    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    scratch = [plgpu.SMEM((64, 64), jnp.float16, transforms=transforms), plgpu.Barrier()]
    return _launch(body, x, scratch, grid=(1,), grid_names=("g",))


def _gathers(x, *, by_tma, beyond=0):
    """Every fifth row, by one copy or by a plain read."""

    def body(x_gmem, o_gmem, smem, loaded):
        rows = (lax.broadcasted_iota(jnp.int32, (16,), 0) * 5) % 64 + beyond
        rows = plgpu.layout_cast(rows, plgpu.Layout.TMA_INDICES)
        if by_tma:
            plgpu.copy_gmem_to_smem(x_gmem.at[rows], smem, loaded)
            plgpu.barrier_wait(loaded)
            o_gmem[...] = smem[...]
        else:
            o_gmem[...] = x_gmem[rows]

    scratch = [plgpu.SMEM((16, 32), F32), plgpu.Barrier()]
    return _launch(body, x, scratch, jax.ShapeDtypeStruct((16, 32), F32))


def _indexed(x, *, start, copy=False):
    """A row by its number, which is computed."""

    def body(x_gmem, o_gmem, smem, loaded):
        row = lax.axis_index("g") + start
        if copy:
            plgpu.copy_gmem_to_smem(x_gmem.at[row], smem, loaded)
            plgpu.barrier_wait(loaded)
            o_gmem[...] = smem[...]
        else:
            o_gmem[...] = x_gmem[row]

    out = jax.ShapeDtypeStruct((128,), F32)
    scratch = [plgpu.SMEM((128,), F32), plgpu.Barrier()]
    return _launch(body, x, scratch, out, grid=(1,), grid_names=("g",))


def _padded(x):
    return jnp.pad(x, ((0, 32), (0, 0)))


P = functools.partial
Fill = plgpu.OOBFillMode

PAIRS = [
    Pair("missing-commit-smem", P(_store, commit=False), _store, (TILE,),
         ("commit_smem", "smem"), reference=lambda x: x * 2),
    Pair("missing-commit-smem", P(_refill_after_write, commit=False),
         P(_refill_after_write, commit=True), (TILE,), name="before a load"),
    Pair("missing-commit-smem-after-read", P(_refill_after_read, commit=False),
         P(_refill_after_read, commit=True), (((2, 128), "float32"),)),
    Pair("read-before-arrival", P(_load, wait=False, wait_after=True), _load, (TILE,),
         ("barrier_wait", "smem"), reference=lambda x: x, differs=True),
    Pair("unfinished-copy", P(_store, wait=False), _store, (TILE,), ("wait_smem_to_gmem",)),
    Pair("unfinished-copy", P(_unfinished_load, wait=False), P(_unfinished_load, wait=True),
         (TILE,), ("barrier_wait",), name="load"),
    Pair("store-source-overwritten", P(_reuse_source, wait=False), P(_reuse_source, wait=True),
         (((2, 128), "float32"),), ("wait_smem_to_gmem",), reference=lambda x: x, differs=True),
    Pair("store-source-overwritten", P(_wrong_group_count, n=2), P(_wrong_group_count, n=1),
         (((4, 128), "float32"),), name="wrong n", reference=lambda x: x, differs=True),
    Pair("store-not-waited", P(_read_back, read_only=True), P(_read_back, read_only=False),
         (TILE,), reference=lambda x: x + 1, differs=True),
    Pair("uncommitted-copy", P(_group, commit=False), P(_group, commit=True), (TILE,),
         ("commit_smem_to_gmem_group",)),
    Pair("wait-from-another-thread", P(_other_threads_wait, right=False),
         P(_other_threads_wait, right=True), (TILE,)),
    Pair("unaligned-offset", P(_tiled_slice, start=4), P(_tiled_slice, start=8),
         (((8, 64), "float16"),)),
    Pair("unaligned-offset", P(_global_slice, start=4), P(_global_slice, start=8),
         (((16, 64), "float16"),), ("x_gmem",), name="global side"),
    Pair("barrier-overrun", P(_two_copies, arrivals=1), P(_two_copies, arrivals=2),
         (((2, 128), "float32"),), ("num_arrivals=2",), name="copies",
         reference=lambda x: x.sum(0)),
    Pair("out-of-bounds", P(_past_the_end, mode=Fill.PROMISE_IN_BOUNDS),
         P(_past_the_end, mode=Fill.ZEROS), (((96, 32), "float32"),), ("promised",),
         name="promise", reference=_padded),
    Pair("out-of-bounds", P(_one_tile, start=64), P(_one_tile, start=0), (((64, 64), "float16"),),
         ("lands on the first tile",), name="one tile", reference=lambda x: x),
    Pair("uninitialized-read", P(_past_the_end, mode=Fill.UNDEFINED),
         P(_past_the_end, mode=Fill.ZEROS), (((96, 32), "float32"),), name="undefined fill",
         reference=_padded),
    Pair("wrong-architecture", P(_gathers, by_tma=True), P(_gathers, by_tma=False),
         (((64, 32), "float32"),), ("Blackwell",)),
    Pair("out-of-bounds", P(_gathers, by_tma=True, beyond=60), P(_gathers, by_tma=True),
         (((64, 32), "float32"),), ("gives noughts",), name="gather",
         arch="sm_100a"),
    Pair("out-of-bounds", P(_indexed, start=-1), P(_indexed, start=1), (((2, 128), "float32"),),
         name="negative", reference=lambda x: x[1]),
    Pair("out-of-bounds", P(_indexed, start=-1, copy=True), P(_indexed, start=1, copy=True),
         (((2, 128), "float32"),), ("element -1",), name="negative copy",
         reference=lambda x: x[1]),
    Pair("out-of-bounds", P(_indexed, start=2, copy=True), P(_indexed, start=1, copy=True),
         (((2, 128), "float32"),), ("element 2",), name="copy", reference=lambda x: x[1]),
]  # fmt: skip
