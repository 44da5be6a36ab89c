"""Mojo answers are marked by their PTX: solutions and honest variants right, all else not.

What compiles is compiled together, chapter by chapter: most of the time goes into what is shared.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence

import pytest

from course_lib import setup_env
from course_lib.authoring.files import read_notebook
from course_lib.authoring.source import Course
from course_lib.exercises import all_exercises
from course_lib.grading import merging, mojo_compiling, mojo_marking, tasks
from course_lib.grading.intake import Student
from course_lib.grading.marking import ask, mark_submission
from course_lib.grading.model import ExerciseMark, SourceCell
from course_lib.grading.mojo_harness import HARNESSES
from course_lib.grading.release import unreleased
from course_lib.grading.sandbox import Outcome
from course_lib.grading.tracing import Asked
from course_lib.mojo.answers import NOT_DONE, Answer
from tests.grading.answers import RUBRIC, SEED, box, solved
from tests.grading.mojo_answers import (
    CHEATS,
    COPY_PART,
    FROM_CUDA,
    HONEST,
    IDS,
    PLACE,
    Tried,
    changed,
    solution,
)

# What takes the compiler: ten seconds of two processors for each run of it.
_MARKS = (
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.needs("bubblewrap"),
    pytest.mark.skipif(not setup_env.mojo_has_wheels(), reason="this system has no Mojo"),
)


def compiled(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that takes the compiler."""
    return functools.reduce(lambda marked, mark_: mark_(marked), _MARKS, test)


# What the compiler refuses: it takes a run of its own to find out which it is.
_REFUSED = ("CUDA's own words", "not bound", "a name that is not there", "mean not handed over")


def _wrong() -> dict[str, Tried]:
    found = {}
    for exercise in IDS:
        module = importlib.import_module(f"tests.wrong_answers.{exercise}")
        for name, wrong in module.WRONG.items():
            alone = name in _REFUSED
            found[f"{exercise}: {name}"] = Tried(exercise, wrong.fn, wrong.fault, alone)
    return found


WRONG = _wrong()
TRIED = {
    **{f"solution of {i}": Tried(i, solution(i)) for i in IDS},
    **WRONG,
    **HONEST,
    **CHEATS,
}
TOGETHER = [name for name, tried in TRIED.items() if not tried.alone]
# Faults that the grader calls by another name than the check, which sees the CPU alone.
_OTHERWISE = {
    "mojo_launches.from_cuda: nothing is called": "nan",
    "mojo_launches.scale_rows: a number for each column": "out-of-bounds",
    "mojo_launches.scale_rows: x twice": "nan",
    "mojo_tiles.block_sum: every lane adds": "out-of-bounds",
    "mojo_tiles.histogram: a plain addition": "race",
    "mojo_tiles.load: no edges": "out-of-bounds",
    "two_languages.standardize_lanes: no warp.sum": "value",
    "two_languages.place: columns beside each other": "race",
}


def marks_of(names: tuple[str, ...]) -> dict[str, ExerciseMark]:
    """The marks of some answers, compiled together, on hidden cases."""
    tried = [TRIED[n] for n in names]
    asked = [_asked(t) for t in tried]
    marks = mojo_marking.mark_programs([t.answer for t in tried], asked, RUBRIC, sandbox=box())
    return dict(zip(names, marks, strict=True))


def _asked(tried: Tried) -> Asked:
    found = ask(tried.exercise, "", RUBRIC, seed=SEED)
    return dataclasses.replace(found, cases=found.cases[:1]) if tried.shown_only else found


# --- without the compiler ------------------------------------------------------------------------


def test_every_mojo_exercise_can_be_marked():
    assert set(HARNESSES) == {e.id for e in all_exercises() if e.program} == set(IDS)


def test_without_mojo_it_is_marked_by_hand_and_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(mojo_marking, "can_mark", lambda: False)
    found = _marked("mojo_launches", [FROM_CUDA])
    assert (found.verdict, found.points) == ("refused", 0)
    assert "by hand" in found.words[0]
    assert "`make mojo`" in found.words[0]
    monkeypatch.setattr(setup_env, "mojo_has_wheels", lambda: False)
    assert "no Mojo for this system" in _marked("mojo_launches", [FROM_CUDA]).words[0]


def _marked(chapter: str, exercises: Sequence[str]) -> ExerciseMark:
    asked = [ask(i, "", RUBRIC, seed=SEED) for i in exercises]
    return mojo_marking.mark(solved(chapter), asked, RUBRIC, sandbox=None)[exercises[0]]  # type: ignore[arg-type]


