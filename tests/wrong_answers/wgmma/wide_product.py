"""Wrong answers to wgmma.wide_product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _answer(lines: Callable[[Any, Any, Any, int], None]) -> Callable[..., jax.Array]:
    """The exercise's frame; `lines` gets y_gmem, a_smem, b_smem and n."""

    def wide_product(a: jax.Array, b: jax.Array) -> jax.Array:
        n = b.shape[1]

        def kernel(
            a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any
        ) -> None:
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
            plgpu.barrier_wait(loaded)
            lines(y_gmem, a_smem, b_smem, n)

        scratch: dict[str, Any] = dict(
            a_smem=plgpu.SMEM(a.shape, a.dtype),
            b_smem=plgpu.SMEM(b.shape, b.dtype),
            loaded=plgpu.Barrier(num_arrivals=2),
        )
        out_type = jax.ShapeDtypeStruct((64, n), jnp.float32)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(a, b)

    return wide_product


def _part(a_smem: Any, b_smem: Any, columns: Any) -> jax.Array:
    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, a_smem, b_smem.at[:, columns])
        return acc[...]

    part: jax.Array = pl.run_scoped(multiply, plgpu.ACC((64, columns.size), jnp.float32))
    return part


@_answer
def all_columns_at_once(y_gmem: Any, a_smem: Any, b_smem: Any, n: int) -> None:
    y_gmem[...] = _part(a_smem, b_smem, pl.ds(0, n))


@_answer
def the_last_part_has_256_too(y_gmem: Any, a_smem: Any, b_smem: Any, n: int) -> None:
    for start in range(0, n, 256):
        columns = pl.ds(start, 256)
        y_gmem[:, columns] = _part(a_smem, b_smem, columns)


@_answer
def forgets_the_rest(y_gmem: Any, a_smem: Any, b_smem: Any, n: int) -> None:
    for i in range(n // 256):
        columns = pl.ds(i * 256, 256)
        y_gmem[:, columns] = _part(a_smem, b_smem, columns)


@_answer
def stores_every_part_at_the_beginning(y_gmem: Any, a_smem: Any, b_smem: Any, n: int) -> None:
    for start in range(0, n, 256):
        columns = pl.ds(start, min(256, n - start))
        y_gmem[:, pl.ds(0, columns.size)] = _part(a_smem, b_smem, columns)


@_answer
def slices_the_accumulator_only(y_gmem: Any, a_smem: Any, b_smem: Any, n: int) -> None:
    for start in range(0, n, 256):
        width = min(256, n - start)
        columns = pl.ds(start, width)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        y_gmem[:, columns] = pl.run_scoped(multiply, plgpu.ACC((64, width), jnp.float32))


WRONG = {
    "all columns at once": Wrong(all_columns_at_once, "illegal-mma", ("at most 256",)),
    "the last part has 256 too": Wrong(
        the_last_part_has_256_too, "exception", ("starts at 256 and has 256 elements",)
    ),
    "forgets the rest": Wrong(forgets_the_rest, "nan", ("columns 256 to 319",)),
    "stores every part at the beginning": Wrong(
        stores_every_part_at_the_beginning, "nan", ("columns 256 to 511",)
    ),
    "slices the accumulator only": Wrong(
        slices_the_accumulator_only, "exception", ("Incompatible shapes",)
    ),
}
