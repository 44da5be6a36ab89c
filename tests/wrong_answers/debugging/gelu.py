"""Wrong answers to debugging.gelu."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

ROUGH = plgpu.CompilerParams(approx_math=True)


def _run(x, formula, params=ROUGH):
    def kernel(x_gmem, y_gmem):
        y_gmem[...] = formula(x_gmem[...])

    return plgpu.kernel(kernel, out_type=x, compiler_params=params)(x)


def _inner(x):
    return 0.7978845608 * (x + 0.044715 * x * x * x)


def exact(x):
    """Right, and the compiler may not approximate."""
    return _run(x, lambda x: 0.5 * x * (1 + jnp.tanh(_inner(x))), None)


def by_exponentials(x):
    """tanh as people write it out: two exponentials and a division."""

    def formula(x):
        e = jnp.exp(-2 * _inner(x))
        return 0.5 * x * (1 + (1 - e) / (1 + e))

    return _run(x, formula)


def without_the_half(x):
    """Forgets the factor in front."""
    return _run(x, lambda x: x * (1 + jnp.tanh(_inner(x))))


def a_square(x):
    """x squared instead of cubed."""
    return _run(x, lambda x: 0.5 * x * (1 + jnp.tanh(0.7978845608 * (x + 0.044715 * x * x))))


WRONG = {
    "exact": Wrong(exact, "means", ("tanh.approx.f32",)),
    "by exponentials": Wrong(by_exponentials, "means", ("tanh",)),
    "without the half": Wrong(without_the_half, "value", ("2",)),
    "a square": Wrong(a_square, "value", ("float32[1024]", "1024 are wrong")),
}
