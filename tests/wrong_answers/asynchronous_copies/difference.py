"""Wrong answers to asynchronous_copies.difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

Answer = Callable[[jax.Array], jax.Array]


def _answer(
    lines: Callable[..., None], *, tiles: Callable[[int], int] = lambda m: pl.cdiv(m, 64)
) -> Answer:
    def difference(x: jax.Array) -> jax.Array:
        tile = plgpu.SMEM((64, x.shape[1]), x.dtype)
        loaded = plgpu.Barrier(num_arrivals=2)
        scratch: dict[str, Any] = dict(here=tile, above=tile, loaded=loaded)

        def kernel(x_gmem: Any, y_gmem: Any, here: Any, above: Any, loaded: Any) -> None:
            start = jax.lax.axis_index("tile") * 64
            lines(start, x_gmem, y_gmem, here, above, loaded)

        return plgpu.kernel(
            kernel,
            out_type=x,
            grid=(tiles(x.shape[0]),),
            grid_names=("tile",),
            scratch_types=scratch,
        )(x)

    return difference


def _lines(
    before: Callable[[Any], Any] = lambda start: start - 1,
    *,
    commit: bool = True,
    wait: bool = True,
    done: bool = True,
    turned: bool = False,
) -> Callable[..., None]:
    def lines(start: Any, x_gmem: Any, y_gmem: Any, here: Any, above: Any, loaded: Any) -> None:
        rows = pl.ds(start, 64)
        plgpu.copy_gmem_to_smem(x_gmem.at[rows], here, loaded)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(before(start), 64)], above, loaded)
        if wait:
            plgpu.barrier_wait(loaded)
        here[...] = above[...] - here[...] if turned else here[...] - above[...]
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(here, y_gmem.at[rows])
        if done:
            plgpu.wait_smem_to_gmem(0)

    return lines


def reads_the_row_above_into_registers(
    start: Any, x_gmem: Any, y_gmem: Any, here: Any, above: Any, loaded: Any
) -> None:
    y_gmem[pl.ds(start, 64)] = x_gmem[pl.ds(start, 64)] - x_gmem[pl.ds(start - 1, 64)]


WRONG = {
    "begins at row 0 where there is no row above": Wrong(
        _answer(_lines(lambda start: jnp.maximum(start - 1, 0))), "value", ("[0, 0]",)
    ),
    "takes the row below": Wrong(_answer(_lines(lambda start: start + 1)), "value", ("[0, 0]",)),
    "subtracts the wrong way round": Wrong(_answer(_lines(turned=True)), "value", ("[0, 0]",)),
    "rounds the number of blocks down": Wrong(
        _answer(_lines(), tiles=lambda m: max(1, m // 64)), "nan", ("Nobody writes",)
    ),
    "forgets the wait": Wrong(
        _answer(_lines(wait=False)), "read-before-arrival", ("plgpu.barrier_wait",)
    ),
    "forgets the commit": Wrong(
        _answer(_lines(commit=False)), "missing-commit-smem", ("plgpu.commit_smem()",)
    ),
    "forgets the last wait": Wrong(
        _answer(_lines(done=False)), "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "reads the rows into registers": Wrong(
        _answer(reads_the_row_above_into_registers), "out-of-bounds", ("-1",)
    ),
}
