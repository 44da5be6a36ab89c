"""A batch: nobody is graded twice for nothing, and nobody stops it or changes another's mark."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from course_lib.diagnostics import CourseError
from course_lib.grading.batch import Progress, grade_class, read_records
from course_lib.grading.model import Late, Rubric
from course_lib.grading.records import StudentRecord, from_data, to_data
from course_lib.grading.release import Release
from course_lib.grading.tasks import Options, Task
from tests.grading.classroom import TRIPLE, grade_by_name, hand_in, handed_in, release

NAMES = ("Ada right", "Bob", "Cyd", "王芳 right")


class Grader:
    """Grades by name and remembers whom."""

    def __init__(self, grade: Callable[[Task], StudentRecord] = grade_by_name):
        self.seen: list[str] = []
        self._grade = grade

    def __call__(self, tasks: Sequence[Task]) -> Iterator[StudentRecord]:
        for task in tasks:
            record = self._grade(task)
            self.seen.append(task.student)
            yield record


@pytest.fixture
def submissions(tmp_path: Path) -> Path:
    for name in NAMES:
        hand_in(tmp_path / "in", name, handed_in())
    return tmp_path / "in"


def graded(
    submissions: Path,
    grader: Grader,
    *,
    given: Release | None = None,
    options: Options | None = None,
    students: Sequence[str] = (),
) -> tuple[StudentRecord, ...]:
    return grade_class(
        submissions,
        given or release(),
        submissions.parent / "report",
        options=options or Options(),
        run=grader,
        students=students,
        progress=lambda line: None,
    )


def test_everybody_has_a_record(submissions: Path) -> None:
    records = graded(submissions, Grader())
    assert [r.student for r in records] == sorted(NAMES)
    assert [r.answers[0].points for r in records] == [1.0, 0.0, 0.0, 1.0]


def test_a_second_run_grades_nobody(submissions: Path) -> None:
    first = graded(submissions, Grader())
    again = Grader()
    assert graded(submissions, again) == first
    assert again.seen == []


def test_an_interrupted_run_goes_on_where_it_stopped(submissions: Path) -> None:
    def stops(task: Task) -> StudentRecord:
        if task.student == "Cyd":
            raise KeyboardInterrupt
        return grade_by_name(task)

    with pytest.raises(KeyboardInterrupt):
        graded(submissions, Grader(stops))
    rest = Grader()
    assert len(graded(submissions, rest)) == len(NAMES)
    assert rest.seen == ["Cyd", "王芳 right"]


def test_new_work_is_graded_and_only_that(submissions: Path) -> None:
    graded(submissions, Grader())
    hand_in(submissions, "Bob", handed_in({}))
    again = Grader()
    graded(submissions, again)
    assert again.seen == ["Bob"]


@pytest.mark.parametrize(
    ("rubric", "earned"),
    [
        (Rubric(late=Late(None, 0.2)), 1),
        (Rubric(hints=2), 1),
        (Rubric(points={TRIPLE: 3}), 3),
        (Rubric(default_points=2, points={"asynchronous_copies.ring_copy": 5}), 2),
    ],
)
def test_other_points_grade_nobody_anew(submissions: Path, rubric: Rubric, earned: float) -> None:
    graded(submissions, Grader())
    again = Grader()
    records = graded(submissions, again, given=dataclasses.replace(release(), rubric=rubric))
    assert again.seen == []
    assert [r.answers[0].points for r in records] == [earned, 0, 0, earned]
    assert [r.answers[0].of for r in records] == [earned] * 4


def test_other_operations_around_a_kernel_grade_everybody_anew(submissions: Path) -> None:
    graded(submissions, Grader())
    again = Grader()
    rubric = Rubric(around={TRIPLE: ("transpose",)})
    graded(submissions, again, given=dataclasses.replace(release(), rubric=rubric))
    assert len(again.seen) == len(NAMES)


def test_a_report_shows_as_many_hints_as_the_rubric_says(submissions: Path) -> None:
    def hinted(task: Task) -> StudentRecord:
        [chapter] = grade_by_name(task).chapters
        answers = tuple(dataclasses.replace(a, hints=("a", "b", "c")) for a in chapter.answers)
        return dataclasses.replace(
            grade_by_name(task), chapters=(dataclasses.replace(chapter, answers=answers),)
        )

    for count in (1, 3, 0):
        given = dataclasses.replace(release(), rubric=Rubric(hints=count))
        [first, *_] = graded(submissions, Grader(hinted), given=given)
        assert first.answers[0].hints == ("a", "b", "c")[:count]


def test_one_student_and_one_exercise_can_be_graded_anew(submissions: Path) -> None:
    first = graded(submissions, Grader())
    one = Grader()
    assert graded(submissions, one, students=["Bob"]) == first
    assert one.seen == ["Bob"]

    def now_right(task: Task) -> StudentRecord:
        [chapter] = grade_by_name(task).chapters
        answer = dataclasses.replace(chapter.answers[0], points=0.5, verdict="right-with-errors")
        chapter = dataclasses.replace(chapter, answers=(answer,))
        return StudentRecord(task.student, task.key, (chapter,))

    records = graded(submissions, Grader(now_right), options=Options(exercises=(TRIPLE,)))
    assert [[a.points for a in r.answers] for r in records] == [[0.5, 0.0]] * len(NAMES)
    assert [a.exercise for a in records[0].answers] == [a.exercise for a in first[0].answers]


def test_a_name_that_nobody_has_is_refused(submissions: Path) -> None:
    with pytest.raises(CourseError, match="Did you mean 'Bob'"):
        graded(submissions, Grader(), students=["bo"])


def test_whom_the_grader_failed_is_tried_again(submissions: Path) -> None:
    def fails(task: Task) -> StudentRecord:
        return dataclasses.replace(grade_by_name(task), failed="its process ended")

    graded(submissions, Grader(fails))
    again = Grader()
    graded(submissions, again)
    assert len(again.seen) == len(NAMES)


def test_a_record_that_cannot_be_read_is_made_again(submissions: Path) -> None:
    graded(submissions, Grader())
    stored = sorted((submissions.parent / "report" / ".grading" / "results").glob("*.json"))
    stored[0].write_text("{")
    again = Grader()
    graded(submissions, again)
    assert len(again.seen) == 1


def test_a_record_survives_json(submissions: Path) -> None:
    [record, *_] = graded(submissions, Grader())
    assert from_data(json.loads(json.dumps(to_data(record)))) == record
    assert read_records(submissions.parent / "report")[record.student] == record


def test_a_full_disk_ends_it_in_a_sentence(
    submissions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("course_lib.grading.batch.write_whole", full)
    with pytest.raises(CourseError, match="No space left"):
        graded(submissions, Grader())


def test_the_time_left_is_said() -> None:
    said: list[str] = []
    bar = Progress(3, said.append)
    for _ in range(3):
        bar.advance()
    assert said[0] == "[........................] 0 of 3 students"
    assert "about" in said[1]
    assert said[3] == "[########################] 3 of 3 students"
