"""Wrong answers to transforms.addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

Formula = Callable[..., Any]


def _around(formula: Formula) -> Callable[..., jax.Array]:
    """What the notebook gives, around the learner's lines."""

    def addresses(row: jax.Array, column: jax.Array, *, swizzle: int) -> jax.Array:
        def kernel(row_gmem: Any, column_gmem: Any, address_gmem: Any) -> None:
            r, c = row_gmem[...] % 64, column_gmem[...] % 128
            address_gmem[...] = formula(r, c, swizzle)

        return plgpu.kernel(kernel, out_type=row)(row, column)

    return addresses


def _plain(r: Any, c: Any, width: int) -> Any:
    tile = r // 8 * (128 // width) + c // width
    return 2 * (tile * 8 * width + r % 8 * width + c % width)


def _swizzled(address: Any, mask: int, *, shift: int = 7) -> Any:
    return address ^ (((address >> shift) & mask) << 4)


@_around
def forgets_the_swizzle(r: Any, c: Any, swizzle: int) -> Any:
    return _plain(r, c, swizzle // 2)


@_around
def always_takes_three_bits(r: Any, c: Any, swizzle: int) -> Any:
    return _swizzled(_plain(r, c, swizzle // 2), 7)


@_around
def forgets_the_tiles(r: Any, c: Any, swizzle: int) -> Any:
    return _swizzled(2 * (r * 128 + c), swizzle // 16 - 1)


@_around
def counts_tiles_down(r: Any, c: Any, swizzle: int) -> Any:
    width = swizzle // 2
    tile = c // width * 8 + r // 8
    address = 2 * (tile * 8 * width + r % 8 * width + c % width)
    return _swizzled(address, swizzle // 16 - 1)


@_around
def counts_elements(r: Any, c: Any, swizzle: int) -> Any:
    return _swizzled(_plain(r, c, swizzle // 2) // 2, swizzle // 16 - 1)


@_around
def takes_the_rows_of_the_tile(r: Any, c: Any, swizzle: int) -> Any:
    """The row in the tile, where the swizzle takes rows of 128 bytes: equal for 128 only."""
    return _plain(r, c, swizzle // 2) ^ ((r % 8 & (swizzle // 16 - 1)) << 4)


@_around
def adds(r: Any, c: Any, swizzle: int) -> Any:
    address = _plain(r, c, swizzle // 2)
    return address + (((address >> 7) & (swizzle // 16 - 1)) << 4)


def computes_in_jax(row: jax.Array, column: jax.Array, *, swizzle: int) -> jax.Array:
    return _swizzled(_plain(row % 64, column % 128, swizzle // 2), swizzle // 16 - 1)


WRONG = {
    "forgets the swizzle": Wrong(forgets_the_swizzle, "value", ("swizzle=128", "wrong")),
    "always takes three bits": Wrong(
        always_takes_three_bits, "value", ("swizzle=64", "1 shape right before")
    ),
    "forgets the tiles": Wrong(forgets_the_tiles, "value", ("swizzle=128",)),
    "counts tiles down": Wrong(counts_tiles_down, "value", ("swizzle=128",)),
    "counts elements": Wrong(counts_elements, "value", ("swizzle=128",)),
    "takes the rows of the tile": Wrong(
        takes_the_rows_of_the_tile, "value", ("swizzle=64", "1 shape right before")
    ),
    "adds": Wrong(adds, "value", ("swizzle=128",)),
    "computes in JAX": Wrong(computes_in_jax, "means", ("no GPU kernel",)),
}
