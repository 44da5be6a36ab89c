"""Variants of exercises: the same exercise with other numbers, for a class of one's own.

The course is public, and so are its solutions. An instructor draws a variant of
each exercise instead: other tiles, other constants, something to do on the way.

    values = draw(get("asynchronous_copies.triple"), seed=7)   # {"factor": 5, "slots": 3}
    mine = exercise("asynchronous_copies.triple", "factor=5, slots=3")

A variant is an `Exercise` like any other: same id and function, with a statement,
cases and a reference of its own. It is named by its values, so that a notebook, a
release and a mark can all say which one they are about. The exercises of a chapter
are varied by a module of its name in this package, which holds a dictionary
`VARIANTS` from an exercise's name to its `Variants`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from course_lib.diagnostics import CourseError
from course_lib.exercises.registry import Case, Exercise, get

Values = Mapping[str, int]
Edit = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Varied:
    """What is different in a variant.

    Attributes:
      statement: what the function has to do.
      reference: the truth, as in `Exercise`.
      edits: `(old, new)` pieces of text of the learner's notebook, in the exercise's cell or
        in the Markdown cell above it; each `old` is in one of the two.
      signature: the function's head; "" where it stays.
      cases: what to try it on; None where the exercise's own cases fit.
      rtol, atol: tolerances; None where those of the exercise fit.
    """

    statement: str
    reference: Callable[..., Any]
    edits: tuple[Edit, ...]
    signature: str = ""
    cases: tuple[Case, ...] | None = None
    rtol: float | None = None
    atol: float | None = None


@dataclasses.dataclass(frozen=True)
class Variants:
    """The variants of one exercise.

    Attributes:
      parameters: name -> the values that may be drawn. The exercise as the course has it
        is not among them: its public solution fails every variant.
      vary: gives what is different, from one value of each parameter, by keyword.
    """

    parameters: Mapping[str, Sequence[int]]
    vary: Callable[..., Varied]


def of(exercise: Exercise) -> Variants | None:
    """The variants of an exercise, or None where it has none."""
    name = f"{__name__}.{exercise.chapter}"
    if importlib.util.find_spec(name) is None:
        return None
    variants: Mapping[str, Variants] = importlib.import_module(name).VARIANTS
    return variants.get(exercise.name)


def draw(exercise: Exercise, *, seed: int) -> Values:
    """One value of each parameter, always the same for the same seed; {} without variants."""
    variants = of(exercise)
    parameters = variants.parameters if variants else {}
    return MappingProxyType(
        {
            name: values[_number(seed, exercise.id, name) % len(values)]
            for name, values in parameters.items()
        }
    )


def _number(*parts: object) -> int:
    """A number that looks random, the same on every machine and in every version of NumPy."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def to_text(values: Values) -> str:
    """A variant's values as a notebook has them: "factor=5, slots=3"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def from_text(exercise: Exercise, text: str) -> Values:
    """The values that a text names, "" for the exercise as the course has it.

    Raises:
      CourseError: the exercise has no such variant.
    """
    if not text.strip():
        return MappingProxyType({})
    variants = of(exercise)
    if variants is None:
        raise CourseError(
            f'The exercise "{exercise.id}" has no variants: leave out variant={text!r}.'
        )
    values: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (p.strip() for p in part.partition("="))
        if not equals or not number.removeprefix("-").isdecimal():
            raise CourseError(f'A variant reads "name=number, ...", and {part.strip()!r} does not.')
        values[name] = int(number)
    _check(exercise, variants, values)
    return MappingProxyType({name: values[name] for name in variants.parameters})


def _check(exercise: Exercise, variants: Variants, values: Values) -> None:
    if set(values) != set(variants.parameters):
        names = " and ".join(variants.parameters)
        raise CourseError(
            f'A variant of "{exercise.id}" says {names}; this one: {to_text(values)}.'
        )
    for name, value in values.items():
        if value not in variants.parameters[name]:
            known = ", ".join(map(str, variants.parameters[name]))
            raise CourseError(
                f'"{exercise.id}" has no variant with {name}={value}; {name} may be: {known}.'
            )


def exercise(exercise_id: str, text: str = "") -> Exercise:
    """An exercise, or the variant of it that a text names.

    Raises:
      CourseError: there is no such exercise, or no such variant.
    """
    plain = get(exercise_id)
    return apply(plain, from_text(plain, text))


def apply(plain: Exercise, values: Values) -> Exercise:
    """The variant of an exercise with some values; the exercise itself for {}."""
    if not values:
        return plain
    varied = _varied(plain, values)
    return dataclasses.replace(
        plain,
        statement=varied.statement,
        signature=varied.signature or plain.signature,
        reference=varied.reference,
        cases=plain.cases if varied.cases is None else varied.cases,
        rtol=plain.rtol if varied.rtol is None else varied.rtol,
        atol=plain.atol if varied.atol is None else varied.atol,
    )


def edits(plain: Exercise, values: Values) -> tuple[Edit, ...]:
    """What a variant changes in the learner's notebook; () for {}."""
    return _varied(plain, values).edits if values else ()


def _varied(plain: Exercise, values: Values) -> Varied:
    variants = of(plain)
    if variants is None:
        raise CourseError(f'The exercise "{plain.id}" has no variants.')
    return variants.vary(**values)
