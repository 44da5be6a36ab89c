"""Wrong answers to barriers.exp_minus."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, both, third, *, first=None, second=None):
    """The notebook's frame; `first`, `second`, `third` are the bodies of the threads."""

    def exponential(x_gmem, items_smem, both):
        items_smem[0] = jnp.exp(x_gmem[0])
        plgpu.barrier_arrive(both)

    def negative(x_gmem, items_smem, both):
        items_smem[1] = -x_gmem[1]
        plgpu.barrier_arrive(both)

    def kernel(x_gmem, y_gmem, items_smem, both):
        thread = jax.lax.axis_index("thread")
        pl.when(thread == 0)(lambda: (first or exponential)(x_gmem, items_smem, both))
        pl.when(thread == 1)(lambda: (second or negative)(x_gmem, items_smem, both))
        pl.when(thread == 2)(lambda: third(y_gmem, items_smem, both))

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        scratch_types=dict(items_smem=plgpu.SMEM(x.shape, x.dtype), both=both),
        num_threads=3,
        thread_name="thread",
    )(x)


def _add(y_gmem, items_smem, both):
    plgpu.barrier_wait(both)
    y_gmem[...] = items_smem[0] + items_smem[1]


def one_arrival(x):
    """The default: complete when the first of the two has come."""
    return _run(x, plgpu.Barrier(), _add)


def one_arrival_two_waits(x):
    """One arrival completes it, and thread 2 waits twice: which may be too late."""

    def third(y_gmem, items_smem, both):
        plgpu.barrier_wait(both)
        _add(y_gmem, items_smem, both)

    return _run(x, plgpu.Barrier(), third)


def counts_the_reader(x):
    """Three threads, so three arrivals; the third is the one that waits."""
    return _run(x, plgpu.Barrier(num_arrivals=3), _add)


def counts_lanes(x):
    """128 lanes arrive, says CUDA. Pallas counts threads."""
    return _run(x, plgpu.Barrier(num_arrivals=256), _add)


def two_barriers_as_one(x):
    """num_barriers instead of num_arrivals."""
    return _run(x, plgpu.Barrier(num_barriers=2), _add)


def second_forgets_to_arrive(x):
    """Only thread 0 arrives."""

    def second(x_gmem, items_smem, both):
        items_smem[1] = -x_gmem[1]

    return _run(x, plgpu.Barrier(num_arrivals=2), _add, second=second)


def arrives_for_both(x):
    """Thread 0 arrives twice, for thread 1 too."""

    def first(x_gmem, items_smem, both):
        items_smem[0] = jnp.exp(x_gmem[0])
        plgpu.barrier_arrive(both)
        plgpu.barrier_arrive(both)

    def second(x_gmem, items_smem, both):
        items_smem[1] = -x_gmem[1]

    return _run(x, plgpu.Barrier(num_arrivals=2), _add, first=first, second=second)


def no_wait(x):
    """Thread 2 does not wait."""

    def third(y_gmem, items_smem, both):
        y_gmem[...] = items_smem[0] + items_smem[1]

    return _run(x, plgpu.Barrier(num_arrivals=2), third)


def forgets_the_sign(x):
    """Adds x[1]."""

    def second(x_gmem, items_smem, both):
        items_smem[1] = x_gmem[1]
        plgpu.barrier_arrive(both)

    return _run(x, plgpu.Barrier(num_arrivals=2), _add, second=second)


WRONG = {
    "one arrival": Wrong(one_arrival, "barrier-overrun", ("both can complete phase 2",)),
    "one arrival, two waits": Wrong(
        one_arrival_two_waits, "barrier-overrun", ("both can complete phase 2", "exp_minus.py")
    ),
    "counts the reader": Wrong(
        counts_the_reader, "deadlock", ("2 of 3 arrivals", "thread 2 waits for completion 1")
    ),
    "counts lanes": Wrong(counts_lanes, "deadlock", ("2 of 256 arrivals",)),
    "two barriers as one": Wrong(two_barriers_as_one, "out-of-bounds", ("both.at[i]",)),
    "the second forgets to arrive": Wrong(
        second_forgets_to_arrive, "deadlock", ("1 of 2 arrivals", "exp_minus.py")
    ),
    "arrives for both": Wrong(arrives_for_both, "race", ("items_smem[1", "exp_minus.py")),
    "no wait": Wrong(no_wait, "race", ("items_smem[0", "thread 2 reads")),
    "forgets the sign": Wrong(forgets_the_sign, "value", ("[0]",)),
}
