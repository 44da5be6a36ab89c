"""What grading hands from one step to the next: plain frozen data.

    Submission   a student's file, as it was found
    Merged       its cells, brought into the instructor's skeleton
    ExerciseMark what one exercise earned, and why
    StudentReport all marks of one student

Whatever a student wrote (cell sources, names in findings, messages) is text of unknown
origin wherever it stands in here: escape it before it goes into HTML, CSV or XML.
"""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from course_lib.diagnostics import CourseError, Finding


@dataclasses.dataclass(frozen=True)
class Submission:
    """A student's notebook, as it was found.

    Attributes:
      student: what the reports call them: a folder's or a file's name, or an anonymised id.
      path: the notebook.
      chapter: the chapter's name, "05_asynchronous_copies"; "" where it is not known.
      received: when it came in (the file's date), None where that is unknown.
      others: further files of the same student, none of which is graded.
    """

    student: str
    path: Path
    chapter: str = ""
    received: datetime.datetime | None = None
    others: tuple[Path, ...] = ()


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that is wrong with a submitted file, which is graded all the same.

    Attributes:
      kind: one word for tables: "missing-cell", "duplicate-id", "too-large", "not-json", ...
      sentence: what is wrong, for the student.
      cell: the cell's id, "" where it is about the file.
    """

    kind: str
    sentence: str
    cell: str = ""


@dataclasses.dataclass(frozen=True)
class SourceCell:
    """A code cell: of the skeleton with the student's text in it, or one of the student's own.

    Attributes:
      id: its id in the skeleton, or a fresh one of an own cell.
      source: its Python, line ends as the student has them.
      tags: the skeleton's tags; of an own cell, none.
      exercise: the id of the exercise that it answers, "" for none.
      own: whether the student added it.
    """

    id: str
    source: str
    tags: tuple[str, ...] = ()
    exercise: str = ""
    own: bool = False


@dataclasses.dataclass(frozen=True)
class Merged:
    """A student's code in the instructor's skeleton.

    Attributes:
      student: as in `Submission`.
      chapter: the chapter's name, "05_asynchronous_copies".
      cells: the code cells, in the order of the notebook.
      problems: what was wrong with the file.
      flags: what the instructor should look at; never marks.
    """

    student: str
    chapter: str
    cells: tuple[SourceCell, ...]
    problems: tuple[Problem, ...] = ()
    flags: tuple[str, ...] = ()


# How an answer turned out, by what it earns. `ExerciseMark.verdict` is one of these.
VERDICTS = MappingProxyType(
    {
        "right": "right",
        "right-with-errors": "right values, and an error that the hardware may make wrong",
        "wrong-means": "right values, and not by the means asked for",
        "wrong": "wrong",
        "not-done": "not done",
        "refused": "cannot be marked",
    }
)


@dataclasses.dataclass(frozen=True)
class OnCard:
    """What came of running an answer on a card: an observation, on which no mark depends.

    Attributes:
      kind: "right", "wrong", "raised", "time", "crash" or "not-run".
      words: the end of a sentence that begins with "On the card: ", or "Not run on the card: ".
      card: what the card calls itself; "" where it was not run.
    """

    kind: str
    words: str
    card: str = ""

    def __str__(self) -> str:
        if self.kind == "not-run":
            return f"Not run on the card: {self.words}."
        name = f" ({self.card})" if self.card else ""
        return f"On the card{name}: {self.words}."


@dataclasses.dataclass(frozen=True)
class ExerciseMark:
    """What one exercise earned, and why.

    Attributes:
      exercise: the exercise's id.
      points, of: what it earned, of how much.
      verdict: a key of `VERDICTS`.
      fault: "" when right, else a fault of `course_lib.exercises.FAULTS`, a finding's rule, or
        "refused": "value", "race", "deadlock", "means", "not-done", "timeout", ...
      words: what is said to the student, a sentence each. No hidden input, no expected value.
      finding: the one finding to mend first, with the student's own line; None where there is
        none.
      first_difference: where the result is wrong first, without values; "" where it is right.
      hints: the exercise's hints that may be shown.
      flags: what the instructor should look at; never marks.
      passed, cases: how many of the hidden cases were right.
      private: for the instructor only: the hidden case, with values.
      card: what a card gave for it, where one was asked for and the answer is right.
    """

    exercise: str
    points: float
    of: float
    verdict: str
    fault: str = ""
    words: tuple[str, ...] = ()
    finding: Finding | None = None
    first_difference: str = ""
    hints: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    passed: int = 0
    cases: int = 0
    private: tuple[str, ...] = ()
    card: OnCard | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with the answer."""
        return self.verdict == "right"


