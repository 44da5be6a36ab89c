"""Wrong answers to memory_spaces.add_in_one_buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _scoped(scope: Callable[..., None]) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The scope's lines, with a buffer and a barrier of its own."""

    def add_in_one_buffer(a: jax.Array, b: jax.Array) -> jax.Array:
        def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
            def inner(buffer: Any, loaded: Any) -> None:
                scope(a_gmem, b_gmem, y_gmem, buffer, loaded)

            pl.run_scoped(inner, buffer=plgpu.SMEM(a.shape, a.dtype), loaded=plgpu.Barrier())

        return plgpu.kernel(body, out_type=a)(a, b)

    return add_in_one_buffer


def _load(source: Any, buffer: Any, loaded: Any) -> None:
    plgpu.copy_gmem_to_smem(source, buffer, loaded)
    plgpu.barrier_wait(loaded)


def _send(buffer: Any, target: Any) -> None:
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(buffer, target)
    plgpu.wait_smem_to_gmem(0)


@_scoped
def waits_once_for_both(a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any) -> None:
    _load(a_gmem, buffer, loaded)
    a = buffer[...]
    plgpu.commit_smem()
    plgpu.copy_gmem_to_smem(b_gmem, buffer, loaded)
    buffer[...] = a + buffer[...]
    _send(buffer, y_gmem)


@_scoped
def forgets_the_first_wait(a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any) -> None:
    plgpu.copy_gmem_to_smem(a_gmem, buffer, loaded)
    a = buffer[...]
    plgpu.commit_smem()
    _load(b_gmem, buffer, loaded)
    buffer[...] = a + buffer[...]
    _send(buffer, y_gmem)


@_scoped
def forgets_the_last_commit(
    a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any
) -> None:
    _load(a_gmem, buffer, loaded)
    a = buffer[...]
    plgpu.commit_smem()
    _load(b_gmem, buffer, loaded)
    buffer[...] = a + buffer[...]
    plgpu.copy_smem_to_gmem(buffer, y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_scoped
def keeps_the_reference(a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any) -> None:
    _load(a_gmem, buffer, loaded)
    a = buffer  # another name for the buffer, not its contents
    plgpu.commit_smem()
    _load(b_gmem, buffer, loaded)
    buffer[...] = a[...] + buffer[...]
    _send(buffer, y_gmem)


@_scoped
def adds_in_gmem(a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any) -> None:
    y_gmem[...] = a_gmem[...] + b_gmem[...]


def allocates_for_the_whole_kernel(a: jax.Array, b: jax.Array) -> jax.Array:
    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, buffer: Any, loaded: Any) -> None:
        _load(a_gmem, buffer, loaded)
        first = buffer[...]
        plgpu.commit_smem()
        _load(b_gmem, buffer, loaded)
        buffer[...] = first + buffer[...]
        _send(buffer, y_gmem)

    scratch: dict[str, Any] = dict(buffer=plgpu.SMEM(a.shape, a.dtype), loaded=plgpu.Barrier())
    return plgpu.kernel(body, out_type=a, scratch_types=scratch)(a, b)


def takes_two_buffers(a: jax.Array, b: jax.Array) -> jax.Array:
    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
        def scope(a_smem: Any, b_smem: Any, loaded: Any) -> None:
            _load(a_gmem, a_smem, loaded)
            _load(b_gmem, b_smem, loaded)
            a_smem[...] = a_smem[...] + b_smem[...]
            _send(a_smem, y_gmem)

        buffer = plgpu.SMEM(a.shape, a.dtype)
        pl.run_scoped(scope, a_smem=buffer, b_smem=buffer, loaded=plgpu.Barrier())

    return plgpu.kernel(body, out_type=a)(a, b)


WRONG = {
    "waits once for both": Wrong(
        waits_once_for_both, "read-before-arrival", ("plgpu.barrier_wait",)
    ),
    "forgets the first wait": Wrong(
        forgets_the_first_wait, "read-before-arrival", ("plgpu.barrier_wait",)
    ),
    "forgets the last commit": Wrong(
        forgets_the_last_commit, "missing-commit-smem", ("plgpu.commit_smem()",)
    ),
    "keeps the reference": Wrong(keeps_the_reference, "value", ("8192 are wrong",)),
    "takes two buffers": Wrong(takes_two_buffers, "over-capacity", ("allocates a_smem, b_smem",)),
    "adds in GMEM": Wrong(adds_in_gmem, "means", ("plgpu.copy_gmem_to_smem",)),
    "allocates for the whole kernel": Wrong(
        allocates_for_the_whole_kernel, "means", ("The values are right", "pl.run_scoped")
    ),
}
