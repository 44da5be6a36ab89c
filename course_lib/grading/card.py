"""What is right in the simulator runs on a card as well: an observation, never a mark.

    card = Card(Sandbox.probe())
    card.device, card.why                         # what it is; why there is none
    marks = card.look(merged, asked, traced, marks)

The trusted side of `card_child`. The student's functions run in a sandbox of their own that has
the card's device files, on inputs that no mark comes from; the arrays that they give are compared
here. Where the card and the simulator disagree (a race that the simulator does not see, a model
that is wrong, a function that looks where it runs) the instructor gets a flag.

A card is used by one student at a time, by whatever processes grade here; all else goes on
beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib import runtime, tracing
from course_lib.exercises.cases import draw_case
from course_lib.exercises.registry import Case, numpy_dtype
from course_lib.grading import provenance, trusted, walls
from course_lib.grading.card_child import START_S
from course_lib.grading.model import ExerciseMark, Merged, OnCard
from course_lib.grading.sandbox import Limits, Outcome, Sandbox
from course_lib.grading.tracing import Asked, Traced, as_npy, case_data, files_of, said_in
from course_lib.simulator import checked

Array = np.ndarray[Any, Any]
Files = Mapping[str, bytes]

LIMIT_S = 60.0  # for one exercise, once the card is awake
BUDGET_S = 300.0  # for all exercises of one student's chapter
WAIT_S = 900.0  # for the others who use the card, for all chapters of one student
_MEMORY_BYTES = 16 << 30
_DISAGREES = ("wrong", "raised", "time", "crash")


class NoArray(Exception):  # noqa: N818 - caught here
    """What a student's process wrote is no array."""


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What was seen of one exercise: what is said of it, and of which case (for the instructor)."""

    on_card: OnCard
    case: str = ""

    def added_to(self, mark: ExerciseMark) -> ExerciseMark:
        """The mark with the observation, and with a flag where that is not what was simulated."""
        flags = mark.flags
        if self.on_card.kind in _DISAGREES:
            where = f" ({self.case})" if self.case else ""
            flag = f"the simulator finds nothing wrong; on the card {self.on_card.words}{where}"
            flags = (*flags, flag)
        return dataclasses.replace(mark, card=self.on_card, flags=flags)


class Card:
    """The card of this machine, with a sandbox to use it in; found at its first use.

    Args:
      sandbox: where students' code runs.
      limit_s: seconds after which an exercise is stopped.
      budget_s: seconds after which a chapter is stopped.
      simulated: for tests on machines without a card: what card this is to be. The same process
        then runs kernels in the simulator.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        limit_s: float = LIMIT_S,
        budget_s: float = BUDGET_S,
        simulated: runtime.Device | None = None,
    ) -> None:
        self._sandbox, self._limit_s, self._budget_s = sandbox, limit_s, budget_s
        self._simulated = simulated
        self._device = simulated
        self._known = simulated is not None
        self._why = ""
        self._waits = ("", WAIT_S)  # for whom, and how long it may still wait

    @property
    def device(self) -> runtime.Device | None:
        """What the card says of itself; None where JAX can use none in the sandbox."""
        if not self._known:
            self._probe()
        return self._device

    @property
    def why(self) -> str:
        """Why there is no card, the end of a sentence."""
        return "" if self.device else self._why

    def look(
        self,
        merged: Merged,
        asked: Sequence[Asked],
        traced: Mapping[str, Traced],
        marks: Sequence[ExerciseMark],
    ) -> tuple[ExerciseMark, ...]:
        """The same marks, those that are right with what the card gave for them.

        Never raises for what a student's code does.
        """
        right = {m.exercise for m in marks if m.ok}
        seen: dict[str, _Seen] = {}
        wanted: list[Asked] = []
        for one in (a for a in asked if a.exercise.id in right):
            why = self._unfit(one, traced.get(one.exercise.id, Traced()))
            if why:
                seen[one.exercise.id] = _not_run(why)
            else:
                wanted.append(one)
        seen |= self._seen(merged, wanted, traced) if wanted else {}
        return tuple(seen[m.exercise].added_to(m) if m.exercise in seen else m for m in marks)

    def run(self, merged: Merged, asked: Sequence[Asked], *, seconds: float) -> Outcome:
        """Runs exercises in a sandbox that has the card; with none, asks what the card is."""
        inputs: dict[str, bytes] = {}
        exercises = [_request(number, one, inputs) for number, one in enumerate(asked)]
        cells = [
            {"id": c.id, "source": c.source, "tags": c.tags, "exercise": c.exercise, "own": c.own}
            for c in merged.cells
        ]
        native = self._simulated is None
        whole = {
            "cells": cells, "exercises": exercises, "seconds": self._limit_s, "native": native,
        }  # fmt: skip
        inputs["request.json"] = json.dumps(whole).encode()
        return self._sandbox.run(
            ["python", "-m", "course_lib.grading.card_child"],
            inputs=inputs,
            keep=("out*/*", "card.json"),
            limits=Limits(
                cpu_s=3_600,  # the clock decides: a process that waits for a card may be busy
                wall_s=seconds,
                memory_bytes=_MEMORY_BYTES,
                any_address=True,
                processes=1024,
            ),
            env=walls.card_environment() if native else {},
            card=native,
        )

    def _probe(self) -> None:
        """Asks what the card is, in the sandbox, with no student's code in it."""
        self._known, self._device = True, self._simulated
        if self._simulated is not None:
            return
        outcome = self.run(Merged("", "", ()), (), seconds=START_S)
        data = json.loads(outcome.files.get("card.json", b"{}"))
        if "name" in data:
            self._device = runtime.Device(data["name"], tuple(data["capability"]), data["count"])
        lines = [line for line in outcome.stderr.splitlines() if line.strip()]
        last = f"its process did not start ({lines[-1] if lines else 'it said nothing'})"
        self._why = data.get("why", last).rstrip(".")

    def _unfit(self, one: Asked, traced: Traced) -> str:
        """Why an exercise cannot run on this card, the end of a sentence; "" if it can."""
        if one.exercise.program is not None:
            return "it is a program of another language"
        if not one.exercise.needs_kernel:
            return "it holds no kernel"
        if self.device is None:
            return f"there is no card on this worker: {self.why}"
        needs = needs_of(traced.programs)
        if needs.devices > 1:
            return f"it runs on {needs.devices} GPUs together, and one is used here"
        return runtime.lacks(needs, self.device)

    def _seen(
        self, merged: Merged, wanted: Sequence[Asked], traced: Mapping[str, Traced]
    ) -> dict[str, _Seen]:
        """What was seen of some exercises, in as many sandboxes as it takes."""
        seen: dict[str, _Seen] = {}
        left, together = list(wanted), True
        with self._turn(merged.student) as mine:
            end = time.monotonic() + self._budget_s
            while left and mine and (rest := end - time.monotonic()) > 0:
                tried = left if together else left[:1]
                seconds = min(rest, len(tried) * (START_S + self._limit_s))
                outcome = self.run(merged, tried, seconds=seconds)
                found = self._found(outcome, tried, traced)
                if not found and len(tried) == 1:  # the sandbox was lost with all that it held
                    found = {tried[0].exercise.id: self._saw("crash", _ENDED)}
                together = together and bool(found)
                seen |= found
                left = [one for one in left if one.exercise.id not in seen]
        why = "there was no time left for it" if mine else "others were using it all the time"
        return seen | {one.exercise.id: _not_run(why) for one in left}

    @contextlib.contextmanager
    def _turn(self, student: str) -> Iterator[bool]:
        """Waits for the card, no longer than one student may have it wait in all."""
        whom, left = self._waits
        left = left if whom == student else WAIT_S
        started = time.monotonic()
        with turn(left) as mine:
            self._waits = student, max(0.0, left - (time.monotonic() - started))
            yield mine

    def _found(
        self, outcome: Outcome, asked: Sequence[Asked], traced: Mapping[str, Traced]
    ) -> dict[str, _Seen]:
        """What came out of a sandbox: the exercises that it ended, and the one that ended it."""
        found: dict[str, _Seen] = {}
        for number, one in enumerate(asked):
            files = files_of(outcome, number)
            if "begun" in files:
                names = traced.get(one.exercise.id, Traced()).names
                found[one.exercise.id] = self._of_files(one, files, names, outcome)
        return found

    def _of_files(self, one: Asked, files: Files, names: Sequence[str], outcome: Outcome) -> _Seen:
        """What the files of an exercise show."""
        cases = one.cases
        for number, case in enumerate(cases):
            where = f"case {number + 1}: {case}"
            if f"{number}.dtypes" not in files:
                return self._unfinished(files, outcome, where)
            if words := _wrong(one, number, files, names):
                return self._saw("wrong", words, where)
        return self._saw("right", f"right on {len(cases)} shape{'s' * (len(cases) > 1)}")

    def _unfinished(self, files: Files, outcome: Outcome, where: str) -> _Seen:
        """Why there are no arrays of a case."""
        if error := said_in(files):
            line = (error.message.splitlines() or [""])[0][:200].rstrip(".")
            return self._saw("raised", f"it raised {error.kind}: {line}", where)
        if "ready" not in files:
            return self._asleep(where)
        if "too-long" in files:
            return self._saw("time", f"it did not end within {self._limit_s:g} s", where)
        if outcome.timed_out:
            return self._saw("time", "it was stopped when the time for this chapter was up", where)
        stopped = outcome.killed_for
        words = f"it used more {stopped} than it may" if stopped else _ENDED
        return self._saw("crash", words, where)

    def _asleep(self, where: str) -> _Seen:
        """A process did not come to the student's code: whether that is the card's doing."""
        if self._device is not None:
            self._probe()
        if self._device is None:
            return _not_run(f"the card cannot be used: {self._why}")
        return self._saw("crash", "its process ended before the card was awake", where)

    def _saw(self, kind: str, words: str, case: str = "") -> _Seen:
        return _Seen(OnCard(kind, words, self._device.name if self._device else ""), case)


