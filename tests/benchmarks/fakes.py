"""A card and a clock for tests on machines that have neither."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from course_lib import runtime
from course_lib.benchmarks.card import State

DEVICE = runtime.Device("Card of the tests", (9, 0))
QUIET = State(
    name="Card of the tests",
    driver="580.1",
    sm_mhz=1980.0,
    max_sm_mhz=1980.0,
    memory_mhz=3201.0,
    temperature_c=40.0,
    power_w=120.0,
    power_limit_w=700.0,
    utilization_percent=0.0,
    reasons=0,
    others=0,
)
BUSY = dataclasses.replace(QUIET, utilization_percent=80.0)
SLOWED = dataclasses.replace(QUIET, reasons=0x44)


def by_the_clock_on_the_wall(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """What `timing.cupti_times_us` does, in microseconds of wall time."""
    times = []
    for call in calls:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append((time.perf_counter() - start) * 1e6)
    return times
