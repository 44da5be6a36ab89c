"""A class, end to end: the same work gives the same record and the same pages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from course_lib.grading import reports
from course_lib.grading.batch import grade_class
from course_lib.grading.tasks import Options
from tests.grading.classroom import release, solutions
from tests.grading.synthetic import CHAPTER, EXERCISES, everybody, instead

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.slow]


def test_the_class_is_large_enough() -> None:
    assert len(everybody()) >= 40


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
