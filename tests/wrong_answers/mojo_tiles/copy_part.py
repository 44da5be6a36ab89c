"""Wrong answers to mojo_tiles.copy_part."""

from __future__ import annotations

from tests.wrong_answers import Wrong, mojo_answer

_ID = "mojo_tiles.copy_part"
_SOLUTION = """\
var here = x.vectorize[1, 4]().distribute[thread_layout=threads](lane)
var there = y.vectorize[1, 4]().distribute[thread_layout=threads](lane)
there.copy_from(here)
"""

WRONG = {
    # Right, with sixteen loads of one number each.
    "no vectors": Wrong(
        mojo_answer(_ID, _SOLUTION.replace(".vectorize[1, 4]()", "")), "means", ("ld.global.v4",)
    ),
    # Right, and every lane does the whole warp's work.
    "every lane copies everything": Wrong(
        mojo_answer(_ID, "y.vectorize[1, 4]().copy_from(x.vectorize[1, 4]())"),
        "means",
        ("ld.global.v4",),
    ),
    "deals the two tensors differently": Wrong(
        mojo_answer(_ID, _SOLUTION.replace("threads", "row_major[4, 8]()", 1)),
        "value",
        ("wrong places",),
    ),
}
