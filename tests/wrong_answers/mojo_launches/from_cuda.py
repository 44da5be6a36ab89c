"""Wrong answers to mojo_launches.from_cuda."""

from __future__ import annotations

from course_lib.mojo import Answer
from tests.wrong_answers import Wrong, mojo_answer

_BODY = """
if i < size:
    z[i] = a * x[i] + y[i]
"""
_KERNEL = """
var i = block_idx.x * block_dim.x + thread_idx.x
axpy_at(i, a, x, y, z, Int(size))
"""


def _answer(body: str = _BODY, kernel: str = _KERNEL) -> Answer:
    return mojo_answer("mojo_launches.from_cuda", body, kernel)


WRONG = {
    "one element too many": Wrong(
        _answer(body="if i <= size:\n    z[i] = a * x[i] + y[i]"),
        "out-of-bounds",
        ("beyond the end of the output", "1000 elements: to element 1000"),
    ),
    "forgets y": Wrong(_answer(body="if i < size:\n    z[i] = a * x[i]"), "value", ("[0]",)),
    "CUDA's own words": Wrong(
        _answer(kernel="var i = blockIdx.x * blockDim.x + threadIdx.x\naxpy_at(i, a, x, y, z, 1)"),
        "lowering",
        ("Line 20 does not compile: var i = blockIdx.x", "did you mean 'block_idx'"),
    ),
    "nothing is called": Wrong(
        _answer(kernel="var i = block_idx.x * block_dim.x + thread_idx.x"),
        "means",
        ("has 0 ld.global",),
    ),
}
