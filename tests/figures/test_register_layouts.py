"""The picture of reductions: it says what the layout says, and what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib import compile_for
from course_lib.figures import png
from course_lib.figures import register_layouts as figures
from course_lib.kernels import register_layouts as kernels


def test_draws_the_same_picture_twice() -> None:
    assert isinstance(figures.reductions(), Figure)
    assert png(figures.reductions()) == png(figures.reductions())


def test_a_row_is_in_four_lanes_of_one_warp() -> None:
    row = figures.steps(1)
    assert (row.lanes, row.warps, row.exchanges) == ((0, 1, 2, 3), 1, (1, 2))
    assert row.own * len(row.lanes) == figures.SHAPE[1]


def test_a_column_is_in_eight_lanes_of_four_warps() -> None:
    column = figures.steps(0)
    assert (len(column.lanes), column.warps, column.exchanges) == (8, 4, (4, 8, 16))
    assert column.own * len(column.lanes) * column.warps == figures.SHAPE[0]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_butterfly_tells_every_lane(axis: int) -> None:
    """After all exchanges each lane knows of all others, and of none before the last."""
    steps = figures.steps(axis)
    known = {lane: {lane} for lane in steps.lanes}
    for distance in steps.exchanges:
        assert all(len(lanes) < len(steps.lanes) for lanes in known.values())
        known = {lane: known[lane] | known[lane ^ distance] for lane in steps.lanes}
    assert all(lanes == set(steps.lanes) for lanes in known.values())


@pytest.mark.parametrize(
    ("axis", "kernel"), [(1, kernels.subtract_row_max), (0, kernels.subtract_column_max)]
)
def test_the_compiler_makes_as_many_shuffles(axis: int, kernel: Callable[..., Any]) -> None:
    x = jax.ShapeDtypeStruct(figures.SHAPE, np.float32)
    assert compile_for(kernel, x).count("shfl.sync.bfly") == figures.steps(axis).shuffles


def test_the_alternative_text_has_the_numbers() -> None:
    text = str(figures.reductions().get_label())
    for words in ("4 shuffles", "96 shuffles", "1 and 2", "4, 8 and 16", "meet in SMEM"):
        assert words in text
