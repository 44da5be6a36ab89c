"""Every statement of the Mojo guide has a row with its verdict on the Mojo that the lock names."""

from __future__ import annotations

import re
import tomllib

import pytest

from course_lib.authoring import Course
from course_lib.mojo import toolchain

ROOT = Course().root
SECTIONS = tomllib.loads((ROOT / "tests" / "mojo" / "guide.toml").read_text())["section"]
ROWS = [
    row
    for row in tomllib.loads((ROOT / "tests" / "coverage.toml").read_text())["row"]
    if row["document"] == "mojo"
]
VERDICT = re.compile(r"works|(corrected|stale): .{10,}")
# Counted in the guide: its headings with text of their own, and its blocks of code.
HEADINGS, SNIPPETS = 25, 29


def test_the_list_of_sections_is_complete():
    assert len({s["heading"] for s in SECTIONS}) == len(SECTIONS) == HEADINGS
    assert sum(s["snippets"] for s in SECTIONS) == SNIPPETS


@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s["heading"])
def test_every_statement_of_a_section_has_its_row_and_no_row_is_about_anything_else(section):
    rows = {row["id"] for row in ROWS if row["section"] == section["heading"]}
    assert rows == set(section["rows"])
    assert len(section["rows"]) >= max(1, section["snippets"])


def test_every_row_belongs_to_a_section():
    assert {row["section"] for row in ROWS} <= {s["heading"] for s in SECTIONS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_row_has_a_verdict_and_a_test_that_compiles_or_runs_it(row):
    assert VERDICT.fullmatch(row["verdict"])
    assert any(t.startswith(("tests/mojo/", "tests/exercises/", "nbval:")) for t in row["tests"])


def test_the_verdicts_are_about_the_mojo_that_is_locked():
    """Another version wants all of them looked at again."""
    assert toolchain.locked_version() == "1.2.0"
