"""What bank conflicts cost on a GPU: a cycle for each wavefront that the layout model counts."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib.kernels import transforms as kernels
from course_lib.layouts.banks import Transfer
from course_lib.layouts.registers import named
from course_lib.layouts.smem import SmemRef
from course_lib.layouts.tiling import Tiling

pytestmark = pytest.mark.gpu

TIMES, ROUNDS = 2000, 5
# dtype, bits, columns, and (tile columns, swizzle) of the variants, the first without conflicts
VARIANTS = {
    "bfloat16": (16, 256, ((64, 128), (64, None))),
    "float32": (32, 128, ((8, 32), (32, 128), (32, None))),
}


def wavefronts(bits: int, columns: int, tile_columns: int, swizzle: int | None) -> int:
    tiles = Tiling(((8, tile_columns),))
    ref = SmemRef(shape=(64, columns), bits=bits, tiling=tiles, swizzle=swizzle)
    return Transfer(named("WGMMA", (64, columns)), ref).wavefronts


def measured_ns(
    dtype: str, columns: int, tile_columns: int, swizzle: int | None
) -> Callable[[], float]:
    """A function that measures one load of the tile, in nanoseconds."""
    from jax.experimental.mosaic.gpu import profiler

    config = kernels.Config((8, tile_columns), swizzle)
    x = jnp.asarray(np.random.default_rng().standard_normal((64, columns)), dtype)
    kernel = jax.jit(functools.partial(kernels.loads, times=TIMES, config=config))
    measure = profiler.measure(kernel, iterations=1)
    measure(x)  # the first call compiles

    def one_ns() -> float:
        _, run_ms = measure(x)
        assert run_ms is not None
        return run_ms * 1e6 / TIMES

    return one_ns


@pytest.mark.parametrize("dtype", VARIANTS)
def test_each_wavefront_more_costs_about_a_cycle(dtype: str) -> None:
    bits, columns, variants = VARIANTS[dtype]
    runs = [measured_ns(dtype, columns, *variant) for variant in variants]
    rounds = [[run() for run in runs] for _ in range(ROUNDS)]
    free_ns, *rest_ns = (statistics.median(column) for column in zip(*rounds, strict=True))
    free, *rest = (wavefronts(bits, columns, *variant) for variant in variants)
    for ns, count in zip(rest_ns, rest, strict=True):
        per_wavefront_ns = (ns - free_ns) / (count - free)
        assert 0.4 < per_wavefront_ns < 0.8  # a cycle at 2.5 to 1.25 GHz
