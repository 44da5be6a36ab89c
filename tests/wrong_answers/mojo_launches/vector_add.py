"""Wrong answers to mojo_launches.vector_add."""

from __future__ import annotations

from course_lib.mojo import Answer
from tests.wrong_answers import Wrong, mojo_answer


def _answer(
    blocks: str = "return ceildiv(size, block)",
    body: str = "if i < size:\n    c[i] = a[i] + b[i]",
    bound: str = "comptime kernel = add_kernel[type_of(layout)]",
) -> Answer:
    return mojo_answer("mojo_launches.vector_add", blocks, body, bound)


WRONG = {
    "rounds down": Wrong(
        _answer(blocks="return size // block"), "nan", ("[896]", "104 of 1000", "NaN")
    ),
    "always 1000": Wrong(
        _answer(body="if i < 1000:\n    c[i] = a[i] + b[i]"), "out-of-bounds", ("5 elements",)
    ),
    "not bound": Wrong(
        _answer(bound="comptime kernel = add_kernel"),
        "lowering",
        ("Change: bind them first", "add_kernel"),
    ),
}
