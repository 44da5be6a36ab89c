"""Gives chapters to a class: `course release 03 05 --to handout/ --seed 7`.

    handout/              for the students: the learner's notebooks and a README
    handout.release/      for the instructor, to keep:
        release.toml      chapters, seed, deadline, the variants, the secret of the hidden inputs
        rubric.toml       points and penalties, to be edited
        skeletons/        the notebooks as they were given out

The hand-out holds no solution, no output that gives an answer away, and nothing of
the library: students have the course installed, as its README says.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbformat import NotebookNode

from course_lib.authoring import canonical
from course_lib.authoring.files import read_notebook, write_whole
from course_lib.authoring.source import Course, find_sources
from course_lib.diagnostics import CourseError
from course_lib.exercises import registry, variations
from course_lib.grading.model import Rubric, read_rubric
from course_lib.grading.skeletons import exercises_of, skeleton

_RUBRIC = """\
# What is earned for what. A change here regrades those whom it concerns.
default_points = 1
right_with_errors = 0.5    # the right values, and an error that the hardware may make wrong
wrong_means = 0            # the right values, and not by the means that were asked for
hints = 1                  # how many hints a student's report shows

[points]
{points}

[late]
per_day = 0.1              # of the points, for each day begun
at_most = 0.5
grace_hours = 1
"""

_README = """\
# {title}

{chapters}

Hand in by: {deadline}.

## To work on them

You need the course on your machine, once: get its folder, and run `make lab` in it (Linux, macOS or
WSL; no GPU needed). Then, in the course's folder:

    .venv/bin/course lab {folder}

where the last word is the path of this folder. JupyterLab opens on it, with these notebooks in it.
{variants}
## To hand in

Hand in the notebooks, under any name. Work in the cells that are there: they are found by their
ids, so do not copy an exercise's cell or make a new notebook. Cells of your own are welcome.
"Restart Kernel and Run All Cells" before you hand in shows you what the graders will see.
"""

_OWN_VARIANTS = """
The exercises are variants made for your class: their numbers differ from those of the course.
"""


@dataclasses.dataclass(frozen=True)
class Release:
    """What a class was given, and how it is graded.

    Attributes:
      chapters: the chapters' names, in order.
      skeletons: the notebook that was given out, by chapter.
      variants: by exercise id, as "factor=5, slots=3"; a name that is missing is unvaried.
      secret: what the hidden inputs are drawn from; nobody but the instructor knows it.
      rubric: points and penalties, the release's deadline in it.
      seed: what the variants were drawn from, None where there are none.
    """

    chapters: tuple[str, ...]
    skeletons: Mapping[str, NotebookNode]
    variants: Mapping[str, str]
    secret: str
    rubric: Rubric
    seed: int | None = None

    @property
    def exercises(self) -> tuple[str, ...]:
        """The ids of all exercises, by chapter and in the order of the notebooks."""
        return tuple(e for c in self.chapters for e in exercises_of(self.skeletons[c]))

    @property
    def marking_seed(self) -> int:
        """The secret as the number that marking takes."""
        return int(canonical.digest_of(self.secret)[:15], 16)

    def digest(self) -> str:
        """The SHA-256 of everything that a mark depends on, the student's work apart."""
        texts = [canonical.to_text(self.skeletons[c]) for c in self.chapters]
        return canonical.digest_of(
            json.dumps([self.chapters, dict(self.variants), self.secret, repr(self.rubric)]), *texts
        )


def release(
    chapters: Sequence[str],
    to: Path,
    *,
    seed: int | None = None,
    deadline: datetime.datetime | None = None,
    rubric: Path | None = None,
    course: Course | None = None,
) -> Path:
    """Writes the hand-out and the instructor's folder beside it; returns the latter.

    Args:
      chapters: numbers or titles ("03", "transforms").
      to: the hand-out's folder, which must be new or empty.
      seed: draws a variant of each exercise that has some; None leaves the course's exercises.
      deadline: when work is late, with a time zone.
      rubric: a rubric to begin with; by default one point for each exercise.
      course: where the course is; this one by default.

    Raises:
      CourseError: there is no such chapter, a folder is not empty, or the rubric is not right.
    """
    course = course or Course()
    keep = to.with_name(f"{to.name}.release")
    for folder in (to, keep):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CourseError(
                f"{folder} holds something already: what a class has got should not change. "
                "Choose another --to, or remove it."
            )
    for folder in to.parents:
        if folder.exists() and not folder.is_dir():
            raise CourseError(f"--to {to}: {folder} is a file. Choose another folder.")
    learners = _learners(course, chapters)
    ids = [e for nb in learners.values() for e in exercises_of(nb)]
    variants = _drawn(ids, seed)
    skeletons = {name: skeleton(nb, variants) for name, nb in learners.items()}
    if rubric:
        _check_points(read_rubric(rubric), ids, rubric)  # before anything is written
    rubric_text = rubric.read_text(encoding="utf-8") if rubric else _rubric_text(ids)
    write_whole(keep / "rubric.toml", rubric_text)
    for name, notebook in skeletons.items():
        write_whole(to / f"{name}.ipynb", canonical.to_text(notebook))
        write_whole(keep / "skeletons" / f"{name}.ipynb", canonical.to_text(notebook))
    write_whole(to / "README.md", _readme(to, skeletons, deadline, bool(variants)))
    write_whole(keep / "release.toml", _release_text(skeletons, seed, deadline, variants))
    return keep


