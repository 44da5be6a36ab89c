"""The Python text that a kernel was compiled from, as far as this process can read it."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import os
from collections.abc import Iterable

from course_lib.diagnostics import Location


@dataclasses.dataclass(frozen=True)
class Excerpt:
    """A stretch of one file.

    Attributes:
      title: what the reader calls the file ("cell matmul", "matmul_hopper.py").
      file: the file's name.
      first: the number of the first line.
      lines: the lines, without their ends.
    """

    title: str
    file: str
    first: int
    lines: tuple[str, ...]


def title(place: Location) -> str:
    """What the reader calls a place's file."""
    return f"cell {place.cell}" if place.cell else os.path.basename(place.file)


def excerpts(places: Iterable[Location]) -> list[Excerpt]:
    """The code around some places, one excerpt for each file, in order of appearance.

    A file that cannot be read gives an excerpt of empty lines, so that every place is in one.
    """
    files: dict[str, list[Location]] = {}
    for place in places:
        files.setdefault(place.file, []).append(place)
    return [_excerpt(found) for found in files.values()]


def _excerpt(places: list[Location]) -> Excerpt:
    file = places[0].file
    numbers = [p.line for p in places]
    text = linecache.getlines(file)
    first, last = _around("".join(text), min(numbers), max(numbers))
    lines = [text[n - 1].rstrip("\n") if n <= len(text) else "" for n in range(first, last + 1)]
    return Excerpt(title(places[0]), file, first, tuple(lines))


def _around(text: str, first: int, last: int) -> tuple[int, int]:
    """Widens a range of lines: up to the head of its first function, down to where the code ends.

    The code ends with the outermost function, as a kernel's launch stands below its body.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell may hold magics
        return first, last
    starts, ends = [], []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.end_lineno:
            decorators = getattr(node, "decorator_list", [])
            start = min([node.lineno, *(d.lineno for d in decorators)])
            if start <= first <= node.end_lineno:
                starts.append(start)
            if start <= last <= node.end_lineno:
                ends.append(node.end_lineno)
    return max(starts, default=first), max(ends, default=last)
