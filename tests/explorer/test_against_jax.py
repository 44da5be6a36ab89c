"""The third witness: JAX's own orders and clusters are those of `layouts.grid`.

`planar_snake` and `nd_loop` are called; kernels in clusters run in JAX's interpret mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib.layouts import grid

pytestmark = pytest.mark.two_jax

GRIDS = ((1, 1), (1, 7), (5, 1), (6, 16), (7, 9), (32, 24))
WIDTHS = (1, 2, 3, 8, 20)


@pytest.mark.parametrize("m_n", GRIDS, ids=str)
def test_planar_snake(m_n: tuple[int, int]) -> None:
    lin = jnp.arange(m_n[0] * m_n[1], dtype=jnp.int32)
    for minor_dim, width in itertools.product((0, 1), WIDTHS):
        snake = jax.jit(jax.vmap(lambda i, d=minor_dim, w=width: plgpu.planar_snake(i, m_n, d, w)))
        theirs = np.stack(snake(lin), axis=1)
        mine = grid.planar_snake(*m_n, minor_dim=minor_dim, tile_width=width)
        np.testing.assert_array_equal(mine, theirs, err_msg=f"{minor_dim=} {width=}")


def run_nd_loop(shape: tuple[int, int], num_sms: int, **tiling: Any) -> tuple[Any, Any]:
    """`(block, step)` of every tile, int32[m, n] each, from JAX's loop with `num_sms` blocks."""

    def block() -> tuple[jax.Array, jax.Array]:
        me = jax.lax.axis_index("sm")
        nobody = jnp.full(shape, -1, jnp.int32)

        @plgpu.nd_loop(shape, collective_axes="sm", init_carry=(nobody, nobody), **tiling)
        def loop(info: plgpu.NDLoopInfo, carry: tuple[jax.Array, jax.Array]) -> Any:
            who, when = carry
            return who.at[info.index].set(me), when.at[info.index].set(info.local_index)

        return loop

    per_block: Callable[..., Any] = jax.vmap(lambda _: block(), axis_name="sm", axis_size=num_sms)
    who, when = jax.jit(per_block)(jnp.zeros(num_sms))
    return np.asarray(who).max(axis=0), np.asarray(when).max(axis=0)


@pytest.mark.parametrize("num_sms", [1, 4, 132])
@pytest.mark.parametrize("m_n", GRIDS, ids=str)
def test_nd_loop(m_n: tuple[int, int], num_sms: int) -> None:
    who, when = run_nd_loop(m_n, num_sms)
    mine = grid.persistent(m_n[0] * m_n[1], num_sms=num_sms)
    tiles = grid.row_major(*m_n)
    np.testing.assert_array_equal(who[tiles[:, 0], tiles[:, 1]], mine[:, 0])
    np.testing.assert_array_equal(when[tiles[:, 0], tiles[:, 1]], mine[:, 1])


@pytest.mark.parametrize(("m_n", "mt"), [((8, 16), 4), ((6, 16), 2), ((12, 5), 3)], ids=str)
def test_nd_loop_with_tiling_is_the_tiled_grid(m_n: tuple[int, int], mt: int) -> None:
    who, when = run_nd_loop(m_n, 5, tiling=(mt, 1))
    tiles = grid.tiled(*m_n, mt=mt)
    mine = grid.persistent(len(tiles), num_sms=5)
    np.testing.assert_array_equal(who[tiles[:, 0], tiles[:, 1]], mine[:, 0])
    np.testing.assert_array_equal(when[tiles[:, 0], tiles[:, 1]], mine[:, 1])


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2), (2, 2), (4, 2)], ids=str)
def test_clusters_of_a_grid(cluster: tuple[int, int]) -> None:
    """Which tile a block has, from JAX's grid of clusters and its axes within one."""
    (down, across), m, n = cluster, 8, 4

    def body(number_gmem: Any) -> None:
        outer, inner = jax.lax.axis_index("m"), jax.lax.axis_index("n")
        row, column = jax.lax.axis_index("cluster_m"), jax.lax.axis_index("cluster_n")
        number = ((outer * (n // across) + inner) * down + row) * across + column
        number_gmem[outer * down + row, inner * across + column] = number

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.int32),
        grid=(m // down, n // across),
        grid_names=("m", "n"),
        cluster=cluster,
        cluster_names=("cluster_m", "cluster_n"),
    )
    with plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams()):
        theirs = np.asarray(jax.jit(kernel)())
    mine = np.empty((m, n), np.int32)
    tiles = grid.clustered(grid.Order(), m, n, cluster=cluster)
    mine[tiles[:, 0], tiles[:, 1]] = np.arange(m * n)
    np.testing.assert_array_equal(mine, theirs)
