"""Wrong answers to collective_mma.pair_product."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

HALF = plgpu.CopyPartition.PARTITIONED


def _run(a, b, body, **changes):
    """The notebook's frame around the learner's lines."""
    (_, k), n = a.shape, b.shape[1]
    scratch = dict(
        a_smem=plgpu.SMEM((128, k), a.dtype),
        b_smem=plgpu.SMEM((k, n // 2), b.dtype),
        acc_tmem=plgpu.TMEM((128, n), jnp.float32, collective=True),
        loaded=plgpu.Barrier(num_arrivals=2),
        done=plgpu.Barrier(orders_tensor_core=True),
    )

    def kernel(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((256, n), jnp.float32),
        scratch_types=scratch | changes,
        cluster=(2,),
        cluster_names=("pair",),
    )(a, b)


def _load(a_gmem, b_gmem, a_smem, b_smem, loaded, axes=(0, 1)):
    for axis, source, target in ((axes[0], a_gmem, a_smem), (axes[1], b_gmem, b_smem)):
        plgpu.copy_gmem_to_smem(
            source, target, loaded, collective_axes="pair", leader_tracked=HALF(axis)
        )


def _multiply(acc_tmem, a_smem, b_smem, done):
    plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, accumulate=False, collective_axis="pair")


def both_wait(a, b):
    """The other block waits for the loads as well."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")
        _load(a_gmem, b_gmem, a_smem, b_smem, loaded)
        plgpu.barrier_wait(loaded)
        pl.when(block == 0)(lambda: _multiply(acc_tmem, a_smem, b_smem, done))
        plgpu.barrier_wait(done)
        c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def nobody_waits(a, b):
    """Multiplies at once."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")
        _load(a_gmem, b_gmem, a_smem, b_smem, loaded)
        pl.when(block == 0)(lambda: _multiply(acc_tmem, a_smem, b_smem, done))
        plgpu.barrier_wait(done)
        pl.when(block == 0)(lambda: plgpu.barrier_wait(loaded))
        c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def leader_loads(a, b):
    """Only the leader issues the copies."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")

        @pl.when(block == 0)
        def _():
            _load(a_gmem, b_gmem, a_smem, b_smem, loaded)
            plgpu.barrier_wait(loaded)
            _multiply(acc_tmem, a_smem, b_smem, done)

        plgpu.barrier_wait(done)
        c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def same_rows(a, b):
    """Both blocks write the upper rows."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")
        _load(a_gmem, b_gmem, a_smem, b_smem, loaded)

        @pl.when(block == 0)
        def _():
            plgpu.barrier_wait(loaded)
            _multiply(acc_tmem, a_smem, b_smem, done)

        plgpu.barrier_wait(done)
        c_gmem[pl.ds(0, 128)] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def private_tmem(a, b):
    """The accumulator is not collective."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")
        _load(a_gmem, b_gmem, a_smem, b_smem, loaded)

        @pl.when(block == 0)
        def _():
            plgpu.barrier_wait(loaded)
            _multiply(acc_tmem, a_smem, b_smem, done)

        plgpu.barrier_wait(done)
        c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body, acc_tmem=plgpu.TMEM((128, b.shape[1]), jnp.float32))


def reads_at_once(a, b):
    """Does not wait for the MMA."""

    def body(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        block = jax.lax.axis_index("pair")
        _load(a_gmem, b_gmem, a_smem, b_smem, loaded)

        @pl.when(block == 0)
        def _():
            plgpu.barrier_wait(loaded)
            _multiply(acc_tmem, a_smem, b_smem, done)

        c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)
        plgpu.barrier_wait(done)

    return _run(a, b, body)


def whole_b(a, b):
    """Each block has room for all of b."""
    return _run(
        a,
        b,
        lambda a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done: _load(
            a_gmem, b_gmem, a_smem, b_smem, loaded
        ),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
    )


WRONG = {
    "both wait": Wrong(both_wait, "leader-tracked-wait", ("block 1 waits for completion 1",)),
    "nobody waits": Wrong(nobody_waits, "mma-operand-not-arrived", ("pair_product.py",)),
    "leader loads": Wrong(leader_loads, "deadlock", ("still lack",)),
    "same rows": Wrong(same_rows, "race", ("c_gmem",)),
    "private TMEM": Wrong(private_tmem, "not-collective", ("collective=True",)),
    "reads at once": Wrong(reads_at_once, "race", ("acc_tmem",)),
    "all of b": Wrong(whole_b, "exception", ("Dim 1 is partitioned",)),
}
