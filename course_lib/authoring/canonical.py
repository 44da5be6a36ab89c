"""The one form in which a notebook is stored: the same run always gives the same bytes.

Sorted keys, no cell metadata but ours, execution counts 1, 2, 3 ... down the
notebook (nbval does not compare a cell without one), adjacent pieces of one
stream joined, no widget views and no widget state (a stored widget would hide
the picture that is stored beside it), no version of anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.authoring.source import Cell

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def notebook(cells: Iterable[Cell], course: Mapping[str, Any]) -> NotebookNode:
    """A notebook of `cells` without outputs; `course` is its `metadata.course`."""
    return nbformat.from_dict(
        {
            "cells": [_cell(c) for c in cells],
            "metadata": {
                "course": dict(course),
                "kernelspec": dict(KERNELSPEC),
                "language_info": dict(LANGUAGE_INFO),
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def _cell(cell: Cell) -> dict[str, Any]:
    metadata: dict[str, Any] = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.exercise:
        metadata["exercise"] = cell.exercise
    node = {"cell_type": cell.kind, "id": cell.id, "metadata": metadata, "source": cell.text}
    return {**node, "execution_count": None, "outputs": []} if cell.kind == "code" else node


def with_outputs(nb: NotebookNode, outputs: Mapping[str, Sequence[Any]]) -> NotebookNode:
    """A copy of `nb` with `outputs` by cell id, cleaned and counted."""
    copy = nbformat.from_dict(nb)
    code = [c for c in copy.cells if c.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count = count
        cell.outputs = [_count(o, count) for o in clean_outputs(outputs.get(cell.id, ()))]
    copy.metadata.course["outputs"] = outputs_digest(copy)
    return copy


def _count(output: NotebookNode, count: int) -> NotebookNode:
    if output.output_type == "execute_result":
        output.execution_count = count
    return output


def clean_outputs(outputs: Iterable[Any]) -> list[NotebookNode]:
    """Outputs without widget views, adjacent pieces of one stream joined."""
    cleaned: list[NotebookNode] = []
    for output in map(nbformat.from_dict, outputs):
        last = cleaned[-1] if cleaned else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last.text += output.text
            continue
        if "data" in output:
            output.data.pop(WIDGET_VIEW, None)
        output.pop("transient", None)
        cleaned.append(output)
    return cleaned


def outputs_digest(nb: NotebookNode) -> str:
    """The SHA-256 of every output and where it stands."""
    parts = [[c.id, c.execution_count, c.outputs] for c in nb.cells if c.cell_type == "code"]
    return digest_of(json.dumps(parts, sort_keys=True))


def digest_of(*parts: str | bytes) -> str:
    """The SHA-256, in hexadecimal, of some texts one after the other."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def to_text(nb: NotebookNode) -> str:
    """The notebook as it is stored."""
    text = nbformat.writes(nb, version=nbformat.NO_CONVERT, indent=1, sort_keys=True)
    return text.rstrip("\n") + "\n"
