"""Judges a Mojo program: compiles it, looks at its PTX, and runs what can run.

Nothing of it needs a GPU but its launch. What was looked at is said with the
verdict, in brackets: on a machine with a GPU it is more than on one without.
The verdict names the first of these faults:

1. a gap that is left, or not a program at all;
2. it does not compile, with the line and the clinic's words;
3. its functions, run on the CPU for one thread after the other: a crash, no end, a
   write beyond an array, wrong values;
4. a word that is asked for and missing, or not allowed; an instruction or a number of
   registers that its PTX should have and has not;
5. its kernel on the GPU of this machine, if there is one: as 3.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib import runtime
from course_lib.compiler import ToolchainMissing
from course_lib.diagnostics import CourseError
from course_lib.exercises import cases as drawing
from course_lib.exercises.compare import compare
from course_lib.exercises.registry import Case, Exercise
from course_lib.exercises.verdict import Verdict
from course_lib.mojo import (
    Answer,
    MojoCompileError,
    MojoMissing,
    MojoRunError,
    MojoTimeout,
    Program,
    compile_program,
    running,
    toolchain,
    trying,
)
from course_lib.mojo.compiling import ARCHITECTURES
from course_lib.mojo.expecting import unmet_conditions
from course_lib.mojo.trying import Came, Trial

Array = np.ndarray[Any, Any]

TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class MojoTask:
    """How a Mojo program that answers an exercise is tried.

    Attributes:
      harness: Mojo text with `def try_case[*, ...](mut arrays: Arrays) raises`, see
        `course_lib.mojo.trying`. A case's `static` numbers are its parameters.
      on_cpu: False where only a GPU can run it, as its body needs barriers or warps.
    """

    harness: str
    on_cpu: bool = True

    def judge(
        self,
        exercise: Exercise,
        answer: object,
        *,
        cases: tuple[Case, ...],
        seed: int,
        native: bool | None,
    ) -> Verdict:
        """Judges a Mojo program as the answer to an exercise; prints nothing.

        Args:
          exercise: the one that this belongs to.
          answer: the program; what `%%mojo_gpu --exercise` puts into the notebook.
          cases, seed: what to try it on.
          native: False keeps it from the GPU; True insists on it.

        Raises:
          CourseError: `answer` is no Mojo program, or `native` is True and there is no GPU.
        """
        program = _answer(exercise, answer)
        if not program.done:
            return Verdict(exercise.id, "not-done", seed=seed)
        try:
            return _Judge(exercise, self, program, cases, seed).judge(native=native)
        except MojoCompileError as error:
            return Verdict(exercise.id, "lowering", _told(error), seed)
        except (MojoMissing, ToolchainMissing) as error:
            return Verdict(exercise.id, "unsupported", (str(error),), seed)


def _answer(exercise: Exercise, answer: object) -> Answer:
    if isinstance(answer, Answer):
        return answer
    raise CourseError(
        f'Run the cell with "%%mojo_gpu --exercise {exercise.id}" first: it makes '
        f'`{exercise.function}`, and then check("{exercise.id}", {exercise.function}) judges it.'
    )


@dataclasses.dataclass(frozen=True)
class _Judge:
    """One judgement: an exercise, an answer to it, and what it is tried on."""

    exercise: Exercise
    task: MojoTask
    answer: Answer
    cases: tuple[Case, ...]
    seed: int

    def judge(self, *, native: bool | None) -> Verdict:
        """The first fault, or what was looked at and is right."""
        on_gpu = native is not False and running.arch_here() is not None
        if native and not on_gpu:
            raise CourseError("native=True needs a GPU that Mojo supports, and there is none.")
        on_cpu = self.task.on_cpu and (toolchain.is_installed() or not on_gpu)
        found = self._runs(on_gpu=False) if on_cpu else None
        found = found or self._means(self._compiled())
        found = found or (self._runs(on_gpu=True) if on_gpu else None)
        if found is not None:
            return found
        checked = "; ".join(self._looked_at(on_cpu=on_cpu, on_gpu=on_gpu))
        return Verdict(self.exercise.id, seed=self.seed, passed=len(self.cases), checked=checked)

    def _compiled(self) -> dict[str, Program]:
        """The program for each architecture that something is expected of; for one at least."""
        architectures = tuple(self.exercise.expects) or ARCHITECTURES[:1]
        return {arch: compile_program(self.answer.source, arch=arch) for arch in architectures}

    def _looked_at(self, *, on_cpu: bool, on_gpu: bool) -> list[str]:
        count = f"{len(self.cases)} shape{'s' * (len(self.cases) != 1)}"
        looked = ["it compiles"]
        looked += ["its PTX"] if self.exercise.expects else []
        looked += [f"its values on the CPU, {count}"] if on_cpu else []
        if on_gpu:
            return [*looked, f"its launch on {_device()}, {count}"]
        what = "its launch was" if on_cpu else "its values were"
        return [*looked, f"{what} not looked at, that takes a GPU"]

    def _means(self, programs: Mapping[str, Program]) -> Verdict | None:
        """The verdict on the program's words and on what the compiler made of them."""
        unmet = list(self._words())
        for arch, program in programs.items():
            unmet += unmet_conditions(program, self.exercise.expects.get(arch, {}))
        right = ("The values are right.",) if self.task.on_cpu else ()
        return Verdict(self.exercise.id, "means", (*right, *unmet), self.seed) if unmet else None

    def _words(self) -> Iterator[str]:
        for word, least in self.exercise.requires.items():
            times = self.answer.uses(word)
            if times < least and least > 1:
                yield f"The program has `{word}` {times} times; asked for are {least}."
            elif times < least:
                yield f"The program does without `{word}`, which is asked for."
        for word in self.exercise.forbids:
            if self.answer.uses(word):
                yield f"The program uses `{word}`, which is not allowed here."

    def _runs(self, *, on_gpu: bool) -> Verdict | None:
        """The verdict on the first case whose arrays are wrong, None if none is."""
        drawn = [
            drawing.draw_case(case, seed=self.seed, index=i) for i, case in enumerate(self.cases)
        ]
        wanted = [self._wanted(c, arrays) for c, arrays in zip(self.cases, drawn, strict=True)]
        where = "the GPU" if on_gpu else ""
        try:
            came = self._came(drawn, wanted, on_gpu=on_gpu)
        except MojoRunError as error:
            fault = "timeout" if isinstance(error, MojoTimeout) else "crash"
            lines = tuple(str(error).splitlines()[:4])
            return Verdict(self.exercise.id, fault, lines, self.seed, where=where)
        for index, (case, outputs) in enumerate(zip(self.cases, came, strict=True)):
            found = self._fault(drawn[index], wanted[index], outputs)
            if found is not None:
                fault, lines = found
                place = (str(case), index, where)
                return Verdict(
                    self.exercise.id, fault, lines, self.seed, *place, drawn=bool(case.args)
                )
        return None

    def _came(
        self, drawn: Sequence[tuple[Array, ...]], wanted: Sequence[list[Array]], *, on_gpu: bool
    ) -> list[list[Came]]:
        """What came out of each case."""
        trials = [
            Trial(arrays, tuple((w.shape, w.dtype) for w in wants), case.static)
            for case, arrays, wants in zip(self.cases, drawn, wanted, strict=True)
        ]
        try_it = trying.try_on_gpu if on_gpu else trying.try_on_cpu
        return try_it(self.answer, self.task.harness, trials, timeout_s=TIMEOUT_S)

    def _wanted(self, case: Case, arrays: Sequence[Array]) -> list[Array]:
        value = self.exercise.reference(*(a.copy() for a in arrays), **case.static)
        outputs = list(value) if isinstance(value, tuple | list) else [value]
        return [np.asarray(v) for v in outputs]

    def _fault(
        self, inputs: Sequence[Array], wanted: Sequence[Array], came: Sequence[Came]
    ) -> tuple[str, tuple[str, ...]] | None:
        for place, one in enumerate(came):
            if one.beyond:
                return "out-of-bounds", (_beyond(one, place, len(came)),)
        values = [one.value for one in came]
        found = compare(
            values if len(values) > 1 else values[0],
            wanted,
            inputs={f"input {i + 1}": array for i, array in enumerate(inputs)},
            rtol=self.exercise.rtol,
            atol=self.exercise.atol,
        )
        return None if found is None else (found.fault, found.lines)


def _told(error: MojoCompileError) -> tuple[str, ...]:
    """The line, and the clinic's words if it knows the mistake; else Mojo's own."""
    lines = str(error).splitlines()
    return tuple(line for line in lines if not (error.entry and line.startswith("Mojo says: ")))


def _device() -> str:
    found = runtime.device()
    assert found is not None
    return found.name


def _beyond(came: Came, place: int, count: int) -> str:
    what = f"output {place + 1} of {count}" if count > 1 else "the output"
    size = came.value.size
    if came.beyond > 0:
        return (
            f"It writes beyond the end of {what}, which has {size} elements: to element "
            f"{size - 1 + came.beyond}."
        )
    return f"It writes before the beginning of {what}: to element {came.beyond}."
