"""Rooflines and the ladder's plot: the numbers behind them, their words, and that they draw."""

from __future__ import annotations

import dataclasses

import pytest

from course_lib.figures import png, roofline

POINTS = (
    roofline.Point("HBM", "step 1", 2731, 640e12),
    roofline.Point("L2", "step 1", 64, 640e12),
    roofline.Point("SMEM", "step 1", 25.6, 640e12),
)


def test_an_h200_has_the_ridges_of_its_data_sheet():
    card = roofline.h200()
    ridges = {m: card.flop_per_s / rate for m, rate in card.bytes_per_s.items()}
    assert ridges == pytest.approx({"HBM": 206, "L2": 64, "SMEM": 32}, rel=0.01)
    assert card.flop_per_s == pytest.approx(989e12, rel=0.001)


@pytest.mark.parametrize(
    ("memory", "flop_per_byte", "part"), [("SMEM", 25.6, 0.8), ("SMEM", 32, 1), ("L2", 1000, 1)]
)
def test_below_the_ridge_the_memory_is_the_limit_and_above_it_is_not(memory, flop_per_byte, part):
    card = roofline.h200()
    assert card.attainable(memory, flop_per_byte) == pytest.approx(part * card.flop_per_s)


def test_a_lower_clock_slows_all_but_the_hbm():
    card = roofline.h200()
    for memory in ("L2", "SMEM"):
        whole, half = (card.attainable(memory, 10, clock_part=c) for c in (1, 0.5))
        assert half == whole / 2
    assert card.attainable("HBM", 10, clock_part=0.5) == card.attainable("HBM", 10)
    assert card.attainable("HBM", 1e4, clock_part=0.5) == card.flop_per_s / 2


def test_the_words_name_no_card_and_every_point():
    h200 = roofline.h200(clock_part=0.85)
    other = dataclasses.replace(h200, device="Another", clock_part=1.0)
    words = [str(roofline.roofline(card, POINTS).get_label()) for card in (h200, other)]
    assert words[0] == words[1]
    assert "SMEM: step 1 at 26 FLOP per byte" in words[0]


def test_a_roofline_is_the_same_picture_each_time():
    card = roofline.h200(clock_part=0.85)
    assert png(roofline.roofline(card, POINTS)) == png(roofline.roofline(card, POINTS))


def test_the_ladder_is_drawn_with_gaps_and_described():
    series = {"8192": [0.75, None], "4096": [0.8, 1.01]}
    fig = roofline.ladder(["0 one", "1 two"], series, device="H200", date="2026-11-30")
    assert png(fig)
    assert "0 one: 75%, 80%; 1 two: -, 101%" in str(fig.get_label())
