"""What an exercise is, and the list of all of them.

An exercise is a function from arrays to arrays that contains or calls a GPU
kernel. Everything about it is data, apart from whoever judges it: `judge` runs
its own cases, grading runs hidden ones. Each chapter has a module of its own
here, `course_lib/exercises/<chapter title>.py`, which calls `register` once per
exercise when it is imported; nobody has to list it anywhere.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from course_lib.diagnostics import CourseError

_ID = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_SOLUTIONS = Path(__file__).resolve().parents[2] / "solutions"
# The other modules of this package are chapters.
_ENGINE_MODULES = {
    "advice",
    "answers",
    "cases",
    "compare",
    "judging",
    "mojo_judging",
    "patterns",
    "predictions",
    "records",
    "registry",
    "variations",
    "verdict",
}
DRAWS = ("normal",)


@dataclasses.dataclass(frozen=True)
class Spec:
    """One array argument of a case.

    Attributes:
      shape: the array's shape; `()` is a scalar.
      dtype: its name in NumPy or ml_dtypes ("float32", "bfloat16", "int8", ...).
      draw: how its elements are drawn, all of them independently. "normal" is the
        standard normal distribution; integers are uniform over a range whose
        products still fit (int8: all of it, int32: -32768 to 32767), booleans fair.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    draw: str = "normal"

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of arguments to try a function on.

    Attributes:
      args: the positional arguments, all arrays.
      static: keyword arguments that are plain numbers; function and reference get both.
    """

    args: tuple[Spec, ...]
    static: Mapping[str, int] = MappingProxyType({})

    def __str__(self) -> str:
        parts = [*map(str, self.args), *(f"{k}={v}" for k, v in self.static.items())]
        return ", ".join(parts) or "no arguments"


class Task(Protocol):
    """How an answer is judged that is not a Python function but a program of another kind."""

    def judge(
        self,
        exercise: Exercise,
        answer: object,
        *,
        cases: tuple[Case, ...],
        seed: int,
        native: bool | None,
    ) -> Any:
        """The `Verdict` on an answer; see `judging.judge`."""


@dataclasses.dataclass(frozen=True)
class Exercise:
    """An exercise: what is asked, how it is judged, and the help that can be had.

    Attributes:
      id: chapter title without its number, a dot, a name: "start_here.fill_iota".
      function: the name of the learner's function in its notebook cell.
      title: a few words, for tables.
      statement: what the function has to do, one or a few sentences.
      signature: its head as the learner sees it: "fill_iota(shape) -> int32[m, n]".
      lines: about how many lines the answer takes.
      reference: the truth. Takes a case's arguments as NumPy arrays of the case's own
        dtypes (and its `static` as keywords); returns one NumPy array or a tuple of
        them, each of the shape and dtype asked for. Sum in float64 and cast at the end.
      cases: what to try it on, several shapes.
      hints: three, of growing help; the last nearly gives it away.
      requires: primitive -> how often it must occur inside the kernels, at least
        ("copy_gmem_to_smem": 1). Names are those of `course_lib.model.Trace.inside`; of a Mojo
        program they are words of its text ("rebind", "warp.sum").
      forbids: primitives that must not occur inside the kernels.
      expects: what the compiler must make of the first case, by architecture:
        `{"sm_90a": {"wgmma.mma_async": ">=4", "spill_bytes": 0}}` (`compiler.expectations`).
      needs_kernel: False where the answer is a computation about kernels (a roofline, say) and
        holds none.
      program: how the answer is judged where it is a program rather than a function
        (`mojo_judging.MojoTask`); then `expects` is about that program as it stands.
      rtol, atol: tolerances, where those of `compare.TOLERANCES` do not fit (an element
        is right when |got - wanted| <= atol + rtol * |wanted|). Integers are exact.
    """

    id: str
    function: str
    title: str
    statement: str
    signature: str
    lines: int
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    hints: tuple[str, str, str]
    requires: Mapping[str, int] = MappingProxyType({})
    forbids: tuple[str, ...] = ()
    expects: Mapping[str, Mapping[str, int | str]] = MappingProxyType({})
    needs_kernel: bool = True
    program: Task | None = None
    rtol: float | None = None
    atol: float | None = None

    @property
    def chapter(self) -> str:
        """The chapter's title without its number: "start_here"."""
        return self.id.split(".")[0]

    @property
    def name(self) -> str:
        """The id without its chapter: "fill_iota"."""
        return self.id.split(".")[1]


_exercises: dict[str, Exercise] = {}


def register(exercise: Exercise) -> Exercise:
    """Adds an exercise to the list and returns it.

    Raises:
      ValueError: it is malformed, or another exercise has its id already.
    """
    _validate(exercise)
    other = _exercises.get(exercise.id)
    if other is not None and _origin(other) != _origin(exercise):  # a reload may replace its own
        raise ValueError(f"exercise {exercise.id!r} is registered by {_origin(other)} already")
    _exercises[exercise.id] = exercise
    return exercise


