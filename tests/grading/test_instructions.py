"""The instructions that an exercise asks for: what lacks them, and what nobody could look at."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from course_lib.grading import tracing_child
from course_lib.grading.marking import mark_submission
from course_lib.grading.model import ExerciseMark
from course_lib.grading.sandbox import Outcome, Sandbox
from course_lib.workers import WorkerDied
from tests.grading.answers import RUBRIC, SEED, answered, box, solved

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow, pytest.mark.timeout(1200)]
GELU = "debugging.gelu"
UNSEEN = "the instructions that it compiles to were not looked at"


@dataclasses.dataclass(frozen=True)
class WithoutCompiler(Sandbox):
    """A sandbox of a machine on which nobody has installed the compiler."""

    def run(self, *args: Any, **options: Any) -> Outcome:
        return super().run(*args, **{**options, "toolchain": False})


def mark(source: str | None = None, sandbox: Sandbox | None = None) -> ExerciseMark:
    merged = solved("debugging") if source is None else answered(GELU, source)
    [found] = mark_submission(merged, RUBRIC, seed=SEED, sandbox=sandbox or box(), exercises=[GELU])
    return found


def exact() -> str:
    """The solution without the permission to approximate."""
    [text] = [c.source for c in solved("debugging").cells if c.exercise == GELU]
    assert "approx_math=True" in text
    return text.replace("approx_math=True", "approx_math=False")


def test_with_the_instruction_it_is_right() -> None:
    found = mark()
    assert (found.verdict, found.flags) == ("right", ())


def test_without_it_the_values_alone_earn_nothing() -> None:
    found = mark(exact())
    assert (found.verdict, found.points) == ("wrong-means", 0)
    assert "tanh.approx.f32" in " ".join(found.words)


def test_where_there_is_no_compiler_that_is_flagged_and_not_held_against_them() -> None:
    found = mark(sandbox=WithoutCompiler())
    assert (found.verdict, found.flags) == ("right", (UNSEEN,))


def test_a_compiler_that_dies_has_seen_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib import compiler
    from course_lib.compiler import CompileError

    def dies(*_: Any, **__: Any) -> None:
        try:
            raise WorkerDied("compiler", -6, "Aborted")
        except WorkerDied:
            raise CompileError("The compiler for sm_90a ended without an answer.") from None

    def fails(*_: Any, **__: Any) -> None:
        raise CompileError("Too much shared memory.")

    wanted = {"sm_90a": {"tanh.approx.f32": ">=1"}}
    monkeypatch.setattr(compiler, "compile_for", dies)
    assert tracing_child._unmet(abs, (), wanted) is None
    monkeypatch.setattr(compiler, "compile_for", fails)
    assert tracing_child._unmet(abs, (), wanted) == [
        "It does not compile for sm_90a. Too much shared memory."
    ]
