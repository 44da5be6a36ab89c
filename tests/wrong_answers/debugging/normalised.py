"""Wrong answers to debugging.normalised."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, kernel):
    return plgpu.kernel(kernel, out_type=x)(x)


def _squares(x_gmem, i):
    piece = x_gmem[pl.ds(i * 16, 16)]
    return jnp.sum(piece * piece)


def at_once(x):
    """Right, and all of x is in registers."""

    def kernel(x_gmem, y_gmem):
        x = x_gmem[...]
        y_gmem[...] = x * jax.lax.rsqrt(jnp.sum(x * x))

    return _run(x, kernel)


def pieces_too_large(x):
    """In pieces, of 64 rows: twice 256 numbers a lane, and there are 255 registers."""

    def kernel(x_gmem, y_gmem):
        pieces = max(x_gmem.shape[0] // 64, 1)
        rows = x_gmem.shape[0] // pieces

        def more(i, total):
            piece = x_gmem[pl.ds(i * rows, rows)]
            return total + jnp.sum(piece * piece)

        total = jax.lax.fori_loop(0, pieces, more, 0.0)

        @pl.loop(0, pieces)
        def store(i):
            y_gmem[pl.ds(i * rows, rows)] = x_gmem[pl.ds(i * rows, rows)] * jax.lax.rsqrt(total)

    return _run(x, kernel)


def each_piece_by_itself(x):
    """Divides each piece by its own sum."""

    def kernel(x_gmem, y_gmem):
        @pl.loop(0, x_gmem.shape[0] // 16)
        def store(i):
            rows = pl.ds(i * 16, 16)
            y_gmem[rows] = x_gmem[rows] * jax.lax.rsqrt(_squares(x_gmem, i))

    return _run(x, kernel)


def the_last_sum(x):
    """Replaces the sum instead of adding to it."""

    def kernel(x_gmem, y_gmem):
        pieces = x_gmem.shape[0] // 16
        total = jax.lax.fori_loop(0, pieces, lambda i, _: _squares(x_gmem, i), 0.0)

        @pl.loop(0, pieces)
        def store(i):
            rows = pl.ds(i * 16, 16)
            y_gmem[rows] = x_gmem[rows] * jax.lax.rsqrt(total)

    return _run(x, kernel)


def without_the_root(x):
    """Divides by the sum of the squares."""

    def kernel(x_gmem, y_gmem):
        pieces = x_gmem.shape[0] // 16
        total = jax.lax.fori_loop(0, pieces, lambda i, t: t + _squares(x_gmem, i), 0.0)

        @pl.loop(0, pieces)
        def store(i):
            rows = pl.ds(i * 16, 16)
            y_gmem[rows] = x_gmem[rows] / total

    return _run(x, kernel)


def eight_pieces(x):
    """As many pieces as the largest case has."""

    def kernel(x_gmem, y_gmem):
        total = jax.lax.fori_loop(0, 8, lambda i, t: t + _squares(x_gmem, i), 0.0)

        @pl.loop(0, 8)
        def store(i):
            rows = pl.ds(i * 16, 16)
            y_gmem[rows] = x_gmem[rows] * jax.lax.rsqrt(total)

    return _run(x, kernel)


WRONG = {
    "at once": Wrong(at_once, "means", ("spill",)),
    "pieces too large": Wrong(pieces_too_large, "means", ("spill",)),
    "each piece by itself": Wrong(each_piece_by_itself, "value", ("float32[128, 512]",)),
    "the last sum": Wrong(the_last_sum, "value", ("Every element is",)),
    "without the root": Wrong(without_the_root, "value", ("Every element is",)),
    "eight pieces": Wrong(eight_pieces, "out-of-bounds", ("64",)),
}
