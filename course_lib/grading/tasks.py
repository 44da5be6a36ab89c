"""Grades one student: the work that a batch hands to a process, here or on a cluster.

A `Task` is plain data and can travel anywhere; so can the `StudentRecord` that comes of it.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat import NotebookNode

from course_lib.authoring import canonical
from course_lib.exercises import registry
from course_lib.grading import feedback, flags, merging, validation
from course_lib.grading.intake import Paper, Student
from course_lib.grading.model import ExerciseMark, Problem, Rubric
from course_lib.grading.records import ChapterRecord, ExerciseRecord, StudentRecord
from course_lib.grading.release import Release
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.skeletons import exercises_of
from course_lib.mojo import toolchain

if TYPE_CHECKING:
    from course_lib.grading.card import Card

_ALL_HINTS = 3
VERSION = 2  # of what a grade is made of: another number grades everybody anew
NOTHING = "Nothing was handed in for this chapter."
NO_NOTEBOOK = "What was handed in for this chapter is no notebook that can be read."


@dataclasses.dataclass(frozen=True)
class Options:
    """How a batch is graded.

    Attributes:
      unsafe: whether students' code runs without a sandbox.
      run: whether the notebooks are run for feedback, too.
      exercises: only these, if any are named.
      run_s: after how many seconds a notebook's run is stopped.
      gpu: whether what is right runs on a card as well.
    """

    unsafe: bool = False
    run: bool = True
    exercises: tuple[str, ...] = ()
    run_s: int = 600
    gpu: bool = False


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A notebook on its way to be graded: as `intake.Paper`, with its bytes in it.

    Attributes:
      place: where it was.
      data: its bytes in base 64; "" where it is too large.
      size: how many they are.
      received: when it came in, ISO 8601, or "".
    """

    place: str
    data: str
    size: int
    received: str


@dataclasses.dataclass(frozen=True)
class Task:
    """One student's work, and what it takes to grade it.

    Attributes:
      student, lms_id, problems: as in `Student`.
      key: the digest of this work and of all that its marks depend on.
      sheets: the notebooks.
      release: as `packed` makes it.
      options: how it is graded.
    """

    student: str
    key: str
    sheets: tuple[Sheet, ...]
    release: Mapping[str, Any]
    options: Options
    lms_id: str = ""
    problems: tuple[Problem, ...] = ()


def task_for(student: Student, release: Release, options: Options) -> Task:
    """The task of grading a student."""
    return Task(
        student=student.name,
        key=key_of(student, release, options),
        sheets=tuple(map(_sheet, student.papers)),
        release=packed(release),
        options=options,
        lms_id=student.lms_id,
        problems=student.problems,
    )


def key_of(student: Student, release: Release, options: Options) -> str:
    """The digest of a student's work, the release, and the options that matter to marks."""
    work = [[p.place, p.digest, _when(p)] for p in student.papers]
    said = [[p.kind, p.sentence] for p in student.problems]
    how = [options.unsafe, options.run, options.run_s, *(["gpu"] if options.gpu else [])]
    how += ["mojo"] if _takes_mojo(release) and toolchain.is_installed() else []
    parts = json.dumps([VERSION, student.name, work, said, how])
    return canonical.digest_of(
        parts, dataclasses.replace(release, rubric=_unpriced(release.rubric)).digest()
    )


def _takes_mojo(release: Release) -> bool:
    """Whether there are exercises that only a machine with Mojo marks by itself."""
    return any(registry.get(e).program for e in release.exercises)


def _unpriced(rubric: Rubric) -> Rubric:
    """What a rubric says of how work is judged; what that is worth comes later, in `priced`."""
    return Rubric(around=rubric.around, hints=_ALL_HINTS)


def priced(record: StudentRecord, rubric: Rubric) -> StudentRecord:
    """A record with the points and the hints that a rubric gives for its verdicts.

    They can change at any time, and nobody has to be graded anew for it.
    """
    chapters = [
        dataclasses.replace(
            chapter,
            answers=tuple(
                dataclasses.replace(
                    a,
                    points=rubric.earned(a.exercise, a.verdict),
                    of=rubric.of(a.exercise),
                    hints=a.hints[: rubric.hints],
                )
                for a in chapter.answers
            ),
        )
        for chapter in record.chapters
    ]
    return dataclasses.replace(record, chapters=tuple(chapters))


def _sheet(paper: Paper) -> Sheet:
    data = base64.b64encode(paper.file.read_bytes()).decode() if paper.file else ""
    return Sheet(paper.place, data, paper.size, _when(paper))


