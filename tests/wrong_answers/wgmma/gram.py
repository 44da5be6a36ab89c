"""Wrong answers to wgmma.gram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _answer(
    left: Callable[[Any], Any],
    right: Callable[[Any], Any],
    *,
    wait: bool = True,
    rows: int | None = None,
) -> Callable[[jax.Array], jax.Array]:
    def gram(x: jax.Array) -> jax.Array:
        k, n = x.shape

        def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
            if wait:
                plgpu.barrier_wait(loaded)

            def multiply(acc: Any) -> jax.Array:
                plgpu.wgmma(acc, left(x_smem), right(x_smem))
                return acc[...]

            y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((rows or n, n), jnp.float32))
            if not wait:
                plgpu.barrier_wait(loaded)

        scratch: dict[str, Any] = dict(x_smem=plgpu.SMEM((k, n), x.dtype), loaded=plgpu.Barrier())
        out_type = jax.ShapeDtypeStruct((n, n), jnp.float32)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x)

    return gram


def _turned(ref: Any) -> Any:
    return ref.transpose((1, 0))


def _as_it_is(ref: Any) -> Any:
    return ref


def without_a_kernel(x: jax.Array) -> jax.Array:
    return jnp.dot(x.T, x, preferred_element_type=jnp.float32)


WRONG = {
    "turns neither": Wrong(_answer(_as_it_is, _as_it_is), "exception", ("Incompatible shapes",)),
    "turns the right one": Wrong(
        _answer(_as_it_is, _turned), "exception", ("Incompatible shapes",)
    ),
    "turns an array": Wrong(_answer(lambda ref: ref[...].T, _as_it_is), "lowering", ("transpose",)),
    "does not wait for x": Wrong(
        _answer(_turned, _as_it_is, wait=False), "mma-operand-not-arrived", ("x_smem",)
    ),
    "without a kernel": Wrong(without_a_kernel, "means", ("no GPU kernel",)),
}
