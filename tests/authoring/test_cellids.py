"""A kernel finds out which cell it runs by the cell's text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.authoring import cellids
from course_lib.authoring.cellids import cell_ids_by_source, source_sha
from course_lib.authoring.regions import learners_text
from course_lib.authoring.source import Course, read_chapter
from tests.authoring import tiny
from tests.authoring.tiny import code


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests read and what a build of this process says does not count."""
    monkeypatch.delenv(cellids.CHAPTER_IDS, raising=False)
    for function in (cellids._stored, cellids._being_built):
        function.cache_clear()


def test_a_text_has_one_name_whatever_stands_around_it() -> None:
    assert source_sha("x = 1") == source_sha("\nx = 1  \n\n") != source_sha("x = 2")


def test_every_code_cell_of_a_source_is_known(tmp_path: Path) -> None:
    path = tiny.write(tmp_path, *tiny.whole(), code("quoted", "a = '''\n``\n'''", tags=[]))
    known = cell_ids_by_source(tmp_path)
    assert known == {source_sha(c.text): c.id for c in read_chapter(path).code}


def test_the_stubs_are_known_from_the_learners_notebooks(built: Course) -> None:
    known = cell_ids_by_source(built.root)
    assert known[source_sha(tiny.DOUBLE)] == "double"
    assert known[source_sha(learners_text(tiny.DOUBLE))] == "double"


def test_the_notebooks_alone_are_enough(built: Course) -> None:
    known = cell_ids_by_source(built.root)
    (built.solutions / "00_tiny.md").unlink()
    cellids._stored.cache_clear()
    assert cell_ids_by_source(built.root) == known


def test_files_that_cannot_be_read_are_passed_over(built: Course) -> None:
    known = cell_ids_by_source(built.root)
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"cells": [1]}'), ("d", "null")):
        (built.solutions / f"{name}.ipynb").write_text(text)
    (built.solutions / "e.md").write_bytes(b"\xff\xfe")
    cellids._stored.cache_clear()
    assert cell_ids_by_source(built.root) == known
    assert cell_ids_by_source(built.root / "nothing here") == {}


def test_the_chapter_that_is_being_built_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(tmp_path, code("old", "x = 1"), code("other", "x = 2"))
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps({source_sha("x = 1"): "new"}))
    monkeypatch.setenv(cellids.CHAPTER_IDS, str(ids))
    assert cell_ids_by_source(tmp_path) == {
        source_sha("x = 1"): "new",
        source_sha("x = 2"): "other",
    }


@pytest.mark.parametrize("text", ["{", "[1]", None])
def test_a_build_that_has_gone_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    ids = tmp_path / "ids.json"
    if text is not None:
        ids.write_text(text)
    monkeypatch.setenv(cellids.CHAPTER_IDS, str(ids))
    assert cell_ids_by_source(tmp_path) == {}


def test_asking_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from course_lib.authoring.cellids import cell_ids_by_source\n"
        "cell_ids_by_source()\n"
        "heavy = {'jax', 'numpy', 'nbformat', 'jupytext', 'yaml', 'IPython'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
