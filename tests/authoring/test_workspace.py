"""The workspace: copies are made, updated and reset, and every old one can be had back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib.authoring import reset, update
from course_lib.authoring.source import Course
from course_lib.diagnostics import CourseError

NAME = "00_tiny.ipynb"


@pytest.fixture(autouse=True)
def no_workspace_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COURSE_WORKSPACE", raising=False)


def updated(course: Course, workspace: Path | None = None) -> list[str]:
    """Updates and returns what was said."""
    said: list[str] = []
    update(workspace, course=course, say=said.append)
    return said


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def cell_of(nb: Any, cell_id: str) -> Any:
    return next(c for c in nb["cells"] if c["id"] == cell_id)


def set_text(path: Path, cell_id: str, text: str) -> None:
    nb = load(path)
    cell_of(nb, cell_id)["source"] = text.splitlines(keepends=True)
    path.write_text(json.dumps(nb))


def text_of(path: Path, cell_id: str) -> str:
    return "".join(cell_of(load(path), cell_id)["source"])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_copy_is_the_learners_notebook_without_outputs(built: Course) -> None:
    assert updated(built) == ["00_tiny: copied into workspace/."]
    mine, theirs = load(built.workspace / NAME), load(built.notebooks / NAME)
    for cell in theirs["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    assert mine["cells"] == theirs["cells"]
    assert any(c["outputs"] for c in load(built.notebooks / NAME)["cells"] if "outputs" in c)


def test_updating_again_changes_nothing(built: Course) -> None:
    updated(built)
    set_text(built.workspace / NAME, "double", "def double(x):\n    return x + x")
    before = everything(built.workspace)
    assert updated(built) == []
    assert update(course=built, say=lambda line: None) == []
    assert everything(built.workspace) == before


def test_a_newer_chapter_is_merged_and_the_old_copy_is_kept(built: Course) -> None:
    updated(built)
    copy = built.workspace / NAME
    set_text(copy, "double", "def double(x):\n    return x + x")
    before = copy.read_bytes()
    set_text(built.notebooks / NAME, "title", "# 00 Newer")
    said = updated(built)
    assert said == [
        "00_tiny: updated; the copy before that is kept as "
        ".course/backups/00_tiny.before-update-1.ipynb."
    ]
    assert text_of(copy, "title") == "# 00 Newer"
    assert text_of(copy, "double") == "def double(x):\n    return x + x"
    backup = built.workspace / ".course/backups/00_tiny.before-update-1.ipynb"
    assert backup.read_bytes() == before
    assert updated(built) == []


def test_every_update_keeps_a_copy_of_its_own(built: Course) -> None:
    updated(built)
    for n in range(3):
        set_text(built.notebooks / NAME, "title", f"# 00 Version {n}")
        updated(built)
    backups = sorted((built.workspace / ".course/backups").iterdir())
    assert [p.name for p in backups] == [f"00_tiny.before-update-{n}.ipynb" for n in (1, 2, 3)]
    assert len({p.read_bytes() for p in backups}) == 3


def test_a_conflict_is_told_in_the_terminal_and_shown_in_the_notebook(built: Course) -> None:
    updated(built)
    copy = built.workspace / NAME
    set_text(copy, "setup", "mine = 1")
    set_text(built.notebooks / NAME, "setup", "new = 1")
    said = updated(built)
    assert said[1:] == ['  cell "setup": yours was kept, the course\'s newer one is shown below it']
    assert text_of(copy, "setup") == "mine = 1"
    assert "new = 1" in copy.read_text()
    assert updated(built) == []


def test_a_change_of_solutions_or_outputs_alone_is_no_update(built: Course) -> None:
    updated(built)
    nb = load(built.notebooks / NAME)
    nb["metadata"]["course"]["digest"] = nb["metadata"]["course"]["source"] = "0"
    cell_of(nb, "setup")["outputs"] = []
    (built.notebooks / NAME).write_text(json.dumps(nb))
    before = everything(built.workspace)
    assert updated(built) == []
    assert everything(built.workspace) == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{", "it is not JSON"),
        (b"", "it is not JSON"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"[]", "not a notebook of format 4"),
        (b'{"nbformat": 3, "worksheets": []}', "not a notebook of format 4"),
        (b'{"nbformat": 4}', "it has no list of cells"),
        (b'{"nbformat": 4, "cells": [1]}', "one of its cells is none"),
        (b"[" * 100_000, "it is "),
    ],
)
def test_a_copy_that_cannot_be_read_is_kept_and_a_fresh_one_is_made(
    built: Course, data: bytes, why: str
) -> None:
    updated(built)
    copy = built.workspace / NAME
    fresh = copy.read_bytes()
    copy.write_bytes(data)
    (said,) = updated(built)
    assert why in said
    assert "It is kept as 00_tiny.unreadable-1.ipynb; 00_tiny.ipynb is a fresh copy." in said
    assert (built.workspace / "00_tiny.unreadable-1.ipynb").read_bytes() == data
    assert copy.read_bytes() == fresh


def test_a_copy_without_its_base_loses_nothing(built: Course) -> None:
    updated(built)
    copy = built.workspace / NAME
    set_text(copy, "double", "def double(x):\n    return x + x")
    base = built.workspace / ".course/base" / NAME
    base.write_text("{")
    updated(built)
    assert text_of(copy, "double") == "def double(x):\n    return x + x"
    assert base.read_bytes() != b"{"
    assert updated(built) == []


def test_an_interrupted_update_can_be_repeated(built: Course) -> None:
    updated(built)
    base = built.workspace / ".course/base" / NAME
    old_base = base.read_bytes()
    set_text(built.workspace / NAME, "setup", "mine = 1")
    set_text(built.notebooks / NAME, "setup", "new = 1")
    updated(built)
    merged = (built.workspace / NAME).read_bytes()
    base.write_bytes(old_base)  # as if the machine had gone off before the base was stored
    assert updated(built) == []
    assert (built.workspace / NAME).read_bytes() == merged


def test_files_of_the_learners_own_are_left_alone(built: Course) -> None:
    built.workspace.mkdir()
    for name in ("notes.ipynb", "99_gone.ipynb", "data.csv"):
        (built.workspace / name).write_text("mine")
    updated(built)
    assert all((built.workspace / n).read_text() == "mine" for n in ("notes.ipynb", "data.csv"))


def test_the_workspace_can_be_elsewhere(
    built: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated(built, tmp_path / "a b")
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path / "c"))
    updated(built)
    assert (tmp_path / "a b" / NAME).read_bytes() == (tmp_path / "c" / NAME).read_bytes()
    assert not built.workspace.exists()


def test_a_reset_makes_a_fresh_copy_and_keeps_the_old_one(built: Course) -> None:
    updated(built)
    copy = built.workspace / NAME
    fresh = copy.read_bytes()
    said: list[str] = []
    for n in (1, 2):
        set_text(copy, "double", f"def double(x):\n    return {n}")
        mine = copy.read_bytes()
        assert reset("00", course=built, say=said.append) == copy
        assert copy.read_bytes() == fresh
        assert (built.workspace / f"00_tiny.before-reset-{n}.ipynb").read_bytes() == mine
    assert said[:2] == [
        "Your 00_tiny.ipynb is kept as 00_tiny.before-reset-1.ipynb.",
        "workspace/00_tiny.ipynb is a fresh copy.",
    ]
    assert updated(built) == []


@pytest.mark.parametrize("name", ["0", "tiny", "00_tiny", NAME, f"workspace/{NAME}"])
def test_a_reset_takes_every_name_of_a_chapter(built: Course, name: str) -> None:
    assert reset(name, course=built, say=lambda line: None) == built.workspace / NAME


def test_a_reset_of_an_unknown_chapter_says_which_there_are(built: Course) -> None:
    with pytest.raises(CourseError, match=r'no chapter "7"\. The chapters are: 00_tiny'):
        reset("7", course=built)


def test_a_broken_chapter_says_what_to_do(built: Course) -> None:
    (built.notebooks / NAME).write_text("{")
    with pytest.raises(CourseError, match=r"notebooks/00_tiny\.ipynb cannot be read"):
        update(course=built, say=lambda line: None)


def test_a_folder_in_the_way_is_a_sentence(built: Course) -> None:
    (built.workspace / NAME).mkdir(parents=True)
    with pytest.raises(CourseError, match=r"workspace/00_tiny\.ipynb: Is a directory"):
        update(course=built, say=lambda line: None)
