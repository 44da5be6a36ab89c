"""The pictures of chapter 11: drawn the same each time, and told in words as well."""

from __future__ import annotations

from types import SimpleNamespace as Some
from typing import Any

from course_lib.figures import collective_mma as figures
from course_lib.figures import png


def timeline(ends: tuple[int, ...], cycles: int) -> Any:
    """A timeline in which the tensor core of cluster i works twice, the last time until ends[i]."""
    lanes = [f"tensor core of block 0 of cluster ({i})" for i in range(len(ends))]
    spans = [
        Some(lane=lane, start=start, end=stop)
        for lane, end in zip(lanes, ends, strict=True)
        for start, stop in ((0, end / 4), (end / 2, end))
    ]
    return Some(lanes=["block 0", *lanes], spans=spans, cycles=cycles)


TWO = {"persistent": timeline((30, 90), 100), "dynamic": timeline((60, 70), 80)}


def test_draws_the_same_picture_twice() -> None:
    assert png(figures.pair()) == png(figures.pair())
    assert png(figures.balance(TWO)) == png(figures.balance(TWO))


def test_the_pair_in_words_says_what_is_shared() -> None:
    alt = str(figures.pair().get_label())
    assert "both halves of B" in alt
    assert "the leader, waits for the loads and issues the MMA" in alt


def test_the_balance_in_words_has_each_kernel_and_when_its_clusters_are_done() -> None:
    alt = str(figures.balance(TWO).get_label())
    assert "persistent: the clusters' tensor cores are done at 30%, 90% of its time" in alt
    assert "dynamic: the clusters' tensor cores are done at 75%, 88% of its time" in alt


def test_stretches_with_a_short_gap_are_one() -> None:
    lane = "tensor core of block 0 of cluster (0)"
    assert figures._joined(TWO["persistent"], lane, 1) == [(0, 7.5), (15, 30)]
    assert figures._joined(TWO["persistent"], lane, 8) == [(0, 30)]
