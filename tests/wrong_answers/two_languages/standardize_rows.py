"""Wrong answers to two_languages.standardize_rows."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines: `body(row, cols, x_gmem, y_gmem)`."""

    def kernel(x_gmem, y_gmem):
        body(jax.lax.axis_index("row"), x.shape[1], x_gmem, y_gmem)

    return plgpu.kernel(kernel, out_type=x, grid=x.shape[:1], grid_names=("row",))(x)


def variance_not_divided(x):
    """The sum of the squares for their mean."""

    def body(row, cols, x_gmem, y_gmem):
        x = x_gmem[row]
        centred = x - jnp.sum(x) / cols
        y_gmem[row] = centred / jnp.sqrt(jnp.sum(centred * centred) + 1e-5)

    return _run(x, body)


def squares_around_zero(x):
    """The mean of x squared, without subtracting the mean first."""

    def body(row, cols, x_gmem, y_gmem):
        x = x_gmem[row]
        y_gmem[row] = (x - jnp.sum(x) / cols) / jnp.sqrt(jnp.sum(x * x) / cols + 1e-5)

    return _run(x, body)


def no_root(x):
    """Divides by the variance itself."""

    def body(row, cols, x_gmem, y_gmem):
        x = x_gmem[row]
        centred = x - jnp.sum(x) / cols
        y_gmem[row] = centred / (jnp.sum(centred * centred) / cols + 1e-5)

    return _run(x, body)


def outside_of_the_kernel(x):
    """Sums in JAX, outside; the kernel only scales."""
    centred = x - x.mean(axis=1, keepdims=True)
    scaled = centred / jnp.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)

    def body(row, cols, x_gmem, y_gmem):
        y_gmem[row] = x_gmem[row]

    return _run(scaled, body)


WRONG = {
    "variance not divided": Wrong(variance_not_divided, "value", ("[0",)),
    "squares around zero": Wrong(squares_around_zero, "value", ("[",)),
    "no root": Wrong(no_root, "value", ("[",)),
    "outside of the kernel": Wrong(outside_of_the_kernel, "means", ("jnp.sum",)),
}
