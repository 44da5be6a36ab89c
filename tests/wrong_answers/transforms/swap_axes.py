"""Wrong answers to transforms.swap_axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _around(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    """What the notebook gives, around the learner's lines."""

    def swap_axes(x: jax.Array) -> jax.Array:
        m, heads, n = x.shape
        scratch: dict[str, Any] = dict(x_smem=plgpu.SMEM(x.shape, x.dtype), loaded=plgpu.Barrier())
        out_type = jax.ShapeDtypeStruct((heads, m, n), x.dtype)
        return plgpu.kernel(body, out_type=out_type, scratch_types=scratch)(x)

    return swap_axes


def _in(x_gmem: Any, x_smem: Any, loaded: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
    plgpu.barrier_wait(loaded)


@_around
def does_not_transpose(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    _in(x_gmem, x_smem, loaded)
    plgpu.copy_smem_to_gmem(x_smem, y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def reshapes(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    _in(x_gmem, x_smem, loaded)
    plgpu.copy_smem_to_gmem(x_smem.reshape(y_gmem.shape), y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def transposes_all_axes(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    _in(x_gmem, x_smem, loaded)
    plgpu.copy_smem_to_gmem(x_smem.transpose((2, 1, 0)), y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def forgets_the_barrier(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
    plgpu.copy_smem_to_gmem(x_smem.transpose((1, 0, 2)), y_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def leaves_while_copying(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    _in(x_gmem, x_smem, loaded)
    plgpu.copy_smem_to_gmem(x_smem.transpose((1, 0, 2)), y_gmem)


@_around
def lets_lanes_do_it(x_gmem: Any, y_gmem: Any, x_smem: Any, loaded: Any) -> None:
    _in(x_gmem, x_smem, loaded)
    for h in range(y_gmem.shape[0]):
        y_gmem[h] = x_smem[:, h]


def transposes_in_jax(x: jax.Array) -> jax.Array:
    return jnp.transpose(x, (1, 0, 2))


WRONG = {
    "does not transpose": Wrong(does_not_transpose, "exception", ("(4, 16, 64)", "(16, 4, 64)")),
    "reshapes": Wrong(reshapes, "value", ("[0, 1, 0]",)),
    "transposes all axes": Wrong(transposes_all_axes, "exception", ("(64, 4, 16)",)),
    "forgets the barrier": Wrong(forgets_the_barrier, "read-before-arrival", ("x_smem",)),
    "leaves while copying": Wrong(leaves_while_copying, "race", ("wait_smem_to_gmem(0)",)),
    "lets lanes do it": Wrong(lets_lanes_do_it, "means", ("plgpu.copy_smem_to_gmem",)),
    "transposes in JAX": Wrong(transposes_in_jax, "means", ("no GPU kernel", "`transpose`")),
}
