"""The kernels of chapter 02: the same product in every order, who computes what, fit for CUDA."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from course_lib import model
from course_lib.diagnostics import CourseError
from course_lib.kernels import grid_scheduling as k

ORDERS = {
    "row-major": k.Config(),
    "tiled, mt 2": k.Config("tiled", 2),
    "tiled, mt 4": k.Config("tiled", 4),
    "snake of rows": k.Config("snake", 2, 0),
    "snake of columns, last band narrower": k.Config("snake", 2, 1),
    "persistent": k.Config(num_sms=5),
    "persistent, tiled": k.Config("tiled", 2, num_sms=3),
    "persistent, snake": k.Config("snake", 3, 0, num_sms=7),
    "persistent, more blocks than tiles": k.Config(num_sms=14),
}
M_TILES, N_TILES, K = 4, 3, 5


@pytest.mark.two_jax
@pytest.mark.parametrize("name", ORDERS)
def test_the_same_product_in_every_order_without_findings(name: str) -> None:
    rng = np.random.default_rng()
    a = rng.standard_normal((M_TILES * k.TILE, K)).astype(np.float32)
    b = rng.standard_normal((K, N_TILES * k.TILE)).astype(np.float32)
    outcome = model.execute(lambda a, b: k.matmul(a, b, config=ORDERS[name]), (a, b))
    assert outcome.findings == ()
    wanted = k.matmul_reference(a, b)
    assert (outcome.value.dtype, outcome.value.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(outcome.value, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.two_jax
@pytest.mark.parametrize("name", ORDERS)
def test_the_schedule_is_that_of_the_layouts(name: str) -> None:
    config = ORDERS[name]
    outcome = model.execute(lambda: k.schedule(M_TILES, N_TILES, config=config), ())
    assert outcome.findings == ()
    np.testing.assert_array_equal(
        outcome.value, k.schedule_reference(M_TILES, N_TILES, config=config)
    )


@pytest.mark.two_jax
@pytest.mark.parametrize("name", ORDERS)
def test_lowers_for_cuda(name: str) -> None:
    args = [
        jax.ShapeDtypeStruct(shape, np.float32)
        for shape in ((M_TILES * k.TILE, K), (K, N_TILES * k.TILE))
    ]
    config = ORDERS[name]
    traced = jax.jit(lambda a, b: k.matmul(a, b, config=config)).trace(*args)
    assert "mosaic_gpu" in traced.lower(lowering_platforms=("cuda",)).as_text()
    scheduled = jax.jit(lambda: k.schedule(M_TILES, N_TILES, config=config)).trace()
    assert "mosaic_gpu" in scheduled.lower(lowering_platforms=("cuda",)).as_text()


def test_refuses_what_it_cannot_tile() -> None:
    def shaped(m: int, kk: int, k2: int, n: int) -> tuple[jax.ShapeDtypeStruct, ...]:
        return jax.ShapeDtypeStruct((m, kk), np.float32), jax.ShapeDtypeStruct((k2, n), np.float32)

    with pytest.raises(ValueError, match="4 columns against 5 rows"):
        k.matmul(*shaped(64, 4, 5, 64))
    with pytest.raises(ValueError, match="multiples of 64"):
        k.matmul(*shaped(64, 4, 4, 100))
    with pytest.raises(CourseError, match="mt = 2 does not divide the 3 tile rows"):
        k.matmul(*shaped(192, 4, 4, 64), config=k.Config("tiled", 2))
