"""Wrong answers to grid_scheduling.snake."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(m, n, tile_of, *, grid=None):
    """The notebook's frame around the learner's lines; `tile_of(i)` gives (mi, ni)."""

    def kernel(order_gmem):
        i = jax.lax.axis_index("i")
        order_gmem[tile_of(i)] = i

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.int32),
        grid=(grid or m * n,),
        grid_names=("i",),
    )()


def never_turns(*, m, n, width):
    """Bands, but all of them from left to right: that is the tiled grid."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        return band * width + place % width, place // width

    return _run(m, n, tile_of)


def turns_the_even_bands(*, m, n, width):
    """Begins at the right."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = jnp.where(band % 2 == 0, n - 1 - place // width, place // width)
        return band * width + place % width, ni

    return _run(m, n, tile_of)


def turns_past_the_end(*, m, n, width):
    """n - ni instead of n - 1 - ni: the first column of an odd band does not exist."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = jnp.where(band % 2 == 0, place // width, n - place // width)
        return band * width + place % width, ni

    return _run(m, n, tile_of)


def along_before_across(*, m, n, width):
    """Walks a whole tile row of the band before the next."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = jnp.where(band % 2 == 0, place % n, n - 1 - place % n)
        return band * width + place // n, ni

    return _run(m, n, tile_of)


def turns_the_wrong_axis(*, m, n, width):
    """Reverses the rows within the odd bands instead of the columns."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        across = jnp.where(band % 2 == 0, place % width, width - 1 - place % width)
        return band * width + across, place // width

    return _run(m, n, tile_of)


def band_without_its_width(*, m, n, width):
    """Forgets that a band is `width` tile rows high: bands overlap."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = jnp.where(band % 2 == 0, place // width, n - 1 - place // width)
        return band + place % width, ni

    return _run(m, n, tile_of)


def python_if(*, m, n, width):
    """`if` on a value that only the running kernel knows."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = place // width
        if band % 2 == 1:
            ni = n - 1 - ni
        return band * width + place % width, ni

    return _run(m, n, tile_of)


def last_band_missing(*, m, n, width):
    """Launches a block too few per band: the end stays unwritten."""

    def tile_of(i):
        band, place = i // (width * n), i % (width * n)
        ni = jnp.where(band % 2 == 0, place // width, n - 1 - place // width)
        return band * width + place % width, ni

    return _run(m, n, tile_of, grid=m * (n - 1))


def plain_jax(*, m, n, width):
    """Reshapes and flips in JAX."""
    bands = jnp.arange(m * n, dtype=jnp.int32).reshape(m // width, n, width)
    bands = bands.at[1::2].set(bands[1::2, ::-1])
    return bands.transpose(0, 2, 1).reshape(m, n)


def returns_the_tile(*, m, n, width):
    """Works out the tile and returns it, instead of writing to it."""

    def kernel(order_gmem):
        i = jax.lax.axis_index("i")
        return i // (width * n) * width + i % width

    out_type = jax.ShapeDtypeStruct((m, n), jnp.int32)
    return plgpu.kernel(kernel, out_type=out_type, grid=(m * n,), grid_names=("i",))()


WRONG = {
    "never turns": Wrong(never_turns, "value", ("[2, 0] is 6, should be 10",)),
    "turns the even bands": Wrong(turns_the_even_bands, "value", ("columns in reverse order",)),
    "turns past the end": Wrong(
        turns_past_the_end, "out-of-bounds", ("element 3 of axis 1", "snake.py")
    ),
    "along before across": Wrong(along_before_across, "value", ("[0, 1] is 1, should be 2",)),
    "turns the wrong axis": Wrong(turns_the_wrong_axis, "value", ("in the wrong places",)),
    "a band without its width": Wrong(band_without_its_width, "race", ("Two blocks", "snake.py")),
    "a Python if": Wrong(python_if, "exception", ("TracerBoolConversionError", "snake.py")),
    "the last band is missing": Wrong(
        last_band_missing, "value", ("rows 2 to 3", "Nobody writes 4 of the 12")
    ),
    "returns the tile": Wrong(returns_the_tile, "value", ("Nobody writes 12 of the 12",)),
    "plain JAX": Wrong(plain_jax, "means", ("no GPU kernel", "rev")),
}
