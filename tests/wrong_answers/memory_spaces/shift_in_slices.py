"""Wrong answers to memory_spaces.shift_in_slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

ROWS = 16


def _loop(
    steps: Callable[[int], int], start: Callable[[Any], Any]
) -> Callable[[jax.Array], jax.Array]:
    """A loop of `steps(m)` steps over slices that begin at row `start(i)`."""

    def shift_in_slices(x: jax.Array) -> jax.Array:
        def body(x_gmem: Any, y_gmem: Any) -> None:
            @pl.loop(0, steps(x.shape[0]))
            def _slice(i: Any) -> None:
                part = pl.ds(start(i), ROWS)
                y_gmem[part] = x_gmem[part] - 2

        return plgpu.kernel(body, out_type=x)(x)

    return shift_in_slices


def takes_all_at_once(x: jax.Array) -> jax.Array:
    def body(x_gmem: Any, y_gmem: Any) -> None:
        y_gmem[...] = x_gmem[...] - 2

    return plgpu.kernel(body, out_type=x)(x)


def unrolls_in_python(x: jax.Array) -> jax.Array:
    def body(x_gmem: Any, y_gmem: Any) -> None:
        for i in range(x.shape[0] // ROWS):
            part = pl.ds(i * ROWS, ROWS)
            y_gmem[part] = x_gmem[part] - 2

    return plgpu.kernel(body, out_type=x)(x)


def forgets_to_store(x: jax.Array) -> jax.Array:
    def body(x_gmem: Any, y_gmem: Any) -> None:
        @pl.loop(0, x.shape[0] // ROWS)
        def _slice(i: Any) -> None:
            part = pl.ds(i * ROWS, ROWS)
            y = x_gmem[part] - 2
            del y

    return plgpu.kernel(body, out_type=x)(x)


WRONG = {
    "takes all at once": Wrong(takes_all_at_once, "means", ("The values are right",)),
    "unrolls in Python": Wrong(unrolls_in_python, "means", ("The values are right",)),
    "forgets to store": Wrong(forgets_to_store, "nan", ("[0, 0]",)),
    "steps by one row": Wrong(
        _loop(lambda m: m // ROWS, lambda i: i), "nan", ("in rows 23 to 127;",)
    ),
    "stops one step early": Wrong(
        _loop(lambda m: m // ROWS - 1, lambda i: i * ROWS),
        "nan",
        ("in rows 112 to 127;",),
    ),
    "runs one step too far": Wrong(
        _loop(lambda m: m // ROWS + 1, lambda i: i * ROWS),
        "out-of-bounds",
        ("elements 128 to 143",),
    ),
}
