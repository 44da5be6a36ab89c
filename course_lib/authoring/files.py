"""Reading and writing notebook files: whole or not at all, and never over somebody's work."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4.rwbase import rejoin_lines


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file, exactly as it stands there: nothing is added or repaired.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not a notebook of format 4; says why.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    if not isinstance(data, dict) or data.get("nbformat") != 4:
        raise ValueError("it is not a notebook of format 4")
    cells, metadata = data.get("cells"), data.setdefault("metadata", {})
    if not isinstance(cells, list) or not isinstance(metadata, dict):
        raise ValueError("it has no list of cells")
    if not all(_is_cell(cell) for cell in cells):
        raise ValueError("one of its cells is none")
    return rejoin_lines(nbformat.from_dict(data))


def _is_cell(cell: object) -> bool:
    return (
        isinstance(cell, dict)
        and cell.get("cell_type") in ("code", "markdown", "raw")
        and isinstance(cell.get("source"), str | list)
        and isinstance(cell.setdefault("metadata", {}), dict)
        and isinstance(cell.get("outputs", []), list)
        and isinstance(cell.get("id", ""), str)
    )


def write_whole(path: Path, text: str) -> None:
    """Writes a file such that whoever reads it meets the old text or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def keep_copy(path: Path, folder: Path, word: str) -> Path:
    """Copies a file to `folder` under a name that was free: "<stem>.<word>-<n><suffix>"."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        copy = folder / f"{path.stem}.{word}-{number}{path.suffix}"
        try:
            with copy.open("xb") as file:
                file.write(path.read_bytes())
        except FileExistsError:
            continue
        return copy
    raise AssertionError("there is always a free number")