@dataclasses.dataclass(frozen=True)
class StudentReport:
    """All marks of one student.

    Attributes:
      student: as in `Submission`.
      marks: one for each exercise of the chapters, in their order.
      problems: what was wrong with the files.
      flags: what the instructor should look at; never marks.
      points, of: the sum, after penalties and overrides.
      late_days: how many days late, begun ones counted; 0 for in time.
      notes: sentences on penalties, overrides and manual marks.
      unsafe: whether the student's code ran outside of a sandbox.
    """

    student: str
    marks: tuple[ExerciseMark, ...]
    points: float
    of: float
    problems: tuple[Problem, ...] = ()
    flags: tuple[str, ...] = ()
    late_days: int = 0
    notes: tuple[str, ...] = ()
    unsafe: bool = False


@dataclasses.dataclass(frozen=True)
class Late:
    """What late work costs: `per_day` of the points for each day begun, at most `at_most`.

    `deadline` is None where there is none; `grace_hours` after it nothing is taken off.
    """

    deadline: datetime.datetime | None = None
    per_day: float = 0.0
    at_most: float = 1.0
    grace_hours: float = 0.0


@dataclasses.dataclass(frozen=True)
class Rubric:
    """What is earned for what; see `read_rubric` for the file.

    Attributes:
      points: points by exercise id; `default_points` for any other.
      right_with_errors: the share of the points for right values with an error finding.
      wrong_means: the share for right values that come about in another way than asked for.
      around: operations that may stand around an exercise's kernel, beside those that may
        anyway, by exercise id.
      hints: how many hints the student's report may show.
      late: the penalty for late work.
    """

    points: Mapping[str, float] = MappingProxyType({})
    default_points: float = 1.0
    right_with_errors: float = 0.5
    wrong_means: float = 0.0
    around: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    hints: int = 1
    late: Late = Late()

    def of(self, exercise: str) -> float:
        """The points that an exercise is worth."""
        return self.points.get(exercise, self.default_points)

    def earned(self, exercise: str, verdict: str) -> float:
        """The points that a verdict of `VERDICTS` earns."""
        share = {
            "right": 1.0,
            "right-with-errors": self.right_with_errors,
            "wrong-means": self.wrong_means,
        }
        return round(self.of(exercise) * share.get(verdict, 0.0), 6)


def read_rubric(path: Path) -> Rubric:
    """The rubric of a TOML file; what the file does not say is as in `Rubric`.

        default_points = 2
        right_with_errors = 0.5      # right values, and a race
        wrong_means = 0.25           # right values, without what was asked for
        hints = 1

        [points]
        "barriers.queue" = 4

        [around]
        "wgmma.matmul" = ["transpose"]

        [late]
        deadline = 2026-05-04T23:59:00+02:00
        per_day = 0.1
        at_most = 0.5
        grace_hours = 1

    Raises:
      CourseError: it cannot be read, or says something that a rubric cannot say.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"The rubric {path.name} cannot be read: {error}.") from None
    _refuse_unknown(path, data, [f.name for f in dataclasses.fields(Rubric)], "")
    _refuse_unknown(path, data.get("late", {}), [f.name for f in dataclasses.fields(Late)], "late.")
    late = _late(path, data.pop("late", {}))
    points = {k: _number(path, f'points."{k}"', v) for k, v in data.pop("points", {}).items()}
    around = {k: tuple(map(str, v)) for k, v in data.pop("around", {}).items()}
    hints = data.pop("hints", Rubric.hints)
    if type(hints) is not int or not 0 <= hints <= 3:
        raise CourseError(f"{path.name}: hints is {hints!r}; it is 0, 1, 2 or 3.")
    numbers = {k: _number(path, k, v) for k, v in data.items()}
    for key in ("right_with_errors", "wrong_means"):
        if numbers.get(key, 0.0) > 1:
            raise CourseError(f"{path.name}: {key} is a share of the points, from 0 to 1.")
    return Rubric(points=points, around=around, hints=hints, late=late, **numbers)


def _late(path: Path, data: dict[str, Any]) -> Late:
    deadline = data.pop("deadline", None)
    if deadline is not None and not isinstance(deadline, datetime.datetime):
        raise CourseError(
            f"{path.name}: late.deadline is {deadline!r}; write it as 2026-05-04T23:59:00+02:00."
        )
    if deadline is not None and deadline.tzinfo is None:
        deadline = deadline.astimezone()  # the instructor's own clock
    numbers = {k: _number(path, f"late.{k}", v) for k, v in data.items()}
    for key in ("per_day", "at_most"):
        if numbers.get(key, 0.0) > 1:
            raise CourseError(f"{path.name}: late.{key} is a share of the points, from 0 to 1.")
    return Late(deadline, **numbers)


def _number(path: Path, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise CourseError(f"{path.name}: {name} is {value!r}; it must be a number from 0 up.")
    return float(value)


def _refuse_unknown(path: Path, data: Any, known: Sequence[str], prefix: str) -> None:
    if not isinstance(data, dict):
        raise CourseError(f"{path.name}: [{prefix.rstrip('.')}] is not a table.")
    for key in data.keys() - set(known):
        raise CourseError(
            f"{path.name}: a rubric has no {prefix}{key}; it has {', '.join(sorted(known))}."
        )
