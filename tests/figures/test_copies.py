"""The picture of two copies: drawn the same each time, and told in words as well."""

from __future__ import annotations

import pytest

from course_lib.figures import copies, png


def test_draws_the_same_picture_twice() -> None:
    assert png(copies.two_copies()) == png(copies.two_copies())


@pytest.mark.parametrize("spans", [copies._THREAD, copies._ENGINE])
def test_spans_of_a_lane_do_not_overlap(spans: tuple[tuple[float, float, str, str], ...]) -> None:
    ends = [span[1] for span in spans]
    starts = [span[0] for span in spans]
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_a_hand_over_is_where_somebody_begins_or_ends() -> None:
    edges = {edge for span in (*copies._THREAD, *copies._ENGINE) for edge in span[:2]}
    assert {x for x, _, _ in copies._HAND_OVERS} <= edges


def test_the_alternative_text_names_every_hand_over() -> None:
    alt = str(copies.two_copies().get_label())
    assert all(f"({n})" in alt for n in range(1, 6))