def test_a_gap_is_not_done_and_takes_no_compiler():
    merged = _with(PLACE, changed(PLACE, ("    return lane % 4", f"    {NOT_DONE}\n#")))
    asked = [ask(PLACE, "", RUBRIC, seed=SEED)]
    found = mojo_marking.mark(merged, asked, RUBRIC, sandbox=None)[PLACE]  # type: ignore[arg-type]
    assert (found.verdict, found.points, found.words) == ("not-done", 0, ("Not done yet.",))


def test_a_cell_without_the_magic_is_no_program():
    merged = _with(PLACE, solution(PLACE), magic="%%mojo_cpu")
    asked = [ask(PLACE, "", RUBRIC, seed=SEED)]
    found = mojo_marking.mark(merged, asked, RUBRIC, sandbox=None)[PLACE]  # type: ignore[arg-type]
    assert found.verdict == "not-done"
    assert "%%mojo_gpu --exercise" in found.words[0]


def _with(exercise: str, answer: Answer, *, magic: str = "", own: str = ""):
    """The solved chapter with another program in an exercise's cell, and perhaps one below."""
    merged = solved(exercise.split(".")[0])
    head = magic or f"%%mojo_gpu --exercise {exercise}"
    cells = []
    for cell in merged.cells:
        mine = cell.exercise == exercise
        source = f"{head}\n{answer.source}" if mine else cell.source
        cells.append(dataclasses.replace(cell, source=source))
        if mine and own:
            cells.append(SourceCell("own", f"\r\n{head}\r\n{own}", own=True))
    return dataclasses.replace(merged, cells=tuple(cells))


def test_the_last_program_without_gaps_is_the_one_that_counts():
    gap = changed(PLACE, ("    return lane % 4", f"    {NOT_DONE}\n#"))
    right = solution(PLACE)
    assert mojo_marking.program_of(_with(PLACE, gap, own=right.source), PLACE) == right
    assert mojo_marking.program_of(_with(PLACE, right, own=gap.source), PLACE) == right
    assert mojo_marking.program_of(_with(PLACE, gap, own=gap.source), PLACE) == gap
    assert mojo_marking.program_of(_with(PLACE, right), FROM_CUDA) is None


def test_words_that_look_around_are_flagged_and_those_of_the_solutions_are_not():
    for exercise in IDS:
        assert mojo_marking.flags_of(solution(exercise)) == ()
    odd = changed(COPY_PART, ("    copy_part(lane_id(), x_tile, y_tile)", (
        '    inlined_assembly["mov.u32 $0, 4;", UInt32, constraints="=r"]()\n'
        "    copy_part(lane_id(), x_tile, y_tile)"
    )))  # fmt: skip
    (flag,) = mojo_marking.flags_of(odd)
    assert flag.startswith("uses inline assembly: inlined_assembly (line ")
    peeks = changed(PLACE, ("from max.gpu import thread_idx", "from h0 import c0"))
    assert "imports what the grader puts beside it" in mojo_marking.flags_of(peeks)[0]


def test_programs_are_found_in_a_merged_notebook():
    skeleton = read_notebook(Course().notebooks / "20_mojo_launches.ipynb")
    handed_in = read_notebook(Course().root / "solutions" / "20_mojo_launches.ipynb")
    merged = merging.merge("Ada", "20_mojo_launches", skeleton, handed_in).merged
    assert merged.problems == ()
    mine = [i for i in IDS if i.startswith("mojo_launches")]
    assert all(mojo_marking.program_of(merged, i).done for i in mine)


@pytest.mark.parametrize(("chapter", "changes"), [("21", True), ("03", False)])
def test_a_class_is_graded_anew_once_there_is_mojo_if_it_needs_it(chapter, changes, monkeypatch):
    given, student = unreleased([chapter], "secret"), Student("Ada", "")
    keys = []
    for there in (True, False):
        monkeypatch.setattr(tasks.toolchain, "is_installed", lambda there=there: there)
        keys.append(tasks.key_of(student, given, tasks.Options()))
    assert (keys[0] != keys[1]) is changes


class Compiler:
    """Stands for the compiler: refuses some of the answers, with its words."""

    def __init__(self, says: str, bad: Sequence[int], killed_for: str = ""):
        self.says, self.bad, self.killed_for = says, bad, killed_for
        self.runs: list[list[int]] = []

    def __call__(self, numbers: Sequence[int]) -> Outcome:
        self.runs.append(list(numbers))
        found = [n for n in numbers if n in self.bad]
        if not found:
            files = {f"{n}.ptx": f".visible .entry h{n}_c0_x(".encode() for n in numbers}
            return Outcome(0, "", "", files=files)
        said = "\n".join(f"/sandbox/work/{self.says.format(n)}" for n in found[:1])
        return Outcome(-9 if self.killed_for else 1, "", said, killed_for=self.killed_for)


