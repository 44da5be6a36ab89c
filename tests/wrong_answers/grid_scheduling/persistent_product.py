"""Wrong answers to grid_scheduling.persistent_product."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from course_lib.kernels.grid_scheduling import TILE, multiply_tile
from tests.wrong_answers import Wrong


def _launch(kernel, a, b, num_sms):
    m, n = a.shape[0] // TILE, b.shape[1] // TILE
    return plgpu.kernel(
        kernel,
        out_type=(
            jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32),
            jax.ShapeDtypeStruct((m, n), jnp.int32),
        ),
        grid=(num_sms,),
        grid_names=("sm",),
    )(a, b)


def _tiles(a, b):
    return a.shape[0] // TILE, b.shape[1] // TILE


def drops_the_tail(a, b, *, num_sms):
    """Rounds down: the tiles of the last, partial wave are nobody's."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        sm = jax.lax.axis_index("sm")

        @pl.loop(0, m * n // num_sms)
        def _(step):
            i = step * num_sms + sm
            multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
            block_gmem[i // n, i % n] = sm

    return _launch(kernel, a, b, num_sms)


def no_bound_check(a, b, *, num_sms):
    """Rounds up, and lets blocks without a tile in the last wave compute one all the same."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        sm = jax.lax.axis_index("sm")

        @pl.loop(0, pl.cdiv(m * n, num_sms))
        def _(step):
            i = step * num_sms + sm
            multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
            block_gmem[i // n, i % n] = sm

    return _launch(kernel, a, b, num_sms)


def clamped_index(a, b, *, num_sms):
    """Rounds up, and sends blocks without a tile to the last one."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        sm = jax.lax.axis_index("sm")

        @pl.loop(0, pl.cdiv(m * n, num_sms))
        def _(step):
            i = jnp.minimum(step * num_sms + sm, m * n - 1)
            multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
            block_gmem[i // n, i % n] = sm

    return _launch(kernel, a, b, num_sms)


def everybody_does_everything(a, b, *, num_sms):
    """A loop over all tiles in every block."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        @pl.loop(0, m * n)
        def _(i):
            multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
            block_gmem[i // n, i % n] = jax.lax.axis_index("sm")

    return _launch(kernel, a, b, num_sms)


def contiguous_shares(a, b, *, num_sms):
    """Each block takes consecutive tiles: a right product in another order."""
    m, n = _tiles(a, b)
    share = pl.cdiv(m * n, num_sms)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        sm = jax.lax.axis_index("sm")

        @pl.loop(0, share)
        def _(step):
            i = sm * share + step

            @pl.when(i < m * n)
            def _():
                multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
                block_gmem[i // n, i % n] = sm

    return _launch(kernel, a, b, num_sms)


def m_and_n_swapped(a, b, *, num_sms):
    """nd_loop over (n, m)."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        @plgpu.nd_loop((n, m), collective_axes="sm")
        def _(info):
            ni, mi = info.index
            multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni)
            block_gmem[mi, ni] = jax.lax.axis_index("sm")

    return _launch(kernel, a, b, num_sms)


def step_for_block(a, b, *, num_sms):
    """Writes the loop's step instead of the block."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        @plgpu.nd_loop((m, n), collective_axes="sm")
        def _(info):
            mi, ni = info.index
            multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni)
            block_gmem[mi, ni] = info.local_index

    return _launch(kernel, a, b, num_sms)


def body_called_by_hand(a, b, *, num_sms):
    """Calls the loop's body, which has run already."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        @plgpu.nd_loop((m, n), collective_axes="sm")
        def tile(info):
            mi, ni = info.index
            multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni)
            block_gmem[mi, ni] = jax.lax.axis_index("sm")

        tile()

    return _launch(kernel, a, b, num_sms)


def a_block_per_tile(a, b, *, num_sms):
    """Launches all m * n blocks, and works out which persistent block it would have been."""
    m, n = _tiles(a, b)

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        i = jax.lax.axis_index("sm")
        multiply_tile(a_gmem, b_gmem, c_gmem, i // n, i % n)
        block_gmem[i // n, i % n] = i % num_sms

    return _launch(kernel, a, b, m * n)


def grid_without_its_comma(a, b, *, num_sms):
    """(num_sms) is a number and no tuple."""

    def kernel(a_gmem, b_gmem, c_gmem, block_gmem):
        @plgpu.nd_loop(_tiles(a, b), collective_axes="sm")
        def _(info):
            multiply_tile(a_gmem, b_gmem, c_gmem, *info.index)
            block_gmem[info.index] = jax.lax.axis_index("sm")

    out_type = (
        jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32),
        jax.ShapeDtypeStruct(_tiles(a, b), jnp.int32),
    )
    return plgpu.kernel(kernel, out_type=out_type, grid=(num_sms), grid_names=("sm"))(a, b)


def dot(a, b, *, num_sms):
    """jnp.dot instead of a kernel."""
    m, n = _tiles(a, b)
    block = np.arange(m * n, dtype=np.int32) % num_sms
    return a @ b, jnp.asarray(block.reshape(m, n))


WRONG = {
    "drops the tail": Wrong(drops_the_tail, "nan", ("rows 128 to 191, columns 128 to 255",)),
    "no bound check": Wrong(
        no_bound_check, "out-of-bounds", ("192 to 255 of axis 0", "persistent_product.py")
    ),
    "clamped index": Wrong(clamped_index, "race", ("Two blocks", "c_gmem[128:192, 192:256]")),
    "everybody does everything": Wrong(
        everybody_does_everything, "race", ("Two blocks", "axis_index")
    ),
    "contiguous shares": Wrong(contiguous_shares, "value", ("[0, 1] of output 2 of 2 is 0",)),
    "m and n swapped": Wrong(m_and_n_swapped, "value", ("[0, 1] of output 2 of 2 is 3",)),
    "the step instead of the block": Wrong(step_for_block, "value", ("output 2 of 2 is 0",)),
    "the body called by hand": Wrong(
        body_called_by_hand, "exception", ("not callable", "do not call it")
    ),
    "a block per tile": Wrong(
        a_block_per_tile, "means", ("The values are right", "never uses", "plgpu.nd_loop")
    ),
    "a grid without its comma": Wrong(
        grid_without_its_comma, "exception", ("It takes a tuple", "grid=(n,)")
    ),
    "jnp.dot": Wrong(dot, "means", ("no GPU kernel", "dot_general")),
}
