"""Wrong answers to asynchronous_copies.sum_and_difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _answer(
    n: int,
    *,
    groups: tuple[bool, bool] = (False, True),
    commits: int = 2,
    last_wait: int | None = 0,
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    """Waits with n, commits the groups as said, and `commits` of the two writes to SMEM."""

    def sum_and_difference(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def kernel(
            x_gmem: Any, y_gmem: Any, s_gmem: Any, d_gmem: Any, s_smem: Any, d_smem: Any
        ) -> None:
            @pl.loop(0, x.shape[0] // 64)
            def _(ti: Any) -> None:
                rows = pl.ds(ti * 64, 64)
                x, y = x_gmem[rows], y_gmem[rows]
                plgpu.wait_smem_to_gmem(n, wait_read_only=True)
                s_smem[ti % 2] = x + y
                if commits == 1:
                    plgpu.commit_smem()
                d_smem[ti % 2] = x - y
                if commits == 2:
                    plgpu.commit_smem()
                first, second = groups
                plgpu.copy_smem_to_gmem(s_smem.at[ti % 2], s_gmem.at[rows], commit_group=first)
                plgpu.copy_smem_to_gmem(d_smem.at[ti % 2], d_gmem.at[rows], commit_group=second)

            if last_wait is not None:
                plgpu.wait_smem_to_gmem(last_wait)

        slots = plgpu.SMEM((2, 64, x.shape[1]), x.dtype)
        scratch: dict[str, Any] = dict(s_smem=slots, d_smem=slots)
        return plgpu.kernel(kernel, out_type=(x, x), scratch_types=scratch)(x, y)

    return sum_and_difference


def stores_the_difference_from_registers(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def kernel(
        x_gmem: Any, y_gmem: Any, s_gmem: Any, d_gmem: Any, s_smem: Any, d_smem: Any
    ) -> None:
        @pl.loop(0, x.shape[0] // 64)
        def _(ti: Any) -> None:
            rows = pl.ds(ti * 64, 64)
            x, y = x_gmem[rows], y_gmem[rows]
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)
            s_smem[ti % 2] = x + y
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(s_smem.at[ti % 2], s_gmem.at[rows])
            d_gmem[rows] = x - y

        plgpu.wait_smem_to_gmem(0)

    slots = plgpu.SMEM((2, 64, x.shape[1]), x.dtype)
    scratch: dict[str, Any] = dict(s_smem=slots, d_smem=slots)
    return plgpu.kernel(kernel, out_type=(x, x), scratch_types=scratch)(x, y)


WRONG = {
    "counts copies where there are groups": Wrong(
        _answer(2),
        "store-source-overwritten",
        ("is overwritten while a copy may still read it", "_smem[0,"),
    ),
    "two groups, and waits with three": Wrong(
        _answer(3, groups=(True, True)),
        "store-source-overwritten",
        ("is overwritten while a copy may still read it", "_smem[0,"),
    ),
    "closes no group": Wrong(
        _answer(1, groups=(False, False)),
        "store-source-overwritten",
        ("is overwritten while a copy may still read it", "_smem[0,"),
    ),
    "leaves the last copy open": Wrong(
        _answer(1, groups=(True, False)),
        "store-source-overwritten",
        ("d_smem[0,",),
    ),
    "commits the first write only": Wrong(
        _answer(1, commits=1), "missing-commit-smem", ("d_smem",)
    ),
    "forgets the commits": Wrong(
        _answer(1, commits=0), "missing-commit-smem", ("plgpu.commit_smem()",)
    ),
    "forgets the last wait": Wrong(
        _answer(1, last_wait=None), "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "waits for all but one at the end": Wrong(
        _answer(1, last_wait=1), "unfinished-copy", ("plgpu.wait_smem_to_gmem(0)",)
    ),
    "a group for each copy": Wrong(
        _answer(2, groups=(True, True)), "means", ("right", "commit_group=False")
    ),
    "stores the difference from registers": Wrong(
        stores_the_difference_from_registers, "means", ("plgpu.copy_smem_to_gmem",)
    ),
}
