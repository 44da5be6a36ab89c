"""How fast the simulator is, next to JAX's interpret mode, in one run.

    python -m course_lib.benchmarks.simulator [--sizes 512 1024] [--repeats 5]

Both run the same kernel (a pipelined f16 matmul, 128x128x64 tiles, three stages) on
the same inputs, warm and in turns; medians and spreads are printed, and tracing on
its own. The simulator looks for races, interpret mode does not. Then: how the time
grows with blocks and with pipeline steps (a straight line is fitted), and memory.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax import lax

from course_lib.simulator import replay, trace_kernels

TILE_M, TILE_N, TILE_K, STAGES = 128, 128, 64, 3
LAYOUT: Any = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))  # type: ignore[abstract]


def matmul(a: Any, b: Any) -> Any:
    """`a @ b` in float16 with a float32 accumulator; both (n, n)-like, multiples of the tiles."""
    (m, k), n = a.shape, b.shape[1]

    def body(a_gmem: Any, b_gmem: Any, o_gmem: Any, o_smem: Any) -> None:
        mi, ni = lax.axis_index("m"), lax.axis_index("n")

        def compute(acc: Any) -> Any:
            def step(_: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(acc, a_smem, b_smem)

            def spec(shape: tuple[int, int], index: Callable[[Any], Any]) -> Any:
                return plgpu.BlockSpec(shape, index, transforms=LAYOUT, delay_release=1)

            specs = [
                spec((TILE_M, TILE_K), lambda i: (mi, i)),
                spec((TILE_K, TILE_N), lambda i: (i, ni)),
            ]
            plgpu.emit_pipeline(
                step, grid=(k // TILE_K,), in_specs=specs, max_concurrent_steps=STAGES
            )(a_gmem, b_gmem)
            return acc[...]

        acc = pl.run_scoped(compute, plgpu.ACC((TILE_M, TILE_N), jnp.float32))
        o_smem[...] = acc.astype(a.dtype)
        plgpu.commit_smem()
        at = (pl.ds(mi * TILE_M, TILE_M), pl.ds(ni * TILE_N, TILE_N))
        plgpu.copy_smem_to_gmem(o_smem, o_gmem.at[at])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // TILE_M, n // TILE_N),
        grid_names=("m", "n"),
        scratch_types=[plgpu.SMEM((TILE_M, TILE_N), a.dtype, transforms=LAYOUT)],
    )(a, b)


def _operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng()
    return (
        rng.standard_normal((m, k)).astype(np.float16),
        rng.standard_normal((k, n)).astype(np.float16),
    )


def seconds(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


@contextlib.contextmanager
def interpret_mode() -> Iterator[None]:
    """JAX's GPU interpret mode, without race detection."""
    with plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams(detect_races=False)):
        yield


def compare(size: int, repeats: int) -> dict[str, list[float]]:
    """Seconds per run of both, taken in turns, and of tracing. Checks the values, too."""
    a, b = _operands(size, size, size)
    program = trace_kernels(matmul, a, b)
    found: dict[str, list[float]] = {"interpret mode": [], "simulator": [], "tracing": []}
    with interpret_mode():
        theirs = jax.jit(matmul)
        want = np.asarray(theirs(a, b))
        got = replay(program, [a, b]).value[0]
        np.testing.assert_allclose(
            got.astype(np.float32), want.astype(np.float32), rtol=2e-2, atol=0.2
        )
        for _ in range(repeats):
            found["interpret mode"].append(seconds(lambda: jax.block_until_ready(theirs(a, b))))
            found["simulator"].append(seconds(lambda: replay(program, [a, b])))
    for _ in range(repeats):
        found["tracing"].append(seconds(lambda: trace_kernels(lambda x, y: matmul(x, y), a, b)))
    return found


def growth(repeats: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Seconds against blocks (at 4 steps each) and against pipeline steps (of 4 blocks)."""
    shapes = {
        "blocks": [(128 * n, 128, 256) for n in (4, 8, 16, 32)],
        "pipeline steps": [(256, 256, 64 * n) for n in (8, 16, 32, 64)],
    }
    out = {}
    for name, cases in shapes.items():
        counts, times = [], []
        for m, n, k in cases:
            a, b = _operands(m, n, k)
            program = trace_kernels(matmul, a, b)
            replay(program, [a, b])
            runs = [seconds(functools.partial(replay, program, [a, b])) for _ in range(repeats)]
            counts.append(m // TILE_M if name == "blocks" else 4 * k // TILE_K)
            times.append(statistics.median(runs))
        out[name] = (np.array(counts), np.array(times))
    return out


def _print_comparison(size: int, repeats: int) -> None:
    found = compare(size, repeats)
    middle = {name: statistics.median(t) for name, t in found.items()}
    print(f"{size} x {size} x {size}, f16, tiles {TILE_M}x{TILE_N}x{TILE_K}, {STAGES} stages")
    for name, times in found.items():
        low, high = min(times), max(times)
        print(f"  {name:15} {middle[name] * 1e3:9.1f} ms   ({low * 1e3:.1f} to {high * 1e3:.1f})")
    print(f"  ratio           {middle['interpret mode'] / middle['simulator']:9.1f}")


def _print_growth(repeats: int) -> None:
    for name, (counts, times) in growth(repeats).items():
        slope, offset = np.polyfit(counts, times, 1)
        error = np.max(np.abs(times - (slope * counts + offset)) / times)
        points = ", ".join(f"{c}: {t * 1e3:.1f}" for c, t in zip(counts, times, strict=True))
        print(
            f"{name} ({points} ms): {slope * 1e3:.3f} ms each + {offset * 1e3:.1f} ms, "
            f"off the line by {error:.0%} at most"
        )


def _print_memory() -> None:
    """The growth of the peak of memory during a run, against the arrays simulated."""
    a, b = _operands(2048, 2048, 1024)
    program = trace_kernels(matmul, a, b)
    arrays = a.nbytes + b.nbytes + 2048 * 2048 * 2
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    replay(program, [a, b])
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(f"memory: {peak / arrays:.1f} times the {arrays / 2**20:.0f} MiB of arrays")


def main(argv: list[str] | None = None) -> None:
    """The same from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[512, 1024])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(argv)
    report(options.sizes, repeats=options.repeats)


def report(sizes: Sequence[int], *, repeats: int = 5) -> None:
    """Measures and prints: memory, square matmuls of these sizes, growth."""
    _print_memory()  # first: later on the peak is that of JAX
    for size in sizes:
        _print_comparison(size, repeats)
    _print_growth(repeats)


if __name__ == "__main__":
    main()
