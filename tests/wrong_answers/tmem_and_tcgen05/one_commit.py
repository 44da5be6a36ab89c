"""Wrong answers to tmem_and_tcgen05.one_commit."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(a, b, body):
    """The notebook's frame: `body(steps, c, a_smem, b_smem, acc, loaded, done)`."""
    steps, n = a.shape[1] // 64, b.shape[1]

    def kernel(a_gmem, b_gmem, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            ks = pl.ds(ki * 64, 64)
            plgpu.copy_gmem_to_smem(a_gmem.at[:, ks], a_smem.at[ki], loaded.at[ki])
            plgpu.copy_gmem_to_smem(b_gmem.at[ks], b_smem.at[ki], loaded.at[ki])
        body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done)

    scratch = dict(
        a_smem=plgpu.SMEM((steps, 128, 64), jnp.float16),
        b_smem=plgpu.SMEM((steps, 64, n), jnp.float16),
        acc_tmem=plgpu.TMEM((128, n), jnp.float32),
        loaded=plgpu.Barrier(num_arrivals=2, num_barriers=steps),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    out_type = jax.ShapeDtypeStruct((128, n), jnp.float32)
    return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(a, b)


def always_adds(a, b):
    """accumulate=True for the first MMA as well: its default."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki])
        plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def never_adds(a, b):
    """accumulate=False for all of them: the last product alone."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=False)
        plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def waits_for_the_first_tile(a, b):
    """Only the first tile is waited for; of the others nothing is known."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        plgpu.barrier_wait(loaded.at[0])
        for ki in range(steps):
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)
        plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def reads_at_once(a, b):
    """A commit is no wait."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)
        plgpu.tcgen05_commit_arrive(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)
        plgpu.barrier_wait(done)

    return _run(a, b, body)


def commits_in_the_loop(a, b):
    """A commit for each MMA, and one wait."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)
            plgpu.tcgen05_commit_arrive(done)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def nobody_tells(a, b):
    """No commit at all."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)
        plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


def a_wait_for_each(a, b):
    """Right, but each MMA has a barrier and a wait: no commit, and the TensorCore idles."""

    def body(steps, c_gmem, a_smem, b_smem, acc_tmem, loaded, done):
        for ki in range(steps):
            plgpu.barrier_wait(loaded.at[ki])
            plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], done, accumulate=ki > 0)
            plgpu.barrier_wait(done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    return _run(a, b, body)


WRONG = {
    "always adds": Wrong(always_adds, "nan", ("acc_tmem", "nobody has written")),
    "never adds": Wrong(never_adds, "value", ("Element",)),
    "waits for the first tile": Wrong(
        waits_for_the_first_tile, "mma-operand-not-arrived", ("a_smem", "barrier_wait")
    ),
    "reads at once": Wrong(reads_at_once, "tmem-mma-not-waited", ("acc_tmem", "loads from")),
    "commits in the loop": Wrong(commits_in_the_loop, "barrier-overrun", ("done",)),
    "nobody tells": Wrong(nobody_tells, "deadlock", ("done", "0 of 1 arrival")),
    "a wait for each": Wrong(a_wait_for_each, "means", ("tcgen05_commit_arrive",)),
}
