"""Wrong answers to debugging.pull_back."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _value(x):
    def kernel(x_gmem, y_gmem):
        x = x_gmem[...]
        y_gmem[...] = x * x / (1 + x * x)

    return plgpu.kernel(kernel, out_type=x)(x)


def _slope(x, ct, formula):
    def kernel(x_gmem, ct_gmem, dx_gmem):
        dx_gmem[...] = formula(x_gmem[...], ct_gmem[...])

    return plgpu.kernel(kernel, out_type=x)(x, ct)


def _right(x, ct):
    return ct * 2 * x / ((1 + x * x) * (1 + x * x))


def _vjp(x, ct, forward, backward):
    f = jax.custom_vjp(_value)
    f.defvjp(forward, backward)
    return jax.vjp(f, x)[1](ct)[0]


def no_derivative(x, ct):
    """Hopes that JAX finds it."""
    return jax.vjp(_value, x)[1](ct)[0]


def without_ct(x, ct):
    """The derivative, whatever comes from above."""
    return _vjp(
        x, ct, lambda x: (_value(x), x), lambda x, ct: (_slope(x, ct, lambda x, _: _right(x, 1.0)),)
    )


def keeps_the_result(x, ct):
    """Keeps y instead of x."""

    def forward(x):
        y = _value(x)
        return y, y

    return _vjp(x, ct, forward, lambda x, ct: (_slope(x, ct, _right),))


def no_tuple(x, ct):
    """Returns an array where a tuple is wanted."""
    return _vjp(x, ct, lambda x: (_value(x), x), lambda x, ct: _slope(x, ct, _right))


def one_power_too_few(x, ct):
    """Forgets that the denominator is squared."""

    def formula(x, ct):
        return ct * 2 * x / (1 + x * x)

    return _vjp(x, ct, lambda x: (_value(x), x), lambda x, ct: (_slope(x, ct, formula),))


def only_the_value(x, ct):
    """What is kept is missing."""
    return _vjp(x, ct, _value, lambda x, ct: (_slope(x, ct, _right),))


WRONG = {
    "no derivative": Wrong(no_derivative, "exception", ("Differentiation rule", "not implemented")),
    "without ct": Wrong(without_ct, "value", ("float32[256], float32[256]",)),
    "keeps the result": Wrong(keeps_the_result, "value", ("should be",)),
    "no tuple": Wrong(no_tuple, "exception", ("tuple",)),
    "one power too few": Wrong(one_power_too_few, "value", ("256 are wrong",)),
    "only the value": Wrong(only_the_value, "exception", ("fwd rule", "pair")),
}
