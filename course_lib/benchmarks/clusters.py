"""What clusters change in time: the same kernel with and without, in one run.

    python -m course_lib.benchmarks.clusters

Two suites with a record each. In `stream` every block needs every tile of an array that fits
in the L2 cache, so the way from L2 to the SMs is all that counts. In `product` it is a matrix
product, whose blocks need what their neighbours need. The baseline of both is the kernel
without a cluster.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from course_lib.benchmarks import bench, card, records
from course_lib.benchmarks.bench import Case, Contender
from course_lib.benchmarks.table import table
from course_lib.kernels import clusters as kernels
from course_lib.kernels import matmul_ladder

QUERIES, TILES, TILE = 1056, 1024, (32, 128)
"""Eight blocks for each of 132 SMs; 16 MiB of tiles, of 16 KiB each."""

RINGS = ((4, 1), (4, 2), (8, 1), (8, 4))
"""Slots and lag. Of rings with 4 slots, three blocks share an SM; with 8, a block has it alone."""

STREAMS = tuple((blocks, slots, lag) for slots, lag in RINGS for blocks in (1, 2, 4, 8))
PRODUCTS = ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2))
SIZES = ((8192, "bfloat16"), (4096, "float16"))
NO_CLUSTER = "no cluster"


def stream() -> list[Case]:
    """`kernels.distances`: bytes that reach an SM, per second, with clusters of 1 to 8 blocks."""
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


def product() -> list[Case]:
    """`kernels.matmul` in clusters of several shapes; steps 7 and 8 of the ladder; cuBLAS."""
    return [_product(size, dtype) for size, dtype in SIZES]


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


def measure(folder: Path = records.FOLDER, *, anyway: bool = False) -> Sequence[Path]:
    """Measures both suites, prints their tables, and writes their records.

    Raises:
      CourseError: there is no GPU; or the card is busy or slowed and `anyway` is False.
    """
    card.need_gpu()
    paths = []
    suites = (("clusters-stream", "GB/s", stream), ("clusters-product", "TFLOP/s", product))
    for name, unit, make in suites:
        record = bench.run_suite(name, unit, make(), anyway=anyway)
        print(table(record))
        paths.append(records.write(record, folder))
    return paths


if __name__ == "__main__":
    measure()
