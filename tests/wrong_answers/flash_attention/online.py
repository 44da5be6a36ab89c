"""Wrong answers to flash_attention.online."""

from __future__ import annotations

import jax.numpy as jnp

from course_lib.kernels import flash_attention as kernels
from tests.wrong_answers import Wrong


def _run(q, k, v, update):
    """The notebook's frame; `update` gets the scale, too."""
    scale = q.shape[-1] ** -0.5
    return kernels.attend(q, k, v, lambda *args: update(scale, *args))


def forgets_to_rescale(q, k, v):
    """Adds up what belongs to different maxima."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        p = jnp.exp(s * scale - new_max[:, None])
        return add_product(o, p), new_max, row_sum + jnp.sum(p, axis=1) + 0 * jnp.exp(new_max)

    return _run(q, k, v, update)


def rescales_only_the_sum(q, k, v):
    """o stays as it was."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        alpha = jnp.exp(row_max - new_max)
        p = jnp.exp(s * scale - new_max[:, None])
        return add_product(o, p), new_max, row_sum * alpha + jnp.sum(p, axis=1)

    return _run(q, k, v, update)


def rescales_after_the_product(q, k, v):
    """Scales the tile's own part down, too."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        alpha = jnp.exp(row_max - new_max)
        p = jnp.exp(s * scale - new_max[:, None])
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o, p) * alpha[:, None], new_max, row_sum

    return _run(q, k, v, update)


def upside_down(q, k, v):
    """exp(new - old): grows where it should shrink. From the floor, that is infinite."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        alpha = jnp.exp(new_max - row_max)
        p = jnp.exp(s * scale - new_max[:, None])
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o * alpha[:, None], p), new_max, row_sum

    return _run(q, k, v, update)


def only_this_tiles_maximum(q, k, v):
    """Goes by the tile's maximum, which may be smaller than the one before."""

    def update(scale, carry, s, add_product):
        o, _, row_sum = carry
        new_max = jnp.max(s, axis=1) * scale
        alpha = jnp.exp(0 * new_max)
        p = jnp.exp(s * scale - new_max[:, None])
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o * alpha[:, None], p), new_max, row_sum

    return _run(q, k, v, update)


def without_the_scale(q, k, v):
    """Takes the scores as they are."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1))
        alpha = jnp.exp(row_max - new_max)
        p = jnp.exp(s - new_max[:, None])
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o * alpha[:, None], p), new_max, row_sum

    return _run(q, k, v, update)


def carry_in_another_order(q, k, v):
    """Returns the sum where the maximum belongs."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        alpha = jnp.exp(row_max - new_max)
        p = jnp.exp(s * scale - new_max[:, None])
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o * alpha[:, None], p), row_sum, new_max

    return _run(q, k, v, update)


def without_a_new_axis(q, k, v):
    """p has 64 rows and 128 columns, new_max has 64 elements."""

    def update(scale, carry, s, add_product):
        o, row_max, row_sum = carry
        new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)
        alpha = jnp.exp(row_max - new_max)
        p = jnp.exp(s * scale - new_max)
        row_sum = row_sum * alpha + jnp.sum(p, axis=1)
        return add_product(o * alpha[:, None], p), new_max, row_sum

    return _run(q, k, v, update)


WRONG = {
    "forgets to rescale": Wrong(forgets_to_rescale, "value", ("Element [", "are wrong")),
    "rescales only the sum": Wrong(rescales_only_the_sum, "value", ("Element [", "are wrong")),
    "rescales after the product": Wrong(
        rescales_after_the_product, "value", ("Element [", "are wrong")
    ),
    "upside down": Wrong(upside_down, "nan", ("nan",)),
    "only this tile's maximum": Wrong(only_this_tiles_maximum, "value", ("Element [", "are wrong")),
    "without the scale": Wrong(without_the_scale, "value", ("Element [", "are wrong")),
    "carry in another order": Wrong(carry_in_another_order, "value", ("Element [", "are wrong")),
    "without a new axis": Wrong(
        without_a_new_axis, "exception", ("Incompatible shapes", "online.py")
    ),
}
