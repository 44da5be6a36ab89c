"""`sms=`: a GPU of some SMs, whose blocks take turns by the timeline's clock."""

from __future__ import annotations

from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib.diagnostics import OptionError
from course_lib.simulator import simulate

pytestmark = pytest.mark.two_jax


def ones(x: Any) -> Any:
    """A block per row, which adds one to it."""

    def body(x_gmem: Any, y_gmem: Any) -> None:
        row = jax.lax.axis_index("row")
        y_gmem[row] = x_gmem[row] + 1

    return plgpu.kernel(body, out_type=x, grid=(x.shape[0],), grid_names=("row",))(x)


def rows(count: int) -> Any:
    return np.random.default_rng().standard_normal((count, 128)).astype(np.float32)


def test_as_many_blocks_run_at_a_time_as_there_are_sms() -> None:
    x = rows(6)
    times = {}
    for sms in (1, 2, 3, 6):
        report = simulate(ones, x, sms=sms)
        assert report.findings == ()
        np.testing.assert_array_equal(report.value, x + 1)
        times[sms] = report.timeline.cycles
    assert [round(times[1] / times[sms]) for sms in times] == [1, 2, 3, 6]


def test_a_cluster_takes_as_many_sms_as_it_has_blocks() -> None:
    def body(x_gmem: Any, y_gmem: Any) -> None:
        part = jax.lax.axis_index("row"), jax.lax.axis_index("pair")
        y_gmem[part] = x_gmem[part] + 1

    def kernel(x: Any) -> Any:
        return plgpu.kernel(
            body, out_type=x, grid=(x.shape[0],), grid_names=("row",), cluster=(2,),
            cluster_names=("pair",),
        )(x)  # fmt: skip

    x = rows(8).reshape(4, 2, 128)
    alone, together = (simulate(kernel, x, sms=sms).timeline.cycles for sms in (2, 8))
    assert round(alone / together) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sms": 0}, "a whole number from 1 to 132"),
        ({"sms": 133}, "a whole number from 1 to 132"),
        ({"sms": True}, "a whole number"),
        ({"sms": 2, "schedule": 7}, "leave schedule at 'in_order'"),
    ],
)
def test_what_cannot_be_asked_for_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        simulate(ones, jnp.zeros((2, 128)), **options)
