"""Wrong answers to tmem_and_tcgen05.batched."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

ORDERS = plgpu.Barrier(orders_tensor_core=True)


def _run(a, b, multiply, store, *, stored=ORDERS):
    """The notebook's frame: `multiply(i, acc, a, b, done, stored)` and `store(...)` per batch."""
    batches = a.shape[0]

    def kernel(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, a_loaded, b_loaded, done, stored):
        @pl.when(jax.lax.axis_index("thread") == 0)
        def _():
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, b_loaded)
            for i in range(batches):
                plgpu.copy_gmem_to_smem(a_gmem.at[i], a_smem.at[i], a_loaded.at[i])
            plgpu.barrier_wait(b_loaded)
            for i in range(batches):
                plgpu.barrier_wait(a_loaded.at[i])
                multiply(i, acc_tmem, a_smem, b_smem, done, stored)

        @pl.when(jax.lax.axis_index("thread") == 1)
        def _():
            for i in range(batches):
                store(i, acc_tmem, c_gmem, done, stored)

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, jnp.float16),
        b_smem=plgpu.SMEM(b.shape, jnp.float16),
        acc_tmem=plgpu.TMEM((128, b.shape[1]), jnp.float32),
        a_loaded=plgpu.Barrier(num_barriers=batches),
        b_loaded=plgpu.Barrier(),
        done=ORDERS,
        stored=stored,
    )
    out_type = jax.ShapeDtypeStruct((batches, 128, b.shape[1]), jnp.float32)
    options = dict(scratch_types=scratch, num_threads=2, thread_name="thread")
    return plgpu.kernel(kernel, out_type=out_type, **options)(a, b)


def _multiply(i, acc_tmem, a_smem, b_smem, done, stored):
    if i > 0:
        plgpu.barrier_wait(stored)
    plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=False)


def _store(i, acc_tmem, c_gmem, done, stored):
    plgpu.barrier_wait(done)
    c_gmem[i] = plgpu.async_load_tmem(acc_tmem)
    plgpu.wait_load_tmem()
    plgpu.barrier_arrive(stored)


def does_not_order(a, b):
    """stored = plgpu.Barrier(): a thread arrives on it, not the TensorCore."""
    return _run(a, b, _multiply, _store, stored=plgpu.Barrier())


def no_wait_for_the_load(a, b):
    """The values are in c_gmem, so the load must be over."""

    def store(i, acc_tmem, c_gmem, done, stored):
        plgpu.barrier_wait(done)
        c_gmem[i] = plgpu.async_load_tmem(acc_tmem)
        plgpu.barrier_arrive(stored)

    return _run(a, b, _multiply, store)


def no_back_pressure(a, b):
    """Thread 0 does not wait for thread 1."""

    def multiply(i, acc_tmem, a_smem, b_smem, done, stored):
        plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=False)

    return _run(a, b, multiply, _store)


def waits_in_the_first_round(a, b):
    """The accumulator is free in the first round, and nobody says so."""

    def multiply(i, acc_tmem, a_smem, b_smem, done, stored):
        plgpu.barrier_wait(stored)
        plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=False)

    return _run(a, b, multiply, _store)


def arrives_too_early(a, b):
    """Says that the accumulator is free, and takes the product out."""

    def store(i, acc_tmem, c_gmem, done, stored):
        plgpu.barrier_wait(done)
        plgpu.barrier_arrive(stored)
        c_gmem[i] = plgpu.async_load_tmem(acc_tmem)
        plgpu.wait_load_tmem()

    return _run(a, b, _multiply, store)


def adds_up(a, b):
    """Each product is added to the ones before."""

    def multiply(i, acc_tmem, a_smem, b_smem, done, stored):
        if i > 0:
            plgpu.barrier_wait(stored)
        plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=i > 0)

    return _run(a, b, multiply, _store)


WRONG = {
    "does not order": Wrong(
        does_not_order, "missing-orders-tensor-core", ("acc_tmem", "orders_tensor_core=True")
    ),
    "no wait for the load": Wrong(
        no_wait_for_the_load, "tmem-load-not-waited", ("acc_tmem", "wait_load_tmem")
    ),
    "no back-pressure": Wrong(no_back_pressure, "barrier-overrun", ("done",)),
    "waits in the first round": Wrong(waits_in_the_first_round, "deadlock", ("stored",)),
    "arrives too early": Wrong(arrives_too_early, "race", ("acc_tmem",)),
    "adds up": Wrong(adds_up, "value", ("Element",)),
}
