"""Wrong answers to flash_attention.weights."""

from __future__ import annotations

import math

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(s, body):
    """The notebook's frame; `body` gets the scores and each row's largest."""

    def kernel(s_gmem, p_gmem):
        s = plgpu.load(s_gmem, layout=plgpu.Layout.WGMMA, optimized=False)
        p_gmem[...] = body(s, jnp.max(s, axis=1))

    params = plgpu.CompilerParams(approx_math=True)
    return plgpu.kernel(kernel, out_type=s, compiler_params=params)(s)


def with_exp(s, *, head_dim):
    """Right, with exp: a product more per element."""
    scale = head_dim**-0.5
    return _run(s, lambda s, row_max: jnp.exp(s * scale - (row_max * scale)[:, None]))


def difference_first(s, *, head_dim):
    """Right, but a difference and a product cannot be one instruction."""
    factor = math.log2(math.e) * head_dim**-0.5
    return _run(s, lambda s, row_max: jnp.exp2((s - row_max[:, None]) * factor))


def two_products(s, *, head_dim):
    """Right: the scale inside, log2(e) outside, so two products."""
    scale = head_dim**-0.5

    def body(s, row_max):
        return jnp.exp2((s * scale - (row_max * scale)[:, None]) * math.log2(math.e))

    return _run(s, body)


def without_log2_e(s, *, head_dim):
    """Powers of two of what should be powers of e."""
    scale = head_dim**-0.5
    return _run(s, lambda s, row_max: jnp.exp2(s * scale - (row_max * scale)[:, None]))


def natural_log_of_two(s, *, head_dim):
    """ln(2) instead of log2(e): the other way round."""
    factor = math.log(2) * head_dim**-0.5
    return _run(s, lambda s, row_max: jnp.exp2(s * factor - (row_max * factor)[:, None]))


def maximum_without_the_factor(s, *, head_dim):
    """The scores are scaled, the maximum is not."""
    factor = math.log2(math.e) * head_dim**-0.5
    return _run(s, lambda s, row_max: jnp.exp2(s * factor - row_max[:, None]))


WRONG = {
    "with exp": Wrong(with_exp, "means", ("`jax.lax.exp`",)),
    "difference first": Wrong(difference_first, "means", ("0 FFMA instructions",)),
    "two products": Wrong(two_products, "means", ("FMUL instructions; expected at most 8",)),
    "without log2(e)": Wrong(without_log2_e, "value", ("Element [",)),
    "the natural log of two": Wrong(natural_log_of_two, "value", ("Element [",)),
    "maximum without the factor": Wrong(maximum_without_the_factor, "value", ("Element [",)),
}