def _when(paper: Paper) -> str:
    date = paper.received
    return date.astimezone(datetime.UTC).isoformat(timespec="seconds") if date else ""


def packed(release: Release) -> dict[str, Any]:
    """A release as plain data."""
    rubric = _unpriced(release.rubric)
    plain = {f.name: getattr(rubric, f.name) for f in dataclasses.fields(Rubric)}
    plain |= {
        "points": dict(rubric.points),
        "around": {k: list(v) for k, v in rubric.around.items()},
    }
    del plain["late"]
    return {
        "chapters": list(release.chapters),
        "skeletons": {c: canonical.to_text(release.skeletons[c]) for c in release.chapters},
        "variants": dict(release.variants),
        "secret": release.secret,
        "rubric": plain,
    }


def unpacked(data: Mapping[str, Any]) -> Release:
    """What `packed` packed."""
    around = {k: tuple(v) for k, v in data["rubric"]["around"].items()}
    return Release(
        chapters=tuple(data["chapters"]),
        skeletons={c: nbformat.reads(t, nbformat.NO_CONVERT) for c, t in data["skeletons"].items()},
        variants=data["variants"],
        secret=data["secret"],
        rubric=Rubric(**{**data["rubric"], "around": around}),
    )


def grade(task: Task, sandbox: Sandbox, *, card: Card | None = None) -> StudentRecord:
    """Grades one student; with the option `gpu` on `card` too, by default this machine's."""
    release = unpacked(task.release)
    if not task.options.gpu:
        card = None
    elif card is None:
        card = _card(sandbox)
    chosen, problems = _by_chapter(task, release)
    chapters = [
        _graded(
            task, release, chapter, chosen.get(chapter), problems.get(chapter, []), sandbox, card
        )
        for chapter in release.chapters
        if not task.options.exercises
        or set(task.options.exercises) & set(exercises_of(release.skeletons[chapter]))
    ]
    return StudentRecord(
        student=task.student,
        key=task.key,
        chapters=tuple(chapters),
        problems=(*task.problems, *problems.get("", [])),
        lms_id=task.lms_id,
        unsafe=sandbox.unsafe,
    )


@functools.cache
def _card(sandbox: Sandbox) -> Card:
    """The card of this machine: one for all that this process grades, as finding it takes time."""
    from course_lib.grading.card import Card

    return Card(sandbox)


@dataclasses.dataclass(frozen=True)
class _Candidate:
    sheet: Sheet
    notebook: NotebookNode | None
    problems: tuple[Problem, ...]


def _by_chapter(
    task: Task, release: Release
) -> tuple[dict[str, _Candidate], dict[str, list[Problem]]]:
    """The notebook that counts for each chapter, and what there is to say ("" for no chapter)."""
    found: dict[str, list[_Candidate]] = {}
    problems: dict[str, list[Problem]] = {}
    for sheet in task.sheets:
        candidate = _read(sheet)
        chapter = chapter_of(candidate.notebook, sheet.place, release)
        if chapter:
            found.setdefault(chapter, []).append(candidate)
            continue
        name = sheet.place.rsplit("/", 1)[-1]
        problems.setdefault("", []).extend(
            dataclasses.replace(p, sentence=f"{name}: {p.sentence}") for p in candidate.problems
        )
        if candidate.notebook is not None:
            sentence = f"{name} is none of the chapters that were given out."
            problems[""] = [*problems.get("", []), Problem("other-notebook", sentence)]
    chosen = {}
    for chapter, candidates in found.items():
        chosen[chapter] = max(candidates, key=_rank)
        if len(candidates) > 1:
            taken = chosen[chapter].sheet.place.rsplit("/", 1)[-1]
            sentence = f"{len(candidates)} notebooks of this chapter; the newest counts, {taken}."
            problems.setdefault(chapter, []).append(Problem("several", sentence))
    return chosen, problems


def _rank(candidate: _Candidate) -> tuple[bool, str, str]:
    return candidate.notebook is not None, candidate.sheet.received, candidate.sheet.place


def _read(sheet: Sheet) -> _Candidate:
    if not sheet.data and sheet.size:
        return _Candidate(sheet, None, (validation.too_large(sheet.size),))
    notebook, problems = validation.read(base64.b64decode(sheet.data))
    return _Candidate(sheet, notebook, problems)


