"""Wrong answers to tmem_and_tcgen05.two_products."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

F16, F32 = jnp.float16, jnp.float32


def _run(a, b, c, body, *, packed=True):
    """The notebook's frame: `body(d, acc, relu, out, c_smem, done)` after the first product."""
    n, p = c.shape

    def kernel(
        a_gmem, b_gmem, c_gmem, d_gmem, a_smem, b_smem, c_smem, acc, relu, out, loaded, done
    ):
        for source, target in ((a_gmem, a_smem), (b_gmem, b_smem), (c_gmem, c_smem)):
            plgpu.copy_gmem_to_smem(source, target, loaded)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(acc, a_smem, b_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        body(d_gmem, acc, relu, out, c_smem, done)

    scratch = dict(
        a_smem=plgpu.SMEM(a.shape, F16),
        b_smem=plgpu.SMEM(b.shape, F16),
        c_smem=plgpu.SMEM(c.shape, F16),
        acc=plgpu.TMEM((128, n), F32),
        relu=plgpu.TMEM((128, n), F16, packed=packed),
        out=plgpu.TMEM((128, p), F32),
        loaded=plgpu.Barrier(num_arrivals=3),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    out_type = jax.ShapeDtypeStruct((128, p), F32)
    return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(a, b, c)


def _right(d_gmem, acc, relu, out, c_smem, done):
    plgpu.async_store_tmem(relu, jnp.maximum(plgpu.async_load_tmem(acc), 0).astype(F16))
    plgpu.commit_tmem()
    plgpu.tcgen05_mma(out, relu, c_smem, done, accumulate=False)
    plgpu.barrier_wait(done)
    d_gmem[...] = plgpu.async_load_tmem(out)


def no_commit(a, b, c):
    """The MMA reads what the thread has just stored."""

    def body(d_gmem, acc, relu, out, c_smem, done):
        plgpu.async_store_tmem(relu, jnp.maximum(plgpu.async_load_tmem(acc), 0).astype(F16))
        plgpu.tcgen05_mma(out, relu, c_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        d_gmem[...] = plgpu.async_load_tmem(out)

    return _run(a, b, c, body)


def not_packed(a, b, c):
    """packed=False, as for an accumulator of float16."""
    return _run(a, b, c, _right, packed=False)


def no_relu(a, b, c):
    """(a @ b) @ c."""

    def body(d_gmem, acc, relu, out, c_smem, done):
        plgpu.async_store_tmem(relu, plgpu.async_load_tmem(acc).astype(F16))
        plgpu.commit_tmem()
        plgpu.tcgen05_mma(out, relu, c_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        d_gmem[...] = plgpu.async_load_tmem(out)

    return _run(a, b, c, body)


def adds_to_nothing(a, b, c):
    """accumulate=True: its default."""

    def body(d_gmem, acc, relu, out, c_smem, done):
        plgpu.async_store_tmem(relu, jnp.maximum(plgpu.async_load_tmem(acc), 0).astype(F16))
        plgpu.commit_tmem()
        plgpu.tcgen05_mma(out, relu, c_smem, done)
        plgpu.barrier_wait(done)
        d_gmem[...] = plgpu.async_load_tmem(out)

    return _run(a, b, c, body)


def from_registers(a, b, c):
    """The left operand as a value, as Hopper's wgmma takes it."""

    def body(d_gmem, acc, relu, out, c_smem, done):
        value = jnp.maximum(plgpu.async_load_tmem(acc), 0).astype(F16)
        plgpu.tcgen05_mma(out, value, c_smem, done, accumulate=False)
        plgpu.barrier_wait(done)
        d_gmem[...] = plgpu.async_load_tmem(out)

    return _run(a, b, c, body)


def reads_at_once(a, b, c):
    """One wait too few: the first one was for the first product."""

    def body(d_gmem, acc, relu, out, c_smem, done):
        plgpu.async_store_tmem(relu, jnp.maximum(plgpu.async_load_tmem(acc), 0).astype(F16))
        plgpu.commit_tmem()
        plgpu.tcgen05_mma(out, relu, c_smem, done, accumulate=False)
        d_gmem[...] = plgpu.async_load_tmem(out)
        plgpu.barrier_wait(done)

    return _run(a, b, c, body)


WRONG = {
    "no commit": Wrong(no_commit, "tmem-store-not-committed", ("relu", "commit_tmem")),
    "not packed": Wrong(not_packed, "illegal-mma", ("packed",)),
    "no relu": Wrong(no_relu, "value", ("Element",)),
    "adds to nothing": Wrong(adds_to_nothing, "nan", ("out", "nobody has written")),
    "from registers": Wrong(from_registers, "exception", ("LHS must be a TMEM/SMEM Ref",)),
    "reads at once": Wrong(reads_at_once, "tmem-mma-not-waited", ("out", "loads from")),
}