def _compiled(compiler: Compiler) -> dict[int, mojo_compiling.Compiled]:
    papers = [mojo_compiling.Paper("line", HARNESSES[PLACE], ())] * 4
    return mojo_compiling._each(papers, range(4), compiler)


@pytest.mark.parametrize(
    "says", ["answer{}.mojo:1:1: error: no such name", "h{}.mojo:9:5: error: call expansion failed"]
)
def test_who_does_not_compile_is_left_out_and_the_others_are_compiled(says):
    compiler = Compiler(says, (1, 3))
    found = _compiled(compiler)
    assert [n for n, c in found.items() if c.refusal] == [1, 3]
    assert all("c0" in found[n].listings for n in (0, 2))
    assert compiler.runs == [[0, 1, 2, 3], [0, 2, 3], [0, 2]]


def test_when_nobody_is_named_each_is_compiled_by_itself():
    """As where one hangs, or takes all memory."""
    compiler = Compiler("nothing", (2,), "time")
    found = _compiled(compiler)
    assert {n: c.stopped for n, c in found.items()} == {0: "", 1: "", 2: "time", 3: ""}
    assert compiler.runs == [[0, 1, 2, 3], [0], [1], [2], [3]]


def test_a_kernel_that_is_there_twice_is_none():
    files = {
        "a.ptx": b".visible .entry h0_c0_x(", "b.ptx": b".visible .entry h0_c0_y(",
        "c.ptx": b".visible .entry h0_c1_x(", "d.ptx": b"\xff\x00", "e.ptx": b".entry other_c0_x(",
    }  # fmt: skip
    found = mojo_compiling._listings(Outcome(0, "", "", files=files))
    assert {n: set(names) for n, names in found.items()} == {0: {"c1"}}


# --- with it -------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("chapter", ["mojo_launches", "mojo_tiles", "two_languages"])
def test_the_answers_of_a_chapter_get_what_they_earn(chapter):
    """Solutions and honest variants full marks; wrong answers and cheats none, and say why."""
    names = tuple(n for n in TOGETHER if TRIED[n].exercise.startswith(chapter))
    marks = marks_of(names)
    assert {n: (m.points, m.fault) for n, m in marks.items()} == {
        n: (0, _OTHERWISE.get(n, TRIED[n].fault)) if n in WRONG or n in CHEATS else (10, "")
        for n in names
    }
    for name, mark_ in marks.items():
        assert " should be " not in " ".join(mark_.words)  # no hidden value
        assert mark_.words or mark_.ok
        assert (mark_.passed == mark_.cases) is mark_.ok
        assert not mark_.flags or name in CHEATS


@compiled
def test_what_the_compiler_refuses_earns_nothing():
    names = tuple(n for n in WRONG if WRONG[n].alone)
    marks = marks_of(names)
    assert {(m.points, m.fault) for m in marks.values()} == {(0, "lowering")}
    said = {n: " ".join(m.words) for n, m in marks.items()}
    assert "var i = blockIdx.x" in said[f"{FROM_CUDA}: CUDA's own words"]
    assert "bind them first" in said["mojo_launches.vector_add: not bound"]


@compiled
@pytest.mark.parametrize("name", [n for n, cheat in CHEATS.items() if cheat.alone])
def test_what_a_cheat_does_in_the_compiler_earns_nothing(name, monkeypatch):
    monkeypatch.setattr(mojo_compiling, "_START_S", 20)
    found = marks_of((name,))[name]
    assert found.points == 0, found
    assert found.fault in (CHEATS[name].fault, "crash"), found  # memory may go before the time


@compiled
def test_one_that_does_not_compile_costs_itself_alone_in_a_whole_chapter():
    merged = _with(FROM_CUDA, WRONG[f"{FROM_CUDA}: CUDA's own words"].answer)
    marks = mark_submission(merged, RUBRIC, seed=SEED, sandbox=box())
    assert [m.fault for m in marks] == ["lowering", "", ""]
    assert [m.points for m in marks] == [0, 10, 10]
    assert "blockIdx" in " ".join(marks[0].words)


@compiled
def test_a_chapter_of_both_languages_is_marked_at_once_and_without_ptxas(monkeypatch):
    monkeypatch.setattr(mojo_marking, "_assembled", lambda listings, sandbox: None)
    marks = mark_submission(solved("two_languages"), RUBRIC, seed=SEED, sandbox=box())
    assert [m.points for m in marks] == [10, 10, 10]
    assert ["there is no ptxas here" in " ".join(m.flags) for m in marks] == [True, False, False]
