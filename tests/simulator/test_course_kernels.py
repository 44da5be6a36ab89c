"""The course's own kernels under random schedules: right values, and no finding.

Each chapter's tests compare its kernels with their references. Here the same comparisons are
made again under 22 schedules: a module of tests/kernels takes part if it has a table `CALLS`
and `test_equals_its_reference_without_findings`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tests.kernels
from course_lib import model
from course_lib.kernels import matmul_blackwell, matmul_hopper
from course_lib.simulator import simulate
from course_lib.simulator.hosting import simulate_and_trace

TEST = "test_equals_its_reference_without_findings"


def modules() -> Iterator[Any]:
    for info in pkgutil.iter_modules(tests.kernels.__path__):
        module = importlib.import_module(f"tests.kernels.{info.name}")
        if hasattr(module, TEST) and hasattr(module, "CALLS"):
            yield module


CALLS = [
    pytest.param(m, name, id=f"{m.__name__.rpartition('.test_')[2]}: {name}")
    for m in modules() for name in m.CALLS
]  # fmt: skip
schedules = pytest.mark.parametrize(
    "schedules",
    [("adversarial", 0), pytest.param(range(1, 20), marks=pytest.mark.slow)],
    ids=["few", "many"],
)


def executed(schedule: str | int) -> Callable[..., model.Outcome]:
    """Stands for `model.execute`: in this process, under one schedule."""

    def execute(function: Callable[..., Any], args: Any, **_: Any) -> model.Outcome:
        report, trace = simulate_and_trace(function, args, schedule=schedule, kernels_needed=False)
        return model.Outcome(report.value, report.findings, trace)

    return execute


def test_the_finished_chapters_take_part() -> None:
    names = {m.__name__ for m in modules()}
    assert {f"tests.kernels.test_{n}" for n in ("start_here", "memory_spaces")} <= names


@schedules
@pytest.mark.parametrize(("module", "name"), CALLS)
def test_every_schedule(module: Any, name: str, schedules: Any, monkeypatch) -> None:
    test = getattr(module, TEST)
    for schedule in schedules:
        monkeypatch.setattr(model, "execute", executed(schedule))
        if hasattr(module, "SCHEDULES"):
            monkeypatch.setattr(module, "SCHEDULES", (schedule,))
        takes = inspect.signature(test).parameters
        test(name, **({"schedule": schedule} if "schedule" in takes else {}))


MATMULS = [
    (matmul_hopper.matmul, "sm_90a"),
    (matmul_hopper.matmul_multicast, "sm_90a"),
    (matmul_blackwell.matmul, "sm_100a"),
    (matmul_blackwell.matmul_collective, "sm_100a"),
]


@schedules
@pytest.mark.parametrize(
    ("kernel", "arch"), MATMULS, ids=[f"{k.__name__}-{arch}" for k, arch in MATMULS]
)
def test_matmuls(kernel: Any, arch: str, schedules: Any) -> None:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((256, 256)).astype(np.float16) for _ in range(2))
    want = a.astype(np.float32) @ b.astype(np.float32)
    for schedule in schedules:
        report = simulate(kernel, a, b, arch=arch, schedule=schedule)
        assert report.ok, f"{schedule=}\n{report}"
        np.testing.assert_allclose(report.value.astype(np.float32), want, rtol=2e-2, atol=2e-2)
