"""What is right runs on a card, too: what the card gives is told, flagged, and changes no mark.

There is no card here. The same process runs in the same sandbox, and its kernels run in the
simulator: `Card(..., simulated=...)`, which is said where the card is made and nowhere else.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib import cli
from course_lib.exercises.cases import draw_case
from course_lib.grading import (
    batch,
    card,
    card_child,
    course_copy,
    reports,
    sandbox,
    tracing_child,
    walls,
)
from course_lib.grading.card import Card, NoArray, arrays_in, card_seed
from course_lib.grading.intake import Student, collect
from course_lib.grading.marking import ask
from course_lib.grading.model import ExerciseMark, Merged, OnCard
from course_lib.grading.records import (
    ChapterRecord,
    ExerciseRecord,
    StudentRecord,
    from_data,
    to_data,
)
from course_lib.grading.sandbox import Limits, Outcome, Sandbox
from course_lib.grading.tasks import Options, Task, grade, key_of, task_for
from course_lib.grading.tracing import Asked, Traced
from course_lib.grading.worker import task_from
from course_lib.runtime import Device
from course_lib.simulator import frontend, ir
from tests.grading.answers import RUBRIC, SEED, box, solved
from tests.grading.classroom import CHAPTER, TRIPLE, hand_in, handed_in, release, solutions

H200 = Device("NVIDIA H200", (9, 0))
B200 = Device("NVIDIA B200", (10, 0))
MULTIPLY_ADD = "asynchronous_copies.multiply_add"
DIFFERENCE = "asynchronous_copies.difference"
RING = "asynchronous_copies.ring_copy"
# Whoever is called with arrays, and not only traced, has them in files beside it.
_ON_CARD = 'import glob, os, signal, time\nHERE = bool(glob.glob("in*.npy"))\n'
needs_walls = pytest.mark.needs("bubblewrap")


def asked_for(exercise: str, cases: int = 1) -> Asked:
    """An exercise with so many of its cases, as fewer take less time."""
    whole = ask(exercise, "", RUBRIC, seed=SEED)
    return dataclasses.replace(whole, cases=whole.cases[:cases])


@functools.cache
def traced(exercise: str) -> Traced:
    """What tracing the course's own solution gives, for the first case."""
    merged = solved(exercise.split(".")[0])
    cells = [
        {"id": c.id, "source": c.source, "tags": c.tags, "exercise": c.exercise, "own": c.own}
        for c in merged.cells
    ]
    one = asked_for(exercise)
    function, _ = tracing_child.define(cells, {"id": exercise, "function": one.exercise.function})
    [case] = one.cases
    program, _ = frontend.trace(
        tracing_child.checked_call(function, dict(case.static)),
        *(_shape(a.shape, a.dtype) for a in case.args),
    )
    return Traced(programs=(ir.dumps(program),), names=("x",))


def _shape(shape: tuple[int, ...], dtype: str) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, jax.numpy.dtype(dtype))


def a_mark(exercise: str = TRIPLE, verdict: str = "right") -> ExerciseMark:
    return ExerciseMark(exercise, RUBRIC.earned(exercise, verdict), 10.0, verdict, cases=1)


def with_answers(answers: Mapping[str, str]) -> Merged:
    merged = solved("asynchronous_copies")
    cells = (dataclasses.replace(c, source=answers.get(c.exercise, c.source)) for c in merged.cells)
    return dataclasses.replace(merged, cells=tuple(cells))


def seen_on(
    on: Card, exercises: Sequence[str], answers: Mapping[str, str] | None = None
) -> dict[str, ExerciseMark]:
    """What a card says of exercises that were marked right."""
    asked = [asked_for(e) for e in exercises]
    marks = [a_mark(e) for e in exercises]
    found = on.look(with_answers(answers or {}), asked, {e: traced(e) for e in exercises}, marks)
    return {m.exercise: m for m in found}


def plain(mark: ExerciseMark) -> ExerciseMark:
    """The mark without what a card adds to it."""
    return dataclasses.replace(mark, card=None, flags=())


# --- the sandboxed process, for real -------------------------------------------------------------

