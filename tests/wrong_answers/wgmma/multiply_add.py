"""Wrong answers to wgmma.multiply_add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _answer(lines: Callable[[Any, Any, Any, Any], None]) -> Callable[..., jax.Array]:
    """The exercise's frame; `lines` gets c_smem, y_gmem, a_smem, b_smem."""

    def multiply_add(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        def kernel(
            a_gmem: Any, b_gmem: Any, c_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any,
            loaded: Any, c_smem: Any,
        ) -> None:  # fmt: skip
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
            plgpu.copy_gmem_to_smem(c_gmem, c_smem, loaded)
            plgpu.barrier_wait(loaded)
            lines(c_smem, y_gmem, a_smem, b_smem)

        scratch: dict[str, Any] = dict(
            a_smem=plgpu.SMEM(a.shape, a.dtype),
            b_smem=plgpu.SMEM(b.shape, b.dtype),
            loaded=plgpu.Barrier(num_arrivals=3),
            c_smem=plgpu.SMEM(c.shape, c.dtype),
        )
        return plgpu.kernel(kernel, out_type=c, scratch_types=scratch)(a, b, c)

    return multiply_add


@_answer
def adds_in_registers(c_smem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    product = pl.run_scoped(multiply, plgpu.ACC(y_gmem.shape, jnp.float32))
    y_gmem[...] = product + c_smem[...]


@_answer
def leaves_c_out(c_smem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(y_gmem.shape, jnp.float32))


@_answer
def starts_from_c_and_does_not_multiply(c_smem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
    def multiply(acc: Any) -> None:
        del acc

    y_gmem[...] = pl.run_state(multiply)(plgpu.ACC.init(c_smem[...]))


@_answer
def initializes_in_run_scoped(c_smem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, a_smem, b_smem)
        return acc[...]

    y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC.init(c_smem[...]))


@_answer
def multiplies_twice(c_smem: Any, y_gmem: Any, a_smem: Any, b_smem: Any) -> None:
    def multiply(acc: Any) -> None:
        plgpu.wgmma(acc, a_smem, b_smem)
        plgpu.wgmma(acc, a_smem, b_smem)

    y_gmem[...] = pl.run_state(multiply)(plgpu.ACC.init(c_smem[...]))


WRONG = {
    "adds in registers": Wrong(adds_in_registers, "means", ("run_state",)),
    "leaves c out": Wrong(leaves_c_out, "value", ("wrong",)),
    "starts from c and does not multiply": Wrong(
        starts_from_c_and_does_not_multiply, "value", ("The output is c, unchanged",)
    ),
    "initializes in run_scoped": Wrong(initializes_in_run_scoped, "exception", ("run_state",)),
    "multiplies twice": Wrong(multiplies_twice, "value", ("wrong",)),
}
