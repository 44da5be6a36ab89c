"""What clusters change in time: the same kernel with and without, in one run.

    course bench clusters

Two suites with a record each; `course bench clusters-stream` and `course bench
clusters-product` measure one of them. In `stream` every block needs every tile of an array
that fits in the L2 cache, so the way from L2 to the SMs is all that counts. In `product` it is
a matrix product, whose blocks need what their neighbours need. The baseline of both is the
kernel without a cluster.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from course_lib.benchmarks.bench import Case, Contender
from course_lib.diagnostics import CourseError
from course_lib.kernels import clusters as kernels
from course_lib.kernels import matmul_ladder

QUERIES, TILES, TILE = 1056, 1024, (32, 128)
"""Eight blocks for each of 132 SMs; 16 MiB of tiles, of 16 KiB each."""

RINGS = ((4, 1), (4, 2), (8, 1), (8, 4))
"""Slots and lag. Of rings with 4 slots, three blocks share an SM; with 8, a block has it alone."""

STREAMS = tuple((blocks, slots, lag) for slots, lag in RINGS for blocks in (1, 2, 4, 8))
PRODUCTS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2))
SIZES = ("8192", "4096:float16")
NO_CLUSTER = "no cluster"


def stream(sizes: Sequence[str] = ()) -> list[Case]:
    """`kernels.distances`: bytes that reach an SM, per second, with clusters of 1 to 8 blocks.

    Raises:
      CourseError: there are `sizes`: the stream has one, that fits the L2 cache.
    """
    if sizes:
        raise CourseError(
            "clusters-stream has one size, as its tiles have to fit in the L2 cache. --sizes is "
            "for clusters-product."
        )
    contenders = [_stream(*stream) for stream in STREAMS]
    arrays = (QUERIES + TILES) * TILE[0] * TILE[1] * 4
    return [
        Case(
            name=f"{QUERIES} blocks read {TILES} tiles of 16 KiB",
            dtype="float32",
            work=QUERIES * TILES * TILE[0] * TILE[1] * 4 / 1e9,
            draw=_draw_stream,
            reference=jax.jit(_sum_of_distances),
            baseline=contenders[0],
            contenders=tuple(contenders[1:]),
            bytes_of_inputs=arrays,
        )
    ]


def _stream(blocks: int, slots: int, lag: int) -> Contender:
    config = kernels.StreamConfig(blocks=blocks, slots=slots, lag=lag)
    name = f"clusters of {blocks}" if blocks > 1 else NO_CLUSTER
    name += f", {slots} slots, lag {lag}" if (slots, lag) != RINGS[0] else ""
    function = functools.partial(kernels.distances, config=config)
    return Contender(name, function, {"blocks": blocks, "slots": slots, "lag": lag})


def _draw_stream(key: Any) -> tuple[Any, ...]:
    left, right = jax.random.split(key)
    return jax.random.normal(left, (QUERIES, *TILE)), jax.random.normal(right, (TILES, *TILE))


def _sum_of_distances(q: jax.Array, x: jax.Array) -> jax.Array:
    def add(ti: Any, total: jax.Array) -> jax.Array:
        return total + jnp.abs(x[ti] - q)

    return jax.lax.fori_loop(0, x.shape[0], add, jnp.zeros_like(q))


def product(sizes: Sequence[str] = SIZES) -> list[Case]:
    """`kernels.matmul` in clusters of several shapes; steps 7 and 8 of the ladder; cuBLAS.

    Args:
      sizes: of square matrices, as N[:dtype]: 4096:float16; bfloat16 without a dtype.
    """
    return [_product(*_square(size)) for size in sizes or SIZES]


def _square(size: str) -> tuple[int, str]:
    match = re.fullmatch(r"(\d+)(?::(bfloat16|float16))?", size)
    if match is None:
        raise CourseError(
            f"{size} is no size of a matmul in clusters. Write one number for square matrices, as "
            "4096, with :float16 after it if they are not to be bfloat16."
        )
    return int(match[1]), match[2] or "bfloat16"


def _product(size: int, dtype: str) -> Case:
    def draw(key: Any) -> tuple[Any, ...]:
        left, right = jax.random.split(key)
        shape = (size, size)
        return jax.random.normal(left, shape, dtype), jax.random.normal(right, shape, dtype)

    contenders = [_in_clusters(m, n) for m, n in PRODUCTS]
    for number in (7, 8):
        step = matmul_ladder.step(number)
        function = functools.partial(step.matmul, config=step.config(size, size, size, dtype))
        contenders.append(Contender(step.name, function))
    return Case(
        name=f"{size}x{size}x{size} {dtype}",
        dtype=dtype,
        work=2 * size**3 / 1e12,
        draw=draw,
        reference=jax.jit(functools.partial(jnp.dot, preferred_element_type=jnp.float32)),
        baseline=contenders[0],
        contenders=(*contenders[1:], Contender("cuBLAS", jnp.dot, kernel=False)),
        bytes_of_inputs=4 * size * size,
    )


def _in_clusters(m: int, n: int) -> Contender:
    config = kernels.Config(cluster_m=m, cluster_n=n)
    name = f"clusters of {m} x {n}" if m * n > 1 else NO_CLUSTER
    function = functools.partial(kernels.matmul, config=config)
    return Contender(name, function, {"cluster_m": m, "cluster_n": n})


SUITES: dict[str, tuple[str, Callable[..., list[Case]]]] = {
    "clusters-stream": ("GB/s", stream),
    "clusters-product": ("TFLOP/s", product),
}
"""Both suites' units and what makes their cases, as in `suites.SUITES`."""
