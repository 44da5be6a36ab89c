"""The picture of a launch over a matrix: the same each time, and told in words as well."""

from __future__ import annotations

import pytest

from course_lib.figures import mojo_launches, png


def draw():
    return mojo_launches.cover(5, 11, block=(4, 4), marked=(3, 6))


def test_draws_the_same_picture_twice() -> None:
    assert png(draw()) == png(draw())


@pytest.mark.parametrize(
    ("rows", "cols", "block", "grid", "idle"),
    [
        (5, 11, (4, 4), (3, 2), 41),
        (33, 50, (16, 16), (4, 3), 64 * 48 - 33 * 50),
        (16, 32, (16, 8), (2, 2), 0),
    ],
)
def test_a_launch_has_a_lane_for_each_element(rows, cols, block, grid, idle) -> None:
    assert mojo_launches.grid_for(rows, cols, block) == grid
    assert mojo_launches.idle_lanes(rows, cols, block) == idle


def test_the_alternative_text_says_where_the_marked_lane_is() -> None:
    alt = str(draw().get_label())
    assert "41 lanes" in alt
    assert "lane (2, 3) of block (1, 0), and has element [3, 6]" in alt
