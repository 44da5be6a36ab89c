"""Wrong answers to memory_spaces.sum_of_products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

TILE_N = 128
Step = Callable[..., jax.Array]
Answer = Callable[[jax.Array, jax.Array], jax.Array]


def _step(indices: Any, a_smem: Any, b_smem: Any, total: jax.Array) -> jax.Array:
    total = total + a_smem[...] * b_smem[...]
    plgpu.commit_smem()
    return total


def _pipeline(
    *,
    step: Step = _step,
    index_map: Callable[[Any], tuple[Any, Any]] = lambda ti: (0, ti),
    start: Callable[..., jax.Array] = jnp.zeros,
    arguments: Callable[[Any, Any], tuple[Any, Any]] = lambda a, b: (a, b),
    max_concurrent_steps: int = 2,
    tiles: int | None = None,
) -> Answer:
    """The right answer, but for what is passed."""

    def sum_of_products(a: jax.Array, b: jax.Array) -> jax.Array:
        tile = (a.shape[0], TILE_N)

        def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
            spec = plgpu.BlockSpec(tile, index_map)
            pipeline = plgpu.emit_pipeline(
                step,
                grid=(tiles or a.shape[1] // TILE_N,),
                in_specs=[spec, spec],
                max_concurrent_steps=max_concurrent_steps,
                init_carry=start(tile, a.dtype),
            )
            y_gmem[...] = pipeline(*arguments(a_gmem, b_gmem))

        return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(tile, a.dtype))(a, b)

    return sum_of_products


def _forgets_the_sum(indices: Any, a_smem: Any, b_smem: Any, total: jax.Array) -> jax.Array:
    product = a_smem[...] * b_smem[...]
    plgpu.commit_smem()
    return product


def _returns_nothing(indices: Any, a_smem: Any, b_smem: Any, total: jax.Array) -> Any:
    total = total + a_smem[...] * b_smem[...]
    plgpu.commit_smem()


def multiplies_in_jax(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a * b).reshape(a.shape[0], -1, TILE_N).sum(1)


def takes_all_at_once(a: jax.Array, b: jax.Array) -> jax.Array:
    tile = (a.shape[0], TILE_N)

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any) -> None:
        total = jnp.zeros(tile, a.dtype)
        for ti in range(a.shape[1] // TILE_N):
            part = (slice(None), slice(ti * TILE_N, (ti + 1) * TILE_N))
            total = total + a_gmem[part] * b_gmem[part]
        y_gmem[...] = total

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(tile, a.dtype))(a, b)


WRONG = {
    # past the end of an array the copy engine fills in zeros: nothing but the values is wrong
    "counts columns, not tiles": Wrong(
        _pipeline(index_map=lambda ti: (0, ti * TILE_N)), "value", ("[0, 0]",)
    ),
    "walks down, not along": Wrong(
        _pipeline(index_map=lambda ti: (ti, 0)), "value", ("with float32[64, 512]",)
    ),
    "stays at the first tile": Wrong(
        _pipeline(index_map=lambda ti: (0, 0)), "value", ("8192 are wrong",)
    ),
    "forgets the sum": Wrong(_pipeline(step=_forgets_the_sum), "value", ("8192 are wrong",)),
    "keeps all tiles in SMEM": Wrong(
        _pipeline(max_concurrent_steps=4), "over-capacity", ("232,448",)
    ),
    "runs four steps, whatever the size": Wrong(
        _pipeline(tiles=4), "value", ("with float32[32, 640]",)
    ),
    "starts at one": Wrong(_pipeline(start=jnp.ones), "value", ("off by the same amount: 1",)),
    "squares a": Wrong(_pipeline(arguments=lambda a, b: (a, a)), "value", ("8192 are wrong",)),
    "returns nothing from a step": Wrong(
        _pipeline(step=_returns_nothing), "exception", ("TypeError", "carry")
    ),
    "multiplies in JAX": Wrong(multiplies_in_jax, "means", ("no GPU kernel", "`mul`")),
    "uses no pipeline": Wrong(takes_all_at_once, "means", ("plgpu.copy_gmem_to_smem",)),
}
