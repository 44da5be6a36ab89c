"""Wrong answers to wgmma.relu_product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _answer(
    steps: Callable[[Any, Any, Any, int], None],
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The exercise's frame; `steps` gets acc, a_smem, b_smem and k."""

    def relu_product(a: jax.Array, b: jax.Array) -> jax.Array:
        def kernel(
            a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any
        ) -> None:
            plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
            plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
            plgpu.barrier_wait(loaded)

            def multiply(acc: Any) -> jax.Array:
                steps(acc, a_smem, b_smem, a.shape[1])
                return acc[...]

            y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(y_gmem.shape, jnp.float32))

        scratch: dict[str, Any] = dict(
            a_smem=plgpu.SMEM(a.shape, a.dtype),
            b_smem=plgpu.SMEM(b.shape, b.dtype),
            loaded=plgpu.Barrier(num_arrivals=2),
        )
        out_type = jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), jnp.float32)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(a, b)

    return relu_product


@_answer
def forgets_to_wait(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    for start in range(0, k, 64):
        ks = pl.ds(start, 64)
        plgpu.wgmma(acc, jnp.maximum(a_smem[:, ks], 0), b_smem.at[ks])


@_answer
def goes_back_through_smem(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    del k
    a_smem[...] = jnp.maximum(a_smem[...], 0)
    plgpu.commit_smem()
    plgpu.wgmma(acc, a_smem, b_smem)
    plgpu.wgmma_wait(0)


@_answer
def back_into_smem_without_a_fence(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    del k
    a_smem[...] = jnp.maximum(a_smem[...], 0)
    plgpu.wgmma(acc, a_smem, b_smem)
    plgpu.wgmma_wait(0)


@_answer
def takes_all_of_b_in_each_step(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    for start in range(0, k, 64):
        plgpu.wgmma(acc, jnp.maximum(a_smem[:, pl.ds(start, 64)], 0), b_smem)
        plgpu.wgmma_wait(0)


@_answer
def takes_the_first_rows_of_b_in_each_step(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    for start in range(0, k, 64):
        left = jnp.maximum(a_smem[:, pl.ds(start, 64)], 0)
        plgpu.wgmma(acc, left, b_smem.at[pl.ds(0, 64)])
        plgpu.wgmma_wait(0)


@_answer
def loads_b_too(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    for start in range(0, k, 64):
        ks = pl.ds(start, 64)
        plgpu.wgmma(acc, jnp.maximum(a_smem[:, ks], 0), b_smem[ks])
        plgpu.wgmma_wait(0)


@_answer
def leaves_the_maximum_out(acc: Any, a_smem: Any, b_smem: Any, k: int) -> None:
    for start in range(0, k, 64):
        ks = pl.ds(start, 64)
        plgpu.wgmma(acc, a_smem[:, ks], b_smem.at[ks])
        plgpu.wgmma_wait(0)


WRONG = {
    "forgets to wait": Wrong(forgets_to_wait, "means", ("plgpu.wgmma_wait",)),
    "goes back through SMEM": Wrong(goes_back_through_smem, "means", ("plgpu.commit_smem",)),
    "back into SMEM without a fence": Wrong(
        back_into_smem_without_a_fence, "missing-commit-smem", ("a_smem",)
    ),
    "takes all of b in each step": Wrong(
        takes_all_of_b_in_each_step, "exception", ("Incompatible shapes",)
    ),
    "takes the first rows of b in each step": Wrong(
        takes_the_first_rows_of_b_in_each_step, "value", ("wrong",)
    ),
    "loads b too": Wrong(loads_b_too, "exception", ("b_smem.at[...]",)),
    "leaves the maximum out": Wrong(leaves_the_maximum_out, "value", ("wrong",)),
}
