"""Wrong answers to flash_attention.merge."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(o, lse, offset, body):
    """The notebook's frame; `body` returns the output and its lse."""

    def kernel(o_gmem, lse_gmem, all_gmem, all_lse_gmem):
        wgmma = plgpu.Layout.WGMMA
        o_a, o_b = (plgpu.load(o_gmem.at[i], layout=wgmma, optimized=False) for i in (0, 1))
        a, b = (
            plgpu.load(lse_gmem.at[i], layout=wgmma.reduce(1), optimized=False) + offset
            for i in (0, 1)
        )
        all_gmem[...], all_lse_gmem[...] = body(o_a, o_b, a, b)

    out_type = tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in (o, lse))
    return plgpu.kernel(kernel, out_type=out_type)(o, lse)


def without_the_maximum(o, lse, *, offset):
    """exp(200) is infinite."""

    def body(o_a, o_b, a, b):
        w_a, w_b = jnp.exp(a), jnp.exp(b)
        total = w_a + w_b
        out = o_a * (w_a / total)[:, None] + o_b * (w_b / total)[:, None]
        return out, jnp.log(total)

    return _run(o, lse, offset, body)


def the_mean(o, lse, *, offset):
    """As if both halves had the same sum."""

    def body(o_a, o_b, a, b):
        top = jnp.maximum(a, b)
        return (o_a + o_b) / 2, top + jnp.log(jnp.exp(a - top) + jnp.exp(b - top))

    return _run(o, lse, offset, body)


def weights_by_lse(o, lse, *, offset):
    """The logs themselves as weights."""

    def body(o_a, o_b, a, b):
        top = jnp.maximum(a, b)
        total = a + b
        out = o_a * (a / total)[:, None] + o_b * (b / total)[:, None]
        return out, top + jnp.log(jnp.exp(a - top) + jnp.exp(b - top))

    return _run(o, lse, offset, body)


def forgets_to_divide(o, lse, *, offset):
    """The weights do not add up to 1."""

    def body(o_a, o_b, a, b):
        top = jnp.maximum(a, b)
        a, b = jnp.exp(a - top), jnp.exp(b - top)
        return o_a * a[:, None] + o_b * b[:, None], top + jnp.log(a + b)

    return _run(o, lse, offset, body)


def forgets_the_maximum_in_the_lse(o, lse, *, offset):
    """The log of the sum, by the maximum, without it."""

    def body(o_a, o_b, a, b):
        top = jnp.maximum(a, b)
        a, b = jnp.exp(a - top), jnp.exp(b - top)
        out = o_a * (a / (a + b))[:, None] + o_b * (b / (a + b))[:, None]
        return out, jnp.log(a + b)

    return _run(o, lse, offset, body)


def sum_of_the_lses(o, lse, *, offset):
    """Logs of a sum are not summed."""

    def body(o_a, o_b, a, b):
        top = jnp.maximum(a, b)
        w_a, w_b = jnp.exp(a - top), jnp.exp(b - top)
        out = o_a * (w_a / (w_a + w_b))[:, None] + o_b * (w_b / (w_a + w_b))[:, None]
        return out, a + b + 0 * jnp.log(w_a)

    return _run(o, lse, offset, body)


WRONG = {
    "without the maximum": Wrong(without_the_maximum, "nan", ("is nan", "1 shape right before")),
    "the mean": Wrong(the_mean, "value", ("output 1 of 2",)),
    "weights by lse": Wrong(weights_by_lse, "value", ("output 1 of 2",)),
    "forgets to divide": Wrong(forgets_to_divide, "value", ("output 1 of 2",)),
    "forgets the maximum in the lse": Wrong(
        forgets_the_maximum_in_the_lse, "value", ("output 2 of 2",)
    ),
    "the sum of the lses": Wrong(sum_of_the_lses, "value", ("output 2 of 2",)),
}
