"""How the course's solution becomes the solution of a variant: edits of its text.

    edited(exercise_id, values, text)

`text` is the solution's region; what comes back is an answer to the variant with `values`.
Each chapter's edits are in a module of its name, by the name of the exercise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path

Values = Mapping[str, int]
Edits = Callable[[Values], tuple[tuple[str, str], ...]]


def answered() -> set[str]:
    """The ids of the exercises whose variants have a solution here."""
    chapters = [p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__"]
    return {f"{c}.{name}" for c in chapters for name in _answers(c)}


def _answers(chapter: str) -> Mapping[str, Edits]:
    answers: Mapping[str, Edits] = importlib.import_module(f"{__name__}.{chapter}").ANSWERS
    return answers


def edited(exercise_id: str, values: Values, text: str) -> str:
    """An answer to a variant, from the text of the course's solution."""
    chapter, name = exercise_id.split(".")
    for old, new in _answers(chapter)[name](values):
        assert old in text, (exercise_id, old)
        text = text.replace(old, new)
    return text
