"""Wrong answers to tmem_and_tcgen05.eight_bit_product."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from course_lib.kernels import tmem_and_tcgen05 as kernels
from tests.wrong_answers import Wrong

F32, SCALE = jnp.float32, jnp.float8_e8m0fnu
LAYOUT = plgpu.TMEMLayout.SCALES_LAYOUT


def _run(x, w, body, *, wait=True, x_blocks=None):
    """The notebook's frame: `body(acc, x, w, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done)`."""
    (n, k), (x, x_scales), (w, w_scales) = w.shape, kernels.quantize(x), kernels.quantize(w)
    x_scales, w_scales = kernels.pack_scales(x_scales), kernels.pack_scales(w_scales)

    def kernel(x_gmem, w_gmem, xs_gmem, ws_gmem, c_gmem, x_smem, w_smem, xs_smem, ws_smem,
               xs_tmem, ws_tmem, acc_tmem, loaded, done):  # fmt: skip
        pairs = (x_gmem, x_smem), (w_gmem, w_smem), (xs_gmem, xs_smem), (ws_gmem, ws_smem)
        for source, target in pairs:
            plgpu.copy_gmem_to_smem(source, target, loaded)
        if wait:
            plgpu.barrier_wait(loaded)
        body(acc_tmem, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done)
        c_gmem[...] = plgpu.async_load_tmem(acc_tmem)

    scratch = dict(
        x_smem=plgpu.SMEM(x.shape, x.dtype),
        w_smem=plgpu.SMEM(w.shape, w.dtype),
        xs_smem=plgpu.SMEM(x_scales.shape, SCALE),
        ws_smem=plgpu.SMEM(w_scales.shape, SCALE),
        xs_tmem=plgpu.TMEM((128, x_blocks or k // 32), SCALE, layout=LAYOUT),
        ws_tmem=plgpu.TMEM((n, k // 32), SCALE, layout=LAYOUT),
        acc_tmem=plgpu.TMEM((128, n), F32),
        loaded=plgpu.Barrier(num_arrivals=4),
        done=plgpu.Barrier(orders_tensor_core=True),
    )
    out_type = jax.ShapeDtypeStruct((128, n), F32)
    return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x, w, x_scales, w_scales)


def _copy(xs_smem, ws_smem, xs_tmem, ws_tmem):
    plgpu.async_copy_scales_to_tmem(xs_smem, xs_tmem)
    plgpu.async_copy_scales_to_tmem(ws_smem, ws_tmem)


def no_scales(x, w):
    """The MMA is not told about the scales."""

    def body(acc, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done):
        _copy(xs_smem, ws_smem, xs_tmem, ws_tmem)
        plgpu.tcgen05_mma(acc, x_smem, w_smem.transpose((1, 0)), done, accumulate=False)
        plgpu.barrier_wait(done)

    return _run(x, w, body)


def never_copied(x, w):
    """The scales are in SMEM; the MMA reads TMEM."""

    def body(acc, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done):
        plgpu.tcgen05_mma(
            acc, x_smem, w_smem.transpose((1, 0)), done, a_scale=xs_tmem, b_scale=ws_tmem,
            accumulate=False,
        )  # fmt: skip
        plgpu.barrier_wait(done)

    return _run(x, w, body)


def not_transposed(x, w):
    """w_smem is (n, k), and the MMA wants (k, n)."""

    def body(acc, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done):
        _copy(xs_smem, ws_smem, xs_tmem, ws_tmem)
        plgpu.tcgen05_mma(
            acc, x_smem, w_smem, done, a_scale=xs_tmem, b_scale=ws_tmem, accumulate=False
        )
        plgpu.barrier_wait(done)

    return _run(x, w, body)


def copies_too_early(x, w):
    """The scales go to TMEM before they are known to be in SMEM."""

    def body(acc, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done):
        _copy(xs_smem, ws_smem, xs_tmem, ws_tmem)
        plgpu.barrier_wait(loaded)
        plgpu.tcgen05_mma(
            acc, x_smem, w_smem.transpose((1, 0)), done, a_scale=xs_tmem, b_scale=ws_tmem,
            accumulate=False,
        )  # fmt: skip
        plgpu.barrier_wait(done)

    return _run(x, w, body, wait=False)


def does_not_wait(x, w):
    """Commits, and reads at once."""

    def body(acc, x_smem, w_smem, xs_smem, ws_smem, xs_tmem, ws_tmem, loaded, done):
        _copy(xs_smem, ws_smem, xs_tmem, ws_tmem)
        plgpu.tcgen05_mma(
            acc, x_smem, w_smem.transpose((1, 0)), done, a_scale=xs_tmem, b_scale=ws_tmem,
            accumulate=False,
        )  # fmt: skip

    return _run(x, w, body)


WRONG = {
    "no scales": Wrong(no_scales, "value", ("Element",)),
    "never copied": Wrong(never_copied, "nan", ("xs_tmem",)),
    "not transposed": Wrong(not_transposed, "exception", ("shape",)),
    "copies too early": Wrong(copies_too_early, "mma-operand-not-arrived", ("barrier_wait",)),
    "does not wait": Wrong(does_not_wait, "tmem-mma-not-waited", ("acc_tmem", "barrier_wait")),
}
