"""Where in the learner's own code something happened.

A notebook cell is compiled under the name of a temporary file that differs at
every run (ipykernel). Whoever runs cells tells this module which file is which
cell (`register_cell`); a `Location` then reads "cell <id>, line n", the same
at every run. Everything else reads "file.py:n".
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from collections.abc import Iterable
from types import TracebackType
from typing import Any

# compiled file name -> what the reader calls that cell
_cells: dict[str, str] = {}

# Frames of these folders are never the learner's own code.
_ENVIRONMENT = tuple(
    os.path.realpath(p) + os.sep
    for p in {sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__))}
)


@dataclasses.dataclass(frozen=True)
class Location:
    """A line of source code.

    Attributes:
      file: the path of the file, or of the temporary file of a notebook cell.
      line: the line, counted from 1 (from the first line of the cell in a notebook).
      function: the function's name, "" where there is none.
      cell: the notebook cell's name, "" where the line is not in a notebook.
      within: where the line calls a kernel of the course, the line of that ("file.py:12").
    """

    file: str
    line: int
    function: str = ""
    cell: str = ""
    within: str = ""

    def __str__(self) -> str:
        here = f"cell {self.cell}, line {self.line}" if self.cell else self.short
        return f"{here}, in {self.within}" if self.within else here

    @property
    def short(self) -> str:
        """The line as "file.py:12"."""
        return f"{os.path.basename(self.file)}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: the parts, and the text a reader sees."""
        return {"file": self.file, "line": self.line, "cell": self.cell, "text": str(self)}


def register_cell(file: str, name: str) -> None:
    """Tells that `file`, a compiled cell's temporary name, is the cell called `name`."""
    _cells[file] = name


def registered_cells() -> dict[str, str]:
    """The registered cells by file name, a copy: another process needs them to name places."""
    return dict(_cells)


def locate(file: str, line: int, function: str = "") -> Location:
    """The `Location` of a line, by its cell's name if `file` is a notebook cell."""
    return Location(file, line, function, _cells.get(file, ""))


def is_own_code(file: str) -> bool:
    """Whether `file` is the reader's code: not Python's, not a package's, not the course's."""
    if file in _cells:
        return True
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    return not real.startswith(_ENVIRONMENT) and "site-packages" not in real


def is_course_kernel(file: str) -> bool:
    """Whether `file` is one of the course's kernels: not the reader's, but meant to be read."""
    return "course_lib/kernels/" in file.replace(os.sep, "/") and not is_own_code(file)


def own_frame(error: BaseException | TracebackType | None) -> Location | None:
    """The innermost line of the reader's own code in an exception or traceback, or None."""
    tb = error.__traceback__ if isinstance(error, BaseException) else error
    return innermost_own((f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(tb))


def innermost_own(frames: Iterable[tuple[str, int, str]]) -> Location | None:
    """The last of `(file, line, function)` frames, outermost first, that is own code, or None."""
    own = [f for f in frames if is_own_code(f[0])]
    return locate(*own[-1]) if own else None