def _learners(course: Course, chapters: Sequence[str]) -> dict[str, NotebookNode]:
    """The learner's notebooks of some chapters, by name."""
    found: dict[str, NotebookNode] = {}
    for source in find_sources(course, chapters):
        path = course.notebooks / f"{source.stem}.ipynb"
        try:
            found[source.stem] = read_notebook(path)
        except (OSError, ValueError) as error:
            raise CourseError(
                f"notebooks/{path.name} cannot be read ({error}): `course build` makes it."
            ) from None
    return found


def _drawn(ids: Sequence[str], seed: int | None) -> dict[str, str]:
    if seed is None:
        return {}
    drawn = {i: variations.to_text(variations.draw(registry.get(i), seed=seed)) for i in ids}
    return {i: text for i, text in drawn.items() if text}


def _rubric_text(ids: Sequence[str]) -> str:
    return _RUBRIC.format(points="\n".join(f"{json.dumps(i)} = 1" for i in ids))


def _release_text(
    skeletons: Mapping[str, NotebookNode],
    seed: int | None,
    deadline: datetime.datetime | None,
    variants: Mapping[str, str],
) -> str:
    lines = [
        "# What a class was given. Keep this folder: `course grade --release` reads it.",
        f"chapters = {json.dumps(list(skeletons))}",
        *([f"seed = {seed}"] if seed is not None else []),
        *([f"deadline = {deadline.isoformat()}"] if deadline else []),
        'rubric = "rubric.toml"',
        "# The hidden inputs are drawn from this: whoever knows it knows them.",
        f'secret = "{secrets.token_hex(16)}"',
        "",
        "[variants]",
        *(f"{json.dumps(i)} = {json.dumps(text)}" for i, text in variants.items()),
    ]
    return "\n".join(lines) + "\n"


def _readme(
    to: Path,
    skeletons: Mapping[str, NotebookNode],
    deadline: datetime.datetime | None,
    varied: bool,
) -> str:
    return _README.format(
        title="Mosaic GPU, hands-on: your chapters",
        chapters="\n".join(f"- `{name}.ipynb`" for name in skeletons),
        deadline=f"{deadline:%A, %d %B %Y, %H:%M (%Z)}" if deadline else "as your instructor says",
        folder=to.name,
        variants=_OWN_VARIANTS if varied else "",
    )


def read_release(path: Path) -> Release:
    """The release of an instructor's folder, or of the release.toml in it.

    Raises:
      CourseError: a file is missing or cannot be read; says which.
    """
    folder = path.parent if path.name == "release.toml" else path
    data = _read_toml(folder / "release.toml")
    try:
        chapters = tuple(map(str, data["chapters"]))
        secret, variants = str(data["secret"]), dict(data.get("variants", {}))
        rubric = read_rubric(folder / str(data.get("rubric", "rubric.toml")))
    except KeyError as error:
        raise CourseError(f"{folder.name}/release.toml has no {error.args[0]}.") from None
    skeletons = {c: _stored(folder / "skeletons" / f"{c}.ipynb") for c in chapters}
    ids = [e for notebook in skeletons.values() for e in exercises_of(notebook)]
    _check_points(rubric, ids, folder / "rubric.toml")
    return Release(
        chapters=chapters,
        skeletons=MappingProxyType(skeletons),
        variants=MappingProxyType(variants),
        secret=secret,
        rubric=_with_deadline(rubric, data.get("deadline"), folder),
        seed=data.get("seed"),
    )


def unreleased(
    chapters: Sequence[str],
    secret: str,
    *,
    rubric: Path | None = None,
    course: Course | None = None,
) -> Release:
    """The course's own chapters, as if they had been given out: what `--chapters` alone grades.

    Raises:
      CourseError: there is no such chapter, or the rubric cannot be read.
    """
    learners = _learners(course or Course(), chapters)
    return Release(
        chapters=tuple(learners),
        skeletons=MappingProxyType({name: skeleton(nb, {}) for name, nb in learners.items()}),
        variants=MappingProxyType({}),
        secret=secret,
        rubric=read_rubric(rubric) if rubric else Rubric(),
    )


def only(whole: Release, chapters: Sequence[str]) -> Release:
    """A release with some of its chapters.

    Raises:
      CourseError: a chapter is not in it.
    """
    wanted = []
    for chapter in chapters:
        stem = chapter.zfill(2) if chapter.isdigit() else chapter
        found = [c for c in whole.chapters if stem in (c, c[:2], c[3:])]
        if not found:
            raise CourseError(
                f'"{chapter}" was not released; these were: {", ".join(whole.chapters)}.'
            )
        wanted += found
    return dataclasses.replace(whole, chapters=tuple(c for c in whole.chapters if c in wanted))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError(
            f"There is no {path}: --release takes the folder that `course release` wrote beside "
            "the hand-out."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"{path} cannot be read: {error}.") from None


def _check_points(rubric: Rubric, ids: Sequence[str], path: Path) -> None:
    """Looks whether a rubric gives points for exercises that there are.

    Raises:
      CourseError: one is not among `ids`; its points would count for nobody.
    """
    for exercise in rubric.points.keys() - set(ids):
        raise CourseError(
            f'{path.name}, [points]: "{exercise}" was not given out; these were: {", ".join(ids)}.'
        )


def _stored(path: Path) -> NotebookNode:
    try:
        return read_notebook(path)
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} cannot be read: {error}.") from None


def _with_deadline(rubric: Rubric, deadline: object, folder: Path) -> Rubric:
    if deadline is None:
        return rubric
    if not isinstance(deadline, datetime.datetime):
        raise CourseError(
            f"{folder.name}/release.toml: write the deadline as 2026-05-04T23:59:00+02:00."
        )
    moment = deadline if deadline.tzinfo else deadline.astimezone()
    return dataclasses.replace(rubric, late=dataclasses.replace(rubric.late, deadline=moment))
