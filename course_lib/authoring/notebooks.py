"""Builds a chapter's two notebooks from its source, and tells whether they still are what it says.

    solutions/NN_title.md -> solutions/NN_title.ipynb   with the solutions, run
                          -> notebooks/NN_title.ipynb   without them, run as well

What a notebook's outputs depend on (its code, and the files of the library that
the code can reach) has a digest, stored in the notebook: it is run again when
that changes and not otherwise. A change of prose only rewrites the prose.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from course_lib.authoring import canonical, closure, execution, predictions
from course_lib.authoring.cellids import CHAPTER_IDS, source_sha
from course_lib.authoring.files import read_notebook, write_whole
from course_lib.authoring.regions import learners_text
from course_lib.authoring.source import (
    Cell,
    Chapter,
    Course,
    Registry,
    find_sources,
    read_chapter,
    registered_function,
)
from course_lib.diagnostics import CourseError

Say = Callable[[str], None]

CELL_TIMEOUT_S = 300.0
# What a chapter prints while it is built must not depend on the machine that builds it.
BUILD_ENV = {"JAX_PLATFORMS": "cpu", "COURSE_MODEL_ONLY": "1"}

_MAY_DIFFER = {"exercise", "check", predictions.TAG, "nbval-ignore-output"}


class BuildError(CourseError):
    """Chapters that cannot be built, or notebooks that are not what their source says.

    Attributes:
      sentences: one for each thing that is wrong.
    """

    def __init__(self, sentences: Sequence[str]):
        super().__init__("\n".join(sentences))
        self.sentences = tuple(sentences)


@dataclasses.dataclass(frozen=True)
class _Notebook:
    """One of the two notebooks of a chapter, before it is run."""

    path: Path
    kind: str
    blank: NotebookNode

    @property
    def shown(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def marks(self) -> dict[str, Any]:
        return self.blank.metadata.course


def build(
    chapters: Sequence[str] | None = None,
    *,
    check: bool = False,
    force: bool = False,
    course: Course | None = None,
    registry: Registry | None = registered_function,
    cell_timeout_s: float = CELL_TIMEOUT_S,
    say: Say = print,
) -> list[Path]:
    """Builds the notebooks of some chapters, or of all.

    Args:
      chapters: numbers, titles or files ("00", "start_here"); None is every chapter.
      check: change nothing, only compare what is stored with the sources.
      force: run the notebooks even if nothing that they depend on has changed.
      course: where the course is; this one by default.
      registry: gives the name of an exercise's function, see `read_chapter`.
      cell_timeout_s: seconds that one cell may take.
      say: is told what is going on, a line at a time.

    Returns:
      The notebooks that were written.

    Raises:
      BuildError: a source is wrong, a cell failed, or (with `check`) a notebook is stale,
        edited by hand, missing or left over. Its `sentences` say which and what to do.
    """
    course = course or Course()
    sources = find_sources(course, chapters)
    sentences: list[str] = []
    written: list[Path] = []
    for source in sources:
        try:
            chapter = read_chapter(source, registry=registry)
            if check:
                sentences += _differences(chapter, course)
            else:
                written += _build_chapter(chapter, course, force, cell_timeout_s, say)
        except CourseError as error:
            sentences += str(error).splitlines() if check else [str(error)]
    if chapters is None:
        sentences += _orphans(course, remove=not check, say=say)
    if sentences:
        raise BuildError(sentences)
    return written


# --- what a notebook should be -------------------------------------------------------------------


def _planned(chapter: Chapter, course: Course) -> list[_Notebook]:
    """The chapter's two notebooks without their outputs, the solution first."""
    digest = closure.digest(chapter, course.library)
    source = canonical.digest_of(chapter.source)

    def plan(folder: Path, kind: str, cells: Sequence[Cell]) -> _Notebook:
        marks = {"chapter": chapter.name, "kind": kind, "digest": digest, "source": source}
        path = folder / f"{chapter.name}.ipynb"
        return _Notebook(path, kind, canonical.notebook(cells, marks))

    return [
        plan(course.solutions, "solution", chapter.cells),
        plan(course.notebooks, "learner", learners_cells(chapter)),
    ]


def learners_cells(chapter: Chapter) -> list[Cell]:
    """The cells of a chapter as the learner gets them: without solutions and predictions."""
    return [dataclasses.replace(c, text=_learners(c)) for c in chapter.cells]


