"""Wrong answers to start_here.shift_tiles."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _launch(body, x, *, grid=None, grid_names=("mi", "ni")):
    m, n = x.shape
    grid = (m // 64, n // 128) if grid is None else grid
    return plgpu.kernel(body, out_type=x, grid=grid, grid_names=grid_names)(x)


def past_the_end(x):
    """No wrap-around: the last column of tiles leaves the matrix."""

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("mi") * 64, 64)
        ni = jax.lax.axis_index("ni")
        y_gmem[rows, pl.ds((ni + 1) * 128, 128)] = x_gmem[rows, pl.ds(ni * 128, 128)]

    return _launch(kernel, x)


def to_the_left(x):
    """Reads one tile to the right instead of writing there."""
    n_tiles = x.shape[1] // 128

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("mi") * 64, 64)
        ni = jax.lax.axis_index("ni")
        source = jax.lax.rem(ni + 1, n_tiles)
        y_gmem[rows, pl.ds(ni * 128, 128)] = x_gmem[rows, pl.ds(source * 128, 128)]

    return _launch(kernel, x)


def by_one_element(x):
    """Moves by one column instead of one tile."""
    n = x.shape[1]

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("mi") * 64, 64)
        start = jax.lax.axis_index("ni") * 128
        to = jax.lax.rem(start + 1, n)
        y_gmem[rows, pl.ds(to, 128)] = x_gmem[rows, pl.ds(start, 128)]

    return _launch(kernel, x)


def only_the_first_rows(x):
    """Leaves the row axis out of the index: all of it works on the first 64 rows."""
    n_tiles = x.shape[1] // 128

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(0, 64)
        ni = jax.lax.axis_index("ni")
        to = jax.lax.rem(ni + 1, n_tiles)
        y_gmem[rows, pl.ds(to * 128, 128)] = x_gmem[rows, pl.ds(ni * 128, 128)]

    return _launch(kernel, x)


def one_axis_only(x):
    """A grid over the columns of tiles only: the rows below the first 64 stay unwritten."""
    n_tiles = x.shape[1] // 128

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(0, 64)
        ni = jax.lax.axis_index("ni")
        to = jax.lax.rem(ni + 1, n_tiles)
        y_gmem[rows, pl.ds(to * 128, 128)] = x_gmem[rows, pl.ds(ni * 128, 128)]

    return _launch(kernel, x, grid=(n_tiles,), grid_names=("ni",))


def axes_swapped(x):
    """Counts rows in tiles of 128 and columns in tiles of 64."""
    m, n = x.shape

    def kernel(x_gmem, y_gmem):
        rows = pl.ds(jax.lax.axis_index("mi") * 128, 128)
        ni = jax.lax.axis_index("ni")
        to = jax.lax.rem(ni + 1, n // 64)
        y_gmem[rows, pl.ds(to * 64, 64)] = x_gmem[rows, pl.ds(ni * 64, 64)]

    return _launch(kernel, x, grid=(max(m // 128, 1), n // 64))


WRONG = {
    "past the end": Wrong(
        past_the_end, "out-of-bounds", ("384 to 511 of axis 1", "shift_tiles.py")
    ),
    "to the left": Wrong(to_the_left, "value", ("moved right by 128 columns",)),
    "by one element": Wrong(by_one_element, "out-of-bounds", ("257 to 384 of axis 1",)),
    "only the first rows": Wrong(only_the_first_rows, "race", ("Two blocks", "axis_index")),
    "one axis only": Wrong(one_axis_only, "nan", ("Element [64, 0] is nan", "rows 64 to 127")),
    "axes swapped": Wrong(axes_swapped, "value", ("moved left by 64 columns",)),
}
