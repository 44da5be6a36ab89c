"""The pool of processes: an accident of one student's is no accident of another's."""

from __future__ import annotations

import psutil
import pytest

from course_lib.grading.intake import Student
from course_lib.grading.processes import Pool
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options, task_for
from tests.grading.classroom import release


def graded(*names: str, timeout_s: float = 200) -> dict[str, StudentRecord]:
    tasks = [task_for(Student(name), release(), Options()) for name in names]
    with Pool(jobs=2, timeout_s=timeout_s, module="tests.grading.bad_worker") as pool:
        return {r.student: r for r in pool.run(tasks)}


@pytest.mark.slow
def test_a_crash_stays_with_its_student() -> None:
    records = graded("Ada right", "Bob dies", "Dot lies", "Eve right")
    assert len(records) == 4
    assert [records[n].answers[0].points for n in ("Ada right", "Eve right")] == [1.0, 1.0]
    assert "its process ended (out of luck)" in records["Bob dies"].failed
    assert "FileNotFoundError" in records["Dot lies"].failed


@pytest.mark.slow
def test_a_hang_is_ended_with_all_that_it_started() -> None:
    records = graded("Cyd hangs", "Ada right", timeout_s=25)
    assert "more than 25 s" in records["Cyd hangs"].failed
    assert records["Ada right"].answers[0].points == 1.0
    assert not any(p.info["cmdline"] == ["sleep", "600"] for p in psutil.process_iter(["cmdline"]))
