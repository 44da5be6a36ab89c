"""Wrong answers to memory_spaces.stage_through_smem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _around(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    """What the notebook gives, around the learner's lines."""

    def stage_through_smem(x: jax.Array) -> jax.Array:
        def kernel(x_gmem: Any, y_gmem: Any, buffer_smem: Any, loaded: Any) -> None:
            rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
            body(x_gmem, y_gmem, buffer_smem, loaded, rows)

        scratch: dict[str, Any] = dict(
            buffer_smem=plgpu.SMEM((64, x.shape[1]), x.dtype), loaded=plgpu.Barrier()
        )
        grid: dict[str, Any] = dict(grid=(x.shape[0] // 64,), grid_names=("tile",))
        return plgpu.kernel(kernel, out_type=x, scratch_types=scratch, **grid)(x)

    return stage_through_smem


@_around
def forgets_the_barrier(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def forgets_the_commit(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def commits_too_early(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.commit_smem()
    buffer[...] = 1 - buffer[...]
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def leaves_while_copying(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])


@_around
def every_block_takes_the_first_rows(
    x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any
) -> None:
    first = pl.ds(0, 64)
    plgpu.copy_gmem_to_smem(x_gmem.at[first], buffer, loaded)
    plgpu.barrier_wait(loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[first])
    plgpu.wait_smem_to_gmem(0)


@_around
def reads_the_first_rows(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(0, 64)], buffer, loaded)
    plgpu.barrier_wait(loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def waits_for_a_barrier_on_the_way_out(
    x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any
) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)
    buffer[...] = 1 - buffer[...]
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.barrier_wait(loaded)


@_around
def throws_the_result_away(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)
    y = 1 - buffer[...]
    del y
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, y_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def copies_a_value(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem[rows], buffer, loaded)
    plgpu.barrier_wait(loaded)


@_around
def goes_around_smem(x_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any, rows: Any) -> None:
    y_gmem[rows] = 1 - x_gmem[rows]


def uses_plain_jax(x: jax.Array) -> jax.Array:
    return 1 - x


WRONG = {
    "forgets the barrier": Wrong(
        forgets_the_barrier, "read-before-arrival", ("buffer", "plgpu.barrier_wait")
    ),
    "forgets the commit": Wrong(
        forgets_the_commit, "missing-commit-smem", ("without plgpu.commit_smem()",)
    ),
    "commits too early": Wrong(
        commits_too_early, "missing-commit-smem", ("without plgpu.commit_smem()",)
    ),
    "leaves while copying": Wrong(leaves_while_copying, "race", ("wait_smem_to_gmem(0)",)),
    "every block takes the first rows": Wrong(
        every_block_takes_the_first_rows, "race", ("y_gmem[0:64, 0:128]", "block 1")
    ),
    "reads the first rows": Wrong(reads_the_first_rows, "value", ("rows 0 to 63 is repeated",)),
    "waits for a barrier on the way out": Wrong(
        waits_for_a_barrier_on_the_way_out, "deadlock", ("wait for ever",)
    ),
    "throws the result away": Wrong(throws_the_result_away, "value", ("x, unchanged",)),
    "copies a value": Wrong(copies_a_value, "exception", ("`copy_gmem_to_smem` on a `Ref`",)),
    "goes around SMEM": Wrong(goes_around_smem, "means", ("plgpu.copy_gmem_to_smem",)),
    "uses plain JAX": Wrong(uses_plain_jax, "means", ("no GPU kernel", "`sub`")),
}
