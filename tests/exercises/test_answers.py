"""What can be predicted, and when it is the same as what the run gave."""

from __future__ import annotations

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from course_lib.exercises.answers import kind, plain, same, shown


def right(given, answer, within=None) -> bool:
    return same(plain(given), plain(answer), within)


@pytest.mark.parametrize(
    ("given", "answer", "wrong"),
    [
        (8, 8, 9),
        (8, 8.0, 8.1),
        (-3, "-3", "3"),
        (2**60 + 1, 2**60 + 1, 2**60),
        (0.1 + 0.2, 0.3, 0.31),
        (np.int32(8), 8, 9),
        (np.float32(0.1), 0.1, 0.101),
        (jnp.bfloat16(0.1), 0.1, 0.2),
        (ml_dtypes.int4(3), 3, 4),
        (jnp.arange(3), (0, 1, 2), (0, 1, 3)),
        (np.eye(2), [[1, 0], [0, 1]], [[1, 0], [0, 0]]),
        (jnp.float32(2.5), 2.5, 2.0),
        (True, True, False),
        (np.bool_(False), False, True),
        (True, "yes", "no"),
        (None, None, 0),
        (None, "none", "nothing"),
        ("race", "Race", "races"),
        ("data-race", "data race", "deadlock"),
        ("m64 n128", " M64N128 ", "m64n12"),
        (np.str_("race"), "race", "rice"),
        ((1, 2), (1, 2), (2, 1)),
        ((1, 2), [1, 2], (1, 2, 2)),
        ((1, 2), (1, 2), {1, 2}),
        ({1, 2}, (2, 1), (2, 3)),
        ({1, 2}, {1, 2}, {1}),
        ({"A", "b"}, {"a", "B"}, {"a"}),
        ((128,), 128, 127),
        (128, (128,), (128, 1)),
        ({"race"}, "race", "deadlock"),
        ((("a", 1), True), (("A", 1), True), (("a", 1), False)),
        (math.inf, math.inf, -math.inf),
        (np.float32("nan"), math.nan, 0),
        (0, 0, 1e-12),
    ],
)
def test_the_right_answer_and_a_wrong_one(given, answer, wrong):
    assert right(given, answer)
    assert not right(given, wrong)


@pytest.mark.parametrize(
    ("given", "answer"), [(1, True), (True, 1), (0, False), (False, None), (8, "eight"), ("8", 8)]
)
def test_one_kind_is_not_another(given, answer):
    assert not right(given, answer)


def test_within_is_relative_to_what_the_run_gave():
    assert right(100, 120, 0.2)
    assert right(-100, -80, 0.2)
    assert not right(100, 121, 0.2)
    assert not right(0, 0.001, 0.2)
    assert right((100, 10), (110, 9), 0.2)
    assert not right((100, 10), (110, 5), 0.2)
    assert not right(100, math.inf, 0.2)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np, "a module"),
        (object(), "an object"),
        (len, "a builtin_function_or_method"),
        (np.zeros(100), "an array of 100 elements"),
        (jnp.zeros((65,)), "an array of 65 elements"),
        (range(3), "a range"),
        (tuple(range(65)), "65 values"),
        ((1, ...), "there is a ... in it"),
        (1j, "a complex"),
    ],
)
def test_what_cannot_be_predicted_is_named(value, says):
    with pytest.raises(TypeError) as caught:
        plain(value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8.0, "8"),
        (np.float32(0.1), "0.1"),
        (1 / 3, "0.333333"),
        (1e30, "1e+30"),
        ("race", '"race"'),
        ((1,), "(1,)"),
        ({30, 4, 100}, "{4, 30, 100}"),
        ({"b", "a"}, '{"a", "b"}'),
        (set(), "set()"),
        (None, "None"),
        ([True, ["x", 2]], '(True, ("x", 2))'),
    ],
)
def test_the_same_value_is_always_shown_the_same(value, text):
    assert shown(plain(value)) == text


def test_kinds_have_names():
    values = (1, True, "x", None, (1, 2), {1})
    assert [kind(plain(v)) for v in values] == [
        "a number", "True or False", "a text", "None", "2 values", "1 value",
    ]  # fmt: skip