LIES = _ON_CARD + solutions()[TRIPLE].replace("= 3 *", "= (2 if HERE else 3) *")
RAISES = (
    f"{_ON_CARD}ONLY = {{False: lambda f: f}}\n"
    "@ONLY[HERE]\ndef multiply_add(x, y, z):\n    return x\n"
)
ENDS = (
    f"{_ON_CARD}CODE = os._exit(3) if HERE else 0\n"
    "def ring_copy(x, *, stages, unread):\n    return x + CODE\n"
)
HANGS = _ON_CARD + "def triple(x):\n    time.sleep(10_000 if HERE else 0)\n"
KILLS = _ON_CARD + "def triple(x):\n    os.kill(-1, signal.SIGKILL)\n"


@needs_walls
@pytest.mark.slow
def test_what_the_card_gives_is_told_of_each_exercise() -> None:
    """A lie, an exception and an end of the process cost their own exercise only."""
    on = Card(box(), limit_s=200, simulated=H200)
    answers = {TRIPLE: LIES, MULTIPLY_ADD: RAISES, RING: ENDS}
    found = seen_on(on, (TRIPLE, MULTIPLY_ADD, RING, DIFFERENCE), answers)
    cards = {e: m.card for e, m in found.items()}
    assert cards == {
        TRIPLE: OnCard("wrong", "element [0, 0] is wrong, all 40960 are wrong", "NVIDIA H200"),
        MULTIPLY_ADD: OnCard("raised", "it raised KeyError: True", "NVIDIA H200"),
        RING: OnCard("crash", "its process ended before it was done", "NVIDIA H200"),
        DIFFERENCE: OnCard("right", "right on 1 shape", "NVIDIA H200"),
    }
    assert [plain(m) for m in found.values()] == [a_mark(e) for e in found]
    assert {e: len(m.flags) for e, m in found.items()} == {
        TRIPLE: 1, MULTIPLY_ADD: 1, RING: 1, DIFFERENCE: 0,
    }  # fmt: skip
    assert "the simulator finds nothing wrong; on the card element [0, 0]" in found[TRIPLE].flags[0]
    assert "(case 1: float32[320, 128])" in found[TRIPLE].flags[0]


@needs_walls
def test_what_hangs_is_stopped_and_the_next_has_a_process_of_its_own() -> None:
    on = Card(box(), limit_s=8, simulated=H200)
    found = seen_on(on, (TRIPLE, MULTIPLY_ADD), {TRIPLE: HANGS, MULTIPLY_ADD: RAISES})
    assert str(found[TRIPLE].card) == "On the card (NVIDIA H200): it did not end within 8 s."
    assert found[TRIPLE].points == 10.0
    assert len(found[TRIPLE].flags) == 1
    assert found[MULTIPLY_ADD].card == OnCard("raised", "it raised KeyError: True", H200.name)


@needs_walls
@pytest.mark.slow
def test_what_kills_the_whole_sandbox_costs_its_own_exercise() -> None:
    on = Card(box(), limit_s=60, simulated=H200)
    found = seen_on(on, (TRIPLE, MULTIPLY_ADD), {TRIPLE: KILLS, MULTIPLY_ADD: RAISES})
    assert found[TRIPLE].card == OnCard("crash", "its process ended before it was done", H200.name)
    assert found[MULTIPLY_ADD].card == OnCard("raised", "it raised KeyError: True", H200.name)


def test_it_works_without_a_sandbox_too() -> None:
    on = Card(Sandbox(unsafe=True), limit_s=60, simulated=H200)
    found = seen_on(on, (MULTIPLY_ADD,), {MULTIPLY_ADD: RAISES})
    assert found[MULTIPLY_ADD].card == OnCard("raised", "it raised KeyError: True", H200.name)


@needs_walls
@pytest.mark.slow
def test_a_student_is_graded_with_a_card_from_the_notebook_to_the_report(tmp_path: Path) -> None:
    """The lie is right where it is traced and simulated: the mark stays, and a flag is raised."""
    hand_in(tmp_path / "in", "Ada", handed_in({**solutions(), TRIPLE: LIES}))
    on = Card(box(), limit_s=200, simulated=H200)
    options = Options(run=False, exercises=(TRIPLE,), gpu=True)
    [student] = collect(tmp_path / "in", store=tmp_path / "inbox")
    record = grade(task_for(student, release(), options), box(), card=on)
    [answer] = record.answers
    assert (answer.verdict, answer.points) == ("right", 1.0)
    assert answer.card is not None
    assert answer.card.kind == "wrong"
    [total] = reports.write([record], release(), tmp_path / "out")
    assert total.points == 1.0
    assert sum("; on the card element [0, 0] is wrong" in flag for flag in total.flags) == 1
    plain_options = dataclasses.replace(options, gpu=False)
    [without] = grade(task_for(student, release(), plain_options), box(), card=on).answers
    assert without == dataclasses.replace(answer, card=None, flags=())


