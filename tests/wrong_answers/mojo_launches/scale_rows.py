"""Wrong answers to mojo_launches.scale_rows."""

from __future__ import annotations

from course_lib.mojo import Answer
from tests.wrong_answers import Wrong, mojo_answer

_BODY = """
if row < Int(x.dim[0]()) and col < Int(x.dim[1]()):
    y[row, col] = x[row, col] * s[row]
"""


def _answer(
    body: str = _BODY,
    kernel: str = "scale_at(global_idx.y, global_idx.x, x, s, y)",
    bound: str = "comptime kernel = scale_kernel[type_of(matrix), type_of(vector)]",
) -> Answer:
    return mojo_answer("mojo_launches.scale_rows", body, kernel, bound)


WRONG = {
    "only one edge": Wrong(
        _answer(body="if row < Int(x.dim[0]()):\n    y[row, col] = x[row, col] * s[row]"),
        "out-of-bounds",
        ("beyond the end of the output",),
    ),
    "a number for each column": Wrong(
        _answer(body=_BODY.replace("s[row]", "s[col]")), "nan", ("columns 33 to 49",)
    ),
    "x twice": Wrong(
        _answer(kernel="scale_at(global_idx.x, global_idx.x, x, s, y)"),
        "means",
        ("does without `global_idx.y`",),
    ),
}
