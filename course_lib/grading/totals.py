"""What a student's marks add up to: penalties for late work, and what was decided by hand.

A day that has begun is a day late. What an instructor wrote into overrides.toml stands as it is:
no penalty is taken off it.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence

from course_lib.grading.model import Late
from course_lib.grading.overrides import Override, Overrides
from course_lib.grading.records import ChapterRecord, ExerciseRecord, StudentRecord

_MOST_FLAGS, _LONGEST_FLAG = 30, 400


@dataclasses.dataclass(frozen=True)
class Line:
    """One exercise in a report.

    Attributes:
      answer: how it was graded.
      points: what it counts in the end.
      by_hand: whether an instructor said so.
    """

    answer: ExerciseRecord
    points: float
    by_hand: bool = False


@dataclasses.dataclass(frozen=True)
class Total:
    """A student's marks, summed up.

    Attributes:
      name: what the report calls them.
      record: how they were graded.
      lines: one for each exercise.
      points, of: the sum, and what there was to earn.
      late_days: the days late of the latest chapter.
      penalty: the points taken off for that.
      manual: points by what was marked by hand.
      notes: sentences about penalties and decisions.
      flags: what to look at.
    """

    name: str
    record: StudentRecord
    lines: tuple[Line, ...]
    points: float
    of: float
    late_days: float = 0
    penalty: float = 0.0
    manual: Mapping[str, float] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def total(
    record: StudentRecord,
    late: Late,
    overrides: Overrides,
    *,
    name: str = "",
    flags: tuple[str, ...] = (),
) -> Total:
    """The sum of a student's marks.

    Args:
      record: how they were graded.
      late: what late work costs.
      overrides: what was decided by hand.
      name: what the report calls them, where that is not their own name.
      flags: flags that come of comparing students.
    """
    mine = overrides.of(record.student, name)
    lines: list[Line] = []
    notes: list[str] = []
    late_days, penalty = 0.0, 0.0
    for chapter in record.chapters:
        days = days_late(chapter, late) if mine.late_days is None else mine.late_days
        share = min(late.at_most, late.per_day * days)
        late_days = max(late_days, days)
        chapter_lines = [_line(a, share, mine) for a in chapter.answers]
        off = sum(x.answer.points - x.points for x in chapter_lines if not x.by_hand)
        penalty += off
        if off > 0:
            notes.append(_late_note(chapter.chapter, days, share, off))
        lines += chapter_lines
    notes += [f"{x.answer.exercise}: {_n(x.points)} points, by hand." for x in lines if x.by_hand]
    notes += [
        f"{part}: {_n(p)} of {_n(overrides.manual[part])} points."
        for part, p in mine.manual.items()
    ]
    notes += [mine.note] if mine.note else []
    own = [p.sentence for p in record.problems]
    own += [f for c in record.chapters for f in c.flags]
    own += [f"{a.exercise}: {f}" for a in record.answers for f in a.flags]
    return Total(
        name=name or record.student,
        record=record,
        lines=tuple(lines),
        points=round(sum(x.points for x in lines) + sum(mine.manual.values()), 6),
        of=round(sum(x.answer.of for x in lines) + sum(overrides.manual.values()), 6),
        late_days=late_days,
        penalty=round(penalty, 6),
        manual={part: mine.manual.get(part, 0.0) for part in overrides.manual},
        notes=tuple(notes),
        flags=_few((*flags, *own)),
    )


def _few(flags: Sequence[str]) -> tuple[str, ...]:
    """The first flags, cut short: nobody hides a class's report behind their own."""
    short = [f if len(f) <= _LONGEST_FLAG else f"{f[:_LONGEST_FLAG]}..." for f in flags]
    if (left := len(short) - _MOST_FLAGS) > 0:
        short[_MOST_FLAGS:] = [f"and {left} more flags"]
    return tuple(short)


def _line(answer: ExerciseRecord, share: float, mine: Override) -> Line:
    if answer.exercise in mine.points:
        return Line(answer, mine.points[answer.exercise], by_hand=True)
    return Line(answer, round(answer.points * (1 - share), 6))


def days_late(chapter: ChapterRecord, late: Late) -> int:
    """How many days a chapter came late, begun days counted; 0 where nobody knows."""
    if late.deadline is None or not chapter.received:
        return 0
    over = datetime.datetime.fromisoformat(chapter.received) - late.deadline
    if over <= datetime.timedelta(hours=late.grace_hours):
        return 0
    return math.ceil(over / datetime.timedelta(days=1))


def _late_note(chapter: str, days: float, share: float, off: float) -> str:
    plural = "" if days == 1 else "s"
    return f"{chapter} came {_n(days)} day{plural} late: {share:.0%} less, {_n(off)} points."


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
