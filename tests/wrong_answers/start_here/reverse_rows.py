"""Wrong answers to start_here.reverse_rows."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _launch(body, x, *, rows=None):
    rows = x.shape[0] if rows is None else rows
    return plgpu.kernel(body, out_type=x, grid=(rows,), grid_names=("row",))(x)


def no_minus_one(x):
    """The last row is rows - 1, not rows."""
    rows = x.shape[0]

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - row] = x_gmem[row]

    return _launch(kernel, x)


def same_order(x):
    """A copy, but row i to row i."""

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[row] = x_gmem[row]

    return _launch(kernel, x)


def all_to_the_last_row(x):
    """Forgets to subtract: every block writes the last row."""
    rows = x.shape[0]

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1] = x_gmem[row]

    return _launch(kernel, x)


def half_of_the_rows(x):
    """Thinks of a swap: one block per pair of rows, but copies only one of the two."""
    rows = x.shape[0]

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1 - row] = x_gmem[row]

    return _launch(kernel, x, rows=max(rows // 2, 1))


def wrong_axis_name(x):
    """The grid's axis is called "row"."""
    rows = x.shape[0]

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("rows")
        y_gmem[rows - 1 - row] = x_gmem[row]

    return _launch(kernel, x)


def forgot_to_return(x):
    """Runs the kernel and drops its result."""
    rows = x.shape[0]

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[rows - 1 - row] = x_gmem[row]

    _launch(kernel, x)


def negative_step(x):
    """NumPy's way; a ref cannot be sliced backwards."""

    def kernel(x_gmem, y_gmem):
        y_gmem[...] = x_gmem[::-1]

    return _launch(kernel, x, rows=1)


def reversed_outside(x):
    """A kernel that copies, and plain JAX that does the work."""

    def kernel(x_gmem, y_gmem):
        row = jax.lax.axis_index("row")
        y_gmem[row] = x_gmem[row]

    return _launch(kernel, x)[::-1] + 0


WRONG = {
    "no minus one": Wrong(
        no_minus_one, "out-of-bounds", ("element 4 of axis 0", "reverse_rows.py")
    ),
    "same order": Wrong(same_order, "value", ("x, unchanged",)),
    "all to the last row": Wrong(all_to_the_last_row, "race", ("Two blocks", "axis_index")),
    "half of the rows": Wrong(half_of_the_rows, "nan", ("Element [0, 0] is nan", "rows 0 to 1")),
    "wrong axis name": Wrong(wrong_axis_name, "exception", ("rows", "reverse_rows.py")),
    "forgot to return": Wrong(forgot_to_return, "outputs", ("nothing", "return")),
    "negative step": Wrong(negative_step, "exception", ("step", "reverse_rows.py")),
    "reversed outside": Wrong(reversed_outside, "means", ("not what a kernel wrote",)),
}
