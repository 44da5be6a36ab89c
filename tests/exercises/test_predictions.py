"""A prediction is noted without a hint at the truth, and compared with what the run gave."""

from __future__ import annotations

import json

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.exercises import predict, progress_table, reveal
from course_lib.exercises import predictions as module
from course_lib.exercises.records import UNATTENDED, note_check, predictions

Q = "practice.bank-degree"
KINDS = ("race", "deadlock", "nothing")


@pytest.fixture
def printed(capsys):
    """What a call printed, line by line."""

    def call(verb, *args, **kwargs):
        verb(*args, **kwargs)
        return capsys.readouterr().out.splitlines()

    return call


@pytest.fixture(autouse=True)
def _memory(no_workspace):
    """No memory of earlier tests, and no workspace unless a test asks for one."""


def outcome(printed, answer, given, *, question=Q, **options):
    printed(predict, question, answer)
    (line,) = printed(reveal, question, given, **options)
    return line


def test_a_right_prediction_is_called_right(printed):
    line = "Prediction bank-degree: the run gives 8, as you predicted."
    assert outcome(printed, 8, np.int32(8)) == line


def test_a_wrong_prediction_is_called_wrong(printed):
    line = "Prediction bank-degree: the run gives 8. You predicted 4."
    assert outcome(printed, 4, 8) == line


def test_a_prediction_of_another_kind_is_told_so(printed):
    assert outcome(printed, "eight", 8).endswith(
        'You predicted "eight", which is a text; the question is about a number.'
    )
    assert outcome(printed, 1, True, question="practice.b").endswith(
        "You predicted 1, which is a number; the question is about True or False."
    )


def test_an_estimate_may_be_off_by_what_is_allowed(printed):
    assert outcome(printed, 110, 100, within=0.2).endswith(
        "the run gives 100, as you predicted (110 is within 20 %)."
    )
    assert outcome(printed, 130, 100, within=0.2, question="practice.b").endswith(
        "the run gives 100. You predicted 130, off by more than 20 %."
    )
    assert outcome(printed, 110, 100, question="practice.c").endswith("You predicted 110.")


def test_an_estimate_has_three_digits(printed):
    assert outcome(printed, 2, 2.15149, within=0.1).endswith(
        "the run gives 2.15, as you predicted (2 is within 10 %)."
    )
    assert "gives 2.15149." in outcome(printed, 2, 2.15149, question="practice.b")
    assert "gives 12345," in outcome(printed, 12345, 12345, within=0.1, question="practice.c")


def test_parts_are_told_apart(printed):
    printed(predict, Q, first=128, last=4)
    assert printed(reveal, Q, first=128, last=0) == [
        "Prediction bank-degree, first: the run gives 128, as you predicted.",
        "Prediction bank-degree, last: the run gives 0. You predicted 4.",
    ]


def test_a_tolerance_may_be_of_one_part(printed):
    printed(predict, Q, rows=110, columns=110)
    rows, columns = printed(reveal, Q, rows=100, columns=100, within={"rows": 0.2})
    assert "as you predicted" in rows
    assert "You predicted 110." in columns


# --- before the run -------------------------------------------------------------------------------


def test_without_an_answer_it_says_how_to_answer(printed):
    assert printed(predict, Q, ...) == [
        "Your prediction? Write it in place of the ... and run this cell again."
    ]
    assert printed(predict, Q, a=..., b=...) == [
        "Your prediction? Write it in place of every ... and run this cell again."
    ]
    (line,) = printed(predict, Q, ..., choices=KINDS)
    assert line.endswith('Choose from "race", "deadlock", "nothing".')
    (line,) = printed(predict, Q, a=..., b=..., choices={"b": (True, False)})
    assert line.endswith("Choose for b from True, False.")


def test_an_answer_is_noted_in_the_same_words_right_or_wrong(printed):
    assert printed(predict, Q, 4) == ["Noted 4. Run the next cell."]
    assert printed(predict, Q, 8) == ["Noted 8. Run the next cell."]
    assert printed(predict, Q, a=1, b=...) == ["Noted a=1. Still open: b."]


def test_without_a_prediction_the_run_is_shown_all_the_same(printed):
    shown = ["Prediction bank-degree: the run gives 8. You made no prediction."]
    assert printed(reveal, Q, 8) == shown  # the cell that asks was not run at all
    printed(predict, Q, ...)
    assert printed(reveal, Q, 8) == shown


def test_a_part_without_a_prediction(printed):
    printed(predict, Q, a=1, b=...)
    a, b = printed(reveal, Q, a=1, b=2)
    assert a.endswith("as you predicted.")
    assert b.endswith("You made no prediction.")


@pytest.mark.parametrize("answer", ["Race", "deadlock", ("race", "nothing"), {"deadlock"}])
def test_a_choice_is_noted(printed, answer):
    (line,) = printed(predict, Q, answer, choices=KINDS)
    assert line.startswith("Noted ")


@pytest.mark.parametrize(
    ("args", "parts", "says"),
    [
        (("crash",), {"choices": KINDS}, 'is "crash", and the choices are "race", "deadlock"'),
        ((("race", "crash"),), {"choices": KINDS}, 'is "crash"'),
        ((), {"a": "x", "choices": {"a": ("y",)}}, 'the answer to a is "x"'),
        ((len,), {}, "the answer is a builtin_function_or_method. It should be a number"),
        (((1, ...),), {}, "there is a ... in it"),
        ((1, 2), {}, "in brackets"),
        ((1,), {"a": 2}, "has its name in front of it"),
        ((), {}, "there is no answer"),
    ],
)
def test_what_is_no_answer_is_said_and_not_noted(printed, args, parts, says):
    printed(predict, Q, 8)
    (line,) = printed(predict, Q, *args, **parts)
    assert line.startswith("Not noted: ")
    assert says in line
    assert "no prediction" in printed(reveal, Q, 8)[0]


