"""Reads a notebook that came from anybody, and says in sentences what is wrong with it.

What can be read is read: a student with one broken cell keeps the marks of all others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.grading.archives import MAX_NOTEBOOK_BYTES
from course_lib.grading.model import Problem

_MAX_CELLS = 1_000  # the longest chapter has 160
_MAX_CELL = 100_000  # characters
_MAX_CODE = 1_000_000  # characters of all code cells together
_MAX_OLD_BYTES = 2 << 20  # of formats that have to be converted first
_MOST_SAID = 20
_OUTPUTS, _TEXT, _TAGS, _TAG = 50, 20_000, 50, 100  # what is kept of a cell for flags
_KINDS = ("code", "markdown", "raw")


def read(data: bytes) -> tuple[NotebookNode | None, tuple[Problem, ...]]:
    """The notebook in a file's bytes as far as there is one, and what is wrong with it.

    Cells of the notebook that comes back have `cell_type`, `source`, `metadata` and, where
    they are code, `outputs`, all of the right kind; `id` is "" where there is none.
    """
    if len(data) > MAX_NOTEBOOK_BYTES:
        return None, (too_large(len(data)),)
    text, problem = _text(data)
    if problem is not None:
        return None, (problem,)
    content, problem = _json(text)
    if problem is not None:
        return None, (problem,)
    cells, problem = _cells(content, len(data))
    if problem is not None:
        return None, (problem,)
    problems: list[Problem] = []
    kept = [c for n, cell in enumerate(cells, 1) if (c := _cell(n, cell, problems)) is not None]
    size = sum(len(c["source"]) for c in kept if c["cell_type"] == "code")
    if size > _MAX_CODE:
        sentence = f"The notebook has {size:,} characters of code; up to {_MAX_CODE:,} are read."
        return None, (Problem("too-much-code", sentence),)
    problems += _id_problems(kept)
    if (left := len(problems) - _MOST_SAID) > 0:
        problems[_MOST_SAID:] = [Problem("and-more", f"And {left} more like these.")]
    return nbformat.from_dict({**_EMPTY, "cells": kept}), tuple(problems)


_EMPTY: Mapping[str, Any] = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def too_large(size: int) -> Problem:
    """What is said of a file that is not read for its size, in bytes."""
    return Problem(
        "too-large",
        f"The notebook has {size / 1e6:.0f} MB; up to {MAX_NOTEBOOK_BYTES >> 20} MB are read. "
        "Clear the outputs and hand it in again.",
    )


def _text(data: bytes) -> tuple[str, Problem | None]:
    for encoding in (
        ("utf-8-sig", "utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",)
    ):
        try:
            return data.decode(encoding), None
        except UnicodeDecodeError:
            continue
    if data[:4] == b"PK\x03\x04":
        return "", Problem("not-json", "The file is a zip file with the name of a notebook.")
    return "", Problem("not-text", "The file is not a notebook: it is not text.")


def _json(text: str) -> tuple[Any, Problem | None]:
    if not text.strip():
        return None, Problem("empty", "The file is empty.")
    try:
        return json.loads(text, parse_constant=lambda _: None), None
    except RecursionError:
        return None, Problem("not-json", "The file is not a notebook: it is nested too deeply.")
    except ValueError as error:
        cut = " It looks cut off." if "Expecting" in str(error) and _at_end(text, error) else ""
        return None, Problem(
            "not-json", f"The file is not a notebook: it is not JSON ({error}).{cut}"
        )


def _at_end(text: str, error: ValueError) -> bool:
    return isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip()) - 1


def _cells(content: Any, size: int) -> tuple[list[Any], Problem | None]:
    if not isinstance(content, dict) or not isinstance(content.get("nbformat"), int):
        return [], Problem("not-a-notebook", "The file is JSON, but not a notebook.")
    version = content["nbformat"]
    cells = content.get("cells")
    if version < 4:
        if size > _MAX_OLD_BYTES:
            sentence = f"It is a notebook of format {version} with {size / 1e6:.0f} MB. Up to "
            sentence += f"{_MAX_OLD_BYTES >> 20} MB are read of that format: save it anew."
            return [], Problem("nbformat", sentence)
        cells = _upgraded(content)
    elif version > 4:
        return [], Problem("nbformat", f"It is a notebook of format {version}; format 4 is read.")
    if not isinstance(cells, list):
        return [], Problem("not-a-notebook", "The notebook has no list of cells.")
    if len(cells) > _MAX_CELLS:
        sentence = f"The notebook has {len(cells)} cells; up to {_MAX_CELLS} are read."
        return [], Problem("too-many-cells", sentence)
    return cells, None


def _upgraded(content: dict[str, Any]) -> Any:
    """The cells of a notebook of format 3 or older, None where it cannot be read."""
    try:
        return nbformat.convert(nbformat.from_dict(content), 4).cells
    except Exception:  # of any type: it is somebody's file
        return None


def _cell(number: int, cell: Any, problems: list[Problem]) -> dict[str, Any] | None:
    if not isinstance(cell, dict) or cell.get("cell_type") not in _KINDS:
        problems.append(Problem("no-cell", f"Cell {number} of the file is none; it was left out."))
        return None
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        problems.append(
            Problem("no-source", f"Cell {number} of the file has no text; it was taken as empty.")
        )
        source = ""
    code = cell["cell_type"] == "code"
    if code and len(source) > _MAX_CELL:
        sentence = (
            f"Cell {number} of the file has {len(source):,} characters; up to {_MAX_CELL:,} are "
            "read. It was taken as empty."
        )
        problems.append(Problem("long-cell", sentence))
        source = ""
    clean: dict[str, Any] = {
        "cell_type": cell["cell_type"],
        "id": _id_of(cell),
        "metadata": _metadata(cell.get("metadata")),
        "source": _printable(source[:_MAX_CELL]),  # of text, which may hold pictures, the beginning
    }
    if code:
        clean["outputs"] = _outputs(cell.get("outputs"))
        count = cell.get("execution_count")
        clean["execution_count"] = count if isinstance(count, int) else None
    return clean


def _metadata(metadata: Any) -> dict[str, Any]:
    """What anybody looks at of a cell's metadata: its tags and its exercise."""
    clean: dict[str, Any] = {}
    if isinstance(metadata, dict):
        tags, exercise = metadata.get("tags"), metadata.get("exercise")
        if isinstance(tags, list):
            short = (_printable(t[:_TAG]) for t in tags[:_TAGS] if isinstance(t, str))
            clean["tags"] = [t for t in short if t.isprintable()]
        if isinstance(exercise, str):
            clean["exercise"] = _printable(exercise[:_TAG])
    return clean


