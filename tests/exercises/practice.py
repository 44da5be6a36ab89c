"""Exercises of the tests' own, with a right answer and one for each kind of wrong one."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import run
from course_lib.exercises import Case, Exercise, Spec

Array = Any
ROWS, COLUMNS = 64, 128

DOUBLE = Exercise(
    id="practice.double",
    function="double",
    title="Twice x, through SMEM",
    statement="Return 2 * x, one block per 64 rows, each staging its rows in SMEM.",
    signature="double(x: float32[m, 128]) -> float32[m, 128]",
    lines=6,
    reference=lambda x: 2 * x,
    cases=tuple(Case((Spec((m, COLUMNS)),)) for m in (ROWS, 3 * ROWS)),
    hints=(
        "Copy first.",
        "plgpu.copy_gmem_to_smem, then a wait.",
        "y_gmem[rows] = 2 * x_smem[...]",
    ),
    requires={"copy_gmem_to_smem": 1},
)

PAIR = Exercise(
    id="practice.sum_and_difference",
    function="sum_and_difference",
    title="Two outputs",
    statement="Return x + y and x - y.",
    signature="sum_and_difference(x, y: int32[256]) -> (int32[256], int32[256])",
    lines=2,
    reference=lambda x, y: (x + y, x - y),
    cases=(Case((Spec((2 * COLUMNS,), "int32"), Spec((2 * COLUMNS,), "int32"))),),
    hints=("One.", "Two.", "Three."),
)

SCALE = Exercise(
    id="practice.scale",
    function="scale",
    title="A plain number",
    statement="Return x times `by`.",
    signature="scale(x: float32[128], *, by) -> float32[128]",
    lines=1,
    reference=lambda x, by: x * np.float32(by),
    cases=(Case((Spec((COLUMNS,)),), {"by": 3}), Case((Spec((COLUMNS,)),), {"by": 5})),
    hints=("One.", "Two.", "Three."),
    forbids=("add",),
)

COUNT = Exercise(
    id="practice.count",
    function="count",
    title="No arrays",
    statement="Return 0, 1, 2, ...",
    signature="count(*, n) -> int32[n]",
    lines=1,
    reference=lambda n: np.arange(n, dtype=np.int32),
    cases=(Case((), {"n": COLUMNS}),),
    hints=("One.", "Two.", "Three."),
)

ALL = (DOUBLE, PAIR, SCALE)


def _launch(body: Any, x: Array, *, barriers: int = 1) -> Array:
    """One block per 64 rows of x, with SMEM for them and a barrier."""
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // ROWS,),
        grid_names=("i",),
        scratch_types=[plgpu.SMEM((ROWS, COLUMNS), x.dtype), plgpu.Barrier()],
    )(x)


def double(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[rows] = 2 * x_smem[...]

    return _launch(body, x)


def reuses_smem_without_a_commit(x: Array) -> Array:
    """Right, but for a fence between a read of SMEM and the copy that overwrites it."""

    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        first = x_smem[...]
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[rows] = first + x_smem[...]

    return _launch(body, x)


def double_in_a_scope(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)

        def scope(scoped_smem):
            plgpu.copy_gmem_to_smem(x_gmem.at[rows], scoped_smem, barrier)
            plgpu.barrier_wait(barrier)
            y_gmem[rows] = 2 * scoped_smem[...]

        pl.run_scoped(scope, plgpu.SMEM((ROWS, COLUMNS), x.dtype))

    return _launch(body, x)


def forgets_to_double(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[rows] = x_smem[...]

    return _launch(body, x)


def reads_the_first_block(x: Array) -> Array:
    """Right on one block: only the second case shows it."""

    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(0, ROWS)], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[rows] = 2 * x_smem[...]

    return _launch(body, x)


def writes_half(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        half = pl.ds(lax.axis_index("i") * ROWS, ROWS // 2)
        y_gmem[half] = 2 * x_smem[pl.ds(0, ROWS // 2)]

    return _launch(body, x)


def reads_unwritten_memory(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        y_gmem[rows] = 2 * x_smem[...]

    return _launch(body, x)


def takes_the_logarithm(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        y_gmem[rows] = jnp.log(x_gmem[rows])

    return _launch(body, x)


def does_not_wait(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        y_gmem[rows] = 2 * x_smem[...]
        plgpu.barrier_wait(barrier)

    return _launch(body, x)


def blocks_share_rows(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[pl.ds(0, ROWS)] = 2 * x_smem[...]

    return _launch(body, x)


def waits_for_ever(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        plgpu.barrier_wait(barrier)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        y_gmem[rows] = 2 * x_smem[...]

    return _launch(body, x)


def leaves_the_array(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds((lax.axis_index("i") + 1) * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, barrier)
        plgpu.barrier_wait(barrier)
        y_gmem[rows] = 2 * x_smem[...]

    return _launch(body, x)


def without_smem(x: Array) -> Array:
    def body(x_gmem, y_gmem, x_smem, barrier):
        rows = pl.ds(lax.axis_index("i") * ROWS, ROWS)
        y_gmem[rows] = 2 * x_gmem[rows]

    return _launch(body, x)


def without_a_kernel(x: Array) -> Array:
    return 2 * x


def kernel_then_jnp(x: Array) -> Array:
    return forgets_to_double(x) * 2


def returns_its_argument(x: Array) -> Array:
    forgets_to_double(x)
    return x


def returns_float16(x: Array) -> Array:
    return double(x).astype(jnp.float16)


def returns_rows_flat(x: Array) -> Array:
    return double(x).reshape(-1)


def returns_a_tuple(x: Array) -> Any:
    return double(x), double(x)


def returns_nothing(x: Array) -> None:
    double(x)


def returns_numpy(x: Array) -> Any:
    double(x)
    return np.ones(x.shape, np.float32)


def double_by_run(x: Array) -> Array:
    return run(double, x)


def returns_a_list_of_numbers(x: Array) -> Any:
    return [1.5, 2.5]


def returns_its_kernel(x: Array) -> Any:
    def kernel():
        return double(x)

    return kernel


def not_implemented(x: Array) -> Array:
    raise NotImplementedError("no idea")


def uses_numpy(x: Array) -> Array:
    return np.asarray(x) * 2


def raises(x: Array) -> Array:
    y = double(x)
    return y[0] + jnp.zeros(3)


def not_done(x: Array) -> Array:
    raise NotImplementedError("not done yet")


def too_many_arguments(x: Array, y: Array) -> Array:
    return double(x)


def kills_its_process(x: Array) -> Array:
    import os

    os._exit(3)


def never_ends(x: Array) -> Array:
    while True:
        time.sleep(0.0)


def _elementwise(body: Any, *args: Array, outputs: int = 1) -> Any:
    out = jax.ShapeDtypeStruct(args[0].shape, args[0].dtype)
    return plgpu.kernel(body, out_type=out if outputs == 1 else (out,) * outputs)(*args)


def sum_and_difference(x: Array, y: Array) -> Any:
    def body(x_gmem, y_gmem, s_gmem, d_gmem):
        s_gmem[...] = x_gmem[...] + y_gmem[...]
        d_gmem[...] = x_gmem[...] - y_gmem[...]

    return _elementwise(body, x, y, outputs=2)


def sum_and_wrong_difference(x: Array, y: Array) -> Any:
    def body(x_gmem, y_gmem, s_gmem, d_gmem):
        s_gmem[...] = x_gmem[...] + y_gmem[...]
        d_gmem[...] = y_gmem[...] - x_gmem[...]

    return _elementwise(body, x, y, outputs=2)


def half_of_the_difference(x: Array, y: Array) -> Any:
    def body(x_gmem, y_gmem, s_gmem, d_gmem):
        s_gmem[...] = x_gmem[...] + y_gmem[...]
        half = pl.ds(0, COLUMNS)
        d_gmem[half] = x_gmem[half] - y_gmem[half]

    return _elementwise(body, x, y, outputs=2)


def scale(x: Array, *, by: int) -> Array:
    def body(x_gmem, y_gmem):
        y_gmem[...] = x_gmem[...] * by

    return _elementwise(body, x)


def counts_from_one(*, n: int) -> Array:
    def body(y_gmem):
        y_gmem[...] = 1 + plgpu.layout_cast(
            lax.iota(jnp.int32, n), plgpu.Layout.WG_STRIDED((n,), 1)
        )

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((n,), jnp.int32))()


def scale_by_three(x: Array, *, by: int) -> Array:
    def body(x_gmem, y_gmem):
        y_gmem[...] = x_gmem[...] * 3

    return _elementwise(body, x)


def scale_by_adding(x: Array, *, by: int) -> Array:
    def body(x_gmem, y_gmem):
        total = x_gmem[...]
        for _ in range(by - 1):
            total = total + x_gmem[...]
        y_gmem[...] = total

    return _elementwise(body, x)
