"""Brings a student's work into the notebook that was given out, cell by cell.

What is locked (text, given cells, checks) is the skeleton's; exercises and predictions are
the student's, found by cell id, with the skeleton's tags; cells that they added stay where
they put them. Comments that nbval would obey are made harmless.

A student who wrote an import or a helper into a given cell means no harm: such statements
follow in a cell of their own, and the change is flagged.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.authoring.predictions import question_of
from course_lib.exercises import registry
from course_lib.grading.model import Merged, Problem, SourceCell

NOT_MARKED = "What is in it counts all the same."
_NBVAL = re.compile(r"^(\s*#[#\s]*)(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)(\s*)$", re.MULTILINE)
_NBVAL_TAGS = re.compile(r"^(nbval-|raises-exception|pytest-validate)", re.IGNORECASE)
_FREE_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")
_KEPT_STATEMENTS = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


@dataclasses.dataclass(frozen=True)
class Work:
    """One student's chapter, ready to be marked and run.

    Attributes:
      merged: the code, for marking.
      notebook: the whole notebook, for the run: no outputs, the skeleton's metadata.
      outputs: what the student's file had below its code cells, by cell id.
    """

    merged: Merged
    notebook: NotebookNode
    outputs: Mapping[str, Sequence[Any]]


def merge(
    student: str,
    chapter: str,
    skeleton: NotebookNode,
    handed_in: NotebookNode,
    problems: Sequence[Problem] = (),
) -> Work:
    """A student's notebook in the skeleton.

    Args:
      student: what the reports call them.
      chapter: the chapter's name.
      skeleton: what was given out; it stays as it is.
      handed_in: what came back, as `validation.read` gives it.
      problems: what was found wrong with it so far.
    """
    work = _Merge(skeleton, handed_in)
    cells = work.cells()
    notebook = nbformat.from_dict(
        {"metadata": copy.deepcopy(skeleton.metadata), "nbformat": 4, "nbformat_minor": 5}
    )
    notebook.cells = cells
    merged = Merged(
        student=student,
        chapter=chapter,
        cells=tuple(_source_cell(c, work.own) for c in cells if c.cell_type == "code"),
        problems=(*problems, *work.problems),
        flags=tuple(work.flags),
    )
    return Work(merged, notebook, work.outputs)


def _source_cell(cell: NotebookNode, own: set[str]) -> SourceCell:
    return SourceCell(
        id=cell.id,
        source=cell.source,
        tags=tuple(cell.metadata.get("tags", ())),
        exercise=cell.metadata.get("exercise", ""),
        own=cell.id in own,
    )


class _Merge:
    """A merge on its way."""

    def __init__(self, skeleton: NotebookNode, handed_in: NotebookNode):
        self.skeleton = skeleton
        self.theirs = [copy.deepcopy(c) for c in handed_in.cells]
        self.problems: list[Problem] = []
        self.flags: list[str] = []
        self.own: set[str] = set()
        self.outputs: dict[str, Sequence[Any]] = {}

    def cells(self) -> list[NotebookNode]:
        """The merged cells: the skeleton's, in its order, each with the own cells behind it."""
        matched = _matched(self.skeleton, self.theirs)
        behind = self._own_cells(matched)
        merged = list(behind.get("", []))
        for cell in self.skeleton.cells:
            theirs = matched.get(cell.id)
            merged.append(self._merged(cell, theirs))
            if theirs is not None and theirs.cell_type == "code" and cell.cell_type == "code":
                self.outputs[cell.id] = theirs.get("outputs", [])
            merged += self._extras(cell, theirs)
            merged += behind.get(cell.id, [])
        return merged

    def _merged(self, cell: NotebookNode, theirs: NotebookNode | None) -> NotebookNode:
        merged = _fresh(cell)
        if not is_open(cell):
            self._compare_locked(cell, theirs)
            return merged
        if theirs is None:
            self._say("missing-cell", cell, f'The cell "{cell.id}"{_about(cell)} is missing.')
            return merged
        if theirs.cell_type != "code":
            kind = "text" if theirs.cell_type == "markdown" else theirs.cell_type
            sentence = f'The cell "{cell.id}"{_about(cell)} is a {kind} cell, not a code cell.'
            if not _parses(theirs.source):
                self._say("retyped-cell", cell, f"{sentence} It holds no Python.")
                return merged
            self._say("retyped-cell", cell, f"{sentence} {NOT_MARKED}")
        merged.source = self._defused(theirs)
        self._look_for_function(cell, theirs)
        return merged

    def _look_for_function(self, cell: NotebookNode, theirs: NotebookNode) -> None:
        function = _function_of(cell)
        if function and _parses(theirs.source) and not _defines(theirs.source, function):
            where = [c.id for c in self.theirs if c is not theirs and _defines(c.source, function)]
            found = f'it is in the cell "{where[-1]}". {NOT_MARKED}' if where else "no cell does."
            sentence = f'The cell "{cell.id}" does not define `{function}`: {found}'
            self._say("function-elsewhere" if where else "no-function", cell, sentence)

    def _compare_locked(self, cell: NotebookNode, theirs: NotebookNode | None) -> None:
        """Flags a changed cell, unless it is there to be changed, or text."""
        tags = cell.metadata.get("tags", ())
        if cell.cell_type != "code" or "break-it" in tags:
            return
        kind = "check" if "check" in tags else "given"
        if theirs is None:
            self.flags.append(f'removed {kind} cell "{cell.id}"')
        elif theirs.cell_type != "code":
            self.flags.append(f'{kind} cell "{cell.id}" turned into {theirs.cell_type}')
        elif _same(theirs.source) != _same(cell.source):
            self.flags.append(f'edited {kind} cell "{cell.id}"')
        if theirs is not None:
            self._defused(theirs)

    def _extras(self, cell: NotebookNode, theirs: NotebookNode | None) -> Iterator[NotebookNode]:
        """What a student added to a given cell, as a cell of their own."""
        locked = cell.cell_type == "code" and not is_open(cell)
        if not locked or theirs is None or theirs.cell_type != "code":
            return
        if "given" not in cell.metadata.get("tags", ()) or _same(theirs.source) == _same(
            cell.source
        ):
            return
        added = _added(cell.source, theirs.source)
        if added:
            extra = _code(self._free_id(f"added-{cell.id}"), _defuse(added)[0])
            self.own.add(extra.id)
            yield extra

    def _own_cells(self, matched: Mapping[str, NotebookNode]) -> dict[str, list[NotebookNode]]:
        """The cells that the student added, by the skeleton's cell above them ("" for none)."""
        place = {id(cell): cell_id for cell_id, cell in matched.items()}
        behind: dict[str, list[NotebookNode]] = {}
        above = ""
        for cell in self.theirs:
            if id(cell) in place:
                above = place[id(cell)]
            elif cell.source.strip() and not self._is_skeletons_text(cell):
                behind.setdefault(above, []).append(self._own_cell(cell))
        return behind

    def _is_skeletons_text(self, cell: NotebookNode) -> bool:
        """Whether it is a second copy of a cell that was given out."""
        return any(
            c.cell_type == cell.cell_type and _same(c.source) == _same(cell.source)
            for c in self.skeleton.cells
        )

    def _own_cell(self, cell: NotebookNode) -> NotebookNode:
        wanted = cell.id if _FREE_ID.match(cell.id) else f"own-{len(self.own) + 1}"
        own = _code(self._free_id(wanted), "")
        if cell.cell_type != "code":
            own = nbformat.from_dict({"cell_type": "markdown", "id": own.id, "metadata": {}})
            own.source = cell.source
        else:
            own.source = self._defused(cell)
            self.outputs[own.id] = cell.get("outputs", [])
        self.own.add(own.id)
        return own

    def _free_id(self, wanted: str) -> str:
        taken = {c.id for c in self.skeleton.cells} | self.own
        free, n = wanted[:64], 2
        while free in taken:
            free, n = f"{wanted[:58]}-{n}", n + 1
        return free

    def _defused(self, cell: NotebookNode) -> str:
        source, markers = _defuse(cell.source)
        tags = cell.metadata.get("tags")
        own_tags = [t for t in tags if isinstance(t, str)] if isinstance(tags, list) else []
        given = {
            t for c in self.skeleton.cells if c.id == cell.id for t in c.metadata.get("tags", ())
        }
        markers += [t for t in own_tags if _NBVAL_TAGS.match(t) and t not in given]
        for marker in dict.fromkeys(markers):
            flag = f'nbval marker {marker} in cell "{cell.id or "without an id"}"'
            if flag not in self.flags:
                self.flags.append(flag)
        return source

    def _say(self, kind: str, cell: NotebookNode, sentence: str) -> None:
        self.problems.append(Problem(kind, sentence, cell.id))


