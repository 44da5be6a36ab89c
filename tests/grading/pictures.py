"""A made-up class for looking at reports, and the pictures of `docs/instructors.md`.

python -m tests.grading.pictures docs/pictures
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import tempfile
from pathlib import Path

from course_lib.grading import reports
from course_lib.grading.feedback import CellRun, Run
from course_lib.grading.model import Late, Problem, Rubric
from course_lib.grading.records import ChapterRecord, ExerciseRecord, StudentRecord
from course_lib.grading.release import Release
from tests.grading.classroom import CHAPTER, release, solutions

NAMES = (
    "Ada Lovelace", "Alan Turing", "Annie Easley", "Barbara Liskov", "Claude Shannon",
    "David Blackwell", "Donald Knuth", "Edsger Dijkstra", "Emmy Noether", "Frances Allen",
    "Grace Hopper", "Hedy Lamarr", "John Backus", "Katherine Johnson", "Ken Thompson",
    "Lynn Conway", "Margaret Hamilton", "Mary Jackson", "Niklaus Wirth", "Radia Perlman",
    "Robin Milner", "Seymour Cray", "Sophie Wilson", "Tony Hoare",
)  # fmt: skip
DEADLINE = datetime.datetime(2026, 5, 4, 23, 59, tzinfo=datetime.UTC)
RACE = """\
error [store-source-overwritten] slots_smem[0, 0:64, 0:64] is overwritten while a copy
    may still read it.
  - the thread starts a copy from slots_smem[0, 0:64, 0:64] (cell triple, line 9)
  - the thread writes slots_smem[0, 0:64, 0:64] (cell triple, line 7)
  Why: The copy to global memory reads its source in the background.
  Fix: Call plgpu.wait_smem_to_gmem(n, wait_read_only=True), with n small enough that
    this copy is not among the n left running, before the write (and let every thread
    know)."""
HINT = (
    "Before step ti writes into its slot, the copy that started in step ti - 2 must have read it. "
    "The copy of step ti - 1 reads the other slot, and may go on."
)


def _answers(number: int) -> tuple[ExerciseRecord, ...]:
    """Right, a race, wrong values or nothing, by a pattern that looks like a class."""
    answers = []
    for n, (exercise, text) in enumerate(solutions().items()):
        source = _own_words(text, number)
        kind = (number * 7 + n * 5 + number * n) % 23 - n
        answer = ExerciseRecord(exercise, 1.0, 1.0, "right", passed=3, cases=3, source=source)
        if number % 12 == 11 or kind < -3:
            answer = ExerciseRecord(
                exercise, 0.0, 1.0, "not-done", "not-done", ("Not done yet.",), cases=3
            )
        elif exercise.endswith(("triple", "ring_copy")) and (kind < 0 or number % 3 == 1):
            answer = _with_a_race(answer)
        elif kind < 4:
            answer = _wrong(answer)
        answers.append(answer)
    return tuple(answers)


def _own_words(text: str, number: int) -> str:
    """A solution as somebody else would write it; two of the class write the same."""
    who = 3 if number == 12 else number
    for name in ("slot", "rows", "tile", "start", "indices", "loaded"):
        text = text.replace(name, f"{name}{NAMES[who].split()[0].lower()}")
    return "\n".join(
        f"{x}  # {NAMES[who][:3]} {i * who % 7}" for i, x in enumerate(text.split("\n"))
    )


def _with_a_race(answer: ExerciseRecord) -> ExerciseRecord:
    return dataclasses.replace(
        answer, points=0.5, verdict="right-with-errors", fault="race", hints=(HINT,), passed=1,
        words=("The values are right.",), rule="store-source-overwritten",
        finding=tuple(RACE.splitlines()),
    )  # fmt: skip


def _wrong(answer: ExerciseRecord) -> ExerciseRecord:
    words, fault = ("Element [0, 0] is wrong. All 16384 are wrong.",), "value"
    if answer.exercise.endswith("difference"):
        words, fault = ("Element [64, 0] is wrong. 1728 of 5824 are NaN.",), "nan"
    return dataclasses.replace(
        answer, points=0.0, verdict="wrong", fault=fault, words=words, passed=0
    )


def record(number: int) -> StudentRecord:
    """One of the class."""
    flags = {
        3: ('edited check cell "triple-check"',),
        8: ("uses introspection: inspect (cell own-1, line 1)",),
        17: ('nbval marker NBVAL_SKIP in cell "triple"',),
    }
    problems = {5: (Problem("retyped-cell", 'The cell "difference" of the exercise '
                            "asynchronous_copies.difference is a text cell, not a code cell. What "
                            "is in it counts all the same."),)}  # fmt: skip
    day = datetime.timedelta(days=2 if number % 9 == 4 else -1)
    error = "ValueError: no tile" if number % 5 == 0 else ""
    run = Run(
        (*(CellRun(f"c{n}", True) for n in range(65)), CellRun("own-2", not error, error)), 66
    )
    chapter = ChapterRecord(
        CHAPTER, _answers(number), run, problems.get(number, ()), flags.get(number, ()),
        (DEADLINE + day).isoformat(), f"{CHAPTER}.ipynb",
    )  # fmt: skip
    name = f"{NAMES[number]} ({2001 + number})"
    return StudentRecord(name, f"key{number}", (chapter,), lms_id=str(2001 + number))


def given() -> Release:
    """What they were given."""
    late = Late(DEADLINE, per_day=0.1, at_most=0.5, grace_hours=1)
    return dataclasses.replace(release(), rubric=Rubric(late=late))


def write_reports(out: Path) -> Path:
    """The reports of that class; returns the page of one student."""
    reports.write([record(n) for n in range(len(NAMES))], given(), out)
    return next((out / "students").glob("Grace*"))


def draw(folder: Path) -> None:
    """Writes the pictures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as browsers:
        student = write_reports(Path(scratch))
        browser = browsers.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        for name, page_file, height in (
            ("class-report", Path(scratch) / "index.html", 1560),
            ("student-report", student, 900),
        ):
            page = browser.new_page(viewport={"width": 960, "height": height})
            page.goto(page_file.as_uri())
            page.screenshot(path=folder / f"{name}.png")
        browser.close()
    _shrink(folder)


def _shrink(folder: Path) -> None:
    """Fewer colours: a page of text needs no more than 96."""
    from PIL import Image

    for name in ("class-report", "student-report"):
        path = folder / f"{name}.png"
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(96, method=Image.Quantize.MAXCOVERAGE)
        small.save(path, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
