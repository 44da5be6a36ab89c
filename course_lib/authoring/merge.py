"""Brings a newer version of a chapter into a learner's copy, and loses nothing of theirs.

Three versions of every cell are compared, by cell id: `base`, as the learner was
given it, `mine`, as they have it now, and `new`, as the course has it now.

    the learner              the course             then
    left it as it was        changed it             the new text
    changed it               left it as it was      the learner's text
    changed it               changed it             the learner's text, and below it a Markdown
                                                    cell that shows the course's newer one
    left it as it was        removed it             it goes
    changed it               removed it             the learner's text stays, a cell of their own
    removed it               left it as it was      stays removed, unless an exercise or its check
    removed it               changed it             it comes back
    added a cell             -                      it stays where it is

The note is Markdown and never code: Run All must not let the course's stub take the
place of the learner's function. A learner who deletes the note is not shown it again,
and it goes by itself when the cell has the course's text or the course has moved on.
"""

from __future__ import annotations

import copy
import dataclasses
import uuid
from collections.abc import Iterator, Sequence

import nbformat
from nbformat import NotebookNode

from course_lib.authoring.canonical import digest_of
from course_lib.authoring.predictions import question_of

NOTE = "newer"  # metadata.course.newer of a note: the id of the cell that it belongs to


@dataclasses.dataclass(frozen=True)
class Merged:
    """What came of a merge.

    Attributes:
      notebook: the learner's new copy.
      sentences: what the learner should know, if anything.
      changed: whether the copy is another than it was.
    """

    notebook: NotebookNode
    sentences: tuple[str, ...]
    changed: bool


def merge(mine: NotebookNode, new: NotebookNode, base: NotebookNode | None) -> Merged:
    """Merges `new` into `mine`; none of the three is changed.

    Without a `base` nobody knows who made a difference: it counts as the learner's.
    """
    cells = _with_ids(mine, new, base)
    work = _Work(cells, _by_id(new), _by_id(base) if base is not None else {}, base is not None)
    work.update_cells()
    work.add_cells()
    work.order_cells(_ids(base) if base is not None else [])
    merged = copy.deepcopy(mine)
    merged.cells = work.cells
    merged.nbformat, merged.nbformat_minor = 4, 5
    merged.metadata["course"] = copy.deepcopy(new.metadata.get("course", {}))
    return Merged(merged, tuple(work.sentences), merged != mine)


def _ids(nb: NotebookNode) -> list[str]:
    return [c.id for c in nb.cells]


def _by_id(nb: NotebookNode) -> dict[str, NotebookNode]:
    return {c.id: c for c in nb.cells}


def _with_ids(
    mine: NotebookNode, new: NotebookNode, base: NotebookNode | None
) -> list[NotebookNode]:
    """The learner's cells, each with an id of its own.

    Some programs drop the ids, or move them into the metadata; a copied cell may have
    its original's. The first cell with an id keeps it, an edited one before an unedited.
    """
    cells = copy.deepcopy(mine.cells)
    for cell in cells:
        cell["id"] = cell.get("id") or cell.get("metadata", {}).get("id") or ""
    _find_ids(cells, new, base)
    taken: dict[str, NotebookNode] = {}
    known = _by_id(base if base is not None else new)
    for cell in cells:
        other = taken.get(cell.id)
        if not cell.id:
            cell["id"] = _fresh_id()
        elif other is not None and _is_original(other, known) and not _is_original(cell, known):
            other["id"] = _fresh_id()
        elif other is not None:
            cell["id"] = _fresh_id()
        taken[cell.id] = cell
    return cells


def _find_ids(cells: Sequence[NotebookNode], new: NotebookNode, base: NotebookNode | None) -> None:
    """Gives cells with an unknown id that of the course's cell with their question or text."""
    versions = [v for v in (base, new) if v is not None]
    known = {cell.id for v in versions for cell in v.cells}
    taken = {c.id for c in cells}
    unknown = [c for c in cells if c.id not in known and not _is_note(c)]
    for wanted in (cell for v in versions for cell in v.cells):
        same = [c for c in unknown if c.id not in known and _same_cell(c, wanted)]
        if same and wanted.id not in taken:
            same[0]["id"] = wanted.id
            taken.add(wanted.id)


def _same_cell(cell: NotebookNode, wanted: NotebookNode) -> bool:
    exercise = wanted.metadata.get("exercise")
    if exercise and cell.get("metadata", {}).get("exercise") == exercise:
        return True
    question = question_of(wanted.source) if wanted.cell_type == "code" else ""
    if question and cell.cell_type == "code" and question_of(cell.source) == question:
        return True
    return _text(cell) == _text(wanted)


def _is_original(cell: NotebookNode, known: dict[str, NotebookNode]) -> bool:
    return cell.id in known and _text(cell) == _text(known[cell.id])


def _fresh_id() -> str:
    return f"own-{uuid.uuid4().hex[:12]}"


def _text(cell: NotebookNode) -> tuple[str, str]:
    """What makes a cell the same or another one: its kind and its text."""
    return cell.cell_type, cell.source.rstrip()