def get(exercise_id: str) -> Exercise:
    """The exercise of that id.

    Raises:
      CourseError: there is none; names the ids that come closest.
    """
    if not isinstance(exercise_id, str):
        raise CourseError(
            f"An exercise's id is text in quotes, such as {_example_id()!r}; "
            f"this is {_a_or_an(type(exercise_id).__name__)}."
        )
    chapter = exercise_id.split(".")[0]
    if exercise_id not in _exercises and chapter in _chapter_modules():
        importlib.import_module(f"{__package__}.{chapter}")
    if exercise_id in _exercises:
        return _exercises[exercise_id]
    _import_chapters()  # the closest names may be in any of them
    raise CourseError(f"There is no exercise {exercise_id!r}. {_closest(exercise_id)}")


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise, by chapter and in the order in which its chapter registers them."""
    _import_chapters()
    return tuple(sorted(_exercises.values(), key=lambda e: (chapter_name(e.chapter), e.chapter)))


def chapter_name(title: str) -> str:
    """A chapter's title with its number: "00_start_here"; the title where it has no source."""
    numbered = sorted(_SOLUTIONS.glob("[0-9][0-9]_*.md"))
    return next((p.stem for p in numbered if p.stem[3:] == title), title)


def _origin(exercise: Exercise) -> str:
    return f"{exercise.reference.__module__}.{exercise.reference.__qualname__}"


def _validate(exercise: Exercise) -> None:
    """Finds an author's mistakes when the module is imported rather than at a learner's check."""
    e = exercise
    wrong = {
        f"id {e.id!r} is not of the form 'chapter_title.exercise_name'": not _ID.fullmatch(e.id),
        f"function {e.function!r} is not a Python name": not e.function.isidentifier(),
        "title, statement and signature need text": not (e.title and e.statement and e.signature),
        f"{e.signature=} does not name the function {e.function!r}": e.function not in e.signature,
        f"{e.lines=} is not a number of lines": e.lines < 1,
        "the function of an exercise about a program is called like the exercise": e.program
        is not None
        and e.function != e.name,
        "reference is not a function": not callable(e.reference),
        "there is no case": not e.cases,
        "three hints are needed, none of them empty": len(e.hints) != 3 or not all(e.hints),
        "every exercise takes the same number of arguments in all its cases": len(
            {len(c.args) for c in e.cases}
        )
        > 1,
    }
    problems = [text for text, is_wrong in wrong.items() if is_wrong]
    problems += [p for c in e.cases for s in c.args for p in _spec_problems(s)]
    if problems:
        raise ValueError(f"exercise {e.id!r}: {'; '.join(problems)}")


def _spec_problems(spec: Spec) -> list[str]:
    problems = []
    if spec.draw not in DRAWS:
        problems.append(f"draw {spec.draw!r} is none of {', '.join(DRAWS)}")
    if any(n < 1 for n in spec.shape):
        problems.append(f"shape {spec.shape} has an empty dimension")
    try:
        if numpy_dtype(spec.dtype).itemsize > 4:
            problems.append(f"{spec.dtype} has 64 bits, JAX keeps 32")
    except TypeError:
        problems.append(f"there is no dtype {spec.dtype!r}")
    return problems


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`, those of ml_dtypes ("bfloat16") included.

    Raises:
      TypeError: there is none.
    """
    try:
        return np.dtype(name)
    except TypeError:
        if not hasattr(ml_dtypes, name):
            raise
        return np.dtype(getattr(ml_dtypes, name))


def _import_chapters() -> None:
    for chapter in _chapter_modules():
        importlib.import_module(f"{__package__}.{chapter}")


@functools.cache
def _chapter_modules() -> tuple[str, ...]:
    package = importlib.import_module(__package__)
    names = (m.name for m in pkgutil.iter_modules(package.__path__))
    return tuple(sorted(n for n in names if n not in _ENGINE_MODULES))


def _closest(exercise_id: str) -> str:
    """A guess at what was meant: by the whole id, else by the name without its chapter."""
    by_name = {e.name: e.id for e in _exercises.values()}
    name = exercise_id.rpartition(".")[2]
    close = (
        difflib.get_close_matches(exercise_id, _exercises, n=1, cutoff=0.85)
        or [by_name[n] for n in difflib.get_close_matches(name, by_name, n=1, cutoff=0.7)]
        or difflib.get_close_matches(exercise_id, _exercises, n=3, cutoff=0.6)
    )
    if close:
        return f"Did you mean {' or '.join(map(repr, close))}?"
    return "`progress()` lists all of them."


def _example_id() -> str:
    return next(iter(_exercises), "start_here.fill_iota")


def _a_or_an(noun: str) -> str:
    return f"{'an' if noun[0].lower() in 'aeiou' else 'a'} {noun}"
