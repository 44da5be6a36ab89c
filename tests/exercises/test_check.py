"""What a learner sees: check, hint and progress."""

from __future__ import annotations

import numpy as np
import pytest

import course_lib
from course_lib.diagnostics import CourseError
from course_lib.exercises import check, hint, progress
from course_lib.exercises.records import records
from tests.exercises import practice

pytestmark = pytest.mark.usefixtures("exercises", "workspace")


def test_the_front_door_has_the_three_of_them():
    assert (course_lib.check, course_lib.hint, course_lib.progress) == (check, hint, progress)


def test_a_right_answer_prints_one_line_and_is_noted(capsys):
    assert check("practice.double", practice.double) is None
    assert capsys.readouterr().out == "practice.double: correct on 2 shapes.\n"
    assert records()["practice.double"].state == "done"


def test_an_untouched_stub_prints_one_polite_line_and_is_no_try(capsys):
    check("practice.double", practice.not_done)
    assert capsys.readouterr().out == (
        "practice.double: not done yet: fill in the cell above and run it again.\n"
    )
    assert "practice.double" not in records()


def test_a_wrong_answer_is_a_try(capsys):
    check("practice.double", practice.without_a_kernel)
    assert "no GPU kernel" in capsys.readouterr().out
    assert records()["practice.double"].state == "tried"


def test_the_seed_of_a_verdict_draws_its_data_again(capsys):
    check("practice.double", practice.forgets_to_double, seed=1234)
    first = capsys.readouterr().out
    check("practice.double", practice.forgets_to_double, seed=1234)
    assert capsys.readouterr().out == first
    assert "seed=1234" in first


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("practice.double",), 'check("practice.double", double)'),
        ((practice.double, "practice.double"), 'check("practice.double", double)'),
        (("practice.double", np.ones(3)), "the function itself"),
        (("practice.duoble", practice.double), "Did you mean 'practice.double'?"),
        ((3, practice.double), "text in quotes"),
        ((practice.double,), "the exercise's id first"),
    ],
)
def test_a_call_of_the_wrong_form_is_answered_with_a_sentence(arguments, says):
    with pytest.raises(CourseError) as caught:
        check(*arguments)
    assert says in str(caught.value)
    assert "None" not in str(caught.value)
    assert records() == {}


def test_hints_grow_and_the_last_is_repeated(capsys):
    for _ in range(4):
        hint("practice.double")
    assert capsys.readouterr().out == (
        "Hint 1 of 3, practice.double:\n"
        "  Copy first.\n"
        "Hint 2 of 3, practice.double:\n"
        "  plgpu.copy_gmem_to_smem, then a wait.\n"
        + 2
        * ("Hint 3 of 3 (the last), practice.double:\n  y_gmem[rows] = 2 * x_smem[...]\n")
    )


def test_a_hint_for_an_unknown_id_suggests_the_closest():
    with pytest.raises(CourseError, match=r"practice\.double"):
        hint("practice.dbl")


def test_progress_prints_the_table(capsys):
    progress()
    assert "0 of 3 exercises done." in capsys.readouterr().out
