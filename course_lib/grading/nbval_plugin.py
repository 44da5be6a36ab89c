"""A pytest plugin that writes down what nbval found in each cell, a line of JSON for each.

It goes into the sandbox as a file of its own and is imported there by pytest, so it imports
nothing of the course. Lines are written as cells finish: a run that is killed has said what
it knows. (nbval's own report goes through JUnit XML with the terminal's colours in it.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

RESULTS = "feedback.jsonl"
LONGEST_TEXT = 4_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, Any]:
    report = yield
    if hasattr(item, "cell") and (call.when == "call" or report.failed):
        line = {
            "cell": str(item.cell.get("id", "")),
            "outcome": report.outcome,
            "error": _error(call.excinfo) if report.failed else "",
            "text": _printed(item.test_outputs),
        }
        with Path(RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report


def _error(excinfo: Any) -> str:
    """The last line of a cell's traceback, else what nbval says."""
    traceback = getattr(excinfo.value, "inner_traceback", "") or ""
    lines = [line for line in _plain(traceback).splitlines() if line.strip()]
    return (lines[-1] if lines else _plain(str(excinfo.value)))[:LONGEST_TEXT]


def _printed(outputs: Any) -> str:
    texts = []
    for output in outputs or ():
        data = output.get("data") or {}
        texts.append(str(output.get("text") or data.get("text/plain") or ""))
    return _plain("".join(texts))[:LONGEST_TEXT]


def _plain(text: str) -> str:
    return _COLOURS.sub("", text)
