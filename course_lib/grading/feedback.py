"""Runs a student's merged notebook under nbval, in the sandbox, to tell them what happened.

The checks are those of the course, so what they say is feedback and nothing more: code in the
same kernel can make them say anything. Marks come from `marking`.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_lib.authoring import canonical
from course_lib.authoring.cellids import CHAPTER_IDS, source_sha
from course_lib.grading import nbval_plugin
from course_lib.grading.flags import says_correct
from course_lib.grading.sandbox import Limits, Outcome, Sandbox

CELL_TIMEOUT_S = 60
RUN_LIMITS = Limits(cpu_s=900, wall_s=600, memory_bytes=8 << 30, processes=512)
_NOTEBOOK, _PLUGIN, _IDS = "notebook.ipynb", "course_feedback.py", "cell_ids.json"
# What a run of a few seconds spends most of its start on goes: the plugins of everything that is
# installed (Hypothesis alone is 1.1 s), and a grammar of URIs that jsonschema loads (1.5 s) to
# check formats that no notebook has; without it jsonschema leaves those out.
_PYTEST = """\
import sys
sys.modules["rfc3987_syntax"] = None
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
_ODD = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_KILLED = {
    "time": "it was stopped when its time was up",
    "cpu": "it used more processor time than it may",
    "memory": "it used more memory than it may",
    "output": "it printed more than it may",
    "disk": "it wrote more than it may",
}


@dataclasses.dataclass(frozen=True)
class CellRun:
    """What happened when a cell ran.

    Attributes:
      cell: its id.
      ok: whether it ran without an exception; of a check, whether it said "correct" as well.
      error: the exception in one line, "" where there was none.
      text: what it printed, cut short.
    """

    cell: str
    ok: bool
    error: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """What happened when a notebook ran.

    Attributes:
      cells: the cells that ran, in order.
      of: how many code cells there are.
      stopped: why it did not run to its end, "" where it did.
    """

    cells: tuple[CellRun, ...] = ()
    of: int = 0
    stopped: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """What each cell printed, by its id."""
        return {c.cell: c.text for c in self.cells}


def run(notebook: NotebookNode, sandbox: Sandbox, *, limits: Limits = RUN_LIMITS) -> Run:
    """Runs a merged notebook under nbval; never raises for what is in it."""
    prepared = prepare(notebook)
    patience_s = min(CELL_TIMEOUT_S, limits.wall_s)
    outcome = sandbox.run(
        [
            *("python", "-c", _PYTEST, "-q", "--nbval", "--nbval-current-env", "--assert=plain"),
            *(f"--nbval-cell-timeout={patience_s}", "--rootdir=.", "--tb=no", "--no-header"),
            *("-p", "no:cacheprovider", "-p", "nbval.plugin"),
            *("-p", _PLUGIN.removesuffix(".py"), _NOTEBOOK),
        ],
        inputs={
            _NOTEBOOK: canonical.to_text(prepared).encode(),
            _PLUGIN: Path(nbval_plugin.__file__).read_bytes(),
            _IDS: json.dumps(_ids(prepared)).encode(),
        },
        keep=(nbval_plugin.RESULTS,),
        limits=limits,
        env={CHAPTER_IDS: _IDS, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        course="full",
    )
    return _read(outcome, sum(c.cell_type == "code" for c in prepared.cells))


def prepare(notebook: NotebookNode) -> NotebookNode:
    """The notebook as nbval gets it: a check has to say "correct", all else has to run."""
    prepared = copy.deepcopy(notebook)
    for cell in prepared.cells:
        if cell.cell_type != "code":
            continue
        cell.execution_count, cell.outputs = 1, []
        tags = [t for t in cell.metadata.get("tags", ()) if not t.startswith("nbval-")]
        cell.metadata["tags"] = [*tags, "nbval-ignore-output"]
    return prepared


def _ids(notebook: NotebookNode) -> Mapping[str, str]:
    """The cells' ids by their text: findings then say "cell <id>, line n"."""
    return {source_sha(c.source): c.id for c in notebook.cells if c.cell_type == "code"}


def _read(outcome: Outcome, of: int) -> Run:
    lines = outcome.files.get(nbval_plugin.RESULTS, b"").decode("utf-8", "replace").splitlines()
    cells = [c for line in lines if (c := _cell_run(line)) is not None][:of]
    stopped = ""
    if outcome.killed_for:
        stopped = _KILLED.get(outcome.killed_for, "it was stopped")
    elif outcome.timed_out:
        stopped = _KILLED["time"]
    elif len(cells) < of:
        stopped = "its process ended"
    return Run(tuple(cells), of, stopped)


def _cell_run(line: str) -> CellRun | None:
    """One line that the plugin wrote, or anything that a student's code wrote in its place."""
    try:
        data: Any = json.loads(line)
        cell, outcome = _written(data["cell"])[:64], data["outcome"]
        error, text = (_written(data[k])[: nbval_plugin.LONGEST_TEXT] for k in ("error", "text"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    said_wrong = ": " in text.partition("\n")[0] and not says_correct(text) and _is_check(text)
    return CellRun(cell, outcome == "passed" and not said_wrong, error, text)


def _written(value: Any) -> str:
    """A text that can be written: no halves of characters, no controls of a terminal."""
    return _ODD.sub("\ufffd", str(value))


def _is_check(text: str) -> bool:
    """Whether the text is a check's: it begins with the id of an exercise."""
    from course_lib.diagnostics import CourseError
    from course_lib.exercises import registry

    try:
        registry.get(text.partition(":")[0])
    except CourseError:
        return False
    return True
