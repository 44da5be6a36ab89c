"""Wrong answers to grid_scheduling.tiled_product."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from course_lib.kernels.grid_scheduling import TILE, multiply_tile
from tests.wrong_answers import Wrong


def _run(a, b, mt, index_map):
    """The notebook's frame around the learner's lines; `index_map` gives (mi, ni, block)."""
    m, n = a.shape[0] // TILE, b.shape[1] // TILE

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        outer, ni, inner = (jax.lax.axis_index(name) for name in ("m_outer", "n", "m_inner"))
        mi, ni, block = index_map(outer, ni, inner, m, n)
        multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni)
        block_gmem[mi, ni] = block

    return plgpu.kernel(
        kernel,
        out_type=(
            jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32),
            jax.ShapeDtypeStruct((m, n), jnp.int32),
        ),
        grid=(m // mt, n, mt),
        grid_names=("m_outer", "n", "m_inner"),
    )(a, b)


def mt_and_n_swapped(a, b, *, mt):
    """The right tile, but the index as if the grid were (m // mt, mt, n)."""
    return _run(
        a,
        b,
        mt,
        lambda outer, ni, inner, m, n: (outer * mt + inner, ni, (outer * mt + inner) * n + ni),
    )


def rows_far_apart(a, b, *, mt):
    """Takes the inner axis for the band: the product is right, the order is another one."""

    def index_map(outer, ni, inner, m, n):
        return inner * (m // mt) + outer, ni, (outer * n + ni) * mt + inner

    return _run(a, b, mt, index_map)


def forgot_the_inner_axis(a, b, *, mt):
    """All blocks of a column of a band compute the same tile."""

    def index_map(outer, ni, inner, m, n):
        return outer * mt, ni, (outer * n + ni) * mt + inner

    return _run(a, b, mt, index_map)


def only_the_outer_axis(a, b, *, mt):
    """mi = program_id(0), as before the grid was rearranged."""

    def index_map(outer, ni, inner, m, n):
        return outer, ni, (outer * n + ni) * mt + inner

    return _run(a, b, mt, index_map)


def scaled_by_the_wrong_size(a, b, *, mt):
    """Multiplies the band by the number of tile columns."""

    def index_map(outer, ni, inner, m, n):
        return outer * n + inner, ni, (outer * n + ni) * mt + inner

    return _run(a, b, mt, index_map)


def counts_from_one(a, b, *, mt):
    """Off by one."""

    def index_map(outer, ni, inner, m, n):
        return outer * mt + inner, ni, (outer * n + ni) * mt + inner + 1

    return _run(a, b, mt, index_map)


def axis_that_is_not_there(a, b, *, mt):
    """axis_index of a name that the grid does not have."""
    return _run(a, b, mt, lambda outer, ni, inner, m, n: (jax.lax.axis_index("m"), ni, 0))


def only_the_product(a, b, *, mt):
    """jnp.dot, and the order from NumPy."""
    m, n = a.shape[0] // TILE, b.shape[1] // TILE
    block = jnp.arange(m * n, dtype=jnp.int32).reshape(m // mt, n, mt)
    return jnp.dot(a, b), block.transpose(0, 2, 1).reshape(m, n)


WRONG = {
    "mt and n swapped": Wrong(
        mt_and_n_swapped, "value", ("[0, 1] of output 2 of 2 is 1, should be 2",)
    ),
    "rows far apart": Wrong(
        rows_far_apart, "value", ("[1, 0] of output 2 of 2 is 6, should be 1",)
    ),
    "forgot the inner axis": Wrong(
        forgot_the_inner_axis, "race", ("Two blocks", "c_gmem[0:64, 0:64]")
    ),
    "only the outer axis": Wrong(only_the_outer_axis, "race", ("Two blocks", "axis_index")),
    "scaled by the wrong size": Wrong(
        scaled_by_the_wrong_size, "out-of-bounds", ("256 to 319 of axis 0", "tiled_product.py")
    ),
    "counts from one": Wrong(counts_from_one, "value", ("off by the same amount: 1",)),
    "an axis that is not there": Wrong(
        axis_that_is_not_there, "exception", ("no axis called `m`", "tiled_product.py")
    ),
    "only the product": Wrong(only_the_product, "means", ("no GPU kernel", "dot_general")),
}
