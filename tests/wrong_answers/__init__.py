"""What learners really get wrong, kept with every exercise.

`tests/wrong_answers/<chapter title>/<exercise name>.py` holds a dictionary
`WRONG: dict[str, Wrong]`; `tests/exercises/test_wrong_answers.py` feeds each of
them to its exercise's check, which has to reject it and to name its fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong answer to an exercise.

    Attributes:
      fn: the function a learner might hand in.
      fault: the fault the verdict must name: one of `course_lib.exercises.FAULTS` ("value",
        "shape", "nan", "race", "means", ...) or, more exactly, the rule of the finding
        that it reports ("read-before-arrival").
      says: pieces of text that the verdict must contain, such as the index of the
        first wrong element, the missing call or the learner's own line.
    """

    fn: Callable[..., Any]
    fault: str
    says: tuple[str, ...] = ()