# --- which cell is which -------------------------------------------------------------------------


def is_open(cell: NotebookNode) -> bool:
    """Whether a cell is there for the student to write in."""
    return cell.cell_type == "code" and bool(
        {"exercise", "predict"} & set(cell.metadata.get("tags", ()))
    )


def _matched(skeleton: NotebookNode, theirs: Sequence[NotebookNode]) -> dict[str, NotebookNode]:
    """The student's cell for each id of the skeleton: by id, else by what it is."""
    matched: dict[str, NotebookNode] = {}
    for cell in skeleton.cells:
        if same := [c for c in theirs if c.id == cell.id]:
            matched[cell.id] = _best(cell, same)
    known = {c.id for c in skeleton.cells}
    free = [c for c in theirs if c.id not in known]
    for cell in skeleton.cells:
        if cell.id not in matched and (found := [c for c in free if _is_it(cell, c)]):
            matched[cell.id] = _best(cell, found)
            free.remove(matched[cell.id])
    return matched


def _best(cell: NotebookNode, candidates: Sequence[NotebookNode]) -> NotebookNode:
    """Of several cells for one place: code before text, edited before unedited, then the last."""
    function = _function_of(cell)

    def rank(numbered: tuple[int, NotebookNode]) -> tuple[bool, bool, bool, int]:
        n, c = numbered
        return (
            c.cell_type == cell.cell_type,
            not function or _defines(c.source, function),
            _same(c.source) != _same(cell.source),
            n,
        )

    return max(enumerate(candidates), key=rank)[1]


