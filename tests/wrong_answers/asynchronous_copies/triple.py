"""Wrong answers to asynchronous_copies.triple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

# a step: (ti, rows, x_gmem, y_gmem, slots_smem) -> None
Step = Callable[[Any, Any, Any, Any, Any], None]


def _answer(step: Step, *, last_wait: bool = True) -> Callable[[jax.Array], jax.Array]:
    def triple(x: jax.Array) -> jax.Array:
        def kernel(x_gmem: Any, y_gmem: Any, slots_smem: Any) -> None:
            @pl.loop(0, x.shape[0] // 64)
            def _(ti: Any) -> None:
                step(ti, pl.ds(ti * 64, 64), x_gmem, y_gmem, slots_smem)

            if last_wait:
                plgpu.wait_smem_to_gmem(0)

        scratch: dict[str, Any] = dict(slots_smem=plgpu.SMEM((2, 64, x.shape[1]), x.dtype))
        return plgpu.kernel(kernel, out_type=x, scratch_types=scratch)(x)

    return triple


def _step(n: int, *, commit: bool = True, wait_last: bool = False, slots: int = 2) -> Step:
    def step(ti: Any, rows: Any, x_gmem: Any, y_gmem: Any, slots_smem: Any) -> None:
        slot = ti % slots
        if not wait_last:
            plgpu.wait_smem_to_gmem(n, wait_read_only=True)
        slots_smem[slot] = 3 * x_gmem[rows]
        if commit:
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(slots_smem.at[slot], y_gmem.at[rows])
        if wait_last:
            plgpu.wait_smem_to_gmem(n, wait_read_only=True)

    return step


def stores_from_registers(ti: Any, rows: Any, x_gmem: Any, y_gmem: Any, slots_smem: Any) -> None:
    y_gmem[rows] = 3 * x_gmem[rows]


WRONG = {
    "waits for one too few": Wrong(
        _answer(_step(2)),
        "store-source-overwritten",
        ("slots_smem[0, 0:64, 0:128] is overwritten",),
    ),
    "waits for one too few at the end of the step": Wrong(
        _answer(_step(2, wait_last=True)), "store-source-overwritten", ("wait_read_only=True",)
    ),
    "uses one slot and waits as for two": Wrong(
        _answer(_step(1, slots=1)),
        "store-source-overwritten",
        ("slots_smem[0, 0:64, 0:128] is overwritten",),
    ),
    "forgets the commit": Wrong(
        _answer(_step(1, commit=False)), "missing-commit-smem", ("plgpu.commit_smem()",)
    ),
    "forgets the last wait": Wrong(
        _answer(_step(1), last_wait=False), "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "stores from registers": Wrong(
        _answer(stores_from_registers), "means", ("plgpu.copy_smem_to_gmem",)
    ),
}
