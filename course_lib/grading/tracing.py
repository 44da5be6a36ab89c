"""Has a student's functions traced in the sandbox, and collects what comes out: bytes, no verdicts.

The trusted side of `tracing_child`. A function that hangs, crashes or ends the process costs
its own exercise only: what is left is traced in a new sandbox.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.exercises.cases import draw_case
from course_lib.exercises.registry import Case, Exercise
from course_lib.grading.model import Merged
from course_lib.grading.sandbox import Limits, Outcome, Sandbox
from course_lib.grading.tracing_child import FIRST_S, SECOND_S, WAITS

Array = np.ndarray[Any, Any]

_START_S = 90.0  # importing JAX on a busy machine
_TEXT = 2_000
_ODD = re.compile(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd]")


@dataclasses.dataclass(frozen=True)
class Asked:
    """One exercise to trace.

    Attributes:
      exercise: what is asked for.
      cases: the shapes and static numbers.
      seed: what the arguments are drawn from.
      around: the operations that may stand around its kernels.
    """

    exercise: Exercise
    cases: tuple[Case, ...]
    seed: int
    around: frozenset[str]

    @property
    def arrays(self) -> tuple[tuple[Array, ...], ...]:
        """The arguments of each case, where the exercise needs no kernel and is computed."""
        if self.exercise.needs_kernel:
            return ()
        return tuple(draw_case(c, seed=self.seed, index=i) for i, c in enumerate(self.cases))


@dataclasses.dataclass(frozen=True)
class Said:
    """Something that the student's process says against the student.

    All of it is text of unknown origin, cut to a length, without control characters.
    """

    kind: str
    message: str
    cell: str = ""
    line: int = 0
    why: str = ""
    fix: str = ""
    does: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Traced:
    """What came of tracing one exercise.

    Attributes:
      programs: for each case the bytes of a program, as far as there are.
      error: what the function raised, of the kind "TypeName".
      misfit: why it cannot take the arguments; "" if it can.
      stopped: "time", "memory", "crash": what ended it; "" where nothing did.
      lowered: for each case what a compiler has against it, None for nothing and where it is not
        asked (`to_lower`); what it refuses once it refuses from there on; shorter than the
        cases where that could not be looked at.
      unmet: expectations of the compiled code that are not met; None where no compiler looked.
      names: what the student calls the arguments.
    """

    programs: tuple[bytes, ...] = ()
    error: Said | None = None
    misfit: str = ""
    stopped: str = ""
    lowered: tuple[Said | None, ...] = ()
    unmet: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()


def trace(merged: Merged, asked: Sequence[Asked], sandbox: Sandbox) -> dict[str, Traced]:
    """What came of every exercise asked for, by its id.

    Together in one sandbox while that brings anything; what is left when a sandbox was lost with
    all that it held (a function can kill every process in it) is traced in one of its own each.
    """
    done: dict[str, Traced] = {}
    while left := [a for a in asked if a.exercise.id not in done]:
        found = _found(_run(merged, left, sandbox), left)
        if not found:
            break
        done |= found
    for one in left:
        outcome = _run(merged, [one], sandbox)
        lost = {one.exercise.id: Traced(stopped=_why_stopped(outcome))}
        done |= _found(outcome, [one]) or lost
    return done


def _found(outcome: Outcome, asked: Sequence[Asked]) -> dict[str, Traced]:
    """What came out of a sandbox: the exercises that it ended, and the one that ended it."""
    found: dict[str, Traced] = {}
    for number, one in enumerate(asked):
        files = files_of(outcome, number)
        if "ended" in files:
            found[one.exercise.id] = _collected(files, one)
        elif "begun" in files:
            stopped = _why_stopped(outcome)
            found[one.exercise.id] = dataclasses.replace(_collected(files, one), stopped=stopped)
    return found


def _run(merged: Merged, asked: Sequence[Asked], sandbox: Sandbox) -> Outcome:
    inputs: dict[str, bytes] = {}
    exercises = []
    for number, one in enumerate(asked):
        files = _array_files(number, one, inputs)
        exercise = one.exercise
        exercises.append(
            {
                "id": exercise.id,
                "folder": f"out{number}",
                "function": exercise.function,
                "signature": exercise.signature,
                "needs_kernel": exercise.needs_kernel,
                "expects": {a: dict(e) for a, e in exercise.expects.items()},
                "shown": case_data(exercise.cases[0], ()),
                "lower": to_lower(one),
                "cases": [case_data(c, f) for c, f in zip(one.cases, files, strict=True)],
            }
        )
    cells = [
        {"id": c.id, "source": c.source, "tags": c.tags, "exercise": c.exercise, "own": c.own}
        for c in merged.cells
    ]
    inputs["request.json"] = json.dumps(
        {"cells": cells, "exercises": exercises, "seconds": [FIRST_S, SECOND_S]}
    ).encode()
    return sandbox.run(
        ["python", "-m", "course_lib.grading.tracing_child"],
        inputs=inputs,
        keep=("out*/*",),
        limits=Limits(
            cpu_s=int(_START_S + FIRST_S),  # so that the clock decides who took too long
            wall_s=_START_S + len(asked) * (FIRST_S + WAITS * SECOND_S),
            disk_bytes=64 << 20,
            file_bytes=8 << 20,
            processes=128,
        ),
        course="sealed",
        toolchain=any(a.exercise.expects for a in asked),
        env={"JAX_TRACEBACK_FILTERING": "off"},
    )


def to_lower(one: Asked) -> list[int]:
    """The numbers of the cases that a compiler is asked about; that takes longer than all the rest.

    These are the cases that the exercise shows, and of the drawn ones those of other dtypes.
    """
    known: set[tuple[str, ...]] = set()
    numbers = []
    for number, case in enumerate(one.cases):
        dtypes = tuple(a.dtype for a in case.args)
        if case in one.exercise.cases or dtypes not in known:
            numbers.append(number)
        known.add(dtypes)
    return numbers


def _array_files(number: int, one: Asked, inputs: dict[str, bytes]) -> list[list[str]]:
    """The names of the files with the arguments of each case, which are added to `inputs`."""
    if one.exercise.needs_kernel:
        return [[] for _ in one.cases]
    names: list[list[str]] = []
    for case, arrays in enumerate(one.arrays):
        names.append([f"in{number}-{case}-{i}.npy" for i in range(len(arrays))])
        for name, array in zip(names[-1], arrays, strict=True):
            inputs[name] = as_npy(array)
    return names


def as_npy(array: Array) -> bytes:
    """An array as a file; what NumPy has no type of its own for, as unsigned integers."""
    plain = array if array.dtype.kind in "biuf" else array.view(f"u{array.itemsize}")
    file = io.BytesIO()
    np.save(file, plain, allow_pickle=False)
    return file.getvalue()


def case_data(case: Case, files: Sequence[str]) -> dict[str, Any]:
    """A case as the process inside reads it, with the names of its arguments' files."""
    args = [[list(a.shape), a.dtype] for a in case.args]
    return {"args": args, "static": dict(case.static), "files": list(files)}


