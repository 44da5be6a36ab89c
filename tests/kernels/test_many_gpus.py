"""The kernels of chapter 13: right on 2 to 8 devices, free of findings in any schedule."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from course_lib import simulator, tracing
from course_lib.compiler import compile_for
from course_lib.kernels import many_gpus as k
from tests.kernels.test_clusters import close

Array = np.ndarray[Any, Any]
RING = k.RingConfig(blocks=2, tile_m=8)
SMALL = k.Config(tile_n=64, blocks=2)
RANDOM = range(20)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def call(name: str, devices: int) -> tuple[Callable[..., Any], tuple[Array, ...], Array, float]:
    """A kernel on so many devices, arguments drawn anew, what it gives, and a tolerance."""
    if name in ("rotate", "rotate_copy", "fetch"):
        x = normal(devices * 8, 128)
        reference = k.fetch_reference if name == "fetch" else k.rotate_reference
        return k.on_devices(getattr(k, name), devices), (x,), reference(x, devices=devices), 0
    if name == "all_gather":
        x = normal(devices * 16, 256)
        f = k.on_devices(functools.partial(k.all_gather, config=RING), devices)
        return f, (x,), k.all_gather_reference(x, devices=devices), 0
    if name == "reduce_scatter":
        x = normal(devices * devices, 16, 256)
        f = k.on_devices(functools.partial(k.reduce_scatter, config=RING), devices)
        return f, (x,), k.reduce_scatter_reference(x, devices=devices), 1e-5
    a = normal(devices * 128, 192, dtype="float16")
    b = normal(192, devices * 64, dtype="float16")
    f = k.on_devices(functools.partial(k.all_gather_matmul, config=SMALL), devices, **k.GATHERED)
    return f, (a, b), k.all_gather_matmul_reference(a, b), 1e-2


NAMES = ["rotate", "rotate_copy", "fetch", "all_gather", "reduce_scatter", "all_gather_matmul"]


@pytest.mark.two_jax
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_equals_its_reference_without_findings(name: str, devices: int) -> None:
    f, args, wanted, tolerance = call(name, devices)
    for schedule in ("in_order", "adversarial"):
        report = simulator.simulate(f, *args, schedule=schedule)
        assert report.findings == ()
        assert (report.value.dtype, report.value.shape) == (wanted.dtype, wanted.shape)
        close(report.value, wanted, tolerance)


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_is_clean_in_twenty_random_schedules(name: str, devices: int) -> None:
    f, args, wanted, tolerance = call(name, devices)
    for seed in RANDOM:
        report = simulator.simulate(f, *args, schedule=seed)
        assert report.findings == (), seed
        close(report.value, wanted, tolerance)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial", *range(20)])
def test_blocks_relay(schedule: Any) -> None:
    x = normal(5, 128)
    report = simulator.simulate(k.relay, x, schedule=schedule)
    assert report.findings == ()
    close(report.value, k.relay_reference(x), 1e-6)


@pytest.mark.parametrize(
    "config",
    [
        k.Config(tile_n=128, blocks=3, slots=2, parcels=1),
        k.Config(tile_n=64, epi_tile_n=32, blocks=1, slots=4),
    ],
)
def test_any_configuration_multiplies(config: k.Config) -> None:
    a, b = normal(2 * 256, 128, dtype="float16"), normal(128, 2 * 128, dtype="float16")
    f = k.on_devices(functools.partial(k.all_gather_matmul, config=config), 2, **k.GATHERED)
    report = simulator.simulate(f, a, b)
    assert report.findings == ()
    close(report.value, k.all_gather_matmul_reference(a, b), 1e-2)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", NAMES)
def test_lowers_for_cuda_and_counts_its_devices(name: str) -> None:
    f, args, _, _ = call(name, 4)
    traced = jax.jit(f).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert tracing.analyse(traced.jaxpr).devices == 4


def test_refuses_what_does_not_fit() -> None:
    x = normal(2 * 24, 128)
    with pytest.raises(ValueError, match="multiples of the tile"):
        k.on_devices(k.all_gather, 2)(x)
    with pytest.raises(ValueError, match="cannot share"):
        k.on_devices(functools.partial(k.all_gather, config=k.RingConfig(blocks=5, tile_m=8)), 2)(x)
    with pytest.raises(ValueError, match="a part for each of 2 devices"):
        k.on_devices(k.reduce_scatter, 2)(normal(6, 64, 128))
    with pytest.raises(ValueError, match="both 16 bits"):
        k.on_devices(k.all_gather_matmul, 2, **k.GATHERED)(normal(256, 64), normal(64, 512))


def test_a_semaphore_has_instructions_at_the_scope_of_the_system() -> None:
    code = compile_for(k.relay, jax.ShapeDtypeStruct((5, 128), np.float32))
    assert code.instructions("red.release.sys.global*")
    assert code.instructions("ld.relaxed.sys.global*")
    assert code.instructions("atom.relaxed.sys.global.cas*")
    assert code.instructions("fence.acquire.sys*")
