"""The pictures of flash attention: drawn the same each time, right, and told in words as well."""

from __future__ import annotations

import itertools

import pytest

from course_lib.benchmarks.records import Record, Row
from course_lib.figures import attention, png
from course_lib.figures.attention import busy, kind_of_tile, schedule
from course_lib.kernels.flash_attention import Config, seen_tiles

NAMES = ["attention0", "attention6", "JAX's own"]


def record() -> Record:
    ratios = {"long": {"cuDNN": 1.0, "attention0": 0.2, "attention6": 1.05},
              "causal": {"cuDNN": 1.0, "attention6": 1.12}}  # fmt: skip
    rows = [Row(case, name, 1.0, 1.0, 1.0, 40, 1.0, ratio, 0.0)
            for case, group in ratios.items() for name, ratio in group.items()]  # fmt: skip
    return Record("attention", "cuDNN", "TFLOP/s", tuple(rows), {}, {}, "2026-11-30T00:00:00")


@pytest.mark.parametrize("draw", [attention.ping_pong, attention.causal_tiles])
def test_draws_the_same_picture_twice_and_says_what_it_shows(draw):
    assert png(draw()) == png(draw())
    assert len(str(draw().get_label())) > 100


@pytest.mark.parametrize("in_turns", [False, True])
def test_the_tensor_core_does_one_thing_at_a_time_and_a_softmax_follows_its_products(in_turns):
    spans = schedule(4, in_turns=in_turns)
    core = sorted((s for s in spans if s.lane == "tensor core"), key=lambda s: s.start)
    assert all(a.end <= b.start for a, b in itertools.pairwise(core))
    for wg in (0, 1):
        own = [s for s in core if s.warpgroup == wg]
        softmax = [s for s in spans if s.lane == f"warpgroup {wg}"]
        assert len(own) == len(softmax) == 4
        assert all(p.end <= s.start for p, s in zip(own, softmax, strict=True))
        assert all(s.end <= p.start for s, p in zip(softmax, own[1:], strict=False))


def test_turns_keep_the_tensor_core_at_work():
    assert busy(schedule(100, in_turns=True)) > 0.99
    assert busy(schedule(100, in_turns=False)) == pytest.approx(1024 / (1024 + 830), abs=0.01)


@pytest.mark.parametrize("row", range(0, 512, 64))
def test_a_block_looks_at_the_tiles_that_are_not_skipped(row):
    kinds = [kind_of_tile(row, key, 64, 128) for key in range(0, 512, 128)]
    assert len(kinds) - kinds.count("skipped") == int(seen_tiles(row, 512, Config()))
    assert kinds.count("crossed") == 1
    assert kinds == sorted(kinds, key=["whole", "crossed", "skipped"].index)


def test_the_ladder_draws_who_was_measured_and_names_the_best():
    figure = attention.ladder(record(), NAMES)
    [axes] = figure.axes
    assert len(axes.patches) == 3  # attention0 is not in the causal case, JAX's own in neither
    assert "long: attention6 1.05; causal: attention6 1.12" in str(figure.get_label())
    assert png(figure) == png(attention.ladder(record(), NAMES))
