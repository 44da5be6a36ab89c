"""Wrong answers to clusters.shared_matmul."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import clusters as kernels
from tests.wrong_answers import Wrong

CONFIG = kernels.Config(tile_m=64, tile_n=64, slots=3)


def _run(a, b, *, share_a="cluster_n", share_b="cluster_m", meet=None, consumed=None):
    def fetch(a_tile, b_tile, a_smem, b_smem, loaded):
        plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded, collective_axes=share_a)
        plgpu.copy_gmem_to_smem(b_tile, b_smem, loaded, collective_axes=share_b)

    def right(consumed):
        plgpu.barrier_arrive(consumed)
        plgpu.barrier_wait(consumed)

    return kernels.product(
        a,
        b,
        fetch=fetch,
        before_refill=meet or right,
        consumed=consumed or _barrier(),
        config=CONFIG,
    )


def _barrier(axes=("cluster_m", "cluster_n"), **options):
    return plgpu.ClusterBarrier(collective_axes=axes, num_barriers=CONFIG.slots, **options)


def axes_swapped(a, b):
    """A along cluster_m: but blocks above each other have different rows of A."""
    return _run(a, b, share_a="cluster_m", share_b="cluster_n")


def everything_to_all(a, b):
    """Both along both axes."""
    both = ("cluster_m", "cluster_n")
    return _run(a, b, share_a=both, share_b=both)


def waits_for_the_column_only(a, b):
    """The blocks of the row write A into this block's slots, and are not asked."""
    return _run(a, b, consumed=_barrier(("cluster_m",)))


def does_not_ask(a, b):
    """Fills the slot when this block is done with it."""
    return _run(a, b, meet=lambda consumed: None)


def says_and_does_not_wait(a, b):
    """Arrives, and goes on."""
    return _run(a, b, meet=plgpu.barrier_arrive)


def counts_the_neighbours(a, b):
    """num_arrivals=3 for three blocks: it is per block already."""
    return _run(a, b, consumed=_barrier(num_arrivals=3))


def waits_for_all(a, b):
    """Right, but every block also waits for the one on the diagonal."""
    return _run(a, b, consumed=_barrier((("cluster_m", "cluster_n"),)))


WRONG = {
    "axes swapped": Wrong(axes_swapped, "collective-mismatch", ("shared_matmul.py",)),
    "everything to all": Wrong(everything_to_all, "collective-mismatch", ("shared_matmul.py",)),
    "waits for the column only": Wrong(
        waits_for_the_column_only, "cluster-smem-reuse", ("a_smem", "shared_matmul.py")
    ),
    "waits for all": Wrong(waits_for_all, "means", ("values are right", "over all blocks")),
    "does not ask": Wrong(does_not_ask, "cluster-smem-reuse", ("ClusterBarrier",)),
    "says and does not wait": Wrong(says_and_does_not_wait, "race", ("shared_matmul.py",)),
    "counts the neighbours": Wrong(counts_the_neighbours, "deadlock", ("3 of 9 arrivals",)),
}
