"""Merging: the student's answers in the instructor's notebook, and nothing else of theirs rules."""

from __future__ import annotations

import pytest

from course_lib.grading.merging import Work, merge
from course_lib.grading.validation import read
from tests.grading.classroom import (
    CHAPTER,
    TRIPLE,
    cell,
    exercise_cell,
    handed_in,
    own_cell,
    release,
    solutions,
    stub,
    to_bytes,
)


def merged(notebook: object) -> Work:
    data, problems = read(to_bytes(notebook))  # type: ignore[arg-type]
    assert data is not None
    return merge("Ada", CHAPTER, release().skeletons[CHAPTER], data, problems)


def answer(work: Work, exercise: str = TRIPLE) -> str:
    [source] = [c.source for c in work.merged.cells if c.exercise == exercise]
    return source


def kinds(work: Work) -> list[str]:
    return [p.kind for p in work.merged.problems]


def test_an_honest_notebook_comes_through_whole() -> None:
    work = merged(handed_in())
    assert {c.exercise: c.source for c in work.merged.cells if c.exercise} == solutions()
    assert work.merged.problems == ()
    assert work.merged.flags == ()
    ids = [c.id for c in work.notebook.cells]
    assert ids == [c.id for c in release().skeletons[CHAPTER].cells]


def test_an_edited_check_is_the_skeletons_again_and_flagged() -> None:
    notebook = handed_in()
    cell(notebook, "triple-check").source = 'print("asynchronous_copies.triple: correct")'
    work = merged(notebook)
    assert cell(work.notebook, "triple-check").source == f'check("{TRIPLE}", triple)'
    assert work.merged.flags == ('edited check cell "triple-check"',)


def test_a_check_turned_into_text_and_one_removed_are_back() -> None:
    notebook = handed_in()
    cell(notebook, "triple-check").cell_type = "markdown"
    notebook.cells = [c for c in notebook.cells if c.id != "both-check"]
    work = merged(notebook)
    assert cell(work.notebook, "triple-check").cell_type == "code"
    assert cell(work.notebook, "both-check").source.startswith("check(")
    assert 'check cell "triple-check" turned into markdown' in work.merged.flags
    assert 'removed check cell "both-check"' in work.merged.flags


def test_text_and_broken_kernels_may_be_edited_without_a_flag() -> None:
    notebook = handed_in()
    cell(notebook, "title").source = "# My copy"
    cell(notebook, "break-out").source += "\nplgpu.commit_smem()"
    assert merged(notebook).merged.flags == ()


@pytest.mark.parametrize(
    "marker", ["# NBVAL_SKIP", "#NBVAL_IGNORE_OUTPUT", "  ## NBVAL_RAISES_EXCEPTION "]
)
def test_nbvals_comments_are_made_harmless(marker: str) -> None:
    from nbval.plugin import find_comment_markers

    notebook = handed_in()
    exercise_cell(notebook).source = f"{marker}\n{solutions()[TRIPLE]}"
    work = merged(notebook)
    assert list(find_comment_markers(answer(work))) == []
    assert "nbval marker" in work.merged.flags[0]


def test_tags_are_the_skeletons() -> None:
    notebook = handed_in()
    exercise_cell(notebook).metadata["tags"] = ["nbval-skip", "raises-exception"]
    own = own_cell("x = 1")
    own.metadata["tags"] = ["nbval-skip"]
    notebook.cells.insert(4, own)
    work = merged(notebook)
    assert exercise_cell(work.notebook).metadata["tags"] == ["exercise"]
    assert cell(work.notebook, "mine").metadata == {}
    assert sum("nbval" in f or "raises" in f for f in work.merged.flags) == 3


