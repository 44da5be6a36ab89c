"""Mojo cells in a chapter: their stubs, their first lines, and what nbval leaves out."""

from __future__ import annotations

import re

import pytest
from nbval.plugin import get_sanitize_patterns

from course_lib.authoring.regions import check_stubs_wait, learners_text
from course_lib.authoring.source import read_chapter
from course_lib.authoring.verification import SANITIZE
from course_lib.diagnostics import CourseError

HEAD = "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n---\n"
CELL = """\
%%mojo_gpu --exercise tiny.add
def add(x: Int) -> Int:
    ### BEGIN SOLUTION
    var y = x + 1
    return y
    ### END SOLUTION
"""


def test_a_gap_of_a_mojo_program_is_an_assertion_of_mojo_s_own():
    assert learners_text(CELL).splitlines() == [
        "%%mojo_gpu --exercise tiny.add",
        "def add(x: Int) -> Int:",
        "    # Your code here (about 2 lines).",
        '    comptime assert False, "not done yet"',
    ]
    check_stubs_wait(CELL)  # it is no Python, and need not be


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("%%mojo_gpu --exercise tiny.add", ""),
        ("%%mojo_gpu", "does not say `--exercise tiny.add`"),
        ("%%mojo_gpu --exercise tiny.sub", "does not say `--exercise tiny.add`"),
    ],
)
def test_the_magic_names_the_exercise_that_the_cell_holds(tmp_path, line, problem):
    text = CELL.replace("%%mojo_gpu --exercise tiny.add", line)
    file = tmp_path / "20_tiny.md"
    file.write_text(
        f'{HEAD}\n+++ {{"id": "title"}}\n\n# 20 Tiny\n\n```{{code-cell}} ipython3\n:id: add\n'
        f":tags: [exercise]\n:exercise: tiny.add\n{text}```\n\n```{{code-cell}} ipython3\n"
        ':id: add-check\n:tags: [check]\ncheck("tiny.add", add)\n```\n'
    )
    if not problem:
        assert read_chapter(file, registry=lambda _: "add").exercises
        return
    with pytest.raises(CourseError, match=re.escape(problem)):
        read_chapter(file, registry=lambda _: "add")


def _compared(text: str) -> str:
    for regex, replacement in get_sanitize_patterns(SANITIZE.read_text()):
        text = re.sub(regex, replacement, text)
    return text


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ("Output [run: NVIDIA H200]:\n3", "Output [record: NVIDIA H200, 2026-11-30]:\n3", True),
        ("x: correct [checked: its PTX].", "x: correct [checked: its launch on a card].", True),
        ("Output [run: NVIDIA H200]:\n3", "Output [record: NVIDIA H200, 2026-11-30]:\n4", False),
        ("x[1] = 3", "x[2] = 3", False),
    ],
)
def test_only_where_and_how_a_program_ran_may_differ(here, there, same):
    assert (_compared(here) == _compared(there)) is same
