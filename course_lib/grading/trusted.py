"""Runs programs of unknown origin on hidden inputs: in a process of its own, with limits.

No code of a student's runs here; `checked.read` has let through nothing but data. What the
process answers is ours. A program that never ends, or asks for more memory than there is,
ends with the process, and the next one gets a new one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from course_lib.diagnostics import Finding, Severity
from course_lib.exercises import cases as drawing
from course_lib.exercises.compare import Difference, compare
from course_lib.exercises.registry import Case, Exercise
from course_lib.exercises.verdict import describe_means
from course_lib.grading import provenance
from course_lib.simulator import checked, ir
from course_lib.simulator.api import replay
from course_lib.simulator.machine import multicast, tma
from course_lib.workers import RemoteError, Worker, WorkerDied, WorkerTimeout

Array = np.ndarray[Any, Any]

TIMEOUT_S = 180.0  # for all cases of an exercise
MEMORY_BYTES = 6 << 30
MAX_STEPS = 5_000_000
_RESULTS = checked.Bounds(file_bytes=8 << 20, constant=1 << 20, constants=1 << 21)
_VALUES = re.compile(r" is \S+, should be \S+?\.(?= |$)")
# Operations whose work a kernel must not be right without: taken out, or made to hand on
# their operand.
_LEFT_OUT = frozenset({"wgmma_ref", "tcgen05_mma", "copy_smem_to_gmem"})
_HANDED_ON = frozenset({"exp", "exp2", "log"})
_COPY = "copy_gmem_to_smem"  # and this one is made to deliver something else


@dataclasses.dataclass(frozen=True)
class Job:
    """The programs of one exercise, one for each case.

    Attributes:
      cases: what they were traced with.
      programs: bytes, as `ir.dumps` makes them.
      names: what the student calls the arguments.
      seed: what the data are drawn from.
      around: the operations that may stand around its kernels.
    """

    cases: tuple[Case, ...]
    programs: tuple[bytes, ...]
    names: tuple[str, ...]
    seed: int
    around: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Looked:
    """What was seen of one case.

    Attributes:
      right: whether the results are right.
      ran: whether it gave results at all.
      refused: why it was not even tried, or stopped; "" if it was not.
      around: what is wrong with where the results come from.
      fault: what is wrong with the results: "shape", "value", ...
      words: the same in sentences without values.
      private: the same with values, for the instructor.
      means: what its kernels lack, or have and should not, a sentence each.
      errors: the error findings.
      flags: what to look at.
      asleep: what the exercise requires, and stands in a kernel, and does not run.
    """

    right: bool = False
    ran: bool = False
    refused: str = ""
    around: str = ""
    fault: str = ""
    words: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    errors: tuple[Finding, ...] = ()
    flags: tuple[str, ...] = ()
    asleep: tuple[str, ...] = ()


class Simulation:
    """The process that programs run in; it is started when it is needed, and again after a stop."""

    def __init__(self, timeout_s: float = TIMEOUT_S, memory_bytes: int = MEMORY_BYTES) -> None:
        env = {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "2"}
        self._worker = Worker("marking", env=env, memory_bytes=memory_bytes)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Ends the process."""
        self._worker.close()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of ours in the process; raises as `Worker.call` does."""
        return self._worker.call(function, *args, timeout_s=self._timeout_s)

    def look(self, job: Job, exercise: Exercise) -> tuple[Looked, ...]:
        """What is to be seen of each case; never raises for what a program does."""
        try:
            return self._worker.call(look_here, job, exercise, timeout_s=self._timeout_s)
        except WorkerTimeout:
            stopped = Looked(
                refused="Simulating it took too long, and was stopped.", fault="timeout"
            )
        except WorkerDied:
            stopped = Looked(refused="Simulating it took too much memory.", fault="crash")
        except RemoteError as error:
            if error.type_name == "MemoryError":
                stopped = Looked(refused="Simulating it took too much memory.", fault="crash")
            else:
                stopped = Looked(refused="It could not be simulated.", private=(str(error)[:500],))
        return (stopped,) * len(job.cases)


_simulation: tuple[int, Simulation] | None = None


def simulation() -> Simulation:
    """The simulation of this process, kept from one student to the next: starting it takes time."""
    global _simulation
    if _simulation is None or _simulation[0] != os.getpid():  # a fork has its parent's
        _simulation = os.getpid(), Simulation()
    return _simulation[1]


def look_here(job: Job, exercise: Exercise) -> tuple[Looked, ...]:
    """In the process: all cases, the first that is refused ends it."""
    looked: list[Looked] = []
    asleep = tuple(exercise.requires)
    for number, (case, data) in enumerate(zip(job.cases, job.programs, strict=True)):
        arrays = drawing.draw_case(case, seed=job.seed, index=number)
        looked.append(_look(job, exercise, case, data, arrays, first=number == 0, asleep=asleep))
        asleep = looked[-1].asleep
    if asleep:  # in every case: an honest kernel may do without in the smallest
        means = (*looked[0].means, *(_ASLEEP.format(name=n) for n in sorted(asleep)))
        looked[0] = dataclasses.replace(looked[0], means=means)
    return tuple(looked)


def _look(
    job: Job, exercise: Exercise, case: Case, data: bytes, arrays: tuple[Array, ...], *,
    first: bool, asleep: Sequence[str],
) -> Looked:  # fmt: skip
    try:
        program = checked.read(data, bounds=None if exercise.needs_kernel else _RESULTS)
        if not exercise.needs_kernel:
            return _compared(job, exercise, case, arrays, _results(program), Looked(ran=True))
        _check_arguments(program, case)
        around = provenance.look_around(program, job.around, has_arrays=bool(case.args))
    except checked.Refused as error:
        if exercise.needs_kernel and not checked.has_kernel(data):
            return Looked(around=provenance.NO_KERNEL)
        return Looked(refused=str(error))
    means = describe_means(exercise, around.inside)
    errors = tuple(_unlowerable(n) for n in around.unlowerable)
    base = Looked(around=around.wrong, means=means, errors=errors)
    looked = _simulated(job, exercise, case, program, arrays, base, around.inside, first=first)
    if not looked.right or looked.around:
        return looked
    left = tuple(n for n in asleep if _never_runs(n, program, arrays))
    return dataclasses.replace(looked, asleep=left)


def _simulated(
    job: Job, exercise: Exercise, case: Case, program: ir.Program, arrays: tuple[Array, ...],
    base: Looked, inside: Counter[str], *, first: bool,
) -> Looked:  # fmt: skip
    value, findings = _run(program, arrays)
    errors = (*base.errors, *(f for f in findings if f.severity is Severity.ERROR))
    base = dataclasses.replace(base, errors=errors, ran=value is not None)
    if value is None:
        return base
    looked = _compared(job, exercise, case, arrays, value, base)
    if looked.right and first and not looked.around:
        asked = [n for n in (*_LEFT_OUT, *_HANDED_ON, _COPY) if n in exercise.requires]
        idle = [
            n for n in asked if inside[n] and _right_without(n, exercise, case, program, arrays)
        ]
        means = [_IDLE.format(name=n) for n in sorted(idle)]
        looked = dataclasses.replace(looked, means=(*looked.means, *means))
    return looked


_ASLEEP = "`{name}` stands in a kernel and is never run."
_IDLE = "The result is the same without `{name}`: what it does is not used."


def _run(
    program: ir.Program, arrays: Sequence[Array]
) -> tuple[list[Any] | None, Sequence[Finding]]:
    """The results and the findings of a program, whatever it is."""
    try:
        arch = provenance.architecture(program)
        report = replay(program, [a.copy() for a in arrays], arch=arch, max_steps=MAX_STEPS)
    except MemoryError:
        raise
    except Exception as error:  # a program that no compiler made: any step of it may fail
        what = f"It cannot be simulated: {type(error).__name__}: {error}"[:300]
        return None, [Finding("unsupported", Severity.ERROR, what)]
    return report.value, report.findings


def _check_arguments(program: ir.Program, case: Case) -> None:
    """The program has to be one of a function of these arguments."""
    block = program.blocks[program.entry]
    types = [block.types[s] for s in block.params]
    given = [(t.shape, t.dtype) for t in types if isinstance(t, ir.ArrayType)]
    if len(given) != len(types) or given != [(a.shape, a.dtype) for a in case.args]:
        raise checked.Refused("The program takes other arguments than the exercise has.")


def _results(program: ir.Program) -> list[Array]:
    """The arrays of a program that does nothing but hold them."""
    block = program.blocks[program.entry]
    slots = dict(block.consts)
    if block.ops or block.params or set(block.results) - set(slots):
        raise checked.Refused("The results are not plain arrays.")
    return [program.consts[slots[r]] for r in block.results]


def _compared(
    job: Job, exercise: Exercise, case: Case, arrays: tuple[Array, ...], value: Sequence[Any],
    base: Looked,
) -> Looked:  # fmt: skip
    difference = first_difference(exercise, case, arrays, value, job.names)
    if difference is None:
        return dataclasses.replace(base, right=True)
    return dataclasses.replace(
        base, fault=difference.fault, words=without_values(difference), private=difference.lines
    )


def first_difference(
    exercise: Exercise, case: Case, arrays: tuple[Array, ...], value: Sequence[Any],
    names: Sequence[str] = (),
) -> Difference | None:  # fmt: skip
    wanted = exercise.reference(*(a.copy() for a in arrays), **case.static)
    outputs = list(wanted) if isinstance(wanted, tuple | list) else [wanted]
    named = [*names, *(f"argument {i + 1}" for i in range(len(names), len(arrays)))]
    return compare(
        [np.asarray(v) for v in value],
        [np.asarray(w) for w in outputs],
        inputs=dict(zip(named, arrays, strict=False)),
        rtol=exercise.rtol,
        atol=exercise.atol,
    )


def without_values(difference: Difference) -> tuple[str, ...]:
    """The sentences of a difference, without what the element is and should be."""
    if difference.fault in ("shape", "dtype", "outputs"):
        return difference.lines
    first, *more = difference.lines
    return (
        _VALUES.sub(" is wrong.", first),
        *(m for m in more if not re.search(r"\d\.\d|e-?\d", m)),
    )


def _unlowerable(name: str) -> Finding:
    what = f"A kernel uses `{name}`, which Mosaic GPU has no code for."
    return Finding("lowering", Severity.ERROR, what)


def _right_without(
    name: str, exercise: Exercise, case: Case, program: ir.Program, arrays: tuple[Array, ...]
) -> bool:
    """Whether the results are right although all operations of a name do nothing."""
    blocks = [
        dataclasses.replace(b, ops=tuple(_idle(op, name) for op in b.ops)) for b in program.blocks
    ]
    idle = ir.Program(blocks, program.consts, program.places, program.entry)
    with _loads_that_lie() if name == _COPY else contextlib.nullcontext():
        value, _ = _run(idle, arrays)
    return value is not None and first_difference(exercise, case, arrays, value) is None


def _never_runs(name: str, program: ir.Program, arrays: Sequence[Array]) -> bool:
    """Whether operations of a name are there, and none runs: traps in their place stay shut.

    `name` is JAX's; what is counted and is no operation ("slots in turn") has no trap.
    """
    blocks = [
        dataclasses.replace(b, ops=tuple(_trap(op, name) for op in b.ops)) for b in program.blocks
    ]
    trapped = ir.Program(blocks, program.consts, program.places, program.entry)
    if not any(op.params.get("what") == _TRAP for op, _ in trapped.walk()):
        return False
    value, findings = _run(trapped, arrays)
    return value is not None and not any(_TRAP in f.what for f in findings)


_TRAP = f"a trap ({secrets.token_hex(8)})"  # which no name in a program can be


def _trap(op: ir.Op, name: str) -> ir.Op:
    """An operation of a name, with one in its place that stops whoever runs it."""
    if provenance.own_name(op) != name:
        return op
    params = {"what": _TRAP, "fix": "none"}
    return dataclasses.replace(op, name="unsupported", inputs=(), refs={}, params=params)


def _idle(op: ir.Op, name: str) -> ir.Op:
    """The op, or one in its place that does nothing, or hands on its operand."""
    if op.name == name and name in _LEFT_OUT:
        return dataclasses.replace(op, name="nothing", inputs=(), outputs=(), refs={}, params={})
    if op.name == name and name in _HANDED_ON:
        return dataclasses.replace(op, name="identity", params={})
    return op


@contextlib.contextmanager
def _loads_that_lie() -> Iterator[None]:
    """Copies into shared memory deliver ones, in time and in order."""
    honest = tma.move

    def move(src: Any, dst: Any, op: ir.Op) -> None:
        honest(src, dst, op)
        dst.data[...] = np.ones((), dst.data.dtype)
        if dst.buffer.casts is not None:
            dst.buffer.casts.put(dst, None)

    with mock.patch.object(tma, "move", move), mock.patch.object(multicast, "move", move):
        yield
