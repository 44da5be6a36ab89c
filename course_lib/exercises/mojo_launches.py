"""The exercises of chapter 20: Mojo's threads, tensors and launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.mojo_judging import MojoTask
from course_lib.exercises.registry import Case, Exercise, Spec, register

Array = np.ndarray[Any, Any]

LENGTH = 1000  # of the vectors of from_cuda

_FROM_CUDA = """\
from layout import TileTensor
from course import Arrays, ON_GPU
from answer import axpy_at, axpy_kernel, layout

def try_case[*, size: Int](mut arrays: Arrays) raises:
    var x = TileTensor(arrays.input[DType.float32](), layout)
    var y = TileTensor(arrays.input[DType.float32](), layout)
    var z = TileTensor(arrays.output[DType.float32](size), layout)
    comptime if ON_GPU:
        arrays.ctx.enqueue_function[axpy_kernel](
            Float32(-1.5), x, y, z, Int32(size), grid_dim=4, block_dim=256
        )
    else:
        for i in range(4 * 256):
            axpy_at(i, -1.5, x, y, z, size)
"""

_VECTOR_ADD = """\
from layout import TileTensor, row_major
from course import Arrays, ON_GPU
from answer import add_at, add_kernel, blocks_for

def try_case[*, n: Int](mut arrays: Arrays) raises:
    comptime layout = row_major[n]()
    comptime block = 128
    var a = TileTensor(arrays.input[DType.float32](), layout)
    var b = TileTensor(arrays.input[DType.float32](), layout)
    var c = TileTensor(arrays.output[DType.float32](n), layout)
    comptime if ON_GPU:
        comptime kernel = add_kernel[type_of(layout)]
        arrays.ctx.enqueue_function[kernel](
            a, b, c, Int32(n), grid_dim=blocks_for(n, block), block_dim=block
        )
    else:
        for i in range(blocks_for(n, block) * block):
            add_at(i, a, b, c, n)
"""

_SCALE_ROWS = """\
from std.math import ceildiv
from layout import TileTensor, row_major
from course import Arrays, ON_GPU
from answer import scale_at, scale_kernel

def try_case[*, rows: Int, cols: Int](mut arrays: Arrays) raises:
    comptime matrix = row_major[rows, cols]()
    comptime vector = row_major[rows]()
    var x = TileTensor(arrays.input[DType.float32](), matrix)
    var s = TileTensor(arrays.input[DType.float32](), vector)
    var y = TileTensor(arrays.output[DType.float32](rows * cols), matrix)
    comptime if ON_GPU:
        comptime kernel = scale_kernel[type_of(matrix), type_of(vector)]
        arrays.ctx.enqueue_function[kernel](
            x, s, y, grid_dim=(ceildiv(cols, 16), ceildiv(rows, 16)), block_dim=(16, 16)
        )
    else:
        for row in range(ceildiv(rows, 16) * 16):
            for col in range(ceildiv(cols, 16) * 16):
                scale_at(row, col, x, s, y)
"""


def _from_cuda(x: Array, y: Array, *, size: int) -> Array:
    """-1.5 x + y in the first `size` elements: there is no memory for the others."""
    z: Array = (-1.5 * x.astype(np.float64) + y)[:size].astype(x.dtype)
    return z


def _vector_add(a: Array, b: Array, *, n: int) -> Array:
    return a + b


def _scale_rows(x: Array, s: Array, *, rows: int, cols: int) -> Array:
    return x * s[:, None]


register(
    Exercise(
        id="mojo_launches.from_cuda",
        function="from_cuda",
        title="A CUDA kernel in Mojo's words",
        statement="Write the CUDA kernel axpy, z = a x + y for the first size elements, in Mojo.",
        signature="from_cuda: axpy_at(i, a, x, y, z, size), axpy_kernel(a, x, y, z, size)",
        lines=4,
        reference=_from_cuda,
        cases=(
            Case((Spec((LENGTH,)), Spec((LENGTH,))), {"size": LENGTH}),
            Case((Spec((LENGTH,)), Spec((LENGTH,))), {"size": 700}),
        ),
        hints=(
            "Go through the CUDA kernel word by word, with the table above. The line with `if` "
            "stays almost as it is: a colon, and no brackets.",
            "In the kernel, blockIdx.x * blockDim.x + threadIdx.x is "
            "block_idx.x * block_dim.x + thread_idx.x. Hand it to axpy_at as its i.",
            "axpy_at: `if i < size:` and below it `z[i] = a * x[i] + y[i]`. axpy_kernel: "
            "`var i = block_idx.x * block_dim.x + thread_idx.x` and "
            "`axpy_at(i, a, x, y, z, Int(size))`.",
        ),
        expects={"sm_90a": {"ld.global": "==2", "st.global": "==1", "spill_bytes": 0}},
        program=MojoTask(_FROM_CUDA),
    )
)

register(
    Exercise(
        id="mojo_launches.vector_add",
        function="vector_add",
        title="Vectors of any length",
        statement="Add two vectors of any length, and say how many blocks that takes.",
        signature="vector_add: blocks_for(size, block), add_at(i, a, b, c, size), add_kernel",
        lines=4,
        reference=_vector_add,
        cases=(
            Case((Spec((1000,)), Spec((1000,))), {"n": 1000}),
            Case((Spec((256,)), Spec((256,))), {"n": 256}),
            Case((Spec((5,)), Spec((5,))), {"n": 5}),
        ),
        hints=(
            "size / block, and one more if something is left over. The standard library has a "
            "function for it, imported in the first line.",
            "The last block has more lanes than there are elements left: what must they not do? "
            "And before the launch, what is LT?",
            "`return ceildiv(size, block)`; `if i < size:` with `c[i] = a[i] + b[i]` below it; "
            "`comptime kernel = add_kernel[type_of(layout)]`.",
        ),
        expects={"sm_90a": {"ld.global": "==2", "st.global": "==1", "spill_bytes": 0}},
        program=MojoTask(_VECTOR_ADD),
    )
)

register(
    Exercise(
        id="mojo_launches.scale_rows",
        function="scale_rows",
        title="Two dimensions, two layouts",
        statement="Multiply every row of a matrix by a number of its own, one lane an element.",
        signature="scale_rows: scale_at(row, col, x, s, y), scale_kernel(x, s, y)",
        lines=5,
        reference=_scale_rows,
        cases=(
            Case((Spec((33, 50)), Spec((33,))), {"rows": 33, "cols": 50}),
            Case((Spec((16, 16)), Spec((16,))), {"rows": 16, "cols": 16}),
        ),
        hints=(
            "A matrix of 33 x 50 takes 3 x 4 blocks of 16 x 16 lanes. Which of them have nothing "
            "to do? The tensor knows its size: Int(x.dim[0]()) is the number of rows.",
            "global_idx.x runs along a row, so it is the column; global_idx.y is the row. Lanes "
            "beside each other then load elements beside each other.",
            "scale_at: `if row < Int(x.dim[0]()) and col < Int(x.dim[1]()):` with "
            "`y[row, col] = x[row, col] * s[row]` below it. scale_kernel: "
            "`scale_at(global_idx.y, global_idx.x, x, s, y)`. main: "
            "`comptime kernel = scale_kernel[type_of(matrix), type_of(vector)]`.",
        ),
        requires={"global_idx.y": 1},
        expects={"sm_90a": {"ld.global": "==2", "st.global": "==1", "spill_bytes": 0}},
        program=MojoTask(_SCALE_ROWS),
    )
)
