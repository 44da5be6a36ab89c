"""Runs functions of a JavaScript module under node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import find_program

Call = tuple[str, list[Any]]
_RUNNER = Path(__file__).with_name("layouts_runner.mjs")


def call(module: Path, calls: Sequence[Call]) -> list[Any]:
    """The results of `function(*args)` for every `(function, args)`; `{"error": ...}` if thrown."""
    node = find_program("node")
    assert node is not None
    done = subprocess.run(
        [node, str(_RUNNER), str(module)],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results