_ENDED = "its process ended before it was done"


def _not_run(why: str) -> _Seen:
    return _Seen(OnCard("not-run", why))


def needs_of(programs: Sequence[bytes]) -> runtime.Requirements:
    """What some traced programs need of a device, all together.

    Raises:
      checked.Refused: one of them is no program.
    """
    asks = [provenance.hardware(checked.read(data)) for data in programs]
    return runtime.Requirements(
        frozenset().union(*map(tracing.features, asks)),
        max((a.smem_bytes for a in asks), default=0),
        max((a.devices for a in asks), default=1),
    )


def card_seed(one: Asked) -> int:
    """The seed of the inputs on the card, from which that of the marks cannot be worked out."""
    text = f"{one.seed} on the card".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def _request(number: int, one: Asked, inputs: dict[str, bytes]) -> dict[str, Any]:
    """An exercise as the child reads it; the files of its arguments are added to `inputs`."""
    cases = []
    for index, case in enumerate(one.cases):
        names = [f"in{number}-{index}-{place}.npy" for place in range(len(case.args))]
        for name, array in zip(names, _arguments(one, case, index), strict=True):
            inputs[name] = as_npy(array)
        cases.append(case_data(case, names))
    return {
        "id": one.exercise.id,
        "folder": f"out{number}",
        "function": one.exercise.function,
        "cases": cases,
    }


