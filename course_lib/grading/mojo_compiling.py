"""Compiles students' Mojo programs in the sandbox: what comes out is PTX, text of unknown origin.

The compiler runs the student's own code, as `comptime` asks for it, in its own process: so
nothing that it says or writes is believed. Its words are for the student only; its PTX is a
program for `ptx_machine`, which whoever forges it has to get right.

A chapter's programs are compiled together, as most of the time goes into what they share. One
that does not compile, hangs or crashes costs itself only: the others are compiled again.
"""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from course_lib.exercises.registry import Case
from course_lib.grading.mojo_harness import Harness, program
from course_lib.grading.sandbox import Limits, Outcome, Sandbox
from course_lib.mojo import MojoCompileError, toolchain
from course_lib.mojo.errors import from_compiler

ARCH = "sm_90a"
_START_S, _EACH_S = 60, 15  # processor time: 13 s for the first and little for each other, measured
_WALL_S = 5.0  # by the clock for each second of processor time: the machine may be busy
_BLAMED = re.compile(r"\b(?:answer|h)(\d+)\.mojo:\d+:\d+: error")
_MENTIONED = re.compile(r"\b(?:answer|h)(\d+)\.mojo:")
_ENTRY = re.compile(r"\.entry\s+h(\d+)_(c\d+|blocks)_")
_MOST_SAID = 1 << 16
_OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)  # what ends a process that used up its share


@dataclasses.dataclass(frozen=True)
class Paper:
    """One answer.

    Attributes:
      source: the student's program.
      harness: what stands around it.
      cases: what it is tried on.
    """

    source: str
    harness: Harness
    cases: tuple[Case, ...]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What came of compiling an answer.

    Attributes:
      listings: the PTX of each kernel of ours, by its name: "c0", "blocks".
      refusal: why it does not compile; None where it does.
      stopped: "time", "memory", ..., where it was stopped.
    """

    listings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    refusal: MojoCompileError | None = None
    stopped: str = ""

    @property
    def failed(self) -> bool:
        """Whether there is nothing to look at."""
        return self.refusal is not None or bool(self.stopped)


def compile_papers(papers: Sequence[Paper], sandbox: Sandbox) -> list[Compiled]:
    """What came of each answer, in their order.

    Raises:
      MojoMissing: there is no Mojo here.
    """

    def kernels(numbers: Sequence[int]) -> Outcome:
        return _run(papers, numbers, sandbox, "launch")

    def mains(numbers: Sequence[int]) -> Outcome:
        return _run(papers, numbers, sandbox, "main")

    found = _each(papers, range(len(papers)), kernels)
    whole = [n for n, p in enumerate(papers) if p.harness.whole and not found[n].failed]
    for number, standing in _each(papers, whole, mains).items():
        if standing.failed:
            found[number] = standing
    return [found[n] for n in range(len(papers))]


def _each(
    papers: Sequence[Paper], numbers: Sequence[int], run: Callable[[Sequence[int]], Outcome]
) -> dict[int, Compiled]:
    """Compiles together what compiles; what does not is found and left out."""
    found: dict[int, Compiled] = {}
    left = list(numbers)
    while left:
        outcome = run(left)
        if outcome.rc == 0 and not outcome.killed_for:
            listings = _listings(outcome)
            return found | {n: Compiled(listings.get(n, {})) for n in left}
        if len(left) == 1:
            return found | {left[0]: _failed(papers[left[0]], left[0], outcome)}
        blamed = [n for n in left if n in _named(_BLAMED, outcome)]
        blamed = blamed or [n for n in left if n in _named(_MENTIONED, outcome)] or left
        for number in blamed:
            alone = len(blamed) == 1 and not outcome.killed_for
            found[number] = (
                _failed(papers[number], number, outcome)
                if alone
                else _each(papers, [number], run)[number]
            )
        left = [n for n in left if n not in blamed]
    return found


def _named(pattern: re.Pattern[str], outcome: Outcome) -> set[int]:
    return {int(n) for n in pattern.findall(outcome.stderr[:_MOST_SAID]) if len(n) < 6}


def _run(papers: Sequence[Paper], numbers: Sequence[int], sandbox: Sandbox, call: str) -> Outcome:
    """Compiles the kernels of ours ("launch"), or the answers as they stand ("main")."""
    mojo = toolchain.find()
    modules = [f"h{n}" if call == "launch" else f"answer{n}" for n in numbers]
    inputs = {"p.mojo": program(modules, call).encode()}
    for n in numbers:
        inputs[f"answer{n}.mojo"] = papers[n].source.encode()
        if call == "launch":
            inputs[f"h{n}.mojo"] = papers[n].harness.module(f"answer{n}", papers[n].cases).encode()
    what = "asm" if call == "launch" else "llvm"
    options = [f"--target-accelerator={ARCH}", f"--emit={what}", "-o", f"p.{what}", "p.mojo"]
    cpu_s = _START_S + _EACH_S * len(numbers)
    limits = Limits(
        cpu_s=cpu_s, wall_s=_WALL_S * cpu_s, memory_bytes=6 << 30, processes=64,
        file_bytes=32 << 20, disk_bytes=128 << 20,
    )  # fmt: skip
    return sandbox.run(
        [str(mojo.program), "build", *options],
        inputs=inputs,
        keep=("*.ptx",) if call == "launch" else (),
        limits=limits,
        env=_variables(mojo),
        course="",
        folders=(Path(mojo.root),),
    )


def _variables(mojo: toolchain.Mojo) -> dict[str, str]:
    """What Mojo needs, of its own."""
    return {k: v for k, v in mojo.environment.items() if k.startswith("MODULAR_")}


def _listings(outcome: Outcome) -> dict[int, dict[str, str]]:
    """The PTX by answer and kernel; one that is there twice is none."""
    found: dict[int, dict[str, str]] = {}
    twice = set()
    for content in outcome.files.values():
        text = content.decode(errors="replace")
        entry = _ENTRY.search(text)
        if entry is None:
            continue
        place = (int(entry[1][:6]), entry[2])
        if entry[2] in found.setdefault(place[0], {}):
            twice.add(place)
        found[place[0]][entry[2]] = text
    for number, name in twice:
        del found[number][name]
    return found


def _failed(paper: Paper, number: int, outcome: Outcome) -> Compiled:
    if outcome.killed_for:
        return Compiled(stopped=outcome.killed_for)
    if outcome.rc < 0 or "error" not in outcome.stderr:
        return Compiled(stopped="time" if outcome.rc in _OUT_OF_TIME else "crash")
    said = outcome.stderr[:_MOST_SAID].replace("\0", " ")
    return Compiled(
        refusal=from_compiler(said, source=paper.source, program=f"answer{number}.mojo")
    )
