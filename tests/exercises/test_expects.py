"""An exercise can ask for what the compiler makes of an answer, and without a compiler says so."""

from __future__ import annotations

import dataclasses

import pytest

from course_lib import compiler
from course_lib.compiler import ToolchainMissing
from course_lib.exercises import check, judge, registry
from tests.exercises import practice

MET = {"sm_90a": {"cp.async.bulk.tensor": ">=1", "spill_bytes": 0}}
UNMET = {"sm_90a": {"wgmma.mma_async": ">=4"}}


@pytest.fixture(autouse=True)
def _practice(exercises: None) -> None:
    """Only the practice exercises are registered."""


def test_an_answer_that_meets_what_is_expected_is_right():
    verdict = judge("practice.double", practice.double, native=False, expects=MET)
    assert str(verdict) == "practice.double: correct on 2 shapes."


def test_the_right_values_by_other_instructions_are_rejected():
    verdict = judge("practice.double", practice.double, native=False, expects=UNMET)
    assert verdict.fault == "means"
    assert "The values are right." in str(verdict)
    assert "0 wgmma.mma_async instructions; expected at least 4" in str(verdict).replace(
        "\n  ", " "
    )


def test_the_exercise_s_own_expectations_count_and_can_be_added_to(monkeypatch, capsys):
    asks = dataclasses.replace(practice.DOUBLE, expects=UNMET)
    monkeypatch.setitem(registry._exercises, asks.id, asks)
    check("practice.double", practice.double)
    assert "wgmma.mma_async" in capsys.readouterr().out
    monkeypatch.setitem(registry._exercises, asks.id, dataclasses.replace(asks, expects=MET))
    verdict = judge("practice.double", practice.double, native=False, expects=UNMET)
    assert verdict.fault == "means"


def test_wrong_values_are_said_before_the_instructions():
    verdict = judge("practice.double", practice.forgets_to_double, native=False, expects=UNMET)
    assert verdict.fault == "value"
    assert "wgmma" not in str(verdict)


def test_without_a_compiler_the_answer_is_judged_and_the_rest_is_said(monkeypatch):
    def missing(*args):
        raise ToolchainMissing("There is no compiler here.")

    monkeypatch.setattr(compiler, "unmet_expectations", missing)
    verdict = judge("practice.double", practice.double, native=False, expects=UNMET)
    assert verdict.ok
    assert "was not looked at. There is no compiler here." in str(verdict)
