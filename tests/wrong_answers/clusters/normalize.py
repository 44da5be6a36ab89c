"""Wrong answers to clusters.normalize."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame: `body(tile, part_smem, ready)` returns the mean of the squares."""
    m, n = x.shape

    def kernel(x_gmem, y_gmem, part_smem, ready):
        rows = pl.ds(jax.lax.axis_index("rows") * 64, 64)
        cols = pl.ds(jax.lax.axis_index("cluster") * (n // 4), n // 4)
        tile = plgpu.load(x_gmem.at[rows, cols], layout=plgpu.Layout.WGMMA, optimized=False)
        scale = jax.lax.rsqrt(body(tile, part_smem, ready))
        y_gmem[rows, cols] = tile * jax.lax.broadcast_in_dim(scale, tile.shape, (0,))

    return plgpu.kernel(
        kernel,
        out_type=x,
        grid=(m // 64,),
        grid_names=("rows",),
        cluster=(4,),
        cluster_names=("cluster",),
        scratch_types=dict(
            part_smem=plgpu.SMEM((64,), x.dtype),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )(x)


def _meet(ready):
    plgpu.barrier_arrive(ready)
    plgpu.barrier_wait(ready)


def _total(part_smem):
    total = jnp.zeros_like(part_smem[...])
    for block in range(4):
        total = total + plgpu.cluster_ref(part_smem, {"cluster": block})[...]
    return total


def own_part_only(x):
    """Each block takes its own quarter for the row."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        _meet(ready)
        mine = part_smem[...]
        _meet(ready)
        return mine * 4 / x.shape[1]

    return _run(x, body)


def own_part_four_times(x):
    """Reads part_smem four times, always its own: which block's is for cluster_ref to say."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        _meet(ready)
        total = jnp.zeros_like(part_smem[...])
        for block in range(4):
            rank = (jax.lax.axis_index("cluster") + 0 * block).astype(jnp.int32)
            total = total + plgpu.cluster_ref(part_smem, {"cluster": rank})[...]
        _meet(ready)
        return total / x.shape[1]

    return _run(x, body)


def never_meets(x):
    """Reads the others' parts whether they are there or not."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        total = _total(part_smem)
        _meet(ready)
        _meet(ready)
        return total / x.shape[1]

    return _run(x, body)


def leaves_early(x):
    """Meets before the reads, not after them."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        _meet(ready)
        return _total(part_smem) / x.shape[1]

    return _run(x, body)


def mean_of_a_quarter(x):
    """Divides the row's sum by the columns of one block."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(tile * tile, axis=1)
        _meet(ready)
        total = _total(part_smem)
        _meet(ready)
        return total / (x.shape[1] // 4)

    return _run(x, body)


def forgets_the_squares(x):
    """Sums, not sums of squares."""

    def body(tile, part_smem, ready):
        part_smem[...] = jnp.sum(jnp.abs(tile), axis=1)
        _meet(ready)
        total = _total(part_smem)
        _meet(ready)
        return total / x.shape[1]

    return _run(x, body)


WRONG = {
    "own part only": Wrong(own_part_only, "value", ("[0",)),
    "own part four times": Wrong(own_part_four_times, "value", ("[0",)),
    "never meets": Wrong(never_meets, "race", ("normalize.py",)),
    "leaves early": Wrong(leaves_early, "cluster-memory-ended", ("part_smem", "normalize.py")),
    "mean of a quarter": Wrong(mean_of_a_quarter, "value", ("[0",)),
    "forgets the squares": Wrong(forgets_the_squares, "value", ("[0",)),
}
