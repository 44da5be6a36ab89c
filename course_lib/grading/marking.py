"""Marks: the traced programs of a student, run on hidden inputs by a process that can be trusted.

    marks = mark_submission(merged, rubric, seed=secret, sandbox=Sandbox.probe())

For each exercise: draw hidden shapes and numbers from the seed; have the function traced with
the shapes in the sandbox (`tracing`); read the programs strictly (`simulator.checked`); look
where their results come from (`provenance`); run them on hidden data in a process with
limits (`trusted`), compare with the exercise's reference, and earn what the rubric says.

What the student's process says in its own favour counts for nothing. What it says against
the student (an exception, a kernel that cannot be lowered) counts: nobody gains by that.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from course_lib.diagnostics import Finding, Location, Severity
from course_lib.diagnostics.findings import Access
from course_lib.exercises import FAULTS, Exercise, all_exercises, get, variations
from course_lib.exercises.advice import advise
from course_lib.exercises.verdict import fault_of, most_important
from course_lib.grading import families, mojo_marking, tracing, trusted
from course_lib.grading.model import ExerciseMark, Merged, Rubric
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.skeletons import ABOUT_HINTS
from course_lib.grading.tracing import Asked, Said, Traced
from course_lib.grading.trusted import Job, Looked

if TYPE_CHECKING:
    from course_lib.grading.card import Card

_NOTHING: Mapping[str, str] = MappingProxyType({})
_NOT_DONE = "not done yet"
_STOPPED = {
    "time": ("timeout", "Tracing the function took too long, and was stopped."),
    "cpu": ("timeout", "Tracing the function took too much processor time, and was stopped."),
    "memory": ("crash", "Tracing the function took more memory than there is for it."),
    "output": ("crash", "The function printed without end, and was stopped."),
    "crash": ("crash", "The process that traced the function ended before it was done."),
}


def mark_submission(
    merged: Merged,
    rubric: Rubric,
    *,
    seed: int,
    sandbox: Sandbox,
    exercises: Sequence[str] | None = None,
    variants: Mapping[str, str] = _NOTHING,
    card: Card | None = None,
) -> tuple[ExerciseMark, ...]:
    """The marks of one student's chapter, in the order of its exercises.

    Args:
      merged: the student's code.
      rubric: what is earned for what.
      seed: the instructor's secret: hidden shapes, numbers and data come from it. The same
        submission, rubric and seed give the same marks.
      sandbox: where the student's code runs.
      exercises: which to mark; None is all of the chapter.
      variants: which variant of an exercise was given out, by its id: "factor=5, slots=3".
      card: runs what is right as well; what comes of it is told, and changes no mark.

    Raises:
      CourseError: there is no such variant.
    """
    chapter = merged.chapter.split("_", 1)[-1]
    ids = [e.id for e in all_exercises() if e.chapter == chapter]
    wanted = [i for i in ids if exercises is None or i in exercises]
    asked = [ask(i, variants.get(i, ""), rubric, seed=seed) for i in wanted]
    return mark_asked(merged, asked, rubric, sandbox=sandbox, card=card)


def mark_asked(
    merged: Merged,
    asked: Sequence[Asked],
    rubric: Rubric,
    *,
    sandbox: Sandbox,
    card: Card | None = None,
) -> tuple[ExerciseMark, ...]:
    """The marks of the exercises asked for, in their order."""
    answered = {c.exercise for c in merged.cells if c.exercise}
    traceable = [a for a in asked if a.exercise.id in answered and a.exercise.program is None]
    traced = tracing.trace(merged, traceable, sandbox)
    simulation = trusted.simulation()
    programs = [a for a in asked if a.exercise.program is not None]
    marked = mojo_marking.mark(merged, programs, rubric, sandbox=sandbox) if programs else {}
    marks = tuple(
        marked.get(one.exercise.id)
        or _Marking(one, rubric, simulation).mark(traced.get(one.exercise.id))
        for one in asked
    )
    return card.look(merged, asked, traced, marks) if card else marks


def ask(exercise_id: str, variant: str, rubric: Rubric, *, seed: int) -> Asked:
    """An exercise, or a variant of it, with the hidden cases that a seed gives."""
    plain = get(exercise_id)
    exercise = variations.exercise(exercise_id, variant)
    cases = families.hidden_cases(exercise, seed=seed, plain=plain)
    if variant:  # a report shows hints as the notebook does: they are the course's own
        first, second, third = exercise.hints
        first = f"{ABOUT_HINTS}\n\n{first}"
        exercise = dataclasses.replace(exercise, hints=(first, second, third))
    around = families.around(exercise_id) | set(rubric.around.get(exercise_id, ()))
    return Asked(exercise, cases, data_seed(seed, exercise_id), around)


def data_seed(seed: int, exercise_id: str) -> int:
    """The seed of an exercise's hidden data, of which the secret cannot be guessed."""
    text = f"{seed} {exercise_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


