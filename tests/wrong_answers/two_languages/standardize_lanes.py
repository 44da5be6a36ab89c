"""Wrong answers to two_languages.standardize_lanes."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "two_languages.standardize_lanes"
_SUM = """\
for col in range(lane, Int(x.dim[1]()), 32):
    total += x[row, col][0]
"""
_SQUARES = """\
for col in range(lane, Int(x.dim[1]()), 32):
    total += (x[row, col][0] - mean) ** 2
"""
_KERNEL = """\
var mean = warp.sum(lane_sum(lane_id(), row, x)) / cols
var variance = warp.sum(lane_squares(lane_id(), row, mean, x)) / cols
"""

WRONG = {
    # Each lane standardizes by what it has seen itself.
    "no warp.sum": Wrong(
        mojo_answer(_ID, _SUM, _SQUARES, _KERNEL.replace("warp.sum", "")), "means", ("shfl.sync",)
    ),
    # Each lane takes the whole row, so everything is counted 32 times.
    "no lanes": Wrong(
        mojo_answer(_ID, _SUM.replace("lane, ", "").replace(", 32", ""), _SQUARES, _KERNEL),
        "value",
        ("[",),
    ),
    "forgets the mean": Wrong(
        mojo_answer(_ID, _SUM, _SQUARES.replace("- mean", ""), _KERNEL), "value", ("[",)
    ),
    "mean not handed over": Wrong(
        mojo_answer(_ID, _SUM, _SQUARES, _KERNEL.replace("mean, x", "x")),
        "lowering",
        ("lane_squares",),
    ),
}