def test_what_runs_on_the_card_has_no_reference_and_no_exercise_beside_it() -> None:
    course = Path(course_copy.copy_of_the_course("sealed")) / "course_lib"
    names = {p.name for p in (course / "grading").glob("*.py")}
    assert names == {"__init__.py", "tracing_child.py", "card_child.py"}
    assert not (course / "exercises" / "asynchronous_copies.py").exists()


# --- what comes out of it, replayed --------------------------------------------------------------


def npy(array: np.ndarray[Any, Any], **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def right_files() -> dict[str, bytes]:
    """What a right `triple` leaves."""
    one = asked_for(TRIPLE)
    [x] = draw_case(one.cases[0], seed=card_seed(one), index=0)
    return {
        "begun": b"", "ready": b"", "ended": b"",
        "0.dtypes": b'["float32"]', "0-0.npy": npy(3 * x),
    }  # fmt: skip


class Replayed(Card):
    """A card whose sandbox is known: it left these files."""

    def __init__(self, files: Mapping[str, bytes] | None = None, **outcome: Any) -> None:
        super().__init__(Sandbox(unsafe=True), limit_s=60, simulated=H200)
        named = {f"out0/{n}": c for n, c in (right_files() if files is None else files).items()}
        self.outcome = Outcome(0, "", "", files=named, **outcome)
        self.runs = 0

    def run(self, merged: Merged, asked: Sequence[Asked], *, seconds: float) -> Outcome:
        self.runs += 1
        return self.outcome


def replayed(files: Mapping[str, bytes] | None = None, **outcome: Any) -> ExerciseMark:
    return seen_on(Replayed(files, **outcome), (TRIPLE,))[TRIPLE]


def test_a_card_that_agrees_says_so_and_raises_no_flag() -> None:
    mark = replayed()
    assert str(mark.card) == "On the card (NVIDIA H200): right on 1 shape."
    assert mark == dataclasses.replace(a_mark(), card=mark.card)


def test_a_card_that_flips_a_value_is_flagged_and_the_mark_stays() -> None:
    files = right_files()
    array = arrays_in(files, 0)[0].copy()
    array[2, 17] = -array[2, 17]
    mark = replayed({**files, "0-0.npy": npy(array)})
    assert mark.card == OnCard(
        "wrong", f"element [2, 17] is wrong, 1 of {array.size} is wrong", H200.name
    )
    assert plain(mark) == a_mark()
    assert len(mark.flags) == 1
    assert f"{array[2, 17]:.4}" not in str(mark), "no value is shown"


@pytest.mark.parametrize(
    ("changed", "outcome", "kind", "says"),
    [
        ({"0.dtypes": None, "too-long": b""}, {}, "time", "did not end within 60 s"),
        ({"0.dtypes": None, "ended": None}, {"timed_out": True}, "time", "time for this chapter"),
        ({"0.dtypes": None, "ended": None}, {"killed_for": "memory"}, "crash", "more memory"),
        ({"0.dtypes": None, "ready": None}, {}, "crash", "before the card was awake"),
        ({"0.dtypes": None}, {}, "crash", "ended before it was done"),
        (
            {"0.dtypes": None, "error.json": b'{"type": "Boom", "message": "no\\nmore"}'},
            {}, "raised", "it raised Boom: no more",
        ),
        ({"0.dtypes": b'["int32"]', "0-0.npy": npy(np.ones((2, 2), np.int32))}, {}, "wrong",
         "the output is int32[2, 2], should be float32[320, 128]"),
        ({"0.dtypes": b'["float32", "float32"]'}, {}, "wrong", "no arrays"),
        ({"0.dtypes": b"["}, {}, "wrong", "no arrays"),
    ],
)  # fmt: skip
def test_whatever_a_process_leaves_is_an_observation(
    changed: Mapping[str, bytes | None], outcome: Mapping[str, Any], kind: str, says: str
) -> None:
    files = {n: c for n, c in {**right_files(), **changed}.items() if c is not None}
    mark = replayed(files, **outcome)
    assert mark.card is not None
    assert mark.card.kind == kind
    assert says in mark.card.words
    assert plain(mark) == a_mark()
    assert len(mark.flags) == 1


class _Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([_Evil()], object), allow_pickle=True),
        npy(np.asfortranarray(np.ones((3, 2), np.float32))),
        npy(np.ones((3, 2), np.float32))[:-1],
        npy(np.ones((3, 2), np.float32)) + b"\0",
        npy(np.ones((3, 2), np.float32)).replace(b"(3, 2)", b"(-3,-2)"),
        npy(np.ones((3, 2), np.float32)).replace(b"(3, 2)", b"(9**9,)"),
        npy(np.array(["text"])),
        b"\x93NUMPY\x03\x00",
        b"",
    ],
)
def test_only_arrays_of_numbers_are_read(data: bytes) -> None:
    with pytest.raises(NoArray):
        arrays_in({"0.dtypes": b'["float32"]', "0-0.npy": data}, 0)


