"""Wrong answers to asynchronous_copies.gather_rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

Answer = Callable[[jax.Array, jax.Array], jax.Array]


def _answer(lines: Callable[..., None]) -> Answer:
    def gather_rows(x: jax.Array, indices: jax.Array) -> jax.Array:
        def kernel(x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any) -> None:
            part = pl.ds(jax.lax.axis_index("tile") * 64, 64)
            lines(part, x_gmem, i_gmem, y_gmem, rows_smem, loaded)

        rows = plgpu.SMEM((64, x.shape[1]), x.dtype)
        scratch: dict[str, Any] = dict(rows_smem=rows, loaded=plgpu.Barrier())
        return plgpu.kernel(
            kernel,
            out_type=jax.ShapeDtypeStruct((indices.shape[0], x.shape[1]), x.dtype),
            grid=(indices.shape[0] // 64,),
            grid_names=("tile",),
            scratch_types=scratch,
        )(x, indices)

    return gather_rows


def _indices(reference: Any) -> jax.Array:
    return plgpu.load(reference, layout=plgpu.Layout.TMA_INDICES, optimized=False)


def _send(rows_smem: Any, target: Any) -> None:
    plgpu.copy_smem_to_gmem(rows_smem, target)
    plgpu.wait_smem_to_gmem(0)


@_answer
def takes_the_first_indices(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[_indices(i_gmem.at[pl.ds(0, 64)])], rows_smem, loaded)
    plgpu.barrier_wait(loaded)
    _send(rows_smem, y_gmem.at[part])


@_answer
def forgets_the_wait(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[_indices(i_gmem.at[part])], rows_smem, loaded)
    _send(rows_smem, y_gmem.at[part])


@_answer
def copies_its_own_part(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[part], rows_smem, loaded)
    plgpu.barrier_wait(loaded)
    _send(rows_smem, y_gmem.at[part])


@_answer
def writes_all_parts_to_the_first(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[_indices(i_gmem.at[part])], rows_smem, loaded)
    plgpu.barrier_wait(loaded)
    _send(rows_smem, y_gmem.at[pl.ds(0, 64)])


@_answer
def forgets_the_last_wait(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[_indices(i_gmem.at[part])], rows_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])


@_answer
def loads_the_indices_as_they_come(
    part: Any, x_gmem: Any, i_gmem: Any, y_gmem: Any, rows_smem: Any, loaded: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[i_gmem[part]], rows_smem, loaded)
    plgpu.barrier_wait(loaded)
    _send(rows_smem, y_gmem.at[part])


def gathers_outside_of_the_kernel(x: jax.Array, indices: jax.Array) -> jax.Array:
    return x[indices]


WRONG = {
    "takes the first indices": Wrong(takes_the_first_indices, "value", ("[64, 0]",)),
    "forgets the wait": Wrong(forgets_the_wait, "read-before-arrival", ("plgpu.barrier_wait",)),
    "copies its own part": Wrong(copies_its_own_part, "value", ("[0, 0]",)),
    "writes all parts to the first": Wrong(writes_all_parts_to_the_first, "data-race", ("y_gmem",)),
    "forgets the last wait": Wrong(
        forgets_the_last_wait, "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "loads the indices as they come": Wrong(
        loads_the_indices_as_they_come, "layout", ("sectors of 32 bytes",)
    ),
    "gathers outside of the kernel": Wrong(
        gathers_outside_of_the_kernel, "means", ("no GPU kernel",)
    ),
}
