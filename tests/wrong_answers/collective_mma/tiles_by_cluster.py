"""Wrong answers to collective_mma.tiles_by_cluster."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from course_lib.kernels import collective_mma as kernels
from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines: `body(block, x, y, count)`."""

    def kernel(x_gmem, y_gmem, count_gmem):
        body(jax.lax.axis_index("pair"), x_gmem, y_gmem, count_gmem)

    y, counts = plgpu.kernel(
        kernel,
        out_type=(x, jax.ShapeDtypeStruct((x.shape[0],), jnp.int32)),
        grid=(x.shape[0],),
        grid_names=("tile",),
        cluster=(2,),
        cluster_names=("pair",),
    )(x)
    return y, kernels.total(counts)


def _put(ref, i, value):
    ref[i] = value


def _loop(**options):
    return plgpu.dynamic_scheduling_loop(grid_names=("tile",), init_carry=jnp.int32(0), **options)


def no_cluster_axes(x):
    """The loop does not know of the cluster."""

    def body(block, x_gmem, y_gmem, count_gmem):
        @_loop()
        def computed(info, carry):
            (i,) = info.index
            y_gmem[i, block] = x_gmem[i, block] + 1
            pl.when(block == 0)(lambda: _put(count_gmem, i, jnp.int32(0)))
            return carry + 1

        first = jax.lax.axis_index("tile")
        pl.when(block == 0)(lambda: _put(count_gmem, first, computed))

    return _run(x, body)


def no_zeros(x):
    """Does not write the counts of those who never ran."""

    def body(block, x_gmem, y_gmem, count_gmem):
        @_loop(cluster_axes=("pair",))
        def computed(info, carry):
            (i,) = info.index
            y_gmem[i, block] = x_gmem[i, block] + 1
            return carry + 1

        first = jax.lax.axis_index("tile")
        pl.when(block == 0)(lambda: _put(count_gmem, first, computed))

    return _run(x, body)


def both_write(x):
    """Both blocks write the counts."""

    def body(block, x_gmem, y_gmem, count_gmem):
        @_loop(cluster_axes=("pair",))
        def computed(info, carry):
            (i,) = info.index
            y_gmem[i, block] = x_gmem[i, block] + 1
            count_gmem[i] = jnp.int32(0)
            return carry + 1

        count_gmem[jax.lax.axis_index("tile")] = computed

    return _run(x, body)


def forgets_the_carry(x):
    """Returns 1 instead of carry + 1."""

    def body(block, x_gmem, y_gmem, count_gmem):
        @_loop(cluster_axes=("pair",))
        def computed(info, carry):
            (i,) = info.index
            y_gmem[i, block] = x_gmem[i, block] + 1
            pl.when(block == 0)(lambda: _put(count_gmem, i, jnp.int32(0)))
            return jnp.int32(1)

        first = jax.lax.axis_index("tile")
        pl.when(block == 0)(lambda: _put(count_gmem, first, computed))

    return _run(x, body)


def own_tile_only(x):
    """Computes the tile that it was launched for, in every round."""

    def body(block, x_gmem, y_gmem, count_gmem):
        @_loop(cluster_axes=("pair",))
        def computed(info, carry):
            i = jax.lax.axis_index("tile")
            y_gmem[i, block] = x_gmem[i, block] + 1
            pl.when(block == 0)(lambda: _put(count_gmem, info.index[0], jnp.int32(0)))
            return carry + 1

        first = jax.lax.axis_index("tile")
        pl.when(block == 0)(lambda: _put(count_gmem, first, computed))

    return _run(x, body)


WRONG = {
    "no cluster axes": Wrong(no_cluster_axes, "cancel-not-collective", ("cluster_axes=('pair',)",)),
    "no zeros": Wrong(no_zeros, "value", ("should be 9",)),
    "both write": Wrong(both_write, "race", ("count_gmem",)),
    "forgets the carry": Wrong(forgets_the_carry, "value", ("should be 9",)),
    "own tile only": Wrong(own_tile_only, "nan", ("[1, 0, 0]",)),
}
