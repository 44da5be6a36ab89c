"""Marks by hand: a file in the report's folder that is read at each run and never written over.

[manual]                          # what is marked by hand, and the points that it is worth
talk = 5

["Ada Lovelace (12345)"]
note = "extension until Friday"
late_days = 0                     # instead of what the dates say
points."transforms.transposed" = 1
manual.talk = 4
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from course_lib.authoring.files import write_whole
from course_lib.diagnostics import CourseError

FILE = "overrides.toml"
_KEYS = ("late_days", "manual", "note", "points")
_TEMPLATE = """\
# Marks by hand. `course grade` reads this file at each run and never writes to it again.
#
# [manual]                             what you mark by hand, and the points that it is worth
# talk = 5
#
# ["Ada Lovelace (12345)"]             a student, as the report calls them
# note = "extension until Friday"      stands in their report
# late_days = 0                        instead of what the dates say
# points."transforms.transposed" = 1   instead of what was earned, penalties included
# manual.talk = 4
"""


@dataclasses.dataclass(frozen=True)
class Override:
    """What an instructor decided about one student.

    Attributes:
      points: points by exercise; they stand as they are.
      manual: points by the name of what was marked by hand.
      late_days: days late, None where the dates count.
      note: a sentence for the student.
    """

    points: Mapping[str, float] = dataclasses.field(default_factory=dict)
    manual: Mapping[str, float] = dataclasses.field(default_factory=dict)
    late_days: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Overrides:
    """The whole file: `manual` is what there is to mark by hand, and its points."""

    students: Mapping[str, Override] = dataclasses.field(default_factory=dict)
    manual: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def of(self, *names: str) -> Override:
        """The override of a student by any of their names; an empty one where there is none."""
        return next((self.students[n] for n in names if n in self.students), Override())

    def strangers(self, names: Collection[str]) -> list[str]:
        """A sentence for each entry that is about nobody in the class, whose names are given."""
        said = []
        for name in sorted(self.students.keys() - set(names)):
            near = [n for n in sorted(names) if n.startswith(name)]
            near = near or difflib.get_close_matches(name, sorted(names), n=1)
            ask = f' Did you mean ["{near[0]}"]?' if near else ""
            said.append(f"{FILE}: nobody in the class is called {name!r}: not applied.{ask}")
        return said


def read(folder: Path, *, exercises: tuple[str, ...]) -> Overrides:
    """The overrides of a report's folder; writes a file that explains itself where there is none.

    Raises:
      CourseError: the file says something that is not understood; says what.
    """
    path = folder / FILE
    if not path.exists():
        write_whole(path, _TEMPLATE)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CourseError(f"{path} cannot be read: {error}.") from None
    manual = _numbers(data.pop("manual", {}), "manual")
    students = {n: _override(n, d, set(exercises), set(manual)) for n, d in data.items()}
    return Overrides(students, manual)


def _override(name: str, data: Any, exercises: set[str], manual: set[str]) -> Override:
    if not isinstance(data, dict):
        raise CourseError(f'{FILE}: {name!r} is not a student; write ["{name}"].')
    for key in data.keys() - set(_KEYS):
        raise CourseError(f"{FILE}, {name}: there is no {key!r}; there are {', '.join(_KEYS)}.")
    points = _numbers(data.get("points", {}), f"{name}, points")
    marks = _numbers(data.get("manual", {}), f"{name}, manual")
    for exercise in points.keys() - exercises:
        raise CourseError(f"{FILE}, {name}: {exercise!r} is no exercise of what was graded.")
    for part in marks.keys() - manual:
        raise CourseError(f"{FILE}, {name}: {part!r} is not listed under [manual].")
    late = data.get("late_days")
    late_days = None if late is None else _number(late, f"{name}, late_days", "days")
    return Override(points, marks, late_days, str(data.get("note", "")))


def _numbers(data: Any, where: str) -> dict[str, float]:
    if not isinstance(data, dict):
        raise CourseError(f"{FILE}, {where}: this is a table of numbers, such as name = 1.")
    return {str(k): _number(v, f"{where}, {k}") for k, v in data.items()}


def _number(value: Any, where: str, unit: str = "points") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise CourseError(f"{FILE}, {where}: {value!r} is not a number of {unit} from 0 up.")
    return float(value)