def _is_it(cell: NotebookNode, theirs: NotebookNode) -> bool:
    """Whether a cell without its id is the skeleton's `cell`."""
    if theirs.cell_type == cell.cell_type and _same(theirs.source) == _same(cell.source):
        return True
    if not is_open(cell):
        return False
    exercise, function = cell.metadata.get("exercise"), _function_of(cell)
    if exercise:
        marked = theirs.metadata.get("exercise") == exercise
        return marked or _defines(theirs.source, function)
    question = question_of(cell.source)
    return bool(question) and _question(theirs.source) == question


def _question(source: str) -> str:
    try:
        return question_of(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""


def _function_of(cell: NotebookNode) -> str:
    """The name of the function of a cell's exercise, "" where it has none."""
    exercise = cell.metadata.get("exercise")
    return registry.get(exercise).function if exercise else ""


def _about(cell: NotebookNode) -> str:
    exercise = cell.metadata.get("exercise")
    return f" of the exercise {exercise}" if exercise else ""


# --- text ----------------------------------------------------------------------------------------


def parsed(source: str) -> ast.Module | None:
    """A cell's syntax tree without its magics, None where it is no Python."""
    plain = "\n".join(
        "" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines()
    )
    try:
        return ast.parse(plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parses(source: str) -> bool:
    return parsed(source) is not None


def _defines(source: str, function: str) -> bool:
    """Whether a cell defines a name at its top level, by `def` or by assignment."""
    tree = parsed(source)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function:
            return True
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if any(isinstance(t, ast.Name) and t.id == function for t in targets):
            return True
    return False


def _added(given: str, theirs: str) -> str:
    """The definitions and imports of a changed cell that the given one does not have."""
    before, after = parsed(given), parsed(theirs)
    if before is None or after is None:
        return ""
    try:
        known = {ast.dump(node) for node in before.body}
        kept = [n for n in after.body if isinstance(n, _KEPT_STATEMENTS)]
        return "\n".join(ast.unparse(n) for n in kept if ast.dump(n) not in known)
    except RecursionError:  # nested deeper than anybody writes
        return ""


def _same(source: str) -> str:
    """A text as it is compared: no line ends of another system, no white space at line ends."""
    return "\n".join(
        line.rstrip() for line in source.replace("\r", "\n").split("\n") if line.strip()
    )


def _defuse(source: str) -> tuple[str, list[str]]:
    """A text in which no comment is one that nbval obeys, and those that were."""
    unified = source.replace("\r\n", "\n").replace("\r", "\n")
    markers = [m[2] for m in _NBVAL.finditer(unified)]
    return _NBVAL.sub(r"\1(\2)\3", unified), markers


def _fresh(cell: NotebookNode) -> NotebookNode:
    fresh = copy.deepcopy(cell)
    if fresh.cell_type == "code":
        fresh.outputs, fresh.execution_count = [], None
    return fresh


def _code(cell_id: str, source: str) -> NotebookNode:
    return nbformat.from_dict(
        {
            "cell_type": "code",
            "id": cell_id,
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
    )
