"""Solution regions: the lines of an exercise cell that the learner does not get to see.

    def double(x):
        ### BEGIN SOLUTION
        return 2 * x
        ### END SOLUTION

In the learner's notebook the marker lines and everything between them become a
comment that tells how long the answer is, and a `raise` that only a call reaches;
in a Mojo program, an assertion that the cell's magic looks for before it compiles.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from course_lib.mojo.answers import MAGIC as MOJO
from course_lib.mojo.answers import NOT_DONE as MOJO_NOT_DONE

BEGIN = "### BEGIN SOLUTION"
END = "### END SOLUTION"
NOT_DONE = 'raise NotImplementedError("not done yet")'

_MARKER = re.compile(r"^\s*#+\s*(begin|end)\b.*\bsolution\b.*$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Region:
    """Lines `begin` to `end` of a cell (from 1, the marker lines included) at `indent` spaces.

    `not_done` is what stands in their place, in the cell's language.
    """

    begin: int
    end: int
    indent: str
    lines: int
    not_done: str = NOT_DONE

    @property
    def stub(self) -> list[str]:
        """The lines that stand in the region's place in the learner's notebook."""
        plural = "line" if self.lines == 1 else "lines"
        comment = f"# Your code here (about {self.lines} {plural})."
        return [self.indent + comment, self.indent + self.not_done]


class RegionError(ValueError):
    """The markers of a cell are not right.

    Attributes:
      line: the line of the cell, from 1.
    """

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


def regions(text: str) -> list[Region]:
    """The solution regions of a cell, top to bottom.

    Raises:
      RegionError: the markers are misspelt, nested, or do not come in pairs.
    """
    found: list[Region] = []
    lines = text.splitlines()
    begin = 0
    for number, line in _markers(lines):
        if line.strip() == BEGIN and begin:
            raise RegionError(
                number,
                f'"{BEGIN}" inside the region of line {begin}: close that with "{END}" first',
            )
        if line.strip() == BEGIN:
            begin = number
        elif not begin:
            raise RegionError(number, f'"{END}" without a "{BEGIN}" above it')
        else:
            found.append(_region(lines, begin, number))
            begin = 0
    if begin:
        raise RegionError(begin, f'"{BEGIN}" without an "{END}" below it')
    return found


def _markers(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if not _MARKER.match(line):
            continue
        if line.strip() not in (BEGIN, END):
            raise RegionError(number, f'"{line.strip()}" should read "{BEGIN}" or "{END}"')
        yield number, line


def _region(lines: list[str], begin: int, end: int) -> Region:
    inside = [s for s in (line.strip() for line in lines[begin : end - 1]) if s]
    code = [s for s in inside if not s.startswith("#")]
    if not code:
        raise RegionError(begin, "the solution region holds no code")
    marker = lines[begin - 1]
    indent = marker[: len(marker) - len(marker.lstrip())]
    not_done = MOJO_NOT_DONE if is_mojo("\n".join(lines)) else NOT_DONE
    return Region(begin, end, indent, len(code), not_done)


def is_mojo(text: str) -> bool:
    """Whether a cell holds a Mojo program for a GPU."""
    return text.startswith(MOJO)


def learners_text(text: str) -> str:
    """The cell as the learner gets it: every solution region replaced by its stub."""
    lines = text.splitlines()
    for region in reversed(regions(text)):
        lines[region.begin - 1 : region.end] = region.stub
    return "\n".join(lines)


def check_stubs_wait(text: str) -> None:
    """Checks that the stubs of a cell raise when called, and not when the cell runs.

    Raises:
      RegionError: a region is not inside a function, or what is left is not Python.
    """
    found = regions(text)
    if not found or is_mojo(text):  # a Mojo program with a gap is not compiled
        return
    stubbed = learners_text(text)
    try:
        tree = ast.parse(stubbed)
    except SyntaxError as error:
        raise RegionError(
            found[0].begin,
            f"without its solution the cell is not Python any more ({error.msg}): leave the "
            "`def` lines outside the region and indent the markers like the code between them",
        ) from None
    waiting = {line for f in _functions(tree) for line in _raises(f)}
    shift = 0
    for region in found:
        if region.begin + shift + 1 not in waiting:
            raise RegionError(
                region.begin,
                "the solution region is not inside a function: an unsolved notebook would stop "
                "here, so put the markers into a function's body",
            )
        shift += len(region.stub) - (region.end - region.begin + 1)


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _raises(function: ast.AST) -> Iterator[int]:
    for node in ast.walk(function):
        if isinstance(node, ast.Raise):
            yield node.lineno
