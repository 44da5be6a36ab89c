"""A whole class, end to end: everybody gets what they earned, whatever the others did."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from course_lib.grading import reports
from course_lib.grading.batch import grade_class
from course_lib.grading.processes import Pool
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options, Task
from tests.grading.cheating import TRACES
from tests.grading.classroom import own_cell, release, solutions
from tests.grading.synthetic import (
    CHAPTER,
    EXERCISES,
    cheated,
    everybody,
    instead,
    lay_out,
    solved,
    wrong_answers,
)

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]


def folder_of(record: StudentRecord) -> str:
    """The folder that a record is about: a platform's number stands in brackets in its name."""
    names = {f: f.split("_1")[0].replace("_", " ") for f in everybody()}
    return next(f for f, name in names.items() if name == record.student.split(" (")[0])


def test_the_class_is_large_enough() -> None:
    kinds = [name.split()[0] for name in everybody()]
    assert len(kinds) >= 40
    assert cheated() >= 25
    assert kinds.count("wrong") == max(len(wrong_answers(e)) for e in EXERCISES)
    assert kinds.count("honest") >= 12
    assert kinds.count("broken") >= 6


@pytest.mark.timeout(3600)
def test_everybody_gets_what_they_earned(tmp_path: Path) -> None:
    submissions = lay_out(tmp_path / "in")
    options = Options(run=False)
    records = grade_class(submissions, release(CHAPTER), tmp_path / "out", options=options)
    assert len(records) == len(everybody())
    wrong = {}
    for record in records:
        person = everybody()[folder_of(record)]
        got = {a.exercise: a.points for a in record.answers}
        wanted = _with_parts(record, {e: person.points(e) for e in EXERCISES})
        lost = person.harms and all(got[e] in (0, wanted[e]) for e in EXERCISES)
        if got != wanted and not lost:
            wrong[record.student] = (got, wanted)
    assert wrong == {}
    assert not [r.student for r in records if r.failed]
    assert [t for t in TRACES if t.exists()] == []
    totals = reports.write(records, release(CHAPTER), tmp_path / "out")
    assert len(totals) == len(everybody())
    again = grade_class(submissions, release(CHAPTER), tmp_path / "out", options=options)
    assert again == records


def _with_parts(record: StudentRecord, wanted: dict[str, float]) -> dict[str, float]:
    """A wrong answer whose values are right earns the share that the rubric has for that."""
    partial = release(CHAPTER).rubric.right_with_errors
    return {
        a.exercise: partial
        if a.verdict == "right-with-errors" and record.student.startswith("wrong")
        else wanted[a.exercise]
        for a in record.answers
    }


# Each is a cell of one's own at the top of a notebook whose answers are right.
ATTACKS = {
    "hang": "while True: pass",
    "forks": "import os\nwhile True:\n    os.fork()",
    "kills": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, 9)",
    "disk": "f = open('x', 'wb')\nwhile True:\n    f.write(b'0' * (1 << 20))",
    "flood": "while True:\n    print('x' * 10000)",
    "memory": "x = [bytearray(1 << 28) for _ in range(10000)]",
}
HURRY_S = 45  # a run of an attack is stopped after so long; most would go on without end
SPY = """
import os, socket
found = [p for p in {places} if os.path.exists(p) and (os.path.isfile(p) or os.listdir(p))]
try:
    socket.create_connection(("127.0.0.1", {port}), 2)
    found.append("network")
except OSError:
    pass
try:
    os.makedirs(os.path.dirname({beside!r}), exist_ok=True)
    with open({beside!r}, "a") as file:
        file.write("me,100")
except OSError:
    pass
print("found", found)
"""


def spy(port: int, beside: Path, places: Sequence[Path]) -> str:
    """A cell that reads what it should not, reaches for the network, writes beside the report."""
    return SPY.format(places=[str(p) for p in (*places, beside)], port=port, beside=str(beside))


def hurried(tasks: Sequence[Task]) -> Iterable[StudentRecord]:
    """Grades four at a time, for most of them wait; attacks have less time than the others."""
    shorter = [
        dataclasses.replace(t, options=dataclasses.replace(t.options, run_s=HURRY_S))
        if t.student in ATTACKS
        else t
        for t in tasks
    ]
    with Pool(jobs=4) as pool:
        yield from pool.run(shorter)


@pytest.mark.timeout(3600)
def test_attacks_in_the_run_cost_nobody_a_mark(tmp_path: Path) -> None:
    submissions, out = tmp_path / "in", tmp_path / "out"
    beside = out / "grades.csv"
    beside.parent.mkdir()
    beside.write_text("nobody,0\n")
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(5)
    secrets = [ROOT / "solutions", ROOT / "tests" / "wrong_answers", submissions / "neighbour"]
    cell = spy(server.getsockname()[1], beside, secrets)
    for name, code in {**ATTACKS, "spy": cell, "neighbour": "mine = 1"}.items():
        path = submissions / name / f"{CHAPTER}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(solved(lambda nb, code=code: nb.cells.insert(0, own_cell(code))))  # type: ignore[misc]
    _really_attacks(cell, server, [*secrets, beside])
    records = grade_class(submissions, release(CHAPTER), out, options=Options(), run=hurried)
    assert len(records) == len(ATTACKS) + 2
    for record in records:
        assert not record.failed, record
        assert [a.points for a in record.answers] == [1.0] * len(EXERCISES), record
        [chapter] = record.chapters
        assert chapter.run is not None
        ran = not chapter.run.stopped and all(c.ok for c in chapter.run.cells)
        assert ran is (record.student not in ATTACKS), (record.student, chapter.run)
        if record.student == "spy":
            assert chapter.run.texts["mine"].strip() == "found []"
    assert beside.read_text() == "nobody,0\n"
    with pytest.raises(TimeoutError):
        server.accept()


def _really_attacks(cell: str, server: socket.socket, reached: Sequence[Path]) -> None:
    """Outside of the sandbox the spy's cell reaches all that it reaches for."""
    before = reached[-1].read_text()
    said = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, check=True)
    server.accept()[0].close()
    assert said.stdout.strip() == f"found {[*map(str, reached), 'network']}"
    assert reached[-1].read_text() == f"{before}me,100"
    reached[-1].write_text(before)


def test_the_same_work_gives_the_same_record_and_pages(tmp_path: Path) -> None:
    twice = instead(solutions(CHAPTER)[EXERCISES[0]].replace("return", "return 2 *"))
    one, two = tmp_path / "a", tmp_path / "b"
    for place in (one, two):
        path = place / "in" / "Ada" / f"{CHAPTER}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(twice.data)
        os.utime(path, (1_790_000_000, 1_790_000_000))
        records = grade_class(place / "in", release(CHAPTER), place / "out", options=Options())
        reports.write(records, release(CHAPTER), place / "out")
    files = [p.relative_to(one) for p in (one / "out").rglob("*") if p.is_file()]
    different = [str(f) for f in files if (one / f).read_bytes() != (two / f).read_bytes()]
    assert different == ["out/stamp.json"]