@pytest.mark.parametrize("question", ["bank-degree", "practice.Bank", "practice.a--b", 8, None, ""])
@pytest.mark.parametrize("verb", [predict, reveal])
def test_a_bad_id_is_refused(verb, question):
    with pytest.raises(CourseError, match="takes the question's id first"):
        verb(question, 8)


@pytest.mark.parametrize(
    ("args", "parts", "says"),
    [
        ((object(),), {}, "got an object"),
        ((np.zeros(65),), {}, "65 elements"),
        ((), {}, "takes one value, or several by name"),
        ((1, 2), {}, "takes one value"),
        ((1,), {"a": 1}, "takes one value"),
    ],
)
def test_a_value_that_cannot_be_predicted_is_refused(args, parts, says):
    with pytest.raises(CourseError, match=says):
        reveal(Q, *args, **parts)


# --- once it was shown ----------------------------------------------------------------------------


def test_a_prediction_made_after_the_run_is_said_to_be_so(printed):
    printed(reveal, Q, 8)
    assert printed(predict, Q, 8) == [
        "Noted 8, after a run has shown it: it does not count. Run the next cell."
    ]
    assert printed(reveal, Q, 8)[0].endswith("8; you said so only after a run had shown it.")
    printed(predict, Q, 4)
    assert printed(reveal, Q, 8)[0].endswith("8; you said 4 only after a run had shown it.")


def test_a_corrected_prediction_is_late_and_an_unchanged_one_is_not(printed):
    assert "You predicted 4." in outcome(printed, 4, 8)
    assert "only after a run had shown it" in outcome(printed, 8, 8)
    assert printed(predict, Q, 4) == ["Noted 4. Run the next cell."]
    assert "You predicted 4." in printed(reveal, Q, 8)[0]


def test_running_everything_again_says_the_same(printed):
    assert outcome(printed, 8, 8) == outcome(printed, 8, 8)


def test_the_first_outcome_outlives_the_kernel(printed, workspace, monkeypatch):
    outcome(printed, 4, 8)
    kept = json.loads((workspace / ".course" / "progress.json").read_text())
    assert kept["predictions"] == {Q: {"": {"answer": "4", "right": False}}}
    monkeypatch.setattr(module, "_answers", {})  # a fresh kernel
    assert "only after a run had shown it" in outcome(printed, 8, 8)
    assert "You predicted 4." in outcome(printed, 4, 8)


def test_a_check_keeps_the_predictions_and_the_other_way_round(printed, workspace):
    outcome(printed, 8, 8)
    note_check("practice.double", fault="")
    outcome(printed, 8, 8)
    kept = json.loads((workspace / ".course" / "progress.json").read_text())
    assert kept["exercises"]["practice.double"]["done"]
    assert kept["predictions"][Q][""]["right"]


def test_a_file_from_before_there_were_predictions_is_read(printed, workspace):
    note_check("practice.double", fault="")
    file = workspace / ".course" / "progress.json"
    data = json.loads(file.read_text())
    del data["predictions"]
    file.write_text(json.dumps(data))
    assert predictions() == {}
    assert "as you predicted" in outcome(printed, 8, 8)
    assert json.loads(file.read_text())["exercises"]["practice.double"]["done"]


@pytest.mark.parametrize("bad", [{Q: {"": {"answer": 4, "right": True}}}, {Q: 1}, [1]])
def test_predictions_that_cannot_be_understood_are_put_aside(printed, workspace, bad):
    file = workspace / ".course" / "progress.json"
    file.write_text(json.dumps({"version": 1, "exercises": {}, "predictions": bad}))
    printed(predict, Q, 8)
    assert "as you predicted" in printed(reveal, Q, 8)[-1]
    assert (workspace / ".course" / "progress.unreadable-1.json").exists()


def test_nothing_is_kept_where_nobody_reads(printed, workspace, monkeypatch):
    monkeypatch.setenv(UNATTENDED, "1")
    printed(reveal, Q, 8)
    monkeypatch.delenv(UNATTENDED)
    assert predictions() == {}
    assert "as you predicted" in outcome(printed, 8, 8)


# --- the tally ------------------------------------------------------------------------------------


def test_progress_counts_predictions_by_chapter(printed, exercises):
    printed(predict, Q, a=1, b=2)
    printed(reveal, Q, a=1, b=3)
    printed(predict, "start_here.ends", 1)
    printed(reveal, "start_here.ends", 1)
    printed(reveal, "start_here.middle", 1)
    table = progress_table()
    assert "2 of 3 predictions right (00_start_here 1 of 1, practice 1 of 2)." in table
    assert "1 more was shown before you predicted." in table


def test_a_late_prediction_does_not_count(printed, exercises):
    outcome(printed, 4, 8)
    outcome(printed, 8, 8)
    assert "0 of 1 predictions right (practice 0 of 1)." in progress_table()


def test_without_predictions_there_is_no_tally(exercises):
    assert "prediction" not in progress_table()