@dataclasses.dataclass
class _Work:
    """A merge on its way: `cells` is the learner's list, which becomes the merged one."""

    cells: list[NotebookNode]
    new: dict[str, NotebookNode]
    base: dict[str, NotebookNode]
    has_base: bool
    sentences: list[str] = dataclasses.field(default_factory=list)

    def update_cells(self) -> None:
        """Decides about every cell that the learner has."""
        merged: list[NotebookNode] = []
        for cell in self.cells:
            merged += self._decide(cell)
        self.cells = merged

    def _decide(self, cell: NotebookNode) -> list[NotebookNode]:
        if _is_note(cell):
            return [cell] if self._is_due(cell) else []
        new, base = self.new.get(cell.id), self.base.get(cell.id)
        edited = base is None or _text(cell) != _text(base)
        if new is None:
            if base is not None and edited:
                self._say(f'cell "{cell.id}" is not in the course any more; yours was kept')
            return [cell] if edited else []
        if _text(cell) == _text(new):
            return [self._relabelled(cell, new)]
        if not edited:
            return [_issued(new)]
        if base is not None and _text(base) == _text(new):
            return [self._relabelled(cell, new)]
        self._say(f'cell "{cell.id}": yours was kept, the course\'s newer one is shown below it')
        return [self._relabelled(cell, new), *self._note(cell, new)]

    def _relabelled(self, cell: NotebookNode, new: NotebookNode) -> NotebookNode:
        """The learner's cell with the course's tags and exercise, whatever else it carries."""
        base = self.base.get(cell.id)
        for key in ("tags", "exercise"):
            if key in new.metadata:
                cell.metadata[key] = copy.deepcopy(new.metadata[key])
            elif base is not None and key in base.metadata:
                cell.metadata.pop(key, None)
        return cell

    def _is_due(self, note: NotebookNode) -> bool:
        """Whether a note stays: the learner wrote into it, or it still shows what is new."""
        marks = note.metadata.course
        if marks.get("digest") != digest_of(note.source):
            return True
        new = self.new.get(marks[NOTE])
        mine = [c for c in self.cells if c.id == marks[NOTE]]
        return (
            new is not None
            and note.id == _note(new.id, new).id
            and any(_text(c) != _text(new) for c in mine)
        )

    def _note(self, cell: NotebookNode, new: NotebookNode) -> Iterator[NotebookNode]:
        note = _note(cell.id, new)
        if all(c.id != note.id for c in self.cells):
            yield note

    def add_cells(self) -> None:
        """Puts in the course's cells that the learner's copy lacks."""
        for cell_id, new in self.new.items():
            if cell_id in _ids_of(self.cells) or self._stays_removed(cell_id, new):
                continue
            self.cells.insert(self._place(cell_id), _issued(new))
            if cell_id in self.base:
                self._say(f'cell "{cell_id}" had been removed and is back')

    def _stays_removed(self, cell_id: str, new: NotebookNode) -> bool:
        base = self.base.get(cell_id)
        needed = {"exercise", "check"} & set(new.metadata.get("tags", ()))
        return base is not None and _text(base) == _text(new) and not needed

    def _place(self, cell_id: str) -> int:
        """Behind the nearest cell above that is there, and behind what the learner put below it."""
        present = _ids_of(self.cells)
        order = list(self.new)
        above = [i for i in order[: order.index(cell_id)] if i in present]
        if not above:
            return 0
        at = present.index(above[-1]) + 1
        while at < len(self.cells) and self._is_own(self.cells[at]):
            at += 1
        return at

    def _is_own(self, cell: NotebookNode) -> bool:
        return cell.id not in self.new and cell.id not in self.base

    def order_cells(self, before: Sequence[str]) -> None:
        """Follows the course if it has put its cells into another order; own cells go along."""
        common = set(before) & set(self.new)
        if [i for i in before if i in common] == [i for i in self.new if i in common]:
            return
        chunks: list[list[NotebookNode]] = [[]]
        for cell in self.cells:
            if cell.id in self.new:
                chunks.append([])
            chunks[-1].append(cell)
        order = {cell_id: n for n, cell_id in enumerate(self.new)}
        first, *rest = chunks
        rest.sort(key=lambda chunk: order[chunk[0].id])
        self.cells = [*first, *(cell for chunk in rest for cell in chunk)]

    def _say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def _ids_of(cells: Sequence[NotebookNode]) -> list[str]:
    return [c.id for c in cells]


def _issued(cell: NotebookNode) -> NotebookNode:
    """A cell as the learner gets it: not run yet, "predict, then run" is to be a surprise."""
    issued = copy.deepcopy(cell)
    if issued.cell_type == "code":
        issued.outputs, issued.execution_count = [], None
    return issued


def issued(nb: NotebookNode) -> NotebookNode:
    """A notebook as the learner gets it: none of its cells has been run."""
    fresh = copy.deepcopy(nb)
    fresh.cells = [_issued(c) for c in nb.cells]
    chapter = nb.metadata.get("course", {}).get("chapter", "")
    fresh.metadata["course"] = {"chapter": chapter}
    return fresh


def _note(cell_id: str, new: NotebookNode) -> NotebookNode:
    """A Markdown cell that shows the course's newer version of a cell that the learner changed."""
    head = (
        f"> **Newer in the course:** the cell above (`{cell_id}`) has changed. Yours was kept; "
        "this is the new one. Take over what you like and delete this cell."
    )
    text = new.source
    if new.cell_type == "code":
        fence = "```"
        while fence in text:
            fence += "`"
        text = f"{fence}python\n{text}\n{fence}"
    return nbformat.from_dict(
        {
            "cell_type": "markdown",
            "id": f"newer-{digest_of(cell_id, new.source)[:16]}",
            "metadata": {"course": {NOTE: cell_id, "digest": digest_of(f"{head}\n\n{text}")}},
            "source": f"{head}\n\n{text}",
        }
    )


def _is_note(cell: NotebookNode) -> bool:
    marks = cell.metadata.get("course")
    return isinstance(marks, dict) and isinstance(marks.get(NOTE), str)