def _learners(cell: Cell) -> str:
    if predictions.TAG in cell.tags:
        return predictions.unanswered(cell.text)
    return learners_text(cell.text) if cell.exercise else cell.text


def _read(path: Path) -> NotebookNode | None:
    """The stored notebook, or None where there is none that can be read."""
    try:
        nb = read_notebook(path)
    except (OSError, ValueError):
        return None
    return nb if all("id" in cell for cell in nb.cells) else None


def _outputs(nb: NotebookNode) -> dict[str, list[Any]]:
    return {c.id: c.get("outputs", []) for c in nb.cells if c.cell_type == "code"}


def _stored_marks(nb: NotebookNode | None) -> Mapping[str, Any]:
    marks = nb.metadata.get("course", {}) if nb is not None else {}
    return marks if isinstance(marks, dict) else {}


def _is_fresh(plan: _Notebook, stored: NotebookNode | None) -> bool:
    """Whether the stored outputs are those of a run of this very code, untouched since."""
    marks = _stored_marks(stored)
    return (
        stored is not None
        and marks.get("digest") == plan.marks["digest"]
        and marks.get("outputs") == canonical.outputs_digest(stored)
    )


# --- building ------------------------------------------------------------------------------------


def _build_chapter(
    chapter: Chapter, course: Course, force: bool, cell_timeout_s: float, say: Say
) -> list[Path]:
    built: list[NotebookNode] = []
    plans = _planned(chapter, course)
    for plan in plans:
        stored = _read(plan.path)
        if stored is not None and _is_fresh(plan, stored) and not force:
            built.append(canonical.with_outputs(plan.blank, _outputs(stored)))
            continue
        outputs = _run(plan, chapter, course, cell_timeout_s, say)
        if stored is not None and _is_fresh(plan, stored):
            outputs |= _uncompared(plan, _outputs(stored))
        built.append(canonical.with_outputs(plan.blank, outputs))
        _refuse_bad_outputs(plan, built[-1], course)
    differing = list(_unlike(*built))
    if differing:
        raise CourseError("\n".join(differing))
    return [p.path for p, nb in zip(plans, built, strict=True) if _write(p, nb, say)]


def _run(
    plan: _Notebook, chapter: Chapter, course: Course, cell_timeout_s: float, say: Say
) -> dict[str, list[Any]]:
    count = sum(c.cell_type == "code" for c in plan.blank.cells)
    say(f"{plan.shown}: running {count} cells ...")
    started = time.monotonic()
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="course-build-") as folder:
        ids = Path(folder) / "ids.json"
        ids.write_text(json.dumps(_ids(plan.blank)))
        outputs = execution.execute(
            plan.blank,
            cwd=plan.path.parent,
            env={**BUILD_ENV, CHAPTER_IDS: str(ids)},
            cell_timeout_s=cell_timeout_s,
            name=plan.shown,
        )
    say(f"{plan.shown}: done in {time.monotonic() - started:.0f} s")
    return outputs


def _ids(nb: NotebookNode) -> dict[str, str]:
    return {source_sha(c.source): c.id for c in nb.cells if c.cell_type == "code"}


