"""A whole class, end to end: everybody gets what they earned, whatever the others did."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from course_lib.grading import reports
from course_lib.grading.batch import grade_class
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options
from tests.grading.classroom import own_cell, release, solutions
from tests.grading.synthetic import CHAPTER, EXERCISES, everybody, instead, lay_out, solved

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow]


def folder_of(record: StudentRecord) -> str:
    """The folder that a record is about: a platform's number stands in brackets in its name."""
    names = {f: f.split("_1")[0].replace("_", " ") for f in everybody()}
    return next(f for f, name in names.items() if name == record.student.split(" (")[0])


def test_the_class_is_large_enough() -> None:
    assert len(everybody()) >= 40


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
        wanted = {e: person.points(e) for e in EXERCISES}
        may = _allowed(record, wanted)
        # an attack while it is traced may cost its author the other exercises too
        must = {} if record.student.startswith("cheat") else wanted
        if any(got[e] > may[e] or (must.get(e) == 1 and got[e] < 1) for e in EXERCISES):
            wrong[record.student] = (got, wanted)
    assert wrong == {}
    assert not [r.student for r in records if r.failed]
    totals = reports.write(records, release(CHAPTER), tmp_path / "out")
    assert len(totals) == len(everybody())
    again = grade_class(submissions, release(CHAPTER), tmp_path / "out", options=options)
    assert again == records


def _allowed(record: StudentRecord, wanted: dict[str, float]) -> dict[str, float]:
    """A wrong answer whose values are right may earn the share that the rubric has for that."""
    partial = release(CHAPTER).rubric.right_with_errors
    return {
        a.exercise: partial
        if a.verdict == "right-with-errors" and record.student.startswith("wrong")
        else wanted[a.exercise]
        for a in record.answers
    }


ATTACKS = {
    "hang": "while True: pass",
    "forks": "import os\nwhile True:\n    os.fork()",
    "kills": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, 9)",
    "disk": "f = open('x', 'wb')\nwhile True:\n    f.write(b'0' * (1 << 20))",
    "flood": "while True:\n    print('x' * 10000)",
    "memory": "x = [bytearray(1 << 28) for _ in range(10000)]",
}


@pytest.mark.timeout(3600)
def test_attacks_in_the_run_cost_nobody_a_mark(tmp_path: Path) -> None:
    """Each attack is a cell of one's own at the top of a notebook whose answers are right."""
    submissions = tmp_path / "in"

    def put(name: str, data: bytes) -> None:
        path = submissions / name / f"{CHAPTER}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)

    for name, code in ATTACKS.items():
        put(name, solved(lambda nb, code=code: nb.cells.insert(0, own_cell(code))))  # type: ignore[misc]
    put("neighbour", solved())
    started = time.monotonic()
    options = Options(run_s=90)
    records = grade_class(submissions, release(CHAPTER), tmp_path / "out", options=options)
    assert time.monotonic() - started < 3000
    for record in records:
        assert not record.failed, record
        assert [a.points for a in record.answers] == [1.0] * len(EXERCISES), record.student
        [chapter] = record.chapters
        assert chapter.run is not None
        ran = not chapter.run.stopped and all(c.ok for c in chapter.run.cells)
        assert ran is (record.student == "neighbour"), record.student


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
