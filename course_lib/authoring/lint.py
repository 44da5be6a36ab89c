"""ruff over the code cells of the chapters' sources.

python -m course_lib.authoring.lint          what is wrong, by line of solutions/NN_title.md
python -m course_lib.authoring.lint --fix    lays the cells out, and mends what ruff can mend
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat

from course_lib.authoring.mojo_cells import names_made
from course_lib.authoring.source import Chapter, Course, read_chapter
from course_lib.diagnostics import CourseError

_RUFF = [sys.executable, "-m", "ruff"]
_UNREADABLE = ("invalid-syntax", None)  # what ruff calls code that has no layout


def main(arguments: Sequence[str] | None = None) -> int:
    """Lints all chapters; returns the exit status."""
    parser = argparse.ArgumentParser(description="ruff over the chapters' code cells.")
    parser.add_argument("--fix", action="store_true", help="mend the sources in place")
    options = parser.parse_args(arguments)
    try:
        chapters = [read_chapter(source, registry=None) for source in Course().sources()]
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1
    if options.fix:
        chapters = [mend(chapter) for chapter in chapters]
    complaints = [c for chapter in chapters for c in lint(chapter)]
    print("\n".join(complaints) or f"{len(chapters)} chapters: their code cells are clean.")
    return 1 if complaints else 0


def lint(chapter: Chapter) -> list[str]:
    """What ruff has to say about a chapter's code cells, a line for each complaint."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = _as_notebook(chapter, Path(folder))
        found = json.loads(_ruff("check", "--output-format=json", str(notebook)))
        made = names_made(chapter)
        complaints = [_translate(chapter, one) for one in found if not _is_made(one, made)]
        if not any(one["code"] in _UNREADABLE for one in found):
            _ruff("format", "--quiet", str(notebook))
            complaints += [
                f"solutions/{chapter.path.name}:{cell.line}: cell {cell.id}: `make format` would"
                " lay it out differently"
                for cell, text in zip(chapter.code, _code_of(notebook), strict=True)
                if text != cell.text
            ]
    return complaints


def mend(chapter: Chapter) -> Chapter:
    """Lays out and mends the code cells of a chapter's source; the chapter as it then is."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = _as_notebook(chapter, Path(folder))
        _ruff("check", "--fix", "--quiet", str(notebook))
        _ruff("format", "--quiet", str(notebook))
        texts = _code_of(notebook)
    lines = chapter.source.split("\n")
    for cell, text in reversed(list(zip(chapter.code, texts, strict=True))):
        start = cell.line - 1
        lines[start : start + len(cell.text.split("\n"))] = text.split("\n")
    new = "\n".join(lines)
    if new == chapter.source:
        return chapter
    chapter.path.write_text(new, encoding="utf-8")
    print(f"solutions/{chapter.path.name}: mended")
    return read_chapter(chapter.path, registry=None)


def _as_notebook(chapter: Chapter, folder: Path) -> Path:
    nb = nbformat.v4.new_notebook()
    nb.cells = [nbformat.v4.new_code_cell(cell.text) for cell in chapter.code]
    path = folder / f"{chapter.name}.ipynb"
    nbformat.write(nb, path)
    return path


def _code_of(notebook: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(notebook, as_version=4).cells]


def _ruff(command: str, *arguments: str) -> str:
    """ruff with the course's settings; what it printed (its exit status says less than that)."""
    config = ["--config", str(Course().root / "pyproject.toml"), "--no-cache"]
    ran = subprocess.run(
        [*_RUFF, command, *config, *arguments], capture_output=True, text=True, check=False
    )
    if ran.returncode not in (0, 1):
        raise CourseError(ran.stderr.strip())
    return ran.stdout


def _is_made(one: dict[str, Any], made: frozenset[str]) -> bool:
    """Whether ruff misses a name that a Mojo cell makes, which it cannot see."""
    return one["code"] == "F821" and any(f"`{name}`" in one["message"] for name in made)


def _translate(chapter: Chapter, one: dict[str, Any]) -> str:
    cell = chapter.code[one["cell"] - 1]
    line = cell.line + one["location"]["row"] - 1
    return f"solutions/{chapter.path.name}:{line}: cell {cell.id}: {one['code']} {one['message']}"


if __name__ == "__main__":
    sys.exit(main())
