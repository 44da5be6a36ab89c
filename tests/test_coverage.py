"""Every row of coverage.toml points at living cells and living tests."""

import ast
import functools
import re
import tomllib
from typing import Any

import nbformat
import pytest

from course_lib.authoring import Course, read_chapter

ROOT = Course().root
ROWS: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "coverage.toml").read_text())["row"]
KINDS = {"section", "claim", "number", "snippet", "note", "warning"}
DOCUMENTS = {"pallas", "mojo"}
FIELDS = {"id", "document", "section", "kind", "says", "cells", "tests"}


@functools.cache
def cells_of(chapter: str) -> frozenset[str]:
    """The ids of a chapter's cells; empty where there is no such chapter."""
    source = Course().solutions / f"{chapter}.md"
    if not source.is_file():
        return frozenset()
    return frozenset(cell.id for cell in read_chapter(source, registry=None).cells)


@functools.cache
def compared_cells(chapter: str) -> frozenset[str]:
    """The code cells of a chapter whose stored output, not empty, is compared at every run."""
    record = Course().solutions / f"{chapter}.ipynb"
    if not record.is_file():
        return frozenset()
    return frozenset(
        cell.id
        for cell in nbformat.read(record, as_version=4).cells
        if cell.get("outputs") and "nbval-ignore-output" not in cell.metadata.get("tags", ())
    )


@functools.cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the tests in a file, those in classes among them."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    return frozenset(f.name for f in functions if f.name.startswith("test_"))


def problems(row: dict[str, Any]) -> list[str]:
    """What is wrong with a row, a phrase for each thing."""
    if row.keys() != FIELDS:
        return [f"has {sorted(row)}, not {sorted(FIELDS)}"]
    found = [f"{row['kind']} is no kind"] if row["kind"] not in KINDS else []
    found += [f"{row['document']} is no document"] if row["document"] not in DOCUMENTS else []
    found += (
        ["its id is not topic.name"]
        if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", row["id"])
        else []
    )
    found += ["says nothing in a line"] if not 20 <= len(row["says"]) <= 110 else []
    found += ["has no cell"] if not row["cells"] else []
    found += ["has no test"] if not row["tests"] else []
    found += [f"the cell {c} does not exist" for c in row["cells"] if not _cell_lives(c)]
    found += [f"the test {t} does not exist" for t in row["tests"] if not _test_lives(t)]
    return found


def _cell_lives(cell: str) -> bool:
    chapter, _, cell_id = cell.partition("/")
    return cell_id in cells_of(chapter)


def _test_lives(test: str) -> bool:
    if test.startswith("nbval:"):
        chapter, _, cell_id = test.removeprefix("nbval:").partition("/")
        return cell_id in compared_cells(chapter)
    file, _, name = test.partition("::")
    return name in functions_of(file)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_row_has_living_targets(row: dict[str, Any]) -> None:
    assert problems(row) == []


def test_ids_are_unique_and_no_statement_stands_twice() -> None:
    for field in ("id", "says"):
        values = [row[field] for row in ROWS]
        assert sorted(set(values)) == sorted(values)


def test_every_chapter_covers_something() -> None:
    covered = {cell.split("/")[0] for row in ROWS for cell in row["cells"]}
    assert covered == {source.stem for source in Course().sources()}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"cells": ["00_start_here/no-such-cell"]}, "the cell"),
        ({"cells": ["99_no_chapter/title"]}, "the cell"),
        ({"cells": []}, "has no cell"),
        ({"tests": ["tests/test_coverage.py::test_that_nobody_wrote"]}, "the test"),
        ({"tests": ["tests/no_such_file.py::test_x"]}, "the test"),
        ({"tests": ["nbval:00_start_here/title"]}, "the test"),  # Markdown has no output
        ({"tests": ["nbval:00_start_here/setup"]}, "the test"),  # prints nothing
        ({"tests": ["nbval:00_start_here/where"]}, "the test"),  # is not compared
        ({"tests": []}, "has no test"),
        ({"kind": "rumour"}, "is no kind"),
        ({"id": "not an id"}, "its id"),
        ({"says": "too short"}, "says nothing"),
    ],
)
def test_a_dead_target_is_noticed(change: dict[str, Any], problem: str) -> None:
    [found] = problems(ROWS[0] | change)
    assert problem in found
