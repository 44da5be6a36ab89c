"""Wrong answers to wgmma.matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

Launch = dict[str, Any]


def _answer(
    *,
    step: Callable[..., None],
    arrivals: int = 2,
    steps: Callable[[int], int] = lambda k: k // 64,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The exercise's frame; `step` gets what the learner's code can see."""

    def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
        (m, k), n = a.shape, b.shape[1]

        def kernel(
            a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, y_smem: Any,
            loaded: Any,
        ) -> None:  # fmt: skip
            rows = pl.ds(jax.lax.axis_index("m") * 128, 128)
            columns = pl.ds(jax.lax.axis_index("n") * 128, 128)

            def multiply(acc: Any) -> jax.Array:
                @pl.loop(0, steps(k))
                def _(ki: Any) -> None:
                    a_tile = a_gmem.at[rows, pl.ds(ki * 64, 64)]
                    b_tile = b_gmem.at[pl.ds(ki * 64, 64), columns]
                    step(acc, ki, a_tile, b_tile, a_smem, b_smem, loaded)

                return acc[...]

            acc_type = plgpu.ACC((128, 128), jnp.float32)
            y_smem[...] = pl.run_scoped(multiply, acc_type).astype(a.dtype)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[rows, columns])
            plgpu.wait_smem_to_gmem(0)

        scratch: dict[str, Any] = dict(
            a_smem=plgpu.SMEM((128, 64), a.dtype),
            b_smem=plgpu.SMEM((64, 128), a.dtype),
            y_smem=plgpu.SMEM((128, 128), a.dtype),
            loaded=plgpu.Barrier(num_arrivals=arrivals),
        )
        launch: Launch = dict(grid=(m // 128, n // 128), grid_names=("m", "n"))
        out_type = jax.ShapeDtypeStruct((m, n), a.dtype)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch, **launch)(a, b)

    return matmul


def _copies(a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
    plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded)
    plgpu.copy_gmem_to_smem(b_tile, b_smem, loaded)


def no_wait_for_the_product(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    del ki
    _copies(a_tile, b_tile, a_smem, b_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.wgmma(acc, a_smem, b_smem)


def leaves_one_product_running(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    no_wait_for_the_product(acc, ki, a_tile, b_tile, a_smem, b_smem, loaded)
    plgpu.wgmma_wait(1)


def waits_after_the_product(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    del ki
    _copies(a_tile, b_tile, a_smem, b_smem, loaded)
    plgpu.wgmma(acc, a_smem, b_smem)
    plgpu.barrier_wait(loaded)
    plgpu.wgmma_wait(0)


def waits_for_each_copy(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    del ki
    plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.copy_gmem_to_smem(b_tile, b_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.wgmma(acc, a_smem, b_smem)
    plgpu.wgmma_wait(0)


def forgets_the_second_copy(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    del ki, b_tile
    plgpu.copy_gmem_to_smem(a_tile, a_smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.wgmma(acc, a_smem, b_smem)
    plgpu.wgmma_wait(0)


def right_step(
    acc: Any, ki: Any, a_tile: Any, b_tile: Any, a_smem: Any, b_smem: Any, loaded: Any
) -> None:
    no_wait_for_the_product(acc, ki, a_tile, b_tile, a_smem, b_smem, loaded)
    plgpu.wgmma_wait(0)


WRONG = {
    "no wait for the product": Wrong(
        _answer(step=no_wait_for_the_product), "mma-operand-overwritten", ("wgmma",)
    ),
    "leaves one product running": Wrong(
        _answer(step=leaves_one_product_running), "mma-operand-overwritten", ("wgmma",)
    ),
    "waits after the product": Wrong(
        _answer(step=waits_after_the_product), "mma-operand-not-arrived", ("a_smem",)
    ),
    "waits for each copy": Wrong(_answer(step=waits_for_each_copy), "deadlock", ("1 of 2",)),
    "the first step only": Wrong(_answer(step=right_step, steps=lambda k: 1), "value", ("wrong",)),
    "forgets the second copy": Wrong(
        _answer(step=forgets_the_second_copy), "deadlock", ("1 of 2 arrivals",)
    ),
}
