"""Wrong answers to flash_attention.causal."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from course_lib.kernels import flash_attention as kernels
from tests.wrong_answers import Wrong


def _numbers(s, row, key):
    """The number of each element's query and key."""
    return (
        first + plgpu.broadcasted_iota(jnp.int32, s.shape, axis, layout=plgpu.Layout.WGMMA)
        for axis, first in enumerate((row, key))
    )


def _mask(s, row, key):
    queries, keys = _numbers(s, row, key)
    return jnp.where(keys <= queries, s, -jnp.inf)


def _tiles(k):
    return lambda row: jnp.minimum((row + 63) // 128 + 1, k.shape[0] // 128)


def _run(q, k, v, *, tiles=None, mask=_mask):
    return kernels.attend_causal(q, k, v, tiles=tiles or _tiles(k), mask=mask)


def all_tiles(q, k, v):
    """Right, and twice the work: masked tiles are computed all the same."""
    return _run(q, k, v, tiles=lambda row: k.shape[0] // 128)


def one_tile_too_few(q, k, v):
    """The number of the last tile instead of how many there are."""
    return _run(q, k, v, tiles=lambda row: jnp.minimum((row + 63) // 128, k.shape[0] // 128))


def as_if_tiles_were_square(q, k, v):
    """row // 64 + 1: 64 queries, so 64 keys."""
    return _run(q, k, v, tiles=lambda row: jnp.minimum(row // 64 + 1, k.shape[0] // 128))


def more_than_there_are(q, k, v):
    """Does not think of fewer keys than queries."""
    return _run(q, k, v, tiles=lambda row: (row + 63) // 128 + 1)


def mask_without_the_tiles_place(q, k, v):
    """Counts queries and keys within the tile."""

    def mask(s, row, key):
        queries, keys = _numbers(s, 0, 0)
        return jnp.where(keys <= queries, s, -jnp.inf)

    return _run(q, k, v, mask=mask)


def not_its_own_key(q, k, v):
    """keys < queries: the first query sees nothing at all."""

    def mask(s, row, key):
        queries, keys = _numbers(s, row, key)
        return jnp.where(keys < queries, s, -jnp.inf)

    return _run(q, k, v, mask=mask)


def zero_instead_of_minus_infinity(q, k, v):
    """exp(0) is 1: masked keys count like average ones."""

    def mask(s, row, key):
        queries, keys = _numbers(s, row, key)
        return jnp.where(keys <= queries, s, 0.0)

    return _run(q, k, v, mask=mask)


def no_mask(q, k, v):
    """The bounds only."""
    return _run(q, k, v, mask=lambda s, row, key: s)


def wrong_way_round(q, k, v):
    """Queries see the later keys."""

    def mask(s, row, key):
        queries, keys = _numbers(s, row, key)
        return jnp.where(keys >= queries, s, -jnp.inf)

    return _run(q, k, v, mask=mask)


WRONG = {
    "all tiles": Wrong(all_tiles, "value", ("[0] of output 2 of 2 is 3, should be 1",)),
    "one tile too few": Wrong(one_tile_too_few, "nan", ("rows 0 to 127",)),
    "as if tiles were square": Wrong(
        as_if_tiles_were_square, "value", ("[1] of output 2 of 2 is 2, should be 1",)
    ),
    "more than there are": Wrong(
        more_than_there_are, "value", ("float16[256, 64]", "1 shape right before")
    ),
    "mask without the tile's place": Wrong(
        mask_without_the_tiles_place, "value", ("rows 64 to 383",)
    ),
    "not its own key": Wrong(not_its_own_key, "nan", ("row 0",)),
    "zero instead of -inf": Wrong(zero_instead_of_minus_infinity, "value", ("output 1 of 2",)),
    "no mask": Wrong(no_mask, "value", ("output 1 of 2",)),
    "the wrong way round": Wrong(wrong_way_round, "value", ("output 1 of 2",)),
}