def test_own_cells_stay_where_they_are() -> None:
    notebook = handed_in()
    at = [c.id for c in notebook.cells].index("triple")
    notebook.cells.insert(at, own_cell("def helper(x):\n    return x"))
    notebook.cells.insert(at + 2, own_cell("note", "note", "markdown"))
    work = merged(notebook)
    ids = [c.id for c in work.notebook.cells]
    assert ids[at : at + 3] == ["mine", "triple", "note"]
    assert [c.id for c in work.merged.cells if c.own] == ["mine"]


@pytest.mark.parametrize("lost", ["no ids", "other ids", "ids in the metadata"])
def test_cells_are_found_without_their_ids(lost: str) -> None:
    """Some programs drop ids (format 4.4), others give each cell a new one."""
    notebook = handed_in()
    for n, c in enumerate(notebook.cells):
        if lost == "ids in the metadata":
            c.metadata["id"] = c.id
        c["id"] = f"random{n}" if lost == "other ids" else ""
        c.metadata.pop("exercise", None)
    work = merged(notebook)
    assert {c.exercise: c.source for c in work.merged.cells if c.exercise} == solutions()
    assert not [c for c in work.merged.cells if c.own]


def test_windows_line_ends_change_nothing() -> None:
    notebook = handed_in()
    for c in notebook.cells:
        c.source = c.source.replace("\n", "\r\n")
    work = merged(notebook)
    assert answer(work) == solutions()[TRIPLE]
    assert work.merged.flags == ()


def test_of_two_cells_with_one_id_the_answered_one_counts() -> None:
    notebook = handed_in({})
    twin = own_cell(solutions()[TRIPLE], "triple")
    notebook.cells.append(twin)
    work = merged(notebook)
    assert answer(work) == solutions()[TRIPLE]
    assert kinds(work) == ["duplicate-id"]


def test_an_answer_in_a_text_cell_counts_and_is_said() -> None:
    notebook = handed_in()
    exercise_cell(notebook).cell_type = "markdown"
    work = merged(notebook)
    assert answer(work) == solutions()[TRIPLE]
    assert kinds(work) == ["retyped-cell"]


def test_a_missing_exercise_is_said_and_the_others_count() -> None:
    notebook = handed_in()
    notebook.cells = [c for c in notebook.cells if c.metadata.get("exercise") != TRIPLE]
    work = merged(notebook)
    assert answer(work) == stub(CHAPTER, TRIPLE)
    assert kinds(work) == ["missing-cell"]
    ring = "asynchronous_copies.ring_copy"
    assert answer(work, ring) == solutions()[ring]


def test_an_answer_in_another_cell_is_found() -> None:
    notebook = handed_in()
    exercise_cell(notebook).source = "# see below"
    notebook.cells.append(own_cell(solutions()[TRIPLE]))
    work = merged(notebook)
    assert kinds(work) == ["function-elsewhere"]
    assert [c.source for c in work.merged.cells if c.own] == [solutions()[TRIPLE]]


def test_an_import_in_a_given_cell_is_kept_and_the_cell_is_flagged() -> None:
    notebook = handed_in()
    cell(notebook, "setup").source += "\nimport math\n\ndef twice(x):\n    return 2 * x\nprint(1)"
    work = merged(notebook)
    [extra] = [c for c in work.merged.cells if c.own]
    assert extra.source == "import math\ndef twice(x):\n    return 2 * x"
    assert work.merged.flags == ('edited given cell "setup"',)


def test_an_id_of_the_skeleton_is_not_to_be_had() -> None:
    """An own cell cannot take a locked cell's place by its id."""
    notebook = handed_in()
    notebook.cells.insert(0, own_cell("check = print", "triple-check"))
    work = merged(notebook)
    assert cell(work.notebook, "triple-check").source == f'check("{TRIPLE}", triple)'
    assert "duplicate-id" in kinds(work)


def test_merging_leaves_what_it_was_given() -> None:
    notebook = handed_in()
    before = to_bytes(notebook), to_bytes(release().skeletons[CHAPTER])
    merged(notebook)
    assert (to_bytes(notebook), to_bytes(release().skeletons[CHAPTER])) == before
