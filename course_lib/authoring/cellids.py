"""Which cell a piece of code is: the text of every code cell of the course, by its SHA-256.

A kernel knows the text of the cell that it runs, not always its id (nbclient and
nbval do not send it). The notebook's side asks here, so this imports little, reads
each file once, and is silent about files that cannot be read.

While a chapter is being built its notebooks are not there yet: the build names a
JSON file with its cells in the variable COURSE_CHAPTER_IDS.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

CHAPTER_IDS = "COURSE_CHAPTER_IDS"
_ROOT = Path(__file__).resolve().parents[2]
_CODE_CELL = re.compile(
    r"^(?P<fence>`{3,})\{code-cell\}[^\n]*\n(?P<body>.*?)^(?P=fence)`*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_OPTION = re.compile(r"^:(\w+):\s*(.*?)\s*$")


def source_sha(text: str) -> str:
    """The name by which a cell's text is known: its SHA-256 without white space at its ends."""
    return hashlib.sha256(text.strip().encode()).hexdigest()


def cell_ids_by_source(root: Path | None = None) -> dict[str, str]:
    """The id of every code cell of the course by `source_sha` of its text.

    Solutions, learner's notebooks and sources all count; the chapter that is being
    built goes before them. Where two chapters have one text, the first has the id.
    """
    return {**_stored(root or _ROOT), **_being_built(os.environ.get(CHAPTER_IDS, ""))}


@functools.lru_cache(maxsize=8)
def _stored(root: Path) -> dict[str, str]:
    ids: dict[str, str] = {}
    for folder, suffix in (("solutions", "md"), ("solutions", "ipynb"), ("notebooks", "ipynb")):
        for file in sorted((root / folder).glob(f"*.{suffix}")):
            try:
                text = file.read_text(encoding="utf-8")
                cells = list(_source_cells(text) if suffix == "md" else _notebook_cells(text))
            except (OSError, ValueError, AttributeError, TypeError, KeyError):
                continue
            for cell_id, source in cells:
                ids.setdefault(source_sha(source), cell_id)
    return ids


@functools.lru_cache(maxsize=8)
def _being_built(file: str) -> dict[str, str]:
    if not file:
        return {}
    try:
        ids = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in ids.items()} if isinstance(ids, dict) else {}


def _notebook_cells(text: str) -> Iterator[tuple[str, str]]:
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code" and cell.get("id"):
            yield cell["id"], "".join(cell["source"])


def _source_cells(text: str) -> Iterator[tuple[str, str]]:
    for match in _CODE_CELL.finditer(text):
        lines = match["body"].splitlines()
        options = {}
        while lines and (option := _OPTION.match(lines[0])):
            options[option[1]] = option[2].strip("\"'")
            lines.pop(0)
        if "id" in options:
            yield options["id"], "\n".join(lines)
