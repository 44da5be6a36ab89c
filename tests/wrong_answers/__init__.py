"""What learners really get wrong, kept with every exercise.

`tests/wrong_answers/<chapter title>/<exercise name>.py` holds a dictionary
`WRONG: dict[str, Wrong]`; `tests/exercises/test_wrong_answers.py` feeds each of
them to its exercise's check, which has to reject it and to name its fault.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from typing import Any

from course_lib.authoring.regions import regions
from course_lib.authoring.solutions import exercise_cells
from course_lib.mojo.answers import Answer, answer_of


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong answer to an exercise.

    Attributes:
      fn: the function a learner might hand in, or the Mojo program.
      fault: the fault the verdict must name: one of `course_lib.exercises.FAULTS` ("value",
        "shape", "nan", "race", "means", ...) or, more exactly, the rule of the finding
        that it reports ("read-before-arrival").
      says: pieces of text that the verdict must contain, such as the index of the
        first wrong element, the missing call or the learner's own line.
    """

    fn: Callable[..., Any] | Answer
    fault: str
    says: tuple[str, ...] = ()


def mojo_answer(exercise: str, *gaps: str) -> Answer:
    """The Mojo program of an exercise's cell, with each of its gaps filled by these lines."""
    cell = exercise_cells(exercise.split(".")[0])[exercise]
    lines = cell.text.splitlines()
    for region, gap in reversed(list(zip(regions(cell.text), gaps, strict=True))):
        filled = textwrap.indent(textwrap.dedent(gap).strip("\n"), region.indent)
        lines[region.begin - 1 : region.end] = filled.splitlines()
    return answer_of("\n".join([*lines, ""]))