def test_arrays_come_back_with_the_dtype_that_they_had() -> None:
    import ml_dtypes

    half = np.random.default_rng().standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
    files = {"0.dtypes": b'["bfloat16", "int8"]', "0-0.npy": npy(half.view(np.uint16))}
    files["0-1.npy"] = npy(np.arange(-3, 3, dtype=np.int8))
    first, second = arrays_in(files, 0)
    assert first.dtype == half.dtype
    np.testing.assert_array_equal(first.astype(np.float32), half.astype(np.float32))
    np.testing.assert_array_equal(second, np.arange(-3, 3))
    with pytest.raises(NoArray):
        arrays_in({**files, "0.dtypes": b'["float32", "int8"]'}, 0)


def test_the_inputs_on_the_card_are_not_those_of_the_marks() -> None:
    one = asked_for(TRIPLE)
    [x] = draw_case(one.cases[0], seed=card_seed(one), index=0)
    [marked] = draw_case(one.cases[0], seed=one.seed, index=0)
    assert (x == marked).mean() < 0.01
    assert abs(float(x.mean())) < 0.1
    assert 0.9 < float(x.std()) < 1.1
    assert card_seed(one) == card_seed(asked_for(TRIPLE)), "the same work has the same record"


# --- what is not run -----------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["right-with-errors", "wrong", "wrong-means", "not-done"])
def test_what_is_not_clean_is_not_run(verdict: str) -> None:
    on = Replayed()
    mark = a_mark(verdict=verdict)
    asked = [asked_for(TRIPLE)]
    assert on.look(with_answers({}), asked, {TRIPLE: traced(TRIPLE)}, [mark]) == (mark,)
    assert on.runs == 0


@pytest.mark.parametrize(
    ("exercise", "says"),
    [
        ("tmem_and_tcgen05.one_commit", "Blackwell's tensor-core instruction tcgen05"),
        ("asynchronous_copies.gather_rows", "the copy engine's gather"),
        ("collective_mma.take_over", "cluster launch control"),
        ("many_gpus.pass_left", "it runs on 2 GPUs together, and one is used here"),
        ("wgmma_pipelining.roofline", "it holds no kernel"),
        ("mojo_tiles.block_sum", "a program of another language"),
    ],
)
def test_what_this_card_cannot_run_says_why(exercise: str, says: str) -> None:
    on = Replayed()
    whole = ask(exercise, "", RUBRIC, seed=SEED)
    runs = whole.exercise.needs_kernel and whole.exercise.program is None
    known = {exercise: traced(exercise)} if runs else {}
    [mark] = on.look(with_answers({}), [whole], known, [a_mark(exercise)])
    assert mark.card is not None
    assert mark.card.kind == "not-run"
    assert says in mark.card.words
    assert str(mark.card).startswith("Not run on the card: ")
    assert mark.flags == ()
    assert on.runs == 0


def test_another_card_can() -> None:
    for exercise in ("tmem_and_tcgen05.one_commit", "asynchronous_copies.gather_rows"):
        on = Card(Sandbox(unsafe=True), simulated=B200)
        assert on._unfit(asked_for(exercise), traced(exercise)) == ""
    wgmma = "wgmma.matmul"
    assert Card(Sandbox(), simulated=H200)._unfit(asked_for(wgmma), traced(wgmma)) == ""
    assert "wgmma" in Card(Sandbox(), simulated=B200)._unfit(asked_for(wgmma), traced(wgmma))


