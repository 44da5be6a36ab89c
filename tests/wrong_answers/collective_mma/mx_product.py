"""Wrong answers to collective_mma.mx_product."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import collective_mma as kernels
from tests.wrong_answers import Wrong

HALF, WHOLE = plgpu.CopyPartition.PARTITIONED(0), plgpu.CopyPartition.REPLICATED


def _run(a, b, parts, *, arrivals=4):
    """The notebook's frame, with these kinds of copies of a, b, and the scales of both."""
    pairs = zip(kernels.quantized(a), kernels.quantized(b), strict=True)
    arrays = [x for pair in pairs for x in pair]

    def load(sources, targets, loaded):
        for source, target, part in zip(sources, targets, parts, strict=True):
            options = dict(collective_axes="pair", leader_tracked=part) if part else {}
            plgpu.copy_gmem_to_smem(source, target, loaded, **options)

    return kernels.scaled_product(*arrays, load=load, loaded=plgpu.Barrier(num_arrivals=arrivals))


def scales_in_halves(a, b):
    """B's scales are cut in two, as b is."""
    return _run(a, b, (HALF, HALF, HALF, HALF))


def scales_whole(a, b):
    """Both scales whole."""
    return _run(a, b, (HALF, HALF, WHOLE, WHOLE))


def too_few_arrivals(a, b):
    """Counts the matrices only."""
    return _run(a, b, (HALF, HALF, HALF, WHOLE), arrivals=2)


def an_arrival_per_block(a, b):
    """Counts each copy in each block."""
    return _run(a, b, (HALF, HALF, HALF, WHOLE), arrivals=8)


def b_scales_by_each(a, b):
    """Each block loads B's scales for itself, and its barrier hears of it."""
    return _run(a, b, (HALF, HALF, HALF, None))


WRONG = {
    "scales in halves": Wrong(scales_in_halves, "exception", ("Expected source shape",)),
    "scales whole": Wrong(scales_whole, "exception", ("shape",)),
    "too few arrivals": Wrong(too_few_arrivals, "barrier-overrun", ("Each copy arrives once",)),
    "an arrival per block": Wrong(an_arrival_per_block, "deadlock", ("4 of 8 arrivals",)),
    "b scales by each": Wrong(b_scales_by_each, "race", ("bs_smem",)),
}
