"""Wrong answers to asynchronous_copies.multiply_add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

Answer = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def _kernel(num_arrivals: int) -> Callable[[Callable[..., None]], Answer]:
    """The exercise's frame, with a barrier for so many arrivals."""

    def frame(lines: Callable[..., None]) -> Answer:
        def multiply_add(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
            def kernel(
                x_gmem: Any, y_gmem: Any, z_gmem: Any, o_gmem: Any,
                x_smem: Any, y_smem: Any, z_smem: Any, loaded: Any,
            ) -> None:  # fmt: skip
                rows = pl.ds(jax.lax.axis_index("tile") * 64, 64)
                pairs = ((x_gmem, x_smem), (y_gmem, y_smem), (z_gmem, z_smem))
                lines([(g.at[rows], s) for g, s in pairs], o_gmem.at[rows], loaded)

            tile = plgpu.SMEM((64, x.shape[1]), x.dtype)
            loaded = plgpu.Barrier(num_arrivals=num_arrivals)
            scratch: dict[str, Any] = dict(x_smem=tile, y_smem=tile, z_smem=tile, loaded=loaded)
            return plgpu.kernel(
                kernel,
                out_type=x,
                grid=(x.shape[0] // 64,),
                grid_names=("tile",),
                scratch_types=scratch,
            )(x, y, z)

        return multiply_add

    return frame


def _result(copies: Any, o_gmem: Any) -> None:
    (_, x_smem), (_, y_smem), (_, z_smem) = copies
    o_gmem[...] = x_smem[...] * y_smem[...] + z_smem[...]


def _start(copies: Any, loaded: Any) -> None:
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, loaded)


def _right(copies: Any, o_gmem: Any, loaded: Any) -> None:
    _start(copies, loaded)
    plgpu.barrier_wait(loaded)
    _result(copies, o_gmem)


@_kernel(3)
def waits_after_each_copy(copies: Any, o_gmem: Any, loaded: Any) -> None:
    for source, target in copies:
        plgpu.copy_gmem_to_smem(source, target, loaded)
        plgpu.barrier_wait(loaded)
    _result(copies, o_gmem)


@_kernel(3)
def forgets_the_wait(copies: Any, o_gmem: Any, loaded: Any) -> None:
    _start(copies, loaded)
    _result(copies, o_gmem)


@_kernel(2)
def waits_before_the_third(copies: Any, o_gmem: Any, loaded: Any) -> None:
    _start(copies[:2], loaded)
    plgpu.barrier_wait(loaded)
    _start(copies[2:], loaded)
    _result(copies, o_gmem)


@_kernel(2)
def loads_z_itself(copies: Any, o_gmem: Any, loaded: Any) -> None:
    _start(copies[:2], loaded)
    plgpu.barrier_wait(loaded)
    (_, x_smem), (_, y_smem), (z_gmem, _) = copies
    o_gmem[...] = x_smem[...] * y_smem[...] + z_gmem[...]


WRONG = {
    "counts one arrival": Wrong(
        _kernel(1)(_right), "barrier-overrun", ("allocate the barrier with num_arrivals",)
    ),
    "counts two arrivals": Wrong(_kernel(2)(_right), "read-before-arrival", ("z_smem",)),
    "counts four arrivals": Wrong(_kernel(4)(_right), "deadlock", ("3 of 4 arrivals",)),
    "waits after each copy": Wrong(waits_after_each_copy, "deadlock", ("1 of 3 arrivals",)),
    "forgets the wait": Wrong(forgets_the_wait, "read-before-arrival", ("plgpu.barrier_wait",)),
    "waits before the third": Wrong(waits_before_the_third, "read-before-arrival", ("z_smem",)),
    "loads z itself": Wrong(loads_z_itself, "means", ("plgpu.copy_gmem_to_smem",)),
}
