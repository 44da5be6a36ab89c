"""Marks Mojo programs: the PTX that the compiler makes of them, run on hidden inputs.

    marks = mark(merged, asked, rubric, sandbox=Sandbox.probe())

For each exercise: take the program's text out of the notebook; have it compiled in the sandbox,
with kernels of ours around it (`mojo_compiling`); read the PTX strictly (`ptx_text`) and run it
in a process with limits on hidden data (`ptx_machine`), every lane of the launch; compare with the
exercise's reference, count the instructions of the same PTX, and earn what the rubric says.

What is trusted, and what is not. The student's program never runs: it is compiled, and its
`comptime` code runs in the compiler, in a sandbox that holds no reference, no hidden data and no
verdict (of the hidden cases it can see the sizes). Whatever it does there, to the compiler's
messages or to its files, can only change the PTX. That is data: to earn a mark it has to compute
the right values on inputs that nobody has seen, without a race and within its arrays, all of
which the trusted side finds out by itself. The exercise's harness for the CPU (`mojo_judging`),
in which the learner's functions run beside the inputs, is not used.

What can still be pretended is how: a count of instructions ("ld.global.v4", "shfl.sync") is a
count in that PTX, and who writes instructions by hand, by inline assembly, can add some that are
of no use. Such words are flagged. Words that an exercise asks for (`requires`) are looked for in
the text, and may stand there for show.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib import setup_env
from course_lib.compiler import ToolchainMissing
from course_lib.compiler import toolchain as cuda
from course_lib.compiler.listing import matches
from course_lib.diagnostics import Finding, Severity
from course_lib.exercises import cases as drawing
from course_lib.exercises.compare import compare
from course_lib.exercises.registry import Case, Exercise
from course_lib.grading import mojo_compiling, ptx_machine, ptx_text, trusted
from course_lib.grading.model import ExerciseMark, Merged, Rubric
from course_lib.grading.mojo_compiling import ARCH, Compiled, Paper
from course_lib.grading.mojo_harness import BLOCKS, HARNESSES, MOST_BLOCKS
from course_lib.grading.sandbox import Limits, Sandbox
from course_lib.grading.tracing import Asked
from course_lib.mojo import Answer, Kernel, Program, toolchain
from course_lib.mojo.answers import answer_of, exercise_of
from course_lib.mojo.expecting import unmet_conditions
from course_lib.workers import RemoteError, WorkerDied, WorkerTimeout

Array = np.ndarray[Any, Any]

BY_HAND = "It is a Mojo program"
_NO_HARNESS = f"{BY_HAND}, and grading does not know its kernel: your instructor marks it by hand."
_NO_WHEELS = f"{BY_HAND}, and there is no Mojo for this system: your instructor marks it by hand."
_NO_MOJO = (
    f"{BY_HAND}, and the machine that graded it has no Mojo: your instructor marks it by hand, or "
    f"runs `{toolchain.COMMAND}` in the course's folder and grades again."
)
_NO_MAGIC = (
    "No cell begins with `%%mojo_gpu --exercise {id}`, so there is no program for this exercise."
)
_STOPPED = {
    "time": ("timeout", "Compiling it took too long, and was stopped."),
    "memory": ("crash", "Compiling it took more memory than there is for it."),
    "output": ("crash", "The compiler printed without end, and was stopped."),
    "crash": ("crash", "The compiler crashed."),
}
_RACE = "Put `barrier()` between them, or use `Atomic.fetch_add`."
_UNSEEN = "registers and spilled bytes were not looked at: there is no ptxas here"
_RESOURCES = ("registers", "spill_bytes", "smem_bytes")
# What a Mojo program of these exercises has no use for, by what it is for.
_USES = {
    "inlined_assembly": "inline assembly", "llvm_intrinsic": "inline assembly",
    "__mlir_op": "inline assembly", "__mlir_attr": "inline assembly",
    "external_call": "foreign functions", "sys_call": "foreign functions",
    "compile_info": "the compiler", "_compile_code": "the compiler",
    "open": "files", "FileHandle": "files", "Path": "files", "Python": "Python",
    "getenv": "the environment", "run": "processes", "is_compile_time": "where it runs",
    "is_gpu": "where it runs", "is_nvidia_gpu": "where it runs",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Job:
    """What the process looks at: one answer.

    Attributes:
      exercise: what it answers.
      cases: the hidden cases.
      seed: what the data are drawn from.
      listings: the PTX of each kernel, by name.
      assembled: what `ptxas -v` says of each; None where there is no ptxas.
    """

    exercise: Exercise
    cases: tuple[Case, ...]
    seed: int
    listings: Mapping[str, str]
    assembled: Mapping[str, str] | None


@dataclasses.dataclass(frozen=True)
class Seen:
    """What was seen of one case; `verdict` is one of `model.VERDICTS`.

    Attributes:
      verdict, fault, words: as in `ExerciseMark`.
      finding: a race, or a barrier used wrongly.
      private: what is wrong with the values, for the instructor.
    """

    verdict: str
    fault: str = ""
    words: tuple[str, ...] = ()
    finding: Finding | None = None
    private: tuple[str, ...] = ()


def can_mark() -> bool:
    """Whether there is a Mojo compiler here."""
    return toolchain.is_installed()


def mark(
    merged: Merged, asked: Sequence[Asked], rubric: Rubric, *, sandbox: Sandbox
) -> dict[str, ExerciseMark]:
    """The marks of the exercises that are answered by a Mojo program, by id.

    Args:
      merged: the student's code.
      asked: these exercises, with their hidden cases.
      rubric: what is earned for what.
      sandbox: where the programs are compiled.
    """
    answers = {a.exercise.id: program_of(merged, a.exercise.id) for a in asked}
    marks = {
        a.exercise.id: found
        for a in asked
        if (found := _at_first_sight(a, answers[a.exercise.id], rubric)) is not None
    }
    left = [a for a in asked if a.exercise.id not in marks]
    given = [answers[a.exercise.id] or Answer("") for a in left]
    return marks | {m.exercise: m for m in mark_programs(given, left, rubric, sandbox=sandbox)}


def mark_programs(
    answers: Sequence[Answer], asked: Sequence[Asked], rubric: Rubric, *, sandbox: Sandbox
) -> list[ExerciseMark]:
    """The marks of whole programs, each for what was asked; all of them are compiled together."""
    papers = [
        Paper(answer.source, HARNESSES[a.exercise.id], a.cases)
        for answer, a in zip(answers, asked, strict=True)
    ]
    compiled = mojo_compiling.compile_papers(papers, sandbox)
    expected = {n for n, a in enumerate(asked) if a.exercise.expects}
    listings = {
        f"{n}-{name}": text
        for n, one in enumerate(compiled)
        if n in expected
        for name, text in one.listings.items()
        if name != BLOCKS
    }
    assembled = _assembled(listings, sandbox) if listings else {}
    return [
        _judged(a, answer, one, rubric, None if assembled is None else _own(assembled, number))
        for number, (a, answer, one) in enumerate(zip(asked, answers, compiled, strict=True))
    ]


def _own(assembled: Mapping[str, str], number: int) -> dict[str, str]:
    start = f"{number}-"
    return {k.removeprefix(start): v for k, v in assembled.items() if k.startswith(start)}


# --- the program ---------------------------------------------------------------------------------


def program_of(merged: Merged, exercise_id: str) -> Answer | None:
    """The last program that a notebook has for an exercise, without gaps if there is one."""
    sources = [c.source.replace("\r\n", "\n").lstrip("\n") for c in merged.cells]
    answers = [answer_of(s) for s in sources if exercise_of(s) == exercise_id]
    chosen = [a for a in answers if a.done] or answers
    return chosen[-1] if chosen else None


def _at_first_sight(asked: Asked, answer: Answer | None, rubric: Rubric) -> ExerciseMark | None:
    """The mark where nothing has to be compiled for it."""
    exercise = asked.exercise
    if exercise.id not in HARNESSES:
        return _made(asked, rubric, Seen("refused", "refused", (_NO_HARNESS,)))
    if answer is None:
        words = _NO_MAGIC.format(id=exercise.id)
        return _made(asked, rubric, Seen("not-done", "not-done", (words,)))
    if not answer.done:
        return _made(asked, rubric, Seen("not-done", "not-done", ("Not done yet.",)))
    if not can_mark():
        words = _NO_MOJO if setup_env.mojo_has_wheels() else _NO_WHEELS
        return _made(asked, rubric, Seen("refused", "refused", (words,)))
    return None


def flags_of(answer: Answer) -> tuple[str, ...]:
    """What an instructor should look at in a program's text."""
    found: dict[str, None] = {}
    for number, line in enumerate(answer.code.splitlines(), start=1):
        for word, what in _USES.items():
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)\s*[\[(]", line):
                found[f"uses {what}: {word} (line {number} of the program)"] = None
        if re.search(r"\bfrom\s+(?:h\d+|p|answer\d+)\b|\bimport\s+(?:h\d+|p|answer\d+)\b", line):
            found[f"imports what the grader puts beside it (line {number} of the program)"] = None
    return tuple(found)


def _unused_words(exercise: Exercise, answer: Answer) -> Iterator[str]:
    for word, least in exercise.requires.items():
        if answer.uses(word) < least:
            yield f"The program does without `{word}`, which is asked for."
    for word in exercise.forbids:
        if answer.uses(word):
            yield f"The program uses `{word}`, which is not allowed here."


# --- what ptxas says -----------------------------------------------------------------------------


def _assembled(listings: Mapping[str, str], sandbox: Sandbox) -> dict[str, str] | None:
    """What `ptxas -v` says of each listing, "" where it refuses it; None where there is none.

    In a sandbox of its own, as the listings are of unknown origin; no student's code runs there.
    """
    try:
        ptxas = cuda.find().ptxas
    except ToolchainMissing:
        return None
    script = (
        'for f in *.ptx; do "$0" -arch="$1" -v "$f" -o /dev/null > "$f.said" 2>&1 '
        '|| rm "$f.said"; done'
    )
    folders = [cuda.folder()] if cuda.folder().is_dir() else []
    outcome = sandbox.run(
        ["/bin/sh", "-c", script, ptxas, ARCH],
        inputs={f"{name}.ptx": text.encode() for name, text in listings.items()},
        keep=("*.said",),
        limits=Limits(cpu_s=60, wall_s=300.0 + 5 * len(listings), disk_bytes=64 << 20),
        course="",
        folders=folders,
    )
    said = {n.removesuffix(".ptx.said"): c for n, c in outcome.files.items()}
    return {name: said.get(name, b"").decode(errors="replace") for name in listings}


def _number(said: str, pattern: str) -> int:
    found = re.search(pattern, said)
    return int(found[1]) if found else 0


def _kernel(name: str, listing: str, said: str) -> Kernel:
    return Kernel(
        name=name,
        entry=name,
        ptx=listing,
        registers=_number(said, r"Used (\d{1,4}) registers"),
        spill_bytes=_number(said, r"(\d{1,6}) bytes spill stores")
        + _number(said, r"(\d{1,6}) bytes spill loads"),
        smem_bytes=_number(said, r"(\d{1,6}) bytes smem"),
    )


# --- in the process ------------------------------------------------------------------------------


def look_here(job: Job) -> tuple[Seen, ...]:
    """In the process: every case of an answer, the first that cannot be looked at ends it."""
    seen: list[Seen] = []
    for number, case in enumerate(job.cases):
        seen.append(_look(job, case, number))
        if seen[-1].verdict == "refused" or seen[-1].fault == "timeout":
            break
    return tuple(seen)


def _look(job: Job, case: Case, number: int) -> Seen:
    """One case: its values, then the means."""
    arrays = drawing.draw_case(case, seed=job.seed, index=number)
    value = job.exercise.reference(*(a.copy() for a in arrays), **case.static)
    wanted = [np.asarray(v) for v in (value if isinstance(value, tuple | list) else [value])]
    try:
        ran = _run(job, case, number, arrays, wanted)
    except ptx_text.Refused as error:
        words = printable(f"{error} Your instructor marks it by hand.")
        return Seen("refused", "refused", (words,))
    except ptx_text.Unknown as error:
        words = f"The grader's model of a GPU has not {error}: your instructor marks it by hand."
        words = printable(words)
        return Seen("refused", "unsupported", (words,))
    except ptx_machine.Endless:
        return Seen("wrong", "timeout", ("Its kernel does not come to an end.",))
    if isinstance(ran, Seen):
        return ran
    return _of_run(job, number, arrays, wanted, ran)


def _run(
    job: Job, case: Case, number: int, arrays: Sequence[Array], wanted: Sequence[Array], *,
    without: str = "",
) -> ptx_machine.Ran | Seen:  # fmt: skip
    """A launch; perhaps one in which the instructions of a name do nothing."""
    harness = HARNESSES[job.exercise.id]
    grid = harness.grid(case.static)
    if harness.blocks:
        blocks = _blocks_asked(job, grid[0], grid[1])
        if not 0 < blocks <= MOST_BLOCKS:
            words = "The number of blocks that it asks for cannot be launched."
            return Seen("wrong", "value", (words,))
        grid = (blocks, 1, 1)
    empty = 0 if harness.zeroed else 255
    outputs = [np.full(w.nbytes, empty, np.uint8).view(w.dtype).reshape(w.shape) for w in wanted]
    numbers = [case.static[name] for name in harness.numbers]
    kernel = ptx_text.read(_listing(job, f"c{number}"))
    return ptx_machine.run(
        kernel, [*arrays, *outputs, *numbers], grid=grid, block=harness.block, seed=job.seed,
        idle=(lambda opcode: matches(without, opcode)) if without else None,
    )  # fmt: skip


def _blocks_asked(job: Job, size: int, block: int) -> int:
    """What the answer says of how many blocks it takes: computed here, by its PTX."""
    kernel = ptx_text.read(_listing(job, BLOCKS))
    ran = ptx_machine.run(
        kernel, [np.zeros(1, np.int32), size, block], grid=(1, 1, 1), block=(1, 1, 1), seed=0
    )
    return int(ran.buffers[0][0])


def _listing(job: Job, name: str) -> str:
    if name not in job.listings:
        raise ptx_text.Refused("The compiler made no PTX of its kernel.")
    return job.listings[name]


def _of_run(
    job: Job, number: int, arrays: Sequence[Array], wanted: Sequence[Array], ran: ptx_machine.Ran
) -> Seen:
    """What is wrong with what a launch did: first what stops it, last by what means."""
    faults = {f.kind: f.what for f in ran.faults}
    for kind in ("crash", "out-of-bounds"):
        if kind in faults:
            return Seen("wrong", kind, (faults[kind],))
    fault = "race" if "race" in faults else "barrier"
    finding = _finding(faults)
    difference = compare(
        list(ran.buffers[-len(wanted) :]), wanted, inputs={
            f"input {i + 1}": array for i, array in enumerate(arrays)
        }, rtol=job.exercise.rtol, atol=job.exercise.atol,
    )  # fmt: skip
    if difference is not None:
        words = trusted.without_values(difference)
        kind = fault if finding else difference.fault
        return Seen("wrong", kind, words, finding, difference.lines)
    if unmet := [*_unmet(job, number, ran.used), *_unneeded(job, number, arrays, wanted)]:
        return Seen("wrong-means", "means", ("The values are right.", *unmet), finding)
    if finding is not None:
        return Seen("right-with-errors", fault, ("The values are right.",), finding)
    return Seen("right")


def _finding(faults: Mapping[str, str]) -> Finding | None:
    """A race, else a barrier used wrongly."""
    if "race" in faults:
        return Finding("data-race", Severity.ERROR, faults["race"], fix=_RACE)
    return Finding("barrier", Severity.ERROR, faults["barrier"]) if "barrier" in faults else None


def _unmet(job: Job, number: int, used: frozenset[int]) -> list[str]:
    """The expectations that a case's PTX does not meet, all of it or what of it was done."""
    conditions = dict(job.exercise.expects.get(ARCH, {}))
    if not conditions:
        return []
    name = f"c{number}"
    said = "" if job.assembled is None else job.assembled.get(name, "")
    if job.assembled is None:
        conditions = {k: v for k, v in conditions.items() if k not in _RESOURCES}
    elif not said:
        return ["`ptxas` refuses its PTX."]
    listing = job.listings[name]
    found = unmet_conditions(Program(ARCH, (_kernel(name, listing, said),)), conditions)
    done = Program(ARCH, (_kernel(name, _part(listing, used), said),))
    return found or [
        f"{u} That is without those that no lane comes to."
        for u in unmet_conditions(done, conditions)
    ]


def _part(listing: str, used: frozenset[int]) -> str:
    """The listing with some of its instructions only, for them to be counted."""
    instructions = ptx_text.read(listing).instructions
    lines = [f"\t{i.opcode};" for n, i in enumerate(instructions) if n in used]
    return "\n".join([".visible .entry k()", "{", *lines, "}", ""])


def _unneeded(
    job: Job, number: int, arrays: Sequence[Array], wanted: Sequence[Array]
) -> Iterator[str]:
    """The instructions asked for without which the first case comes out right as well."""
    if number:
        return
    kernel = ptx_text.read(_listing(job, f"c{number}"))
    for pattern in job.exercise.expects.get(ARCH, {}):
        if pattern in _RESOURCES or pattern.startswith("bar"):
            continue  # what a barrier is for, a race says
        if not any(matches(pattern, i.opcode) for i in kernel.instructions):
            continue
        ran = _run(job, job.cases[number], number, arrays, wanted, without=pattern)
        if not isinstance(ran, Seen) and not _differs(job, ran, wanted):
            yield f"The result is the same without `{pattern}`: what it does is of no use."


def _differs(job: Job, ran: ptx_machine.Ran, wanted: Sequence[Array]) -> bool:
    rtol, atol = job.exercise.rtol, job.exercise.atol
    found = compare(list(ran.buffers[-len(wanted) :]), wanted, inputs={}, rtol=rtol, atol=atol)
    return found is not None


# --- the mark ------------------------------------------------------------------------------------


def _judged(
    asked: Asked, answer: Answer, compiled: Compiled, rubric: Rubric,
    assembled: Mapping[str, str] | None,
) -> ExerciseMark:  # fmt: skip
    flags = list(flags_of(answer))
    if compiled.refusal is not None:
        lines = [printable(x) for x in str(compiled.refusal).splitlines()[:6]]
        return _made(asked, rubric, Seen("wrong", "lowering", tuple(lines)), flags=flags)
    if compiled.stopped:
        fault, words = _STOPPED.get(compiled.stopped, _STOPPED["crash"])
        return _made(asked, rubric, Seen("wrong", fault, (words,)), flags=flags)
    job = Job(asked.exercise, asked.cases, asked.seed, compiled.listings, assembled)
    seen = list(_looked(job))
    if assembled is None and set(asked.exercise.expects.get(ARCH, {})) & set(_RESOURCES):
        flags.append(_UNSEEN)
    unused = tuple(_unused_words(asked.exercise, answer))
    if unused and all(s.verdict in ("right", "right-with-errors") for s in seen):
        seen = [Seen("wrong-means", "means", ("The values are right.", *unused))]
    return _first_wrong(asked, rubric, seen, flags)


def _looked(job: Job) -> tuple[Seen, ...]:
    """What the process saw; never raises for what a program does."""
    try:
        return trusted.simulation().call(look_here, job)
    except WorkerTimeout:
        return (Seen("wrong", "timeout", ("Running its kernel took too long, and was stopped.",)),)
    except WorkerDied:
        return (Seen("wrong", "crash", ("Running its kernel took too much memory.",)),)
    except RemoteError as error:
        if error.type_name == "MemoryError":
            return (Seen("wrong", "crash", ("Running its kernel took too much memory.",)),)
        words = "Its kernel could not be run: your instructor marks it by hand."
        return (Seen("refused", "unsupported", (words,), private=(str(error)[:500],)),)


def _first_wrong(
    asked: Asked, rubric: Rubric, seen: Sequence[Seen], flags: Sequence[str]
) -> ExerciseMark:
    """The mark for the worst of the cases; of equal ones, the first."""
    order = ("refused", "wrong", "wrong-means", "right-with-errors", "right")
    worst = min(seen, key=lambda s: order.index(s.verdict))
    number = seen.index(worst)
    passed = sum(s.verdict == "right" for s in seen)
    private = (f"case {number + 1}: {asked.cases[number]}", *worst.private)
    return _made(
        asked, rubric, worst, passed=passed, flags=flags,
        private=() if worst.verdict == "right" else private,
    )  # fmt: skip


def _made(
    asked: Asked, rubric: Rubric, seen: Seen, *, passed: int = 0, flags: Sequence[str] = (),
    private: Sequence[str] = (),
) -> ExerciseMark:  # fmt: skip
    exercise = asked.exercise
    differs = seen.verdict == "wrong" and seen.fault not in ("lowering", "timeout", "crash")
    return ExerciseMark(
        exercise=exercise.id,
        points=rubric.earned(exercise.id, seen.verdict),
        of=rubric.of(exercise.id),
        verdict=seen.verdict,
        fault=seen.fault,
        words=seen.words,
        finding=seen.finding,
        first_difference=seen.words[0] if differs and seen.words else "",
        hints=() if seen.verdict == "right" else exercise.hints[: rubric.hints],
        flags=tuple(flags),
        passed=passed,
        cases=len(asked.cases),
        private=tuple(private),
    )


def printable(text: str) -> str:
    """A line of the compiler's, which a student's program may have written: cut, and printable."""
    return re.sub(r"[^\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd]", " ", text[:300])
