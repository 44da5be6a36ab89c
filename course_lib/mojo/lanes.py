"""A block of lanes in Python: what barriers and atomics are for, seen without a GPU.

    def reverse(lane, x, y, item):
        item[lane] = x[lane]
        yield                                    # barrier()
        y[lane] = item[255 - lane]

    report = run_lanes(reverse, 256, x=x, y=unset(256), item=unset(256))

Each lane is a generator. Between two barriers the lanes run one after the other,
in an order that is drawn anew each time; no GPU promises another one. Whatever
two lanes do to one element between the same two barriers is compared: if one of
them writes, and not both by an atomic operation, the result depends on the order.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from course_lib.diagnostics import Access, CourseError, Finding, Severity, locations

Array = np.ndarray[Any, Any]
Lane = int | tuple[int, ...]
Index = tuple[int, ...]
_VERBS = {"read": "reads", "write": "writes", "atomic": "adds atomically to"}


def unset(*shape: int) -> Array:
    """An array that nobody wrote yet: float64 of that shape, every element NaN."""
    return np.full(shape, np.nan)


@dataclasses.dataclass(frozen=True)
class LaneReport:
    """What a block of lanes did.

    Attributes:
      arrays: the arrays as they are at the end, by name.
      findings: what is wrong, in the order in which it happened.
      barriers: how many barriers all lanes came to.
    """

    arrays: dict[str, Array]
    findings: tuple[Finding, ...]
    barriers: int

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def rule(self) -> str:
        """The rule that was broken first; else "no findings"."""
        return self.findings[0].rule if self.findings else "no findings"

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self.findings)) or "No findings."


@dataclasses.dataclass(frozen=True)
class _Touch:
    """One access: what was done ("read", "write", "atomic"), by which lane, where."""

    what: str
    lane: Lane
    where: locations.Location


class Watched:
    """An array as the lanes see it: every access is noted with its lane and its line."""

    def __init__(self, name: str, array: Array):
        self.array = np.array(array)
        self.name = name
        self.lane: Lane = 0
        self.touched: defaultdict[Index, list[_Touch]] = defaultdict(list)

    def __getitem__(self, index: int | Index) -> Any:
        return self.array[self._note("read", index)]

    def __setitem__(self, index: int | Index, value: Any) -> None:
        self.array[self._note("write", index)] = value

    def atomic_add(self, index: int | Index, value: Any) -> None:
        """Adds to an element in one piece: no other lane's addition gets lost."""
        self.array[self._note("atomic", index)] += value

    def _note(self, what: str, index: int | Index) -> Index:
        place = tuple(map(int, index if isinstance(index, tuple) else (index,)))
        shape = self.array.shape
        fits = len(place) == len(shape) and all(
            0 <= i < n for i, n in zip(place, shape, strict=True)
        )
        if not fits:
            raise CourseError(
                f"Lane {self.lane} {_VERBS[what]} {_element(self.name, place)}, "
                f"but {self.name} has the shape {shape}."
            )
        frame = sys._getframe(2)
        where = locations.locate(frame.f_code.co_filename, frame.f_lineno)
        self.touched[place].append(_Touch(what, self.lane, where))
        return place


def run_lanes(
    body: Callable[..., Generator[None] | None], lanes: Lane, /, **arrays: Any
) -> LaneReport:
    """Runs `body(lane, **arrays)` for every lane of one block, from barrier to barrier.

    Args:
      body: what a lane does; each `yield` in it is a barrier.
      lanes: how many lanes; a tuple for a block of several dimensions, and `lane` is one then.
      arrays: what `body` works on; it sees copies, which the report holds.

    Raises:
      CourseError: a lane uses an element that is not there.
    """
    watched = {name: Watched(name, np.asarray(array)) for name, array in arrays.items()}
    waiting = {lane: _begin(body, lane, watched) for lane in _all(lanes)}
    findings: list[Finding] = []
    barriers = 0
    while waiting:
        order = random.sample(list(waiting), len(waiting))
        arrived = [lane for lane in order if _step(waiting[lane], lane, watched)]
        findings += _races(watched, barriers)
        if arrived and len(arrived) < len(waiting):
            findings.append(_divergence(arrived, sorted(set(waiting) - set(arrived)), barriers))
            break
        waiting = {lane: waiting[lane] for lane in arrived}
        barriers += bool(arrived)
    return LaneReport({n: w.array for n, w in watched.items()}, tuple(findings), barriers)


def _all(lanes: Lane) -> list[Lane]:
    if isinstance(lanes, int):
        return list(range(lanes))
    return list(itertools.product(*map(range, lanes)))


def _begin(body: Callable[..., Any], lane: Lane, watched: dict[str, Watched]) -> Generator[None]:
    """The lane's body as a generator, also where it has no barrier; nothing runs yet."""
    going = body(lane, **watched) if inspect.isgeneratorfunction(body) else None
    if going is not None:
        yield from going
    else:
        body(lane, **watched)


def _step(body: Any, lane: Lane, watched: dict[str, Watched]) -> bool:
    """Lets a lane go on to its next barrier; False when it ends instead."""
    for array in watched.values():
        array.lane = lane
    try:
        next(body)
    except StopIteration:
        return False
    return True


def _races(watched: dict[str, Watched], barriers: int) -> list[Finding]:
    """The races of one phase, a finding for each array; forgets what was noted."""
    findings = []
    for array in watched.values():
        pairs = {place: pair for place, t in array.touched.items() if (pair := _conflict(t))}
        if pairs:
            findings.append(_race(array.name, min(pairs), pairs[min(pairs)], len(pairs), barriers))
        array.touched.clear()
    return findings


def _conflict(touched: list[_Touch]) -> tuple[_Touch, _Touch] | None:
    """A write and another lane's access to the same element, of the lowest lanes that do it."""
    ordered = sorted(touched, key=lambda t: (t.lane, t.what))
    for write in (t for t in ordered if t.what != "read"):
        for other in ordered:
            if other.lane != write.lane and {write.what, other.what} != {"atomic"}:
                return write, other
    return None


def _race(
    name: str, place: Index, pair: tuple[_Touch, _Touch], count: int, barriers: int
) -> Finding:
    element = _element(name, place)
    more = f", and {count - 1} other elements of {name} likewise" if count > 1 else ""
    return Finding(
        rule="lane-race",
        severity=Severity.ERROR,
        what=f"Two lanes use {element}, one of them writes it, and no barrier is between{more}.",
        accesses=tuple(
            Access(f"{_VERBS[t.what]} {element}", f"lane {t.lane}", t.where) for t in pair
        ),
        why=f"After barrier {barriers} the lanes run in any order, until the next one."
        if barriers
        else "Lanes run in any order until the first barrier.",
        fix="A barrier between the two, or an atomic operation if all that they do is add.",
    )


def _divergence(arrived: list[Lane], ended: list[Lane], barriers: int) -> Finding:
    return Finding(
        rule="barrier-divergence",
        severity=Severity.ERROR,
        what=f"{len(arrived)} lanes wait at barrier {barriers + 1}, to which {len(ended)} others, "
        f"lane {ended[0]} the first of them, never come.",
        why="A barrier is for all lanes of the block. If some never come, the others wait for "
        "ever or go on too early (CUDA Programming Guide, __syncthreads).",
        fix="Keep barriers out of branches that only some lanes take.",
    )


def _element(name: str, place: Index) -> str:
    return f"{name}[{', '.join(map(str, place))}]"
