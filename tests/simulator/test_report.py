"""What a report says in one word."""

from __future__ import annotations

import pytest

from course_lib.diagnostics import Finding, Severity
from course_lib.simulator.report import Report

RACE = Finding("data-race", Severity.ERROR, "Two threads touch x.")
LOST = Finding("unfinished-copy", Severity.ERROR, "Nobody waited.")
OPEN = Finding("unwritten-output", Severity.NOTE, "Nobody writes y.")


@pytest.mark.parametrize(
    ("findings", "rule"),
    [
        ((), "no findings"),
        ((OPEN,), "unwritten-output"),
        ((OPEN, RACE), "data-race"),
        ((LOST, RACE, OPEN), "unfinished-copy"),
    ],
)
def test_the_rule_of_a_report_is_that_of_its_first_error_else_of_its_first_note(
    findings: tuple[Finding, ...], rule: str
) -> None:
    assert Report(None, findings).rule == rule
