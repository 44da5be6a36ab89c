"""ruff over the sources: complaints name the source's own line, and --fix mends only the cells."""

from pathlib import Path

import pytest

from course_lib.authoring.lint import lint, mend
from course_lib.authoring.source import Chapter, read_chapter
from tests.authoring import tiny

UNSORTED = "import sys\nimport os\n\nx = (os, sys)"
CRAMPED = "x = [1,2]\ny = {  'a':x }"
CLEAN = tiny.code("clean", "import math\n\nmath.gcd(12, 18)")


def chapter(tmp_path: Path, *cells: str) -> Chapter:
    return read_chapter(tiny.write(tmp_path, tiny.md("title", "# Tiny"), *cells), registry=None)


def line_of(chapter: Chapter, text: str) -> int:
    return chapter.source.split("\n").index(text) + 1


def test_a_clean_chapter_has_no_complaint(tmp_path: Path) -> None:
    assert lint(chapter(tmp_path, tiny.md("goal", "A goal."), CLEAN)) == []


def test_a_complaint_names_the_line_of_the_source(tmp_path: Path) -> None:
    found = chapter(tmp_path, tiny.code("first", "y = 2"), tiny.code("second", UNSORTED))
    [complaint] = lint(found)
    assert complaint.startswith(
        f"solutions/00_tiny.md:{line_of(found, 'import sys')}: cell second:"
    )
    assert "I001" in complaint


def test_a_name_of_an_earlier_cell_is_known(tmp_path: Path) -> None:
    cells = tiny.code("first", "import math"), tiny.code("second", "print(math.pi, undefined)")
    [complaint] = lint(chapter(tmp_path, *cells))
    assert "undefined" in complaint


def test_a_name_that_a_mojo_cell_makes_is_known(tmp_path: Path) -> None:
    program = tiny.code("mojo", "%%mojo_cpu --as sums\ndef main():\n    print(1)")
    cells = program, tiny.code("look", "print(sums, undefined)")
    [complaint] = lint(chapter(tmp_path, *cells))
    assert "`undefined`" in complaint


def test_a_cell_that_is_laid_out_otherwise_is_a_complaint(tmp_path: Path) -> None:
    [complaint] = lint(chapter(tmp_path, tiny.code("cramped", CRAMPED)))
    assert "cell cramped: `make format` would lay it out differently" in complaint


def test_a_cell_that_cannot_be_read_is_a_complaint(tmp_path: Path) -> None:
    [complaint] = lint(chapter(tmp_path, CLEAN, tiny.code("broken", "x = (")))
    assert "cell broken: invalid-syntax" in complaint


@pytest.mark.parametrize("code", [UNSORTED, CRAMPED])
def test_mending_changes_the_cell_and_nothing_else(code: str, tmp_path: Path) -> None:
    cells = [tiny.code("bad", code), tiny.md("prose", "Some  prose,\nkept."), CLEAN]
    before = chapter(tmp_path, *cells)
    after = mend(before)
    assert lint(after) == []
    assert after.cells[1].text != before.cells[1].text
    rest = [(c.id, c.text) for c in before.cells if c.id != "bad"]
    assert [(c.id, c.text) for c in after.cells if c.id != "bad"] == rest
    assert mend(after).source == after.source
