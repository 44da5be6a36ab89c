"""Checks the exercises of a learner's notebook without opening it.

The notebook's code cells run in a fresh kernel, top to bottom, as far as the
last exercise; after each exercise's cell its function is judged there. Cells
that call `check` themselves are left out: each exercise is judged once.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lib.authoring.execution import ThisPython
from course_lib.authoring.files import read_notebook
from course_lib.diagnostics import CourseError
from course_lib.exercises import get
from course_lib.exercises.records import UNATTENDED

CELL_TIMEOUT_S = 600.0
_VERDICT = "application/vnd.course.verdict+json"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
Say = Callable[[str], None]


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def check_chapter(
    notebook: Path, *, workspace: Path, cell_timeout_s: float = CELL_TIMEOUT_S, say: Say = _say
) -> bool:
    """Judges every exercise of a notebook, says each verdict, and notes the progress.

    Args:
      notebook: the learner's copy of a chapter.
      workspace: the folder where progress is kept.
      cell_timeout_s: seconds that one cell may take.

    Returns:
      Whether all exercises are right.

    Raises:
      CourseError: the notebook cannot be read, holds no exercise, or a cell never ends.
    """
    nb = _read(notebook)
    count = sum(bool(_exercise(cell)) for cell in nb.cells)
    started = time.monotonic()
    say(f"Running {notebook.name} in a fresh kernel ...")
    with _kernel(nb, notebook, workspace, cell_timeout_s) as client:
        right = _judge_all(client, count, say)
    say(f"{notebook.stem}: {right} of {count} right, in {time.monotonic() - started:.0f} s.")
    return right == count


def _judge_all(client: NotebookClient, count: int, say: Say) -> int:
    """Runs the cells and judges the exercises among them; how many are right."""
    right = number = 0
    for cell in list(client.nb.cells):
        trouble = _run(client, cell)
        exercise = _exercise(cell)
        if not exercise:
            if trouble:
                say(f"Cell {cell.id} ends in an error: {trouble}")
            continue
        number += 1
        say(f"[{number} of {count}] {exercise} ...")
        if trouble:
            say(f"{exercise}: its cell ends in an error: {trouble}")
            continue
        ok, words = _judge(client, exercise)
        say(words)
        right += ok
    return right


def _read(notebook: Path) -> NotebookNode:
    """The notebook's code cells up to its last exercise, without those that check."""
    try:
        nb = read_notebook(notebook)
    except (OSError, ValueError) as error:
        raise CourseError(f"{notebook.name} cannot be read, {error}.") from None
    code = [c for c in nb.cells if c.cell_type == "code"]
    last = max((n for n, cell in enumerate(code) if _exercise(cell)), default=-1)
    if last < 0:
        raise CourseError(f"{notebook.name} has no exercise in it. `course reset` makes it anew.")
    nb.cells = [c for c in code[: last + 1] if "check" not in c.metadata.get("tags", ())]
    return nb


def _exercise(cell: NotebookNode) -> str:
    return str(cell.metadata.get("exercise", ""))


@contextlib.contextmanager
def _kernel(
    nb: NotebookNode, notebook: Path, workspace: Path, cell_timeout_s: float
) -> Iterator[NotebookClient]:
    client = NotebookClient(
        nb,
        timeout=cell_timeout_s,
        kernel_manager_class=ThisPython,
        kernel_name="python3",
        store_widget_state=False,
    )
    env = {**os.environ, "COURSE_WORKSPACE": str(workspace), UNATTENDED: "1"}
    with client.setup_kernel(cwd=str(notebook.parent), env=env, stderr=subprocess.DEVNULL):
        yield client


def _run(client: NotebookClient, cell: NotebookNode) -> str:
    """Runs a cell; returns "" or, in one line, what it ended with."""
    try:
        client.execute_cell(cell, client.nb.cells.index(cell))
    except CellExecutionError as error:
        return _ANSI.sub("", f"{error.ename}: {error.evalue}").strip().splitlines()[0]
    except CellTimeoutError:
        raise CourseError(
            f"Cell {cell.id} did not end within {client.timeout:g} s, so the rest was not checked."
        ) from None
    except DeadKernelError:
        raise CourseError(
            f"Python ended while cell {cell.id} ran, so the rest was not checked."
        ) from None
    return ""


def _judge(client: NotebookClient, exercise: str) -> tuple[bool, str]:
    """Judges an exercise in the kernel; whether it is right, and the verdict's words."""
    probe = nbformat.v4.new_code_cell(_PROBE.format(exercise=exercise, name=get(exercise).function))
    client.nb.cells.append(probe)
    trouble = _run(client, probe)
    if trouble:
        return False, f"{exercise}: {trouble}"
    data: list[Any] = [o.data[_VERDICT] for o in probe.outputs if _VERDICT in o.get("data", {})]
    return bool(data[-1]["ok"]), str(data[-1]["text"])


_PROBE = """\
def _judge_now():
    from course_lib.exercises import judge
    from course_lib.exercises.records import note_check
    from IPython.display import display

    verdict = judge("{exercise}", globals().get("{name}"))
    note_check(verdict.exercise, fault=verdict.fault)
    data = {{"ok": verdict.ok, "text": str(verdict)}}
    display({{"application/vnd.course.verdict+json": data}}, raw=True)

_judge_now()
"""
