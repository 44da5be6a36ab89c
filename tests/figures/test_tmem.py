"""The pictures of chapter 10: drawn the same each time, true to the rule, and told in words."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from course_lib.figures import png, tmem

PICTURES: tuple[Callable[[], Figure], ...] = (tmem.moved_out, tmem.load_over_time)


@pytest.mark.parametrize("picture", PICTURES)
def test_draws_the_same_picture_twice(picture: Callable[[], Figure]) -> None:
    assert png(picture()) == png(picture())


@pytest.mark.parametrize("spans", [tmem._THREAD, tmem._TMEM])
def test_spans_of_a_lane_do_not_overlap(spans: tuple[tuple[float, float, str, str], ...]) -> None:
    assert all(start < end for start, end, _, _ in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_a_piece_is_used_after_it_was_read_and_before_all_were() -> None:
    reads = tmem._TMEM[: tmem.PIECES]
    uses = [span for span in tmem._THREAD if span[2].startswith("add")]
    assert all(read[1] <= use[0] for read, use in zip(reads, uses, strict=True))
    assert uses[0][0] < reads[-1][1]


def test_tmem_is_overwritten_only_after_the_wait() -> None:
    [wait] = [span for span in tmem._THREAD if span[2].startswith("wait")]
    assert tmem._TMEM[tmem.PIECES - 1][1] <= wait[1] <= tmem._TMEM[-1][0]


def test_the_boxes_of_a_panel_do_not_overlap() -> None:
    for boxes in (tmem._HOPPER, tmem._BLACKWELL):
        places = [place for _, _, place, _ in boxes]
        for i, (x, y, w, h) in enumerate(places):
            for x2, y2, w2, h2 in places[i + 1 :]:
                assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_the_alternative_texts_name_what_is_seen() -> None:
    for word in ("Hopper", "Blackwell", "TMEM", "SMEM", "registers"):
        assert word in str(tmem.moved_out().get_label())
    assert "wait_load_tmem" in str(tmem.load_over_time().get_label())
