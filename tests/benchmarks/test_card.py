"""What `nvidia-smi` says becomes a state, and a state's objections become sentences."""

import dataclasses
import math

import pytest

from course_lib.benchmarks import card
from course_lib.diagnostics import CourseError
from tests.benchmarks.fakes import BUSY, QUIET, SLOWED

LINE = "NVIDIA H200, 580.159.04, 1980, 1980, 3201, 31, 120.51, 700.00, 0, 0x0000000000000004"


def test_a_line_of_nvidia_smi():
    state = card.parse(LINE, others=0)
    assert (state.name, state.driver, state.sm_mhz) == ("NVIDIA H200", "580.159.04", 1980.0)
    assert (state.power_w, state.power_limit_w, state.reasons) == (120.51, 700.0, 4)
    assert state.objections() == []  # the power cap is what a matmul meets on a healthy card


def test_what_a_card_does_not_measure():
    state = card.parse(LINE.replace("120.51", "[N/A]").replace("0x0000000000000004", "[N/A]"))
    assert math.isnan(state.power_w)
    assert state.objections() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(utilization_percent=37.0), "busy: 37 %"),
        (dict(others=2), "shared: other processes on it: 2"),
        (dict(reasons=0x08), "hardware slowdown"),
        (dict(reasons=0x40), "too warm"),
        (dict(reasons=0x80), "power supply"),
    ],
)
def test_objections(change, words):
    [sentence] = dataclasses.replace(QUIET, **change).objections()
    assert words in sentence


def test_a_quiet_card_has_none():
    assert QUIET.objections() == []
    assert dataclasses.replace(QUIET, utilization_percent=4.0, others=None).objections() == []
    assert len(BUSY.objections()) == len(SLOWED.objections()) == 1


def test_without_a_gpu_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr(card.runtime, "device", lambda: None)
    with pytest.raises(CourseError, match="There is no GPU that JAX can use here") as caught:
        card.need_gpu()
    assert str(caught.value).count(".") == 1
    assert card.roofline() is None


def test_a_roofline_has_two_slopes():
    roof = card.Roofline(
        flop_per_s=1000e12, bytes_per_s=5e12, sms=132, l2_bytes=60 << 20, clock_hz=1.83e9
    )
    assert roof.ridge == 200
    assert roof.attainable(100) == 500e12
    assert roof.attainable(1000) == 1000e12