def files_of(outcome: Outcome, number: int) -> dict[str, bytes]:
    """The files of one exercise, by their number in the request."""
    folder = f"out{number}/"
    return {n.removeprefix(folder): c for n, c in outcome.files.items() if n.startswith(folder)}


def _why_stopped(outcome: Outcome) -> str:
    return outcome.killed_for or "crash"


def _collected(files: Mapping[str, bytes], one: Asked) -> Traced:
    suffix = "program" if one.exercise.needs_kernel else "results"
    programs = []
    for number in range(len(one.cases)):
        if f"{number}.{suffix}" not in files:
            break
        programs.append(files[f"{number}.{suffix}"])
    lowered = _json(files.get("lowered.json"), list) or []
    unmet = _json(files.get("unmet.json"), list)
    names = _json(files.get("names.json"), list) or []
    error = said_in(files)
    complete = len(programs) == len(one.cases) or error or "misfit.json" in files
    return Traced(
        programs=tuple(programs),
        error=error,
        misfit=_text(_json(files.get("misfit.json"), str) or ""),
        stopped="" if complete else "time" if "too-long" in files else "crash",
        lowered=tuple(_said(s) if isinstance(s, dict) else None for s in lowered[: len(one.cases)]),
        unmet=None if unmet is None else tuple(_text(u) for u in unmet[:8]),
        names=tuple(_text(n) for n in names[:32]),
    )


def said_in(files: Mapping[str, bytes]) -> Said | None:
    """What a function raised, as its process says it; None where it says nothing."""
    error = _json(files.get("error.json"), dict)
    return _said(error) if error else None


def _json(data: bytes | None, kind: type) -> Any:
    """What a file of the student's process holds, if that is of the kind expected."""
    if data is None or len(data) > 1 << 20:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def _said(data: Mapping[str, Any]) -> Said:
    line = data.get("line")
    does = data.get("does")
    return Said(
        kind=_text(data.get("type") or data.get("rule"))[:100],
        message=_text(data.get("message") or data.get("what")),
        cell=_text(data.get("cell"))[:100],
        line=line if type(line) is int and 0 < line < 1_000_000 else 0,
        why=_text(data.get("why")),
        fix=_text(data.get("fix")),
        does=tuple(_text(d) for d in does[:2]) if isinstance(does, list) else (),
    )


def _text(value: Any) -> str:
    return _ODD.sub(" ", value[:_TEXT]) if isinstance(value, str) else ""
