"""A pytest fixture for an engineer's own kernels.

    def test_matmul(simulated):
        y = simulated(matmul, a, b)       # fails with the findings if there is an error

Add `pytest_plugins = ["course_lib.simulator.pytest_plugin"]` to a conftest.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def simulated() -> Callable[..., Any]:
    """Runs a function on the model of the GPU, under three schedules, and gives its value."""
    from course_lib.simulator import simulate

    def run(f: Callable[..., Any], *args: Any, schedules: Any = None, **options: Any) -> Any:
        value = None
        for schedule in schedules or ("in_order", "adversarial", 0):
            report = simulate(f, *args, schedule=schedule, **options)
            if report.errors:
                pytest.fail(f"schedule {schedule!r}\n{report}", pytrace=False)
            value = report.value if value is None else value
        return value

    return run
