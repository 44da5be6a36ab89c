"""The list of exercises: what it refuses, what it finds, what it suggests."""

from __future__ import annotations

import dataclasses

import pytest

from course_lib.diagnostics import CourseError
from course_lib.exercises import Case, Spec, all_exercises, get, register, registry
from tests.exercises import practice


@pytest.fixture(autouse=True)
def _practice(exercises: None) -> None:
    """Only the practice exercises are registered."""


def test_a_registered_exercise_is_found_by_its_id():
    assert get("practice.double") is practice.DOUBLE
    assert practice.DOUBLE in all_exercises()


def test_register_returns_the_exercise_and_adds_it():
    triple = dataclasses.replace(practice.DOUBLE, id="practice.triple")
    assert register(triple) is triple
    assert get("practice.triple") is triple


def test_another_exercise_with_the_same_id_is_refused():
    def reference(x):
        return 2 * x

    with pytest.raises(ValueError, match=r"practice\.double.*registered"):
        register(dataclasses.replace(practice.DOUBLE, reference=reference))


def test_the_same_module_may_register_its_exercise_again():
    again = dataclasses.replace(practice.DOUBLE, title="Reloaded")
    register(again)
    assert get("practice.double").title == "Reloaded"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": "double"}, "chapter_title.exercise_name"),
        ({"id": "Practice.double"}, "chapter_title.exercise_name"),
        ({"function": "two words"}, "not a Python name"),
        ({"function": "triple"}, "does not name the function"),
        ({"title": ""}, "need text"),
        ({"lines": 0}, "not a number of lines"),
        ({"reference": None}, "not a function"),
        ({"cases": ()}, "no case"),
        ({"hints": ("one", "two", "")}, "three hints"),
        ({"hints": ("one", "two")}, "three hints"),
        ({"cases": (Case((Spec((4,)),)), Case(()))}, "same number of arguments"),
        ({"cases": (Case((Spec((0, 4)),)),)}, "empty dimension"),
        ({"cases": (Case((Spec((4,), "float33"),)),)}, "no dtype 'float33'"),
        ({"cases": (Case((Spec((4,), "float64"),)),)}, "64 bits"),
        ({"cases": (Case((Spec((4,), draw="zeros"),)),)}, "draw 'zeros'"),
    ],
)
def test_a_malformed_exercise_is_refused_when_it_is_registered(change, says):
    malformed = dataclasses.replace(practice.DOUBLE, **{"id": "practice.new", **change})
    with pytest.raises(ValueError, match=says):
        register(malformed)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "bool"]
)
def test_every_dtype_of_the_course_is_accepted(dtype):
    cases = (Case((Spec((4,), dtype),)),)
    register(dataclasses.replace(practice.DOUBLE, id="practice.new", cases=cases))


@pytest.mark.parametrize(
    ("wrong", "suggested"),
    [
        ("practice.duoble", "'practice.double'"),
        ("practise.scale", "'practice.scale'"),
        ("double", "'practice.double'"),
        ("memory_spaces.double", "'practice.double'"),
    ],
)
def test_an_unknown_id_is_answered_with_the_closest(wrong, suggested):
    with pytest.raises(CourseError, match="There is no exercise") as caught:
        get(wrong)
    assert f"Did you mean {suggested}" in str(caught.value)


def test_an_id_that_resembles_none_is_answered_without_a_guess():
    with pytest.raises(CourseError) as caught:
        get("xyzzy")
    assert "Did you mean" not in str(caught.value)
    assert "progress()" in str(caught.value)


def test_an_id_that_is_not_text_is_answered_with_a_sentence():
    with pytest.raises(CourseError, match=r"text in quotes.*'practice\.double'"):
        get(practice.double)  # type: ignore[arg-type]


def test_every_module_of_the_package_is_known_as_the_engine_s_or_as_a_chapter(monkeypatch):
    monkeypatch.undo()
    chapters = {e.chapter for e in all_exercises()}
    assert set(registry._chapter_modules()) == chapters
