"""Exercises: the list of them, the judge, hints, predictions and progress.

    check("memory_spaces.stage_through_smem", stage_through_smem)
    hint("memory_spaces.stage_through_smem")
    predict("memory_spaces.tile-bytes", 32768)
    reveal("memory_spaces.tile-bytes", tile.nbytes)
    progress()

A chapter's module (`course_lib/exercises/<chapter title>.py`) registers its
exercises; see `Exercise` for what one consists of. `judge` answers with a
`Verdict` and prints nothing; `check` prints it and notes it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from course_lib.diagnostics import CourseError
from course_lib.exercises.judging import judge
from course_lib.exercises.predictions import predict, reveal
from course_lib.exercises.records import note_check, note_hint, progress_table
from course_lib.exercises.registry import (
    Case,
    Exercise,
    Spec,
    all_exercises,
    get,
    register,
)
from course_lib.exercises.verdict import FAULTS, Verdict

__all__ = [
    "FAULTS",
    "Case",
    "Exercise",
    "Spec",
    "Verdict",
    "all_exercises",
    "check",
    "get",
    "hint",
    "judge",
    "predict",
    "progress",
    "progress_table",
    "register",
    "reveal",
]


def check(
    exercise_id: str,
    fn: Callable[..., Any] | None = None,
    *,
    seed: int | None = None,
    expects: Mapping[str, Mapping[str, int | str]] | None = None,
    variant: str = "",
) -> None:
    """Says whether your function is right, and if not, what is wrong and where.

    It runs on several shapes with fresh random data, on the CPU model of the GPU
    first and, when nothing is wrong there, on your GPU if you have one.

    Args:
      exercise_id: the exercise's id, such as "start_here.fill_iota".
      fn: your function itself, without parentheses after it.
      seed: draws the data of an earlier check again; its verdict names the number.
      expects: what the compiler must make of it as well, by architecture:
        `{"sm_90a": {"wgmma.mma_async": ">=4", "spill_bytes": 0}}`.
      variant: which variant of the exercise, as "factor=5, slots=3": what your instructor's
        notebook has. "" is the exercise as the course has it.

    Raises:
      CourseError: there is no such exercise or variant, or `fn` is not a function.
    """
    if callable(exercise_id):
        right = f'check("{_id_for(exercise_id, fn)}", {_name(exercise_id)})'
        raise CourseError(f"check takes the exercise's id first and your function second: {right}.")
    verdict = judge(exercise_id, fn, seed=seed, expects=expects, variant=variant)
    print(verdict)
    note_check(verdict.exercise, fault=verdict.fault)


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", "your_function"))


def _id_for(fn: Callable[..., Any], given: object) -> str:
    """The id that belongs to a function: the one given in the wrong place, else by its name."""
    if isinstance(given, str):
        return given
    same = [e.id for e in all_exercises() if e.function == _name(fn)]
    return same[0] if len(same) == 1 else "chapter.exercise"


def hint(exercise_id: str) -> None:
    """Prints the next of an exercise's three hints; after the last, the last again.

    Raises:
      CourseError: there is no such exercise.
    """
    exercise = get(exercise_id)
    number = note_hint(exercise.id, of=len(exercise.hints))
    last = " (the last)" if number == len(exercise.hints) else ""
    print(f"Hint {number} of {len(exercise.hints)}{last}, {exercise.id}:")
    for line in exercise.hints[number - 1].strip().splitlines():
        indent = "  " + " " * (len(line) - len(line.lstrip()))
        wrapped = textwrap.wrap(line, 88, initial_indent="  ", subsequent_indent=indent)
        print("\n".join(wrapped))


def progress() -> None:
    """Prints which exercises are done, tried and open, and how many predictions were right."""
    print(progress_table())
