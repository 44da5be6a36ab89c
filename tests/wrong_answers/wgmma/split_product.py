"""Wrong answers to wgmma.split_product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from tests.wrong_answers import Wrong

# which parts are multiplied with each other
Pairs = Sequence[tuple[str, str]]
ALL: Pairs = (("low", "high"), ("high", "low"), ("high", "high"))


def _upper(x: jax.Array) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & np.uint32(0xFFFFE000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _answer(
    pairs: Pairs = ALL,
    *,
    commit: bool = True,
    rest: Callable[[jax.Array], jax.Array] = lambda full: full - _upper(full),
    turn: bool = True,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def split_product(x: jax.Array, w: jax.Array) -> jax.Array:
        def kernel(
            x_gmem: Any, w_gmem: Any, y_gmem: Any, x_smem: Any, w_smem: Any, x_low_smem: Any,
            w_low_smem: Any, loaded: Any,
        ) -> None:  # fmt: skip
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
            plgpu.copy_gmem_to_smem(w_gmem, w_smem, loaded)
            plgpu.barrier_wait(loaded)
            for high_smem, low_smem in ((x_smem, x_low_smem), (w_smem, w_low_smem)):
                full = high_smem[...]
                low_smem[...] = rest(full)
                high_smem[...] = _upper(full)
            if commit:
                plgpu.commit_smem()
            lefts = {"high": x_smem, "low": x_low_smem}
            rights = {"high": w_smem, "low": w_low_smem}

            def multiply(acc: Any) -> jax.Array:
                for left, right in pairs:
                    ref = rights[right]
                    plgpu.wgmma(acc, lefts[left], ref.transpose((1, 0)) if turn else ref)
                return acc[...]

            y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC(y_gmem.shape, jnp.float32))

        x_part, w_part = plgpu.SMEM(x.shape, x.dtype), plgpu.SMEM(w.shape, w.dtype)
        scratch: dict[str, Any] = dict(
            x_smem=x_part,
            w_smem=w_part,
            x_low_smem=x_part,
            w_low_smem=w_part,
            loaded=plgpu.Barrier(num_arrivals=2),
        )
        out_type = jax.ShapeDtypeStruct((x.shape[0], w.shape[0]), jnp.float32)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x, w)

    return split_product


WRONG = {
    "one product": Wrong(_answer(ALL[2:]), "value", ("wrong",)),
    "only one of the two rests": Wrong(_answer(ALL[1:]), "value", ("wrong",)),
    "forgets to commit": Wrong(
        _answer(commit=False), "missing-commit-smem", ("plgpu.commit_smem()",)
    ),
    "the rest is the whole": Wrong(_answer(rest=lambda full: full), "value", ("wrong",)),
    "the rests with each other": Wrong(
        _answer((("low", "low"), ("high", "low"), ("high", "high"))), "value", ("wrong",)
    ),
    "does not turn w": Wrong(_answer(turn=False), "lowering", ("(N, K)",)),
}
