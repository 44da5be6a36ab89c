"""What is kept of a graded student: plain data that is the same for the same work.

    StudentRecord -> ChapterRecord -> ExerciseRecord

It holds no time of day, no path and nothing random. Penalties and overrides are not in it:
they are worked out anew for each report (`totals`), so that changing them regrades nobody.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.grading.feedback import CellRun, Run
from course_lib.grading.model import ExerciseMark, OnCard, Problem


@dataclasses.dataclass(frozen=True)
class ExerciseRecord:
    """One exercise of one student: an `ExerciseMark` whose finding is text.

    Attributes:
      rule: the rule of the finding, "" for none.
      finding: the finding in lines, with the student's own line.
      source: what the student wrote in the exercise's cell.
      All others: as in `ExerciseMark`.
    """

    exercise: str
    points: float
    of: float
    verdict: str
    fault: str = ""
    words: tuple[str, ...] = ()
    rule: str = ""
    finding: tuple[str, ...] = ()
    first_difference: str = ""
    hints: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    passed: int = 0
    cases: int = 0
    private: tuple[str, ...] = ()
    source: str = ""
    card: OnCard | None = None

    @classmethod
    def of_mark(cls, mark: ExerciseMark, source: str) -> ExerciseRecord:
        """The record of a mark."""
        same = {
            f.name: getattr(mark, f.name)
            for f in dataclasses.fields(ExerciseMark)
            if f.name != "finding"
        }
        found = mark.finding
        return cls(
            **same,
            rule=found.rule if found else "",
            finding=tuple(str(found).splitlines()) if found else (),
            source=source,
        )


@dataclasses.dataclass(frozen=True)
class ChapterRecord:
    """One chapter of one student.

    Attributes:
      chapter: its name.
      answers: one for each exercise, in the chapter's order.
      run: what happened when the notebook ran; None where it was not run.
      problems, flags: as in `Merged`, and what the run showed.
      received: when it came in, ISO 8601; "" where that is unknown.
      file: the name of the file.
    """

    chapter: str
    answers: tuple[ExerciseRecord, ...]
    run: Run | None = None
    problems: tuple[Problem, ...] = ()
    flags: tuple[str, ...] = ()
    received: str = ""
    file: str = ""


@dataclasses.dataclass(frozen=True)
class StudentRecord:
    """Everything that is known of one student.

    Attributes:
      student: what the reports call them.
      key: the digest of their work and of all that its marks depend on.
      chapters: one for each chapter that was asked for.
      problems: what was wrong with what they sent as a whole.
      lms_id: the platform's number.
      unsafe: whether their code ran without a sandbox.
      failed: why they could not be graded, "" where they were.
    """

    student: str
    key: str
    chapters: tuple[ChapterRecord, ...] = ()
    problems: tuple[Problem, ...] = ()
    lms_id: str = ""
    unsafe: bool = False
    failed: str = ""

    @property
    def answers(self) -> tuple[ExerciseRecord, ...]:
        """The exercises of all chapters."""
        return tuple(a for c in self.chapters for a in c.answers)


def to_data(record: StudentRecord) -> dict[str, Any]:
    """A record as JSON has it."""
    return dataclasses.asdict(record)


def from_data(data: Mapping[str, Any]) -> StudentRecord:
    """A record from JSON.

    Raises:
      KeyError, TypeError, ValueError: it is none.
    """
    return StudentRecord(
        **{
            **data,
            "chapters": tuple(map(_chapter, data["chapters"])),
            "problems": _problems(data["problems"]),
        }
    )


def _chapter(data: Mapping[str, Any]) -> ChapterRecord:
    run = data["run"]
    return ChapterRecord(
        **{
            **data,
            "answers": tuple(map(_exercise, data["answers"])),
            "run": None
            if run is None
            else Run(**{**run, "cells": tuple(CellRun(**c) for c in run["cells"])}),
            "problems": _problems(data["problems"]),
            "flags": tuple(data["flags"]),
        }
    )


def _exercise(data: Mapping[str, Any]) -> ExerciseRecord:
    card = data.get("card")
    return ExerciseRecord(**{**_tuples(data), "card": OnCard(**card) if card else None})


def _problems(data: Sequence[Mapping[str, str]]) -> tuple[Problem, ...]:
    return tuple(Problem(**p) for p in data)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