def chapter_of(notebook: NotebookNode | None, place: str, release: Release) -> str:
    """Which of a release's chapters a notebook is, by its cells, else by its name; "" for none."""
    if notebook is not None:
        mine = {c.id for c in notebook.cells if c.id}
        shared = {c: len(mine & _own_ids(release, c)) for c in release.chapters}
        best = max(shared, key=lambda c: shared[c], default="")
        if best and shared[best] >= 3:
            return best
    names = [c for c in release.chapters if c in place or c[3:] in place]
    if not names:
        names = [c for c in release.chapters if f"{c[:2]}." in place.rsplit("/", 1)[-1]]
    if not names and notebook is not None:
        names = [c for c in release.chapters if _looks_like(notebook, release.skeletons[c])]
    return names[0] if names else ""


def _own_ids(release: Release, chapter: str) -> set[str]:
    """The ids that no other chapter has: "title" and "setup" are everywhere."""
    others = {c.id for o in release.chapters if o != chapter for c in release.skeletons[o].cells}
    common = {"title", "setup", "setup-intro", "recap", "reference", "compiler"}
    return {c.id for c in release.skeletons[chapter].cells} - others - common


def _looks_like(notebook: NotebookNode, skeleton: NotebookNode) -> bool:
    """Whether two or more of a chapter's code cells are in a notebook, word for word."""
    given = {c.source.strip() for c in skeleton.cells if c.cell_type == "code"}
    return len(given & {c.source.strip() for c in notebook.cells}) >= 2


def _graded(
    task: Task,
    release: Release,
    chapter: str,
    chosen: _Candidate | None,
    said: Sequence[Problem],
    sandbox: Sandbox,
    card: Card | None,
) -> ChapterRecord:
    if chosen is None or chosen.notebook is None:
        problems = (*said, *(chosen.problems if chosen else ()))
        words = NO_NOTEBOOK if chosen else NOTHING
        sheet = chosen.sheet if chosen else None
        return _without(release, chapter, words, problems, sheet)
    skeleton = release.skeletons[chapter]
    problems = (*said, *chosen.problems)
    work = merging.merge(task.student, chapter, skeleton, chosen.notebook, problems)
    run = None
    if task.options.run and not task.options.exercises:
        limits = dataclasses.replace(feedback.RUN_LIMITS, wall_s=task.options.run_s)
        run = feedback.run(work.notebook, sandbox, limits=limits)
    marks = _marks(work.merged, release, task.options, sandbox, card)
    sources = {c.exercise: c.source for c in work.merged.cells if c.exercise}
    return ChapterRecord(
        chapter=chapter,
        answers=tuple(ExerciseRecord.of_mark(m, sources.get(m.exercise, "")) for m in marks),
        run=run,
        problems=work.merged.problems,
        flags=(*work.merged.flags, *_flags(work, run, skeleton)),
        received=chosen.sheet.received,
        file=chosen.sheet.place.rsplit("/", 1)[-1],
    )


def _marks(
    merged: merging.Merged, release: Release, options: Options, sandbox: Sandbox, card: Card | None
) -> Sequence[ExerciseMark]:
    from course_lib.grading.marking import mark_submission

    wanted = exercises_of(release.skeletons[merged.chapter])
    if options.exercises:
        wanted = tuple(e for e in wanted if e in options.exercises)
    return mark_submission(
        merged,
        release.rubric,
        seed=release.marking_seed,
        sandbox=sandbox,
        exercises=list(wanted),
        variants=release.variants,
        card=card,
    )


def _flags(work: merging.Work, run: feedback.Run | None, skeleton: NotebookNode) -> tuple[str, ...]:
    checks = [c.id for c in skeleton.cells if "check" in c.metadata.get("tags", ())]
    differing = flags.differing_outputs(work.outputs, run.texts, checks) if run else ()
    return (*flags.introspection(work.merged), *differing)


def _without(
    release: Release,
    chapter: str,
    words: str,
    problems: Sequence[Problem],
    sheet: Sheet | None,
) -> ChapterRecord:
    """The record of a chapter of which there is no notebook."""
    answers = [
        ExerciseRecord(e, 0.0, release.rubric.of(e), "not-done", "not-done", (words,))
        for e in exercises_of(release.skeletons[chapter])
    ]
    name = sheet.place.rsplit("/", 1)[-1] if sheet else ""
    problems = [dataclasses.replace(p, sentence=f"{name}: {p.sentence}") for p in problems]
    return ChapterRecord(
        chapter=chapter,
        answers=tuple(answers),
        problems=tuple(problems),
        flags=(f"{name} cannot be read: nothing of it was graded",) if sheet else (),
        received=sheet.received if sheet else "",
        file=name,
    )


def failed(task: Task, why: str) -> StudentRecord:
    """The record of a student whom the grader itself could not grade."""
    return StudentRecord(task.student, task.key, (), task.problems, task.lms_id, failed=why)


Grade = Callable[[Task], StudentRecord]
