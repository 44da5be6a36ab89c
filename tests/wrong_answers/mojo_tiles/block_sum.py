"""Wrong answers to mojo_tiles.block_sum."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "mojo_tiles.block_sum"
_STEPS = "return log2_floor(threads // warp_size)"
_STEP = """\
if tid < active:
    sums[unsafe_offset=tid] += sums[unsafe_offset=tid + active]
"""

WRONG = {
    # The guide's: the whole tree, and then the warp's sum over what the tree left behind.
    "the whole tree": Wrong(
        mojo_answer(_ID, "return log2_floor(threads)", _STEP), "value", ("The output is",)
    ),
    # Leaves 16 sums; the warp adds 16 stale ones to them.
    "one round too many": Wrong(
        mojo_answer(_ID, "return log2_floor(threads // warp_size) + 1", _STEP),
        "value",
        ("The output is",),
    ),
    # Right if the lanes run upwards; no GPU promises that.
    "every lane adds": Wrong(
        mojo_answer(_ID, _STEPS, "sums[unsafe_offset=tid] += sums[unsafe_offset=tid + active]"),
        "value",
        ("The output is",),
    ),
    "a name that is not there": Wrong(
        mojo_answer(_ID, "return log2(threads // warp_size)", _STEP), "lowering", ("log2",)
    ),
}
