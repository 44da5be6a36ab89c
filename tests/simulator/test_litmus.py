"""Every rule: a wrong kernel is caught by it, its right twin is left in peace."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

from course_lib.simulator import RULES, simulate
from tests.simulator import litmus
from tests.simulator.litmus.pair import Pair

PAIRS: list[Pair] = [
    pair
    for info in pkgutil.iter_modules(litmus.__path__)
    for pair in getattr(importlib.import_module(f"{litmus.__name__}.{info.name}"), "PAIRS", ())
]
IDS = [p.label for p in PAIRS]


@pytest.mark.parametrize("schedule", ["in_order", "adversarial", 7])
@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_the_wrong_kernel_is_caught(pair: Pair, schedule) -> None:
    report = simulate(
        pair.wrong, *pair.draw(), arch=pair.arch, schedule=schedule, max_steps=pair.max_steps
    )
    found = [f for f in report.findings if f.rule == pair.rule]
    assert found, report
    assert found[0].severity is RULES[pair.rule].severity
    for words in pair.says:
        assert any(words in str(f).replace("\n    ", " ") for f in found), report
    assert found[0].location is not None or pair.rule == "semaphore-left-nonzero", report
    assert all(len(str(f).splitlines()) <= 12 for f in report.findings)
    assert all(str(f).replace("\n    ", " ").endswith(f.fix) for f in report.findings), report


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_the_right_twin_has_no_finding(pair: Pair) -> None:
    args = pair.draw()
    for schedule in ("in_order", "adversarial", *range(20)):
        report = simulate(
            pair.right, *args, arch=pair.arch, schedule=schedule, max_steps=pair.max_steps
        )
        assert not report.findings, (schedule, report)
        if pair.reference is not None:
            np.testing.assert_allclose(report.value, pair.reference(*args), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.differs],
                         ids=[p.label for p in PAIRS if p.differs])  # fmt: skip
def test_the_adversarial_schedule_gives_a_wrong_value(pair: Pair) -> None:
    args = pair.draw()
    value = simulate(pair.wrong, *args, arch=pair.arch, schedule="adversarial").value
    assert not np.allclose(value, pair.reference(*args), rtol=2e-2, atol=2e-2)


def test_every_rule_has_a_pair() -> None:
    covered = {p.rule for p in PAIRS} | {"unsupported"}  # test_simulator.py has that one
    assert covered == set(RULES)