def _arguments(one: Asked, case: Case, index: int) -> tuple[Array, ...]:
    return draw_case(case, seed=card_seed(one), index=index)


def _wrong(one: Asked, number: int, files: Files, names: Sequence[str]) -> str:
    """What is wrong with the arrays of a case, the end of a sentence; "" if nothing is."""
    case = one.cases[number]
    try:
        outputs = arrays_in(files, number)
    except NoArray:
        return "what it wrote are no arrays"
    args = _arguments(one, case, number)
    difference = trusted.first_difference(one.exercise, case, args, outputs, names)
    if difference is None:
        return ""
    first = trusted.without_values(difference)[0].rstrip(".").replace(". All", ", all")
    return first[:1].lower() + first[1:].replace(". ", ", ")


def arrays_in(files: Files, number: int) -> list[Array]:
    """The outputs of a case out of the files of a student's process: arrays, or `NoArray`."""
    try:
        names = json.loads(files[f"{number}.dtypes"])
        dtypes = [numpy_dtype(str(name)) for name in list(names)[:64]]
        plain = [_array(files[f"{number}-{place}.npy"]) for place in range(len(dtypes))]
        return [_viewed(a, d) for a, d in zip(plain, dtypes, strict=True)]
    except Exception as error:  # files of unknown origin: there are many ways to be none
        raise NoArray(str(error)) from error


def _array(data: bytes) -> Array:
    """An array of numbers out of a .npy file that has exactly as many bytes as it says.

    Source: NumPy, "A simple file format for NumPy arrays", version 1.0.
    """
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise NoArray("another version of the format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    rest = data[file.tell() :]
    if fortran or dtype.kind not in "biuf" or min(shape, default=1) < 0:
        raise NoArray("no array of numbers, row by row")
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise NoArray("more or fewer elements than its shape has")
    return np.frombuffer(rest, dtype).reshape(shape)


def _viewed(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array in the dtype that it had, where NumPy has no name for that."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind != "u" or array.itemsize != dtype.itemsize or dtype.hasobject:
        raise NoArray("not the dtype that it says")
    return array.view(dtype)


@contextlib.contextmanager
def turn(wait_s: float) -> Iterator[bool]:
    """Waits for the card; whether this process has it now. It is given back whatever happens."""
    end = time.monotonic() + wait_s
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(Path(tempfile.gettempdir()) / f"course-card-{os.getuid()}.lock", flags, 0o600)
    try:
        while not (mine := _locked(fd)) and time.monotonic() < end:
            time.sleep(0.1)
        yield mine
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
