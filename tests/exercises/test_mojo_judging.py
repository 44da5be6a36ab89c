"""Mojo programs as answers: what is looked at, and what is said where it can't be."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from course_lib import runtime
from course_lib.diagnostics import CourseError
from course_lib.exercises import get, judge, mojo_judging
from course_lib.mojo import Answer, MojoCompileError, MojoTimeout, answers, trying
from course_lib.mojo.trying import Came

ID = "mojo_launches.vector_add"


@pytest.fixture
def fake(monkeypatch):
    """Answers that need no compiler: what `came` says comes out of every case."""
    monkeypatch.setattr(runtime, "device", lambda: None)
    monkeypatch.setattr(mojo_judging.toolchain, "is_installed", lambda: True)
    monkeypatch.setattr(mojo_judging, "compile_program", lambda source, *, arch: _Compiled())

    def come(function):
        def tried(answer, harness, trials, *, timeout_s):
            return [[function(*trial.inputs)] for trial in trials]

        monkeypatch.setattr(trying, "try_on_cpu", tried)

    return come


class _Compiled:
    arch, spill_bytes = "sm_90a", 0

    def count(self, pattern):
        return {"ld.global": 2, "st.global": 1}[pattern]


def test_a_right_answer_says_what_was_looked_at(fake):
    fake(lambda a, b: Came(a + b, 0))
    text = str(judge(ID, Answer("c[i] = a[i] + b[i]")))
    assert text.startswith(
        f"{ID}: correct [checked: it compiles; its PTX; its values on the CPU, 3"
    )
    assert "its launch was not looked at" in text


def test_wrong_values_are_shown(fake):
    fake(lambda a, b: Came(a - b, 0))
    verdict = judge(ID, Answer("c[i] = a[i] - b[i]"))
    assert verdict.fault == "value"
    assert "Element [0]" in str(verdict)


@pytest.mark.parametrize(("beyond", "says"), [(1, "to element 1000"), (-2, "to element -2")])
def test_a_write_outside_of_an_array_comes_before_its_values(fake, beyond, says):
    fake(lambda a, b: Came(a - b, beyond))
    verdict = judge(ID, Answer("x"))
    assert verdict.fault == "out-of-bounds"
    assert says in str(verdict)


def test_words_that_are_asked_for_are_looked_for_in_the_code_only():
    answer = Answer("x = global_idx.x  # global_idx.y\n")
    assert (answer.uses("global_idx.y"), answer.uses("global_idx.x")) == (0, 1)
    assert Answer("warp.sum(v) + warp.sum(w)").uses("warp.sum") == 2
    assert Answer("mywarp.sum(v)").uses("warp.sum") == 0


def test_a_gap_is_not_done_yet_and_nothing_is_compiled():
    verdict = judge(ID, Answer(f"def main():\n    {answers.NOT_DONE}\n"))
    assert str(verdict) == f"{ID}: not done yet: fill in the cell above and run it again."


def test_something_else_than_a_program_is_refused():
    with pytest.raises(CourseError, match=r'Run the cell with "%%mojo_gpu --exercise'):
        judge(ID, lambda a, b: a + b)


def test_without_mojo_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime, "device", lambda: None)
    monkeypatch.setenv("COURSE_MOJO", str(tmp_path / "none"))
    monkeypatch.setattr(mojo_judging.running.compiling.cache, "load", lambda key: None)
    verdict = judge(ID, Answer("def main():\n    print(17)\n"))
    assert verdict.fault == "unsupported"
    assert "make mojo" in str(verdict)


def test_a_program_that_never_ends_and_one_that_does_not_compile(fake, monkeypatch):
    def never(*args, **options):
        raise MojoTimeout("The program was stopped after 30 s.")

    monkeypatch.setattr(trying, "try_on_cpu", never)
    assert judge(ID, Answer("x")).fault == "timeout"

    def refused(*args, **options):
        raise MojoCompileError("Line 3 does not compile: x\nMojo says: no\nChange: it", entry="e")

    monkeypatch.setattr(trying, "try_on_cpu", refused)
    verdict = judge(ID, Answer("x"))
    assert verdict.fault == "lowering"
    assert "Mojo says" not in str(verdict)
    assert "Change: it" in str(verdict)


def test_the_gpu_is_insisted_on_only_where_there_is_one(monkeypatch):
    monkeypatch.setattr(runtime, "device", lambda: None)
    with pytest.raises(CourseError, match="needs a GPU"):
        judge(ID, Answer("x"), native=True)


def test_what_stands_around_an_array_tells_of_writes_beyond_it():
    inside = np.arange(5, dtype=np.float32)
    guard = bytes([trying._OUTPUT_GUARD]) * trying.GUARD_BYTES
    behind = np.float32(3).tobytes()

    def came(before, after):
        return trying._came(before + inside.tobytes() + after, (5,), np.dtype("float32"))

    assert came(guard, guard).beyond == 0
    assert np.array_equal(came(guard, guard).value, inside)
    assert came(guard, guard[:8] + behind + guard[12:]).beyond == 3
    assert came(guard[:-4] + behind, guard).beyond == -1


def test_an_exercise_of_a_program_is_called_like_the_answer():
    from course_lib.exercises import register

    with pytest.raises(ValueError, match="is called like the exercise"):
        register(dataclasses.replace(get(ID), id="mojo_launches.other"))
