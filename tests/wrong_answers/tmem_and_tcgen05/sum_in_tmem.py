"""Wrong answers to tmem_and_tcgen05.sum_in_tmem."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines: `body(x_smem, y_gmem, total_tmem)`."""

    def kernel(x_gmem, y_gmem, x_smem, total_tmem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.barrier_wait(loaded)
        body(x_smem, y_gmem, total_tmem)

    out_type = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    scratch = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        total_tmem=plgpu.TMEM(out_type.shape, x.dtype),
        loaded=plgpu.Barrier(),
    )
    return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x)


def no_wait(x):
    """The value is in registers, so the load must be over."""

    def body(x_smem, y_gmem, total_tmem):
        plgpu.async_store_tmem(total_tmem, x_smem[0])
        plgpu.commit_tmem()

        @pl.loop(1, x.shape[0])
        def _(ti):
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.async_store_tmem(total_tmem, total)
            plgpu.commit_tmem()

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    return _run(x, body)


def no_commit(x):
    """Stores and loads of one thread come in order, or so it seems."""

    def body(x_smem, y_gmem, total_tmem):
        plgpu.async_store_tmem(total_tmem, x_smem[0])
        plgpu.commit_tmem()

        @pl.loop(1, x.shape[0])
        def _(ti):
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.wait_load_tmem()
            plgpu.async_store_tmem(total_tmem, total)

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    return _run(x, body)


def adds_to_nothing(x):
    """TMEM begins with zeros, as ACC does on Hopper."""

    def body(x_smem, y_gmem, total_tmem):
        @pl.loop(0, x.shape[0])
        def _(ti):
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.wait_load_tmem()
            plgpu.async_store_tmem(total_tmem, total)
            plgpu.commit_tmem()

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    return _run(x, body)


def waits_for_the_wrong_half(x):
    """commit_tmem and wait_load_tmem swapped."""

    def body(x_smem, y_gmem, total_tmem):
        plgpu.async_store_tmem(total_tmem, x_smem[0])
        plgpu.wait_load_tmem()

        @pl.loop(1, x.shape[0])
        def _(ti):
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.commit_tmem()
            plgpu.async_store_tmem(total_tmem, total)
            plgpu.wait_load_tmem()

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    return _run(x, body)


def one_tile_too_few(x):
    """range(1, n - 1), a slip."""

    def body(x_smem, y_gmem, total_tmem):
        plgpu.async_store_tmem(total_tmem, x_smem[0])
        plgpu.commit_tmem()

        @pl.loop(1, x.shape[0] - 1)
        def _(ti):
            total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]
            plgpu.wait_load_tmem()
            plgpu.async_store_tmem(total_tmem, total)
            plgpu.commit_tmem()

        y_gmem[...] = plgpu.async_load_tmem(total_tmem)

    return _run(x, body)


def in_registers(x):
    """The running sum as a value: right, and nothing learnt about TMEM."""

    def body(x_smem, y_gmem, total_tmem):
        def step(ti, total):
            return total + x_smem[ti]

        zeros = jnp.zeros(x.shape[1:], x.dtype)
        y_gmem[...] = jax.lax.fori_loop(0, x.shape[0], step, zeros)

    return _run(x, body)


WRONG = {
    "no wait": Wrong(no_wait, "tmem-load-not-waited", ("total_tmem", "wait_load_tmem")),
    "no commit": Wrong(no_commit, "tmem-store-not-committed", ("total_tmem", "commit_tmem")),
    "adds to nothing": Wrong(adds_to_nothing, "nan", ("total_tmem", "nobody has written")),
    "waits swapped": Wrong(waits_for_the_wrong_half, "race", ("total_tmem",)),
    "one tile too few": Wrong(one_tile_too_few, "value", ("Element",)),
    "in registers": Wrong(in_registers, "means", ("async_load",)),
}