def test_what_needs_more_shared_memory_than_the_card_has_says_so() -> None:
    needs = card.needs_of(traced(MULTIPLY_ADD).programs)
    assert needs.features == {"tma"}
    assert needs.smem_bytes == 3 * 64 * 128 * 4
    assert card.needs_of(traced("clusters.smooth").programs).features == {"clusters"}


class NoCard(Card):
    """A machine without a card: its process says so."""

    said = b'{"why": "there is no NVIDIA driver on this machine."}'

    def run(self, merged: Merged, asked: Sequence[Asked], *, seconds: float) -> Outcome:
        assert not asked
        files = {"card.json": self.said} if self.said else {}
        return Outcome(1, "", "Traceback\nOSError: no\n", files=files)


def test_a_worker_without_a_card_says_so() -> None:
    found = seen_on(NoCard(Sandbox(unsafe=True)), (TRIPLE,))
    assert found[TRIPLE] == dataclasses.replace(a_mark(), card=found[TRIPLE].card)
    assert str(found[TRIPLE].card) == (
        "Not run on the card: there is no card on this worker: "
        "there is no NVIDIA driver on this machine."
    )


def test_a_card_that_goes_to_sleep_for_good_is_nobodys_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that did not even wake the card: is it the card? Then there is no flag."""
    files = {n: c for n, c in right_files().items() if n in ("begun", "ended")}
    on = Replayed(files)

    def gone() -> None:
        on._device, on._why = None, "it fell off the bus"

    monkeypatch.setattr(on, "_probe", gone)
    mark = seen_on(on, (TRIPLE,))[TRIPLE]
    assert mark.card == OnCard("not-run", "the card cannot be used: it fell off the bus")
    assert mark.flags == ()


@pytest.mark.parametrize("unsafe", [False, True])
@needs_walls
def test_without_a_card_nobody_is_graded(
    unsafe: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(card, "Card", NoCard)
    monkeypatch.setattr(batch, "grade_class", lambda *_, **__: pytest.fail("somebody was graded"))
    hand_in(tmp_path / "in", "Ada", handed_in())
    line = ["grade", str(tmp_path / "in"), "--chapters", "05", "--out", str(tmp_path / "out")]
    line += ["--gpu", *(["--unsafe-no-sandbox"] if unsafe else [])]
    assert cli.main(line) == 1
    said = capsys.readouterr().err
    assert "--gpu: there is no card here that JAX can use in the sandbox: there is no" in said


def test_a_probe_that_does_not_start_says_what_it_said_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NoCard, "said", b"")
    assert NoCard(Sandbox()).why == "its process did not start (OSError: no)"


def test_the_card_is_tried_with_a_kernel_that_is_right() -> None:
    """A machine on which none comes out right is not a class that is all wrong."""
    from course_lib import simulate

    assert card_child.trouble(lambda kernel, x: simulate(kernel, x).value) == ""
    assert card_child.trouble(lambda kernel, x: x) == "its values are wrong"
    assert "Exception: no assembler" in card_child.trouble(_raises)


def _raises(kernel: Any, x: Any) -> Any:
    raise Exception("no assembler\nat all")


@needs_walls
@pytest.mark.slow
def test_the_process_in_the_sandbox_says_why_there_is_no_card() -> None:
    on = Card(box())
    assert on.device is None or on.device.name
    if on.device is None:
        assert "driver" in on.why or "JAX" in on.why


# --- the option ----------------------------------------------------------------------------------


def test_with_the_option_everybody_is_graded_again_and_without_it_nobody() -> None:
    student = Student("Ada")
    plain_key = key_of(student, release(), Options())
    assert key_of(student, release(), Options(gpu=True)) != plain_key
    assert key_of(student, release(), Options(gpu=False)) == plain_key


def test_a_class_that_was_graded_is_graded_again_with_the_option(tmp_path: Path) -> None:
    hand_in(tmp_path / "in", "Ada", handed_in())
    seen: list[bool] = []

    def run(tasks: Sequence[Task]) -> list[StudentRecord]:
        seen.extend(t.options.gpu for t in tasks)
        return [StudentRecord(t.student, t.key, (ChapterRecord(CHAPTER, ()),)) for t in tasks]

    for gpu in (False, False, True, True):
        batch.grade_class(
            tmp_path / "in", release(), tmp_path / "out", options=Options(gpu=gpu), run=run,
            progress=lambda line: None,
        )  # fmt: skip
    assert seen == [False, True]


def test_the_option_travels_to_a_worker() -> None:
    task = task_for(Student("Ada"), release(), Options(gpu=True, exercises=(TRIPLE,)))
    assert task_from(json.loads(json.dumps(dataclasses.asdict(task)))).options == task.options


# --- the reports ---------------------------------------------------------------------------------


def record(name: str, on_card: OnCard | None, flags: tuple[str, ...] = ()) -> StudentRecord:
    answers = (
        ExerciseRecord(TRIPLE, 1.0, 1.0, "right", cases=1, flags=flags, card=on_card),
        ExerciseRecord(RING, 0.0, 1.0, "wrong", "value"),
    )
    return StudentRecord(name, "key", (ChapterRecord(CHAPTER, answers),))


def test_a_record_with_a_card_survives_the_disk() -> None:
    for on_card in (OnCard("right", "right on 3 shapes", "NVIDIA H200"), None):
        whole = record("Ada", on_card)
        assert from_data(json.loads(json.dumps(to_data(whole)))) == whole
    old = to_data(record("Ada", None))
    del old["chapters"][0]["answers"][0]["card"]  # of a run before there were cards
    assert from_data(old) == record("Ada", None)


def test_the_reports_say_what_the_card_gave(tmp_path: Path) -> None:
    wrong = OnCard("wrong", "element [2, 17] is wrong", "<b>H200</b>")
    flag = "the simulator finds nothing wrong; on the card element [2, 17] is wrong"
    class_ = [
        record("Ada", OnCard("right", "right on 3 shapes", "NVIDIA H200")),
        record("Bob", wrong, (flag,)),
        record("Cyd", OnCard("not-run", "it needs tcgen05")),
    ]
    totals = reports.write(class_, release(), tmp_path)
    assert [t.points for t in totals] == [1.0, 1.0, 1.0]
    page = {p.name[:3]: p.read_text() for p in (tmp_path / "students").glob("*.html")}
    assert "On the card (NVIDIA H200): right on 3 shapes.<" in page["Ada"]
    assert "Your mark does not depend on it." not in page["Ada"]
    assert "element [2, 17] is wrong. Your mark does not depend on it." in page["Bob"]
    assert "<b>H200" not in page["Bob"]
    assert "the simulator finds nothing wrong" not in page["Bob"], "flags are not for students"
    assert "Not run on the card: it needs tcgen05." in page["Cyd"]
    index = (tmp_path / "index.html").read_text()
    assert "<th>on the card</th>" in index
    assert "<td>1 right, 1 not right, 1 not run</td>" in index
    assert "the simulator finds nothing wrong" in index
    data = json.loads((tmp_path / "report.json").read_text())
    [answer, other] = data["students"][1]["record"]["chapters"][0]["answers"]
    assert answer["card"] == dataclasses.asdict(wrong)
    assert other["card"] is None


def test_without_a_card_no_report_speaks_of_one(tmp_path: Path) -> None:
    reports.write([record("Ada", None)], release(), tmp_path)
    assert not any("on the card" in p.read_text() for p in tmp_path.rglob("*.html"))


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("kind", ["open", pytest.param("walled", marks=needs_walls)])
def test_beside_a_card_the_compiler_has_address_space_for_its_libraries(
    own: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment with JAX for CUDA compiles with its own plugin, which maps gigabytes."""
    monkeypatch.setattr(sandbox, "_compiles_with_own_plugin", lambda: own)
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    inside = box() if kind == "walled" else Sandbox(unsafe=True)
    limits = Limits(cpu_s=20, wall_s=60, memory_bytes=3 << 30)
    said = {
        tools: inside.run(["python", "-c", code], limits=limits, course="", toolchain=tools).stdout
        for tools in (True, False)
    }
    assert said[False].strip() == str(3 << 30)
    assert (said[True] != said[False]) is own


