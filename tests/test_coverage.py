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
HEADINGS: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "tests" / "pallas_headings.toml").read_text()
)["heading"]
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
    fields = FIELDS | ({"verdict"} if row.get("document") == "mojo" else set())
    if row.keys() != fields:
        return [f"has {sorted(row)}, not {sorted(fields)}"]
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


def gaps(headings: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    """What of the Pallas document the rows leave out, and what they say of no part of it."""
    pallas = [row for row in rows if row["document"] == "pallas"]
    known = [name for h in headings for name in h.get("sections", [h["title"]])]
    found = [f"{name} stands for two headings" for name in set(known) if known.count(name) > 1]
    found += [
        f"{row['id']}: the document has no section {row['section']}"
        for row in pallas
        if row["section"] not in known
    ]
    for heading in headings:
        names = heading.get("sections", [heading["title"]])
        kinds = [row["kind"] for row in pallas if row["section"] in names]
        found += [f"no row is about {name}" for name in names if not _any_about(name, pallas)]
        found += [
            f"{heading['title']} has {heading[kind + 's']} {kind}s, and {kinds.count(kind)} rows"
            for kind in ("note", "warning")
            if kinds.count(kind) < heading.get(f"{kind}s", 0)
        ]
    return found


def _any_about(section: str, rows: list[dict[str, Any]]) -> bool:
    return any(row["section"] == section for row in rows)


def test_every_heading_of_the_pallas_document_has_its_rows() -> None:
    assert gaps(HEADINGS, ROWS) == []


def test_the_list_of_headings_is_whole() -> None:
    """The document has 59 headings, with 7 warnings and 8 notes below them."""
    assert len({heading["title"] for heading in HEADINGS}) == len(HEADINGS) == 59
    counts = {kind: sum(h.get(kind, 0) for h in HEADINGS) for kind in ("warnings", "notes")}
    assert counts == {"warnings": 7, "notes": 8}


def _without(**given: str) -> list[dict[str, Any]]:
    [(field, value)] = given.items()
    return [row for row in ROWS if row[field] != value]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (_without(section="Inline Mosaic GPU"), "no row is about Inline Mosaic GPU"),
        (_without(section="Debugging"), "no row is about Debugging"),
        (_without(section="Issuing the operation"), "no row is about Issuing the operation"),
        (_without(id="gpu.note-simplified"), "What is a GPU? has 3 notes, and 2 rows"),
        (_without(id="barrier.warning-every-wait"), "Barrier has 3 warnings, and 2 rows"),
        ([*ROWS, ROWS[0] | {"section": "What is a CPU?"}], "has no section What is a CPU?"),
    ],
)
def test_a_gap_is_noticed(rows: list[dict[str, Any]], problem: str) -> None:
    [found] = gaps(HEADINGS, rows)
    assert problem in found


def test_a_heading_that_nobody_has_is_noticed() -> None:
    assert gaps([*HEADINGS, {"title": "Nobody's"}], ROWS) == ["no row is about Nobody's"]
    twice = [*HEADINGS, {"title": "Debugging again", "sections": ["Debugging"]}]
    assert gaps(twice, ROWS) == ["Debugging stands for two headings"]


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
