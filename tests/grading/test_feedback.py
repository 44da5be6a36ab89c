"""The run for feedback: under nbval, in the sandbox, and whatever happens there is told."""

from __future__ import annotations

import dataclasses

import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.grading import feedback
from course_lib.grading.feedback import CellRun
from course_lib.grading.sandbox import Outcome, Sandbox
from tests.grading.classroom import TRIPLE, own_cell

pytestmark = pytest.mark.needs("bubblewrap")


def run(*sources: str, wall_s: int = 60) -> feedback.Run:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [own_cell(s, f"c{n}") for n, s in enumerate(sources)]
    limits = dataclasses.replace(feedback.RUN_LIMITS, wall_s=wall_s)
    return feedback.run(notebook, Sandbox.probe(), limits=limits)


@pytest.mark.slow
def test_each_cell_tells_what_happened() -> None:
    told = run(
        "x = 1\nprint('\x1b[31mred\x1b[0m', x)",
        "raise ValueError('no <b>such</b> thing')",
        f"print('{TRIPLE}: wrong values, with float32[2].')",
        f"print('{TRIPLE}: correct on 3 shapes.')",
        "import socket\nsocket.create_connection(('1.1.1.1', 80), 2)",
        "open('x', 'w').write('y')\nopen('/etc/x', 'w')",
    )
    assert [c.ok for c in told.cells] == [True, False, False, True, False, False]
    assert told.cells[0].text == "red 1\n"
    assert told.cells[1].error == "ValueError: no <b>such</b> thing"
    assert "Network is unreachable" in told.cells[4].error
    assert "Read-only file system" in told.cells[5].error
    assert (told.of, told.stopped) == (6, "")


@pytest.mark.slow
def test_what_ran_before_a_hang_is_known() -> None:
    told = run("print('before')", "while True: pass", "print('after')", wall_s=15)
    assert told.cells[0].text == "before\n"
    assert all(not c.ok for c in told.cells[1:])


def test_nbval_obeys_no_tag() -> None:
    notebook = nbformat.v4.new_notebook(cells=[own_cell("1 / 0", "c0")])
    notebook.cells[0].metadata["tags"] = ["nbval-skip", "raises-exception"]
    assert feedback.prepare(notebook).cells[0].metadata["tags"] == [
        "raises-exception",
        "nbval-ignore-output",
    ]


def outcome(*lines: str, killed_for: str = "") -> Outcome:
    files = {"feedback.jsonl": "\n".join(lines).encode()}
    return Outcome(0, "", "", killed_for=killed_for, files=files)


def test_what_a_students_code_wrote_in_the_plugins_place_does_no_harm() -> None:
    good = '{"cell": "a", "outcome": "passed", "error": "", "text": "x"}'
    lines = [good, "{", "[]", '{"cell": 3}', "[" * 9000, good.replace('"x"', '{"a": 1}')]
    told = feedback._read(outcome(*lines), of=9)
    assert told.cells == (CellRun("a", True, "", "x"), CellRun("a", True, "", "{'a': 1}"))
    assert told.stopped == "its process ended"
    assert feedback._read(outcome(*[good] * 50), of=2).cells == (CellRun("a", True, "", "x"),) * 2
    assert "memory" in feedback._read(outcome(killed_for="memory"), of=2).stopped


def test_cells_are_named_by_their_ids() -> None:
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=[own_cell("x = 1 ", "mine")])
    assert list(feedback._ids(notebook).values()) == ["mine"]
