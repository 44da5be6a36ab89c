"""The kernels of chapter 09: right, free of findings in any schedule, and fit for CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from course_lib import simulator, tracing
from course_lib.compiler import compile_for
from course_lib.kernels import clusters as k

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# kernel, reference, shapes of its arguments, their dtype, keywords of the kernel, tolerance
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Shape, ...], str, dict[str, Any], float]


def _distances(queries: int, tiles: int, **config: int) -> Call:
    shapes = ((queries, 32, 128), (tiles, 32, 128))
    static = {"config": k.StreamConfig(**config)}
    return k.distances, k.distances_reference, shapes, "float32", static, 1e-5


def _matmul(m: int, n: int, depth: int, dtype: str, **config: int) -> Call:
    static = {"config": k.Config(**{"tile_m": 64, "tile_n": 64, "slots": 3, **config})}
    tolerance = 2e-2 if dtype == "bfloat16" else 4e-3
    return k.matmul, k.matmul_reference, ((m, depth), (depth, n)), dtype, static, tolerance


CALLS: dict[str, Call] = {
    "who": (k.who, k.who_reference, (), "float32", {}, 0.0),
    "rotate": (k.rotate, k.rotate_reference, ((2, 32, 128),), "float32", {}, 0.0),
    "rotate, eight": (k.rotate, k.rotate_reference, ((8, 16, 128),), "float32", {}, 0.0),
    "smooth": (k.smooth, k.smooth_reference, ((4, 32, 128),), "float32", {}, 1e-6),
    "smooth, one": (k.smooth, k.smooth_reference, ((1, 8, 128),), "float32", {}, 1e-6),
    "swap": (k.swap, k.swap_reference, ((2, 64, 64),), "float32", {}, 0.0),
    "normalize": (k.normalize, k.normalize_reference, ((128, 256),), "float32", {}, 1e-5),
    "normalize, two": (
        *(k.normalize, k.normalize_reference, ((64, 64),), "float32"),
        *({"blocks": 2}, 1e-5),
    ),
    "broadcast": (k.broadcast, k.broadcast_reference, ((128,),), "float32", {}, 0.0),
    "broadcast, four": (
        *(k.broadcast, k.broadcast_reference, ((1024,),), "float32"),
        *({"blocks": 4}, 0.0),
    ),
    "own": (k.scale_own, k.scale_own_reference, ((32, 128), (2, 32, 128)), "float32", {}, 0.0),
    "distances": _distances(4, 9),
    "distances, no cluster": _distances(3, 5, blocks=1, slots=3),
    "distances, four": _distances(4, 7, blocks=4, slots=2),
    "distances, all in SMEM": _distances(2, 4),
    "distances, late": _distances(4, 11, slots=4, lag=3),
    "distances, four, late": _distances(8, 9, blocks=4, slots=5, lag=2),
    "matmul": _matmul(256, 128, 384, "float16"),
    "matmul, no cluster": _matmul(128, 128, 256, "float16", cluster_m=1, cluster_n=1),
    "matmul, above": _matmul(256, 64, 192, "float16", cluster_n=1),
    "matmul, beside": _matmul(64, 256, 256, "bfloat16", cluster_m=1, slots=2),
    "matmul, eight": _matmul(256, 128, 256, "float16", cluster_m=4),
}
RANDOM = range(20)


def draw(shapes: tuple[Shape, ...], dtype: str) -> list[Array]:
    """Normal arrays, drawn anew."""
    rng = np.random.default_rng()
    return [
        rng.standard_normal(s).astype(
            np.dtype(dtype) if dtype != "bfloat16" else jax.numpy.bfloat16
        )
        for s in shapes
    ]


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, shapes, dtype, static, tolerance = CALLS[name]
    args = draw(shapes, dtype)
    wanted = reference(*args, **static)
    for schedule in ("in_order", "adversarial"):
        report = simulator.simulate(lambda *a: kernel(*a, **static), *args, schedule=schedule)
        assert report.findings == ()
        assert (report.value.dtype, report.value.shape) == (wanted.dtype, wanted.shape)
        close(report.value, wanted, tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_is_clean_in_twenty_random_schedules(name: str) -> None:
    kernel, reference, shapes, dtype, static, tolerance = CALLS[name]
    args = draw(shapes, dtype)
    wanted = reference(*args, **static)
    for seed in RANDOM:
        report = simulator.simulate(lambda *a: kernel(*a, **static), *args, schedule=seed)
        assert report.findings == (), seed
        close(report.value, wanted, tolerance)


def close(got: Array, wanted: Array, tolerance: float) -> None:
    """Equal, or within the tolerance, relative to the larger of 1 and the value."""
    one, two = (np.asarray(a).astype(np.float64) for a in (got, wanted))
    np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_lowers_for_cuda(name: str) -> None:
    kernel, _, shapes, dtype, static, _ = CALLS[name]
    structs = [jax.ShapeDtypeStruct(s, dtype) for s in shapes]
    traced = jax.jit(lambda *a: kernel(*a, **static)).trace(*structs)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("kernel", "shapes", "words"),
    [
        (k.rotate, ((9, 8, 128),), "1 to 8 blocks, not 9"),
        (k.swap, ((3, 64, 64),), r"must be \(2, 64 \* i, 32 \* j\)"),
        (k.normalize, ((64, 100),), r"multiples of \(64, 32\)"),
        (k.distances, ((3, 32, 128), (9, 32, 128)), "multiples of"),
        (k.distances, ((2, 32, 128), (2, 32, 128)), "at most the 2 tiles"),
        (k.matmul, ((256, 256), (128, 256)), "must be equal"),
        (k.matmul, ((128, 256), (256, 256)), "m=128 must be divisible by 256"),
        (k.matmul, ((256, 128), (128, 256)), "hold as many tiles"),
    ],
)
def test_refuses_what_does_not_fit(
    kernel: Callable[..., Any], shapes: tuple[Shape, ...], words: str
) -> None:
    structs = [jax.ShapeDtypeStruct(s, np.float32) for s in shapes]
    with pytest.raises(ValueError, match=words):
        jax.eval_shape(kernel, *structs)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_a_cluster_asks_for_clusters(blocks: int) -> None:
    structs = [jax.ShapeDtypeStruct((4, 32, 128), np.float32)] * 2
    config = k.StreamConfig(blocks=blocks, slots=2)
    traced = tracing.trace(lambda q, x: k.distances(q, x, config=config), *structs)
    assert ("clusters" in tracing.features(traced)) is (blocks > 1)


@pytest.mark.parametrize(("blocks", "multicast"), [(1, False), (2, True), (4, True)])
def test_only_a_cluster_has_multicast_copies(blocks: int, multicast: bool) -> None:
    structs = [jax.ShapeDtypeStruct((4, 32, 128), np.float32)] * 2
    config = k.StreamConfig(blocks=blocks, slots=2)
    code = compile_for(lambda q, x: k.distances(q, x, config=config), *structs)
    copies = [i.opcode for i in code.instructions("cp.async.bulk.tensor*.mbarrier*")]
    assert copies
    assert all(o.endswith("multicast::cluster") is multicast for o in copies)
    assert bool(code.instructions("mapa.*")) is multicast
    assert len(code.instructions("barrier.cluster.arrive*")) == (1 if multicast else 0)
    assert code.spill_bytes == 0


def test_a_neighbours_memory_has_instructions_of_its_own() -> None:
    pulls = compile_for(k.rotate, jax.ShapeDtypeStruct((2, 32, 128), np.float32))
    assert pulls.instructions("ld.shared::cluster*")
    pushes = compile_for(k.swap, jax.ShapeDtypeStruct((2, 64, 64), np.float32))
    assert pushes.instructions("st.async*")


@pytest.mark.parametrize(
    ("cluster_m", "cluster_n", "kib"), [(1, 1, 32), (2, 1, 24), (1, 2, 24), (2, 2, 16), (4, 2, 12)]
)
def test_a_block_brings_its_share(cluster_m: int, cluster_n: int, kib: int) -> None:
    config = k.Config(cluster_m=cluster_m, cluster_n=cluster_n)
    assert k.bytes_per_step(config) == kib * 1024