@dataclasses.dataclass(frozen=True)
class _Marking:
    """One exercise on its way to a mark."""

    asked: Asked
    rubric: Rubric
    simulation: trusted.Simulation

    @property
    def exercise(self) -> Exercise:
        return self.asked.exercise

    def mark(self, traced: Traced | None) -> ExerciseMark:
        """The mark for what was traced; None: there was no cell."""
        if traced is None:
            return self._made("not-done", "not-done", ("The exercise's cell is not there.",))
        if traced.misfit:
            return self._made("wrong", "signature", (traced.misfit,))
        if traced.error is not None:
            return self._raised(traced.error)
        if traced.stopped:
            fault, words = _STOPPED.get(traced.stopped, _STOPPED["crash"])
            return self._made("refused", fault, (words,))
        job = Job(
            self.asked.cases, traced.programs, traced.names, self.asked.seed, self.asked.around
        )
        return self._judged(self.simulation.look(job, self.exercise), traced)

    def _judged(self, looked: Sequence[Looked], traced: Traced) -> ExerciseMark:
        """The mark for what was seen: the first case that is wrong says what is wrong."""
        against = [*traced.lowered, *[None] * len(looked)]
        faults = [self._of_case(one, said) for one, said in zip(looked, against, strict=False)]
        passed = sum(not m.fault for m in faults)
        flags = sorted({f for one in looked for f in one.flags})
        unseen = len(traced.lowered) < len(self.asked.cases) and self.exercise.needs_kernel
        flags += ["whether it can be lowered was not looked at"] if unseen else []
        unseen = bool(self.exercise.expects) and traced.unmet is None
        flags += ["the instructions that it compiles to were not looked at"] if unseen else []
        worst = next((m for m in faults if m.verdict == "refused"), None) or next(
            (m for m in faults if m.fault and m.verdict == "wrong"), None
        )
        worst = worst or next((m for m in faults if m.verdict == "wrong-means"), None)
        worst = worst or next((m for m in faults if m.fault), None)
        if worst is None and traced.unmet:
            worst = self._made("wrong-means", "means", ("The values are right.", *traced.unmet))
        made = worst or self._made("right", "")
        number = faults.index(made) if made in faults else 0
        private = (f"case {number + 1}: {self.asked.cases[number]}", *made.private)
        return dataclasses.replace(
            made, passed=passed, flags=tuple(flags), private=private if made.fault else ()
        )

    def _of_case(self, one: Looked, said: Said | None) -> ExerciseMark:
        """The mark, if this case were the only one."""
        errors = [*one.errors, *([_finding(said)] if said else [])]
        finding = most_important(errors) if errors else None
        if one.refused:
            return self._made("refused", one.fault or "refused", (one.refused,))
        if one.around:
            return self._made("wrong", "means", (one.around,), finding=finding)
        fault = fault_of(finding) if finding else ""
        if not one.right:
            words = () if finding and not one.ran else one.words
            return self._made(
                "wrong", fault or one.fault, words, finding=finding,
                difference=one.words[0] if one.ran and one.words else "", private=one.private,
            )  # fmt: skip
        if one.means:
            return self._made(
                "wrong-means", "means", ("The values are right.", *one.means), finding
            )
        if finding is not None:
            return self._made("right-with-errors", fault, ("The values are right.",), finding)
        return self._made("right", "")

    def _raised(self, error: Said) -> ExerciseMark:
        """What the function raised while it was traced, in the clinic's words where it has some."""
        if error.kind == "NotImplementedError" and error.message.startswith(_NOT_DONE):
            return self._made("not-done", "not-done", ("Not done yet.",))
        if error.kind == "WrongReturn":
            return self._made("wrong", "outputs", (error.message,))
        where = Location(error.cell, error.line, cell=error.cell) if error.cell else None
        what = f"{error.kind}: {error.message}"
        finding = advise(Finding("exception", Severity.ERROR, what, where=where))
        return self._made("wrong", "exception", (), finding)

    def _made(
        self, verdict: str, fault: str, words: Sequence[str] = (), finding: Finding | None = None,
        *, difference: str = "", private: Sequence[str] = (),
    ) -> ExerciseMark:  # fmt: skip
        of = self.rubric.of(self.exercise.id)
        hints = () if verdict == "right" else self.exercise.hints[: self.rubric.hints]
        return ExerciseMark(
            exercise=self.exercise.id,
            points=self.rubric.earned(self.exercise.id, verdict),
            of=of,
            verdict=verdict,
            fault=fault,
            words=tuple(words),
            finding=finding,
            first_difference=difference,
            hints=hints,
            cases=len(self.asked.cases),
            private=tuple(private),
        )


def _finding(said: Said) -> Finding:
    """What a compiler has against a kernel, as the student's process says it."""
    where = Location(said.cell, said.line, cell=said.cell) if said.cell else None
    known = said.kind if said.kind in FAULTS or said.kind in _RULES() else "lowering"
    accesses = tuple(Access(d) for d in said.does)
    return Finding(known, Severity.ERROR, said.message, accesses, said.why, said.fix, where)


def _RULES() -> frozenset[str]:  # noqa: N802
    from course_lib.simulator.rules import RULES

    return frozenset(RULES)
