"""Wrong answers to start_here.double_through_smem."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _launch(body, x):
    return plgpu.kernel(
        body,
        out_type=x,
        grid=(x.shape[0] // 128,),
        grid_names=("block",),
        scratch_types={"x_smem": plgpu.SMEM((128,), jnp.float32), "loaded": plgpu.Barrier()},
    )(x)


def never_waits(x):
    """Reads SMEM while the copy may still be running."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        y_gmem[part] = x_smem[...] * 2

    return _launch(kernel, x)


def waits_first(x):
    """Waits for a copy that it has not started yet."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.barrier_wait(loaded)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        y_gmem[part] = x_smem[...] * 2

    return _launch(kernel, x)


def no_at(x):
    """x_gmem[part] is a value in registers; a copy needs the place, x_gmem.at[part]."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem[part], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_gmem[part] = x_smem[...] * 2

    return _launch(kernel, x)


def always_the_first_part(x):
    """Every block copies the elements of block 0."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(0, 128)], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_gmem[part] = x_smem[...] * 2

    return _launch(kernel, x)


def without_smem(x):
    """The right values without the copy engine."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        y_gmem[part] = x_gmem[part] * 2

    return _launch(kernel, x)


def copies_and_ignores(x):
    """Copies into SMEM, waits, and then doubles only what never went there: GMEM, once."""

    def kernel(x_gmem, y_gmem, x_smem, loaded):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)
        plgpu.barrier_wait(loaded)
        y_gmem[part] = x_smem[...]

    return _launch(kernel, x)


WRONG = {
    "never waits": Wrong(never_waits, "race", ("barrier_wait", "double_through_smem.py")),
    "waits first": Wrong(waits_first, "deadlock", ("wait for ever", "double_through_smem.py")),
    "no .at": Wrong(no_at, "exception", ("Ref", "double_through_smem.py")),
    "always the first part": Wrong(
        always_the_first_part, "value", ("elements 0 to 127", "repeated")
    ),
    "without SMEM": Wrong(without_smem, "means", ("copy_gmem_to_smem",)),
    "forgot to double": Wrong(copies_and_ignores, "value", ("x, unchanged",)),
}