# --- the walls, and whose turn it is -------------------------------------------------------------


def test_the_device_files_are_there_for_a_card_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"/dev/nvidia*": ["/dev/nvidia0"]}
    monkeypatch.setattr(walls.glob, "glob", lambda pattern: there.get(pattern, []))

    def line(devices: tuple[str, ...], **limits: Any) -> list[str]:
        rooms = walls.Rooms("", str(tmp_path), devices=devices)
        return walls.command(
            ["true"], limits=walls.Limits(**limits), rooms=rooms, keep=(), results_fd=3, env={}
        )

    plain_line, card_line = line(()), line(walls.card_devices(), any_address=True)
    assert "/dev/nvidia0" not in plain_line
    at = card_line.index("--dev-bind")
    assert card_line[at : at + 3] == ["--dev-bind", "/dev/nvidia0", "/dev/nvidia0"]
    assert card_line.index("/dev") < at < card_line.index("--remount-ro", at)
    assert "--unshare-all" in card_line, "no network with a card either"
    assert f"--as={6 << 30}" in plain_line
    assert f"--as={6 << 30}" not in card_line


def test_of_the_environment_only_what_a_card_needs_goes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "libcudart.so.13").touch()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/home:{tmp_path}/cuda::/nowhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    found = walls.card_environment()
    assert found["LD_LIBRARY_PATH"] == f"{tmp_path}/cuda"
    assert found["CUDA_VISIBLE_DEVICES"] == "3"
    assert found["JAX_PLATFORMS"] == "cuda,cpu"
    extra = walls.with_card(walls.Rooms("", "")).extra
    assert (f"{tmp_path}/cuda", f"{tmp_path}/cuda") in extra
    assert not any(str(tmp_path / "home") in room for pair in extra for room in pair)