def _uncompared(plan: _Notebook, stored: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """What cells without a comparison printed when this very code was run before: still true."""
    return {
        c.id: stored[c.id]
        for c in plan.blank.cells
        if "nbval-ignore-output" in c.metadata.get("tags", ()) and c.id in stored
    }


def _refuse_bad_outputs(plan: _Notebook, nb: NotebookNode, course: Course) -> None:
    problems = [
        f'{plan.shown}, cell "{cell.id}": {problem}'
        for cell in nb.cells
        if cell.cell_type == "code"
        for problem in dict.fromkeys(execution.output_problems(cell, root=course.root))
    ]
    if plan.kind == "solution":
        problems += _wrong_answers(plan, nb)
    if problems:
        raise CourseError("\n".join(problems))


def _wrong_answers(plan: _Notebook, nb: NotebookNode) -> Iterator[str]:
    """The source's answers to `predict` that a run of the source does not give."""
    for cell in nb.cells:
        for outcome in predictions.outcomes(cell.get("outputs", ())):
            if not predictions.confirms(outcome):
                yield f'{plan.shown}, cell "{cell.id}": the source predicts wrongly. {outcome}'


def _unlike(solution: NotebookNode, learners: NotebookNode) -> Iterator[str]:
    """Cells whose output depends on the learner's answers, and should not.

    What `reveal` says about a prediction may; the rest of its cell's output may not.
    """
    chapter = solution.metadata.course["chapter"]
    for ours, theirs in zip(solution.cells, learners.cells, strict=True):
        if ours.cell_type != "code" or _MAY_DIFFER & set(ours.metadata.get("tags", ())):
            continue
        if _given_output(ours) != _given_output(theirs):
            yield (
                f'{chapter}, cell "{ours.id}": it prints something else while the exercises are '
                "unsolved: a given cell uses course_lib.kernels, never the learner's function"
            )


def _given_output(cell: NotebookNode) -> list[Any]:
    return predictions.without_outcomes(cell.outputs)


def _write(plan: _Notebook, nb: NotebookNode, say: Say) -> bool:
    text = canonical.to_text(nb)
    if plan.path.is_file() and plan.path.read_text(encoding="utf-8") == text:
        return False
    write_whole(plan.path, text)
    say(f"{plan.shown}: written")
    return True


# --- checking ------------------------------------------------------------------------------------


def _differences(chapter: Chapter, course: Course) -> Iterator[str]:
    """What is not as the source says, a sentence for each notebook at most."""
    plans = _planned(chapter, course)
    stored = [_read(p.path) for p in plans]
    wrong = [_difference(p, nb) for p, nb in zip(plans, stored, strict=True)]
    yield from (w for w in wrong if w)
    solution, learners = stored
    if not any(wrong) and solution is not None and learners is not None:
        yield from _unlike(solution, learners)


def _difference(plan: _Notebook, stored: NotebookNode | None) -> str:
    number = plan.path.stem[:2]
    again = f"run `course build {number}`"
    if not plan.path.is_file():
        return f"{plan.shown} is missing: {again}."
    if stored is None:
        return f"{plan.shown} cannot be read as a notebook: {again}."
    marks = _stored_marks(stored)
    for mark, what in (
        ("source", f"its source, solutions/{plan.path.stem}.md,"),
        ("digest", "the code that it depends on in course_lib"),
    ):
        if marks.get(mark) != plan.marks[mark]:
            return f"{plan.shown} is out of date, {what} has changed: {again}."
    by_hand = f"edit solutions/{plan.path.stem}.md instead and {again}."
    cell = _first_edited_cell(plan.blank, stored)
    if cell:
        return f'{plan.shown} was edited by hand (cell "{cell}"): {by_hand}'
    if marks.get("outputs") != canonical.outputs_digest(stored):
        return f"{plan.shown} was edited by hand (its outputs): {again}."
    expected = canonical.with_outputs(plan.blank, _outputs(stored))
    if canonical.to_text(expected) != plan.path.read_text(encoding="utf-8"):
        return f"{plan.shown} was edited by hand (not in the stored form): {by_hand}"
    return ""


def _first_edited_cell(blank: NotebookNode, stored: NotebookNode) -> str:
    """The id of the first cell that is not the source's, "" where there is none."""
    for wanted, got in zip(blank.cells, stored.cells, strict=False):
        if any(wanted[k] != got[k] for k in ("id", "cell_type", "source", "metadata")):
            return wanted.id
    if len(blank.cells) != len(stored.cells):
        longer = max(blank.cells, stored.cells, key=len)
        return longer[min(len(blank.cells), len(stored.cells))]["id"]
    return ""


def _orphans(course: Course, *, remove: bool, say: Say) -> list[str]:
    """Notebooks without a source: removed if a build made them, else a sentence."""
    names = {s.stem for s in course.sources()}
    sentences = []
    for folder in (course.solutions, course.notebooks):
        for path in sorted(folder.glob("*.ipynb")):
            if path.stem in names:
                continue
            shown = f"{path.parent.name}/{path.name}"
            if remove and _stored_marks(_read(path)).get("chapter") == path.stem:
                path.unlink()
                say(f"{shown}: removed, its source is gone")
                continue
            sentences.append(f"{shown} has no source solutions/{path.stem}.md: remove it.")
    return sentences
