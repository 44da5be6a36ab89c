"""Small kernels, right and wrong, for the tests of the CPU model and of `run`."""

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

F32 = jax.ShapeDtypeStruct((128, 128), jnp.float32)
SMEM = plgpu.SMEM((128, 128), jnp.float32)


def through_smem(*, wait=True, commit=True, drain=True):
    """x + 1 through SMEM, with any of its three synchronisations left out."""

    @functools.partial(
        plgpu.kernel, out_type=F32, scratch_types=dict(x_smem=SMEM, barrier=plgpu.Barrier())
    )
    def kernel(x_gmem, y_gmem, x_smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
        if wait:
            plgpu.barrier_wait(barrier)
        x_smem[...] = x_smem[...] + 1
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, y_gmem)
        if drain:
            plgpu.wait_smem_to_gmem(0)

    return kernel


def much_smem(*, rows):
    """x + 1, with room in SMEM for `rows` rows of 128 float32 beside it."""

    @functools.partial(
        plgpu.kernel, out_type=F32, scratch_types=[plgpu.SMEM((rows, 128), jnp.float32)]
    )
    def kernel(x_gmem, y_gmem, unused_smem):
        y_gmem[...] = x_gmem[...] + 1

    return kernel


def pipelined(*, commit=True):
    """x + 1, and a pipeline that JAX emits, which sums up tiles of 32 rows for nothing."""

    @functools.partial(plgpu.kernel, out_type=F32)
    def kernel(x_gmem, y_gmem):
        def step(indices, x_smem, total):
            total = total + x_smem[...]
            if commit:
                plgpu.commit_smem()
            return total

        spec = plgpu.BlockSpec((32, 128), lambda i: (i, 0))
        start = jnp.zeros((32, 128), jnp.float32)
        plgpu.emit_pipeline(step, grid=(4,), in_specs=[spec], init_carry=start)(x_gmem)
        y_gmem[...] = x_gmem[...] + 1

    return kernel


def overwritten(*, commit=True):
    """x + 1, read from SMEM just before another copy overwrites it."""

    @functools.partial(
        plgpu.kernel, out_type=F32, scratch_types=dict(x_smem=SMEM, barrier=plgpu.Barrier())
    )
    def kernel(x_gmem, y_gmem, x_smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
        plgpu.barrier_wait(barrier)
        x = x_smem[...]
        if commit:
            plgpu.commit_smem()
        plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[...] = x + 1

    return kernel


def two_blocks_copy(*, own_rows=True):
    """x + 1 by two blocks through SMEM: each its own 64 rows, or both the same."""

    @functools.partial(
        plgpu.kernel,
        out_type=F32,
        grid=(2,),
        grid_names=("i",),
        scratch_types=[plgpu.SMEM((64, 128), jnp.float32)],
    )
    def kernel(x_gmem, y_gmem, x_smem):
        rows = pl.ds(jax.lax.axis_index("i") * (64 if own_rows else 0), 64)
        x_smem[...] = x_gmem[rows] + 1
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, y_gmem.at[rows])
        plgpu.wait_smem_to_gmem(0)

    return kernel


def two_blocks(*, own_rows=True):
    """x + 1 by two blocks: each its own 64 rows, or both the same."""

    @functools.partial(plgpu.kernel, out_type=F32, grid=(2,), grid_names=("i",))
    def kernel(x_gmem, y_gmem):
        start = jax.lax.axis_index("i") * (64 if own_rows else 0)
        rows = pl.ds(start, 64)
        y_gmem[rows] = x_gmem[rows] + 1

    return kernel


def two_threads(*, synchronised=True):
    """x + 1: thread 0 writes SMEM, thread 1 reads it."""

    @functools.partial(
        plgpu.kernel,
        out_type=F32,
        num_threads=2,
        thread_name="t",
        scratch_types=dict(x_smem=SMEM, barrier=plgpu.Barrier()),
    )
    def kernel(x_gmem, y_gmem, x_smem, barrier):
        thread = jax.lax.axis_index("t")

        @pl.when(thread == 0)
        def _producer():
            x_smem[...] = x_gmem[...] + 1
            if synchronised:
                plgpu.barrier_arrive(barrier)

        @pl.when(thread == 1)
        def _consumer():
            if synchronised:
                plgpu.barrier_wait(barrier)
            y_gmem[...] = x_smem[...]

    return kernel


def waits(*, arrives):
    """x + 1 after a wait that an arrival ends, or nothing does."""

    @functools.partial(plgpu.kernel, out_type=F32, scratch_types=[plgpu.Barrier()])
    def kernel(x_gmem, y_gmem, barrier):
        if arrives:
            plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[...] = x_gmem[...] + 1

    return kernel


def rows(*, first, count):
    """x + 1 of `count` rows from `first` on; the rest of the output is never written."""

    @functools.partial(plgpu.kernel, out_type=F32, grid=(1,), grid_names=("i",))
    def kernel(x_gmem, y_gmem):
        # a dynamic start, since JAX refuses a static one out of bounds while it traces
        some = pl.ds(first + jax.lax.axis_index("i"), count)
        y_gmem[some] = x_gmem[some] + 1

    return kernel


def raises():
    """A kernel with a mistake in plain JAX code."""

    @functools.partial(plgpu.kernel, out_type=F32)
    def kernel(x_gmem, y_gmem):
        y_gmem[...] = x_gmem[...] + jnp.ones((3,), jnp.float32)

    return kernel
