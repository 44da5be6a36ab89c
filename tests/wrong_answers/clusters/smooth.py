"""Wrong answers to clusters.smooth."""

from __future__ import annotations

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines: `body(rank, x, y, tile, ready)`."""

    def kernel(x_gmem, y_gmem, tile_smem, ready):
        body(jax.lax.axis_index("cluster"), x_gmem, y_gmem, tile_smem, ready)

    return plgpu.kernel(
        kernel,
        out_type=x,
        cluster=(x.shape[0],),
        cluster_names=("cluster",),
        scratch_types=dict(
            tile_smem=plgpu.SMEM(x.shape[1:], x.dtype),
            ready=plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ),
    )(x)


def _meet(ready):
    plgpu.barrier_arrive(ready)
    plgpu.barrier_wait(ready)


def _of(tile_smem, block):
    return plgpu.cluster_ref(tile_smem, {"cluster": block})[...]


def _neighbours(tile_smem, rank, blocks):
    after = _of(tile_smem, jax.lax.rem(rank + 1, blocks))
    return after + _of(tile_smem, jax.lax.rem(rank + blocks - 1, blocks))


def leaves_early(x):
    """Nobody waits at the end: a block may be gone while its neighbour reads."""

    def body(rank, x_gmem, y_gmem, tile_smem, ready):
        tile_smem[...] = x_gmem[rank]
        _meet(ready)
        y_gmem[rank] = (tile_smem[...] + _neighbours(tile_smem, rank, x.shape[0])) / 3

    return _run(x, body)


def meets_once_too_late(x):
    """Meets only at the end."""

    def body(rank, x_gmem, y_gmem, tile_smem, ready):
        tile_smem[...] = x_gmem[rank]
        y_gmem[rank] = (tile_smem[...] + _neighbours(tile_smem, rank, x.shape[0])) / 3
        _meet(ready)

    return _run(x, body)


def arrives_and_does_not_wait(x):
    """Says that its tile is there, and does not ask about the others'."""

    def body(rank, x_gmem, y_gmem, tile_smem, ready):
        tile_smem[...] = x_gmem[rank]
        plgpu.barrier_arrive(ready)
        total = tile_smem[...] + _neighbours(tile_smem, rank, x.shape[0])
        plgpu.barrier_wait(ready)
        y_gmem[rank] = total / 3
        _meet(ready)

    return _run(x, body)


def counts_below_zero(x):
    """Block 0's neighbour is not block -1."""

    def body(rank, x_gmem, y_gmem, tile_smem, ready):
        tile_smem[...] = x_gmem[rank]
        _meet(ready)
        total = tile_smem[...] + _of(tile_smem, rank - 1)
        total = total + _of(tile_smem, jax.lax.rem(rank + 1, x.shape[0]))
        y_gmem[rank] = total / 3
        _meet(ready)

    return _run(x, body)


def the_next_one_twice(x):
    """rank + 1 and rank - 1 + 2 are the same block."""

    def body(rank, x_gmem, y_gmem, tile_smem, ready):
        tile_smem[...] = x_gmem[rank]
        _meet(ready)
        after = _of(tile_smem, jax.lax.rem(rank + 1, x.shape[0]))
        y_gmem[rank] = (tile_smem[...] + after + after) / 3
        _meet(ready)

    return _run(x, body)


WRONG = {
    "leaves early": Wrong(leaves_early, "cluster-memory-ended", ("tile_smem", "smooth.py")),
    "meets once, too late": Wrong(meets_once_too_late, "race", ("smooth.py",)),
    "arrives and does not wait": Wrong(arrives_and_does_not_wait, "race", ("smooth.py",)),
    "counts below zero": Wrong(counts_below_zero, "out-of-bounds", ("no block -1",)),
    "the next one twice": Wrong(the_next_one_twice, "value", ("[0",)),
}
