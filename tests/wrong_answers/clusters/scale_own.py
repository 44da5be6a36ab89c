"""Wrong answers to clusters.scale_own."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _run(x, own, copies, *, arrivals=2, after=None):
    """The notebook's frame: `copies(rank, x, own, x_smem, own_smem, loaded)` starts the copies."""

    def kernel(x_gmem, own_gmem, y_gmem, x_smem, own_smem, loaded):
        rank = jax.lax.axis_index("cluster")
        copies(rank, x_gmem, own_gmem, x_smem, own_smem, loaded)
        (after or plgpu.barrier_wait)(loaded)
        y_gmem[rank] = x_smem[...] * own_smem[...]

    tile = plgpu.SMEM(x.shape, x.dtype)
    return plgpu.kernel(
        kernel,
        out_type=own,
        cluster=(own.shape[0],),
        cluster_names=("cluster",),
        scratch_types=dict(x_smem=tile, own_smem=tile, loaded=plgpu.Barrier(num_arrivals=arrivals)),
    )(x, own)


def _both(rank, x_gmem, own_gmem, x_smem, own_smem, loaded):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes="cluster")
    plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded)


def one_arrival(x, own):
    """Two copies, a barrier for one."""
    return _run(x, own, _both, arrivals=1)


def an_arrival_per_block(x, own):
    """A collective copy is no arrival of every block in every block: each barrier has one of it."""
    return _run(x, own, _both, arrivals=1 + own.shape[0])


def both_collective(x, own):
    """Each block asks for its own tile, for everybody."""

    def copies(rank, x_gmem, own_gmem, x_smem, own_smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes="cluster")
        plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded, collective_axes="cluster")

    return _run(x, own, copies)


def block_0_brings_it(x, own):
    """One copy for all, so one block starts it."""

    def copies(rank, x_gmem, own_gmem, x_smem, own_smem, loaded):
        @pl.when(rank == 0)
        def _():
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded, collective_axes="cluster")

        plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded)

    return _run(x, own, copies)


def everybody_for_himself(x, own):
    """Right values, and as many loads of x as there are blocks."""

    def copies(rank, x_gmem, own_gmem, x_smem, own_smem, loaded):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
        plgpu.copy_gmem_to_smem(own_gmem.at[rank], own_smem, loaded)

    return _run(x, own, copies)


def does_not_wait(x, own):
    """Reads what is on its way."""

    def copies(rank, x_gmem, own_gmem, x_smem, own_smem, loaded):
        _both(rank, x_gmem, own_gmem, x_smem, own_smem, loaded)

    return _run(x, own, copies, after=lambda loaded: None)


WRONG = {
    "one arrival": Wrong(one_arrival, "barrier-overrun", ("num_arrivals=2",)),
    "an arrival per block": Wrong(an_arrival_per_block, "deadlock", ("2 of 3 arrivals",)),
    "both collective": Wrong(both_collective, "collective-mismatch", ("own", "scale_own.py")),
    "block 0 brings it": Wrong(block_0_brings_it, "deadlock", ("loaded", "scale_own.py")),
    "everybody for himself": Wrong(
        everybody_for_himself, "means", ("0 multicast instructions; expected at least 1",)
    ),
    "does not wait": Wrong(does_not_wait, "read-before-arrival", ("scale_own.py",)),
}