def _outputs(outputs: Any) -> list[dict[str, Any]]:
    """The beginnings of the texts that stand below a cell; pictures are not kept."""
    kept = []
    for output in outputs[:_OUTPUTS] if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        text = output.get("text")
        if text is None and isinstance(data, dict):
            text = data.get("text/plain")
        if isinstance(text, list):
            text = "".join(t for t in text[:_TEXT] if isinstance(t, str))
        if isinstance(text, str):
            stream = {"output_type": "stream", "name": "stdout"}
            kept.append({**stream, "text": _printable(text[:_TEXT])})
    return kept


def _id_of(cell: dict[str, Any]) -> str:
    """A cell's id; some programs move it into the metadata."""
    for place in (cell, cell.get("metadata")):
        found = place.get("id") if isinstance(place, dict) else None
        if isinstance(found, str) and 0 < len(found) <= 64 and found.isprintable():
            return found
    return ""


def _printable(source: str) -> str:
    """Text that can be written again: no halves of surrogate pairs, no NUL."""
    return source.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _id_problems(cells: list[dict[str, Any]]) -> list[Problem]:
    counts = Counter(c["id"] for c in cells if c["id"])
    return [
        Problem("duplicate-id", f'{n} cells have the id "{cell_id}".', cell_id)
        for cell_id, n in counts.items()
        if n > 1
    ]