def a_toolkit(folder: Path, named: Path) -> str:
    """A CUDA toolkit, and a name for it that is a link to a link, as /usr/local/cuda is."""
    (folder / "nvvm" / "libdevice").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "ptxas").write_text("#!/bin/sh\necho assembled\n")
    (folder / "bin" / "ptxas").chmod(0o755)
    (named.parent / "alternatives").mkdir(parents=True)
    (named.parent / "alternatives" / "cuda").symlink_to(folder)
    named.symlink_to(named.parent / "alternatives" / "cuda")
    return str(named)


@needs_walls
@pytest.mark.parametrize("there", [True, False])
def test_the_assembler_is_found_by_the_name_that_it_has_outside(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_toolkit(tmp_path / "cuda-13.0", tmp_path / "local" / "cuda")
    monkeypatch.setenv("CUDA_HOME", root)
    if not there:  # what only calls itself a toolkit is not shown: it may be somebody's home
        (tmp_path / "cuda-13.0" / "nvvm" / "libdevice").rmdir()
    found = box().run(
        ["sh", "-c", f"{root}/bin/ptxas"],
        limits=Limits(cpu_s=20, wall_s=60), course="", card=True,
    )  # fmt: skip
    assert (found.stdout == "assembled\n") is there, found.stderr
    assert (f"{root}/bin" in walls.card_environment().get("PATH", "")) is there


def test_one_at_a_time_uses_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "WAIT_S", 0.3)
    with card.turn(1) as mine:
        assert mine
        assert seen_on(Replayed(), (TRIPLE,))[TRIPLE].card == OnCard(
            "not-run", "others were using it all the time"
        )
    assert replayed().card == OnCard("right", "right on 1 shape", H200.name)


def test_who_waits_for_the_card_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ExerciseMark] = []
    waiting = threading.Thread(target=lambda: found.append(replayed()))
    with card.turn(1) as mine:
        assert mine
        waiting.start()
        time.sleep(0.5)
        assert not found
    waiting.join(30)
    assert [m.card.kind for m in found if m.card] == ["right"]


def test_a_students_chapters_wait_for_the_card_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chapters there are, the batch does not take their wait for a hang."""
    monkeypatch.setattr(card, "WAIT_S", 0.5)
    on = Replayed()
    with card.turn(1):
        started = time.monotonic()
        for _ in range(4):
            seen_on(on, (TRIPLE,))
        assert time.monotonic() - started < 1.5
        with on._turn("somebody else"):
            assert on._waits == ("somebody else", 0.0)


def test_a_chapter_has_so_much_time_on_the_card_and_no_more() -> None:
    on = Replayed()
    on._budget_s = 0.0
    found = seen_on(on, (TRIPLE,))
    assert found[TRIPLE].card == OnCard("not-run", "there was no time left for it")
