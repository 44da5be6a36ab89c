"""Wrong answers to transforms.chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

# JAX's transforms lack a method that its types ask for
TILING: Any = plgpu.TilingTransform
SWIZZLE: Any = plgpu.SwizzleTransform


def _given(mma_transforms: Callable[..., Any]) -> Callable[[jax.Array], Any]:
    """What the notebook gives, around the learner's lines."""

    def chosen(x: jax.Array) -> Any:
        tiling, swizzle = mma_transforms(x.shape, x.dtype)
        refused = 0
        try:
            mma_transforms((x.shape[0] - 4, x.shape[1]), x.dtype)
        except ValueError:
            refused = 1

        def kernel(x_gmem: Any, y_gmem: Any, chosen_gmem: Any, x_smem: Any, loaded: Any) -> None:
            plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)
            plgpu.barrier_wait(loaded)
            plgpu.copy_smem_to_gmem(x_smem, y_gmem)
            for i, number in enumerate((*tiling.tiling, swizzle.swizzle, refused)):
                chosen_gmem[i] = number
            plgpu.wait_smem_to_gmem(0)

        scratch: dict[str, Any] = dict(
            x_smem=plgpu.SMEM(x.shape, x.dtype, transforms=(tiling, swizzle)),
            loaded=plgpu.Barrier(),
        )
        out_type = (x, jax.ShapeDtypeStruct((4,), jnp.int32))
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch)(x)

    return chosen


def _around(mma_transforms: Callable[..., Any]) -> Callable[[jax.Array], Any]:
    """The same, around an answer that refuses what it should."""

    def refusing(shape: tuple[int, ...], dtype: Any) -> Any:
        if shape[0] % 8:
            raise ValueError("the number of rows must be a multiple of 8")
        return mma_transforms(shape, dtype)

    return _given(refusing)


@_around
def always_takes_128(shape: tuple[int, ...], dtype: Any) -> Any:
    return TILING((8, 128 // dtype.itemsize)), SWIZZLE(128)


@_around
def takes_the_narrowest(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = next(s for s in (32, 64, 128) if shape[1] * dtype.itemsize % s == 0)
    return TILING((8, swizzle // dtype.itemsize)), SWIZZLE(swizzle)


@_around
def gives_the_columns_in_bytes(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return TILING((8, swizzle)), SWIZZLE(swizzle)


@_around
def asks_with_bytes(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize)
    return TILING((8, swizzle // dtype.itemsize)), SWIZZLE(swizzle)


@_around
def takes_tiles_of_sixteen_rows(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return TILING((16, swizzle // dtype.itemsize)), SWIZZLE(swizzle)


@_given
def never_refuses(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return TILING((8, swizzle // dtype.itemsize)), SWIZZLE(swizzle)


@_given
def looks_at_the_columns(shape: tuple[int, ...], dtype: Any) -> Any:
    if shape[1] % 8:
        raise ValueError("the columns must be a multiple of 8")
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return TILING((8, swizzle // dtype.itemsize)), SWIZZLE(swizzle)


@_around
def gives_the_swizzle_first(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return SWIZZLE(swizzle), TILING((8, swizzle // dtype.itemsize))


@_around
def returns_the_tiling_alone(shape: tuple[int, ...], dtype: Any) -> Any:
    swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)
    return TILING((8, swizzle // dtype.itemsize))


WRONG = {
    "always takes 128": Wrong(always_takes_128, "exception", ("float16[32, 96]", "1 shape")),
    "takes the narrowest": Wrong(takes_the_narrowest, "value", ("output 2",)),
    "gives the columns in bytes": Wrong(
        gives_the_columns_in_bytes, "exception", ("bfloat16[64, 128]",)
    ),
    "asks with bytes": Wrong(asks_with_bytes, "value", ("bfloat16[64, 128]",)),
    "takes tiles of sixteen rows": Wrong(takes_tiles_of_sixteen_rows, "value", ("[0]", "16", "8")),
    "never refuses": Wrong(never_refuses, "value", ("Element [3]", "0", "1")),
    "looks at the columns": Wrong(looks_at_the_columns, "value", ("Element [3]",)),
    "gives the swizzle first": Wrong(gives_the_swizzle_first, "exception", ("(64, 128)",)),
    "returns the tiling alone": Wrong(returns_the_tiling_alone, "exception", ("TilingTransform",)),
}
