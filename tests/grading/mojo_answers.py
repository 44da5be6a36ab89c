# ruff: noqa: E501
"""Mojo answers for the tests: honest ones that look unusual, and cheats.

Each is a program: the exercise's own, with its gaps filled in another way, or with more changed.
"""

from __future__ import annotations

import dataclasses

from course_lib.authoring.solutions import exercise_cells
from course_lib.mojo.answers import Answer, answer_of
from tests.wrong_answers import mojo_answer

FROM_CUDA = "mojo_launches.from_cuda"
VECTOR_ADD = "mojo_launches.vector_add"
SCALE_ROWS = "mojo_launches.scale_rows"
BLOCK_SUM = "mojo_tiles.block_sum"
HISTOGRAM = "mojo_tiles.histogram"
LOAD = "mojo_tiles.load"
COPY_PART = "mojo_tiles.copy_part"
STANDARDIZE = "two_languages.standardize_lanes"
PLACE = "two_languages.place"
IDS = (
    FROM_CUDA, VECTOR_ADD, SCALE_ROWS, BLOCK_SUM, HISTOGRAM, LOAD, COPY_PART, STANDARDIZE, PLACE,
)  # fmt: skip

_BOUND = "comptime kernel = add_kernel[type_of(layout)]"


@dataclasses.dataclass(frozen=True)
class Tried:
    """An answer to be marked.

    Attributes:
      exercise: what it answers.
      answer: the program.
      fault: what the mark must say; "" for any.
      alone: whether it may hang or take the compiler down, and is compiled by itself.
      shown_only: whether the first case is enough, as it takes long.
    """

    exercise: str
    answer: Answer
    fault: str = ""
    alone: bool = False
    shown_only: bool = False


def solution(exercise: str) -> Answer:
    """The course's own answer."""
    return answer_of(exercise_cells(exercise.split(".")[0])[exercise].text)


def changed(exercise: str, *changes: tuple[str, str]) -> Answer:
    """The course's own answer with some of its text replaced, each piece of which is there."""
    text = solution(exercise).source
    for old, new in changes:
        assert old in text, (exercise, old)
        text = text.replace(old, new)
    return Answer(text)


HONEST = {
    "other names": Tried(
        FROM_CUDA,
        changed(
            FROM_CUDA,
            ("axpy_at(i: Int, a: Float32", "axpy_at(here: Int, a: Float32"),
            ("if i < size:", "if here < size:"),
            ("z[i] = a * x[i] + y[i]", "z[here] = y[here] + x[here] * a"),
            ("var i = block_idx.x", "var lane = block_idx.x"),
            ("axpy_at(i, a", "axpy_at(lane, a"),
        ),
    ),
    "an extra function, and the guard the other way round": Tried(
        VECTOR_ADD,
        changed(
            VECTOR_ADD,
            ("def blocks_for", "def left_over(size: Int, block: Int) -> Int:\n"
             "    return 1 if size % block != 0 else 0\n\ndef blocks_for"),
            ("return ceildiv(size, block)", "return size // block + left_over(size, block)"),
            ("if i < size:\n        c[i] = a[i] + b[i]",
             "if i >= size:\n        return\n    c[i] = b[i] + a[i]"),
        ),
    ),
    "a helper that is generic": Tried(
        SCALE_ROWS,
        changed(
            SCALE_ROWS,
            ("def scale_at", "def inside(row: Int, col: Int, rows: Int, cols: Int) -> Bool:\n"
             "    return not (row >= rows or col >= cols)\n\ndef scale_at"),
            ("if row < Int(x.dim[0]()) and col < Int(x.dim[1]()):",
             "if inside(row, col, Int(x.dim[0]()), Int(x.dim[1]())):"),
        ),
    ),
    "a tree that is counted": Tried(
        BLOCK_SUM,
        mojo_answer(
            BLOCK_SUM,
            "var rounds = 0\nvar left = threads\nwhile left > warp_size:\n"
            "    left = left // 2\n    rounds += 1\nreturn rounds",
            "if tid >= active:\n    return\nvar mine = sums[unsafe_offset=tid]\n"
            "sums[unsafe_offset=tid] = mine + sums[unsafe_offset=active + tid]",
        ),
    ),
    "a remainder in place of bits": Tried(
        HISTOGRAM,
        mojo_answer(
            HISTOGRAM,
            "var bin = (Int(number) % 16 + 16) % 16\n_ = Atomic.fetch_add(mine.unsafe_offset(bin), 1)",
            "if tid >= BINS:\n    return\n"
            "_ = Atomic.fetch_add(all.unsafe_offset(tid), mine[unsafe_offset=tid])",
        ),
    ),
    "a zero first": Tried(
        LOAD,
        mojo_answer(
            LOAD,
            "tile[ty, tx] = 0\nif row < SIZE and col < SIZE:\n"
            "    tile[ty, tx] = rebind[tile.ElementType](x[row, col])",
        ),
    ),
    "the loop backwards": Tried(
        STANDARDIZE,
        mojo_answer(
            STANDARDIZE,
            "var col = Int(x.dim[1]()) - 32 + lane\nwhile col >= 0:\n"
            "    total += x[row, col][0]\n    col -= 32",
            "for col in range(lane, Int(x.dim[1]()), 32):\n"
            "    var off = x[row, col][0] - mean\n    total += off * off",
            "var whole = warp.sum(lane_sum(lane_id(), row, x))\nvar mean = whole / cols\n"
            "var variance = warp.sum(lane_squares(lane_id(), row, mean, x)) / cols",
        ),
    ),
    "divided with divmod's parts": Tried(
        PLACE,
        mojo_answer(
            PLACE,
            "var warp = lane // 32\nvar inside = lane - 32 * warp\nvar half = (i // 2) % 2\n"
            "return 16 * warp + inside // 4 + 8 * half",
            "return 8 * (i // 4) + 2 * (lane % 4) + i % 2",
        ),
    ),
}  # fmt: skip

_PLAIN_ADD = "mine[unsafe_offset=Int(number & 15)] += 1"
_MERGE = "if tid < BINS:\n    _ = Atomic.fetch_add(all.unsafe_offset(tid), mine[unsafe_offset=tid])"
_SCALAR_COPY = (
    "var here = x.distribute[thread_layout=threads](lane)\n"
    "var there = y.distribute[thread_layout=threads](lane)\nthere.copy_from(here)"
)
_VECTOR_COPY = (
    "var from_here = x.vectorize[1, 4]().distribute[thread_layout=threads](lane)\n"
    "var to_there = y.vectorize[1, 4]().distribute[thread_layout=threads](lane)\n"
    "to_there.copy_from(from_here)"
)


def _while_compiling(body: str, above: str = "") -> Answer:
    """The accumulator's places, with half of the rows wrong, and what it does on the way there.

    The compiler has to have the number for it to know which of the two it returns.
    """
    function = _indented(body, f"{above}def early() -> Int:")
    row = "return lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8"
    late = f"comptime if early() == 12345:\n        return 0\n    {row.replace('* 16', '* 8')}"
    return changed(PLACE, ("def row_of", f"{function}\n\ndef row_of"), (row, late))


def _indented(text: str, head: str) -> str:
    return "\n".join([head, *(f"    {line}" for line in text.splitlines())])


CHEATS = {
    "learnt by heart": Tried(
        VECTOR_ADD,
        mojo_answer(
            VECTOR_ADD,
            "return ceildiv(size, block)",
            "if (size == 1000 or size == 256 or size == 5) and i < size:\n    c[i] = a[i] + b[i]",
            _BOUND,
        ),
        "nan",
    ),
    "as many blocks as the public cases take": Tried(
        VECTOR_ADD,
        mojo_answer(
            VECTOR_ADD,
            "return 8 if size == 1000 else 2",
            "if i < size:\n    c[i] = a[i] + b[i]",
            _BOUND,
        ),
        "nan",
    ),
    "right on the CPU, and nothing on the GPU": Tried(
        FROM_CUDA,
        changed(
            FROM_CUDA,
            ("from max.gpu import block_dim", "from std.sys import is_gpu\n"
             "from max.gpu import block_dim"),
            ("    if i < size:\n        z[i] = a * x[i] + y[i]",
             "    comptime if is_gpu():\n        if i < 0:\n            z[0] = a * x[0] + y[0]\n"
             "    else:\n        if i < size:\n            z[i] = a * x[i] + y[i]"),
        ),
        "nan",
    ),
    "prints what it should have computed": Tried(
        SCALE_ROWS,
        changed(
            SCALE_ROWS,
            ("y[row, col] = x[row, col] * s[row]", "y[row, col] = s[row]"),
            ("        print(host[0], host[33 * 50 - 1])",
             '        print("all right: mojo_launches.scale_rows is correct on 2 shapes")'),
        ),
        "value",
    ),
    "ends itself before the end": Tried(
        FROM_CUDA,
        changed(
            FROM_CUDA,
            ("from max.gpu import block_dim", "from std.os import abort\n"
             "from max.gpu import block_dim"),
            ("    var i = block_idx.x * block_dim.x + thread_idx.x\n",
             "    var i = block_idx.x * block_dim.x + thread_idx.x\n"
             "    if i > 600:\n        abort()\n"),
        ),
        "crash",
    ),
    "prints without end": Tried(
        FROM_CUDA,
        changed(
            FROM_CUDA,
            ("    var i = block_idx.x * block_dim.x + thread_idx.x\n",
             "    var i = block_idx.x * block_dim.x + thread_idx.x\n"
             "    while x[0][0] == x[0][0]:\n        print(i)\n"),
        ),
        "refused",
    ),
    "never ends": Tried(
        FROM_CUDA,
        changed(
            FROM_CUDA,
            ("    var i = block_idx.x * block_dim.x + thread_idx.x\n",
             "    var i = block_idx.x * block_dim.x + thread_idx.x\n"
             "    while x[0][0] == x[0][0]:\n        z[0] = z[0] + 1\n"),
        ),
        "timeout",
    ),
    "vectors for show": Tried(
        COPY_PART,
        mojo_answer(COPY_PART, f"{_SCALAR_COPY}\n{_indented(_VECTOR_COPY, 'if lane > 100:')}"),
        "means",
    ),
    "vectors that are written over": Tried(
        COPY_PART, mojo_answer(COPY_PART, f"{_VECTOR_COPY}\n{_SCALAR_COPY}"), "means"
    ),
    "atomics for show": Tried(
        HISTOGRAM,
        mojo_answer(
            HISTOGRAM,
            f"{_PLAIN_ADD}\nif number == 1 << 30:\n    _ = Atomic.fetch_add(mine, 1)",
            _MERGE,
        ),
        "race",
    ),
    "exchanges for show": Tried(
        STANDARDIZE,
        changed(
            STANDARDIZE,
            ("    for col in range(lane, Int(x.dim[1]()), 32):\n        total += x[row, col][0]\n",
             "    for col in range(Int(x.dim[1]())):\n        total += x[row, col][0]\n"),
            ("        total += (x[row, col][0] - mean) ** 2\n",
             "        total += (x[row, col][0] - mean) ** 2\n"
             "    for col in range(Int(x.dim[1]())):\n"
             "        if col % 32 != lane:\n"
             "            total += (x[row, col][0] - mean) ** 2\n"),
            ("var mean = warp.sum(lane_sum(lane_id(), row, x)) / cols",
             "var mean = warp.sum(lane_sum(lane_id(), row, x)) * 0 + lane_sum(lane_id(), row, x) / cols"),
            ("var variance = warp.sum(lane_squares(lane_id(), row, mean, x)) / cols",
             "var variance = warp.sum(lane_squares(lane_id(), row, mean, x)) * 0"
             " + lane_squares(lane_id(), row, mean, x) / cols"),
        ),
        "means",
        shown_only=True,
    ),
    "writes into the guards": Tried(
        PLACE,
        changed(
            PLACE,
            ("acc[unsafe_offset=64 * lane + i]\n",
             "acc[unsafe_offset=64 * lane + i]\n    z[unsafe_offset=64 * 128 + lane] = 0\n"),
        ),
        "out-of-bounds",
    ),
    "a kernel with the grader's name": Tried(
        PLACE,
        changed(
            PLACE,
            ("def main() raises:", "def c0(acc: Numbers, z: Numbers):\n    z[unsafe_offset=0] = 0\n\n"
             "def main() raises:"),
            ("return lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8", "return i"),
            ("](acc.unsafe_ptr(), z.unsafe_ptr(), grid_dim=1, block_dim=128)",
             "](acc.unsafe_ptr(), z.unsafe_ptr(), grid_dim=1, block_dim=128)\n"
             "    ctx.enqueue_function[c0](acc.unsafe_ptr(), z.unsafe_ptr(), grid_dim=1, block_dim=1)"),
        ),
        "race",
    ),
    # What happens while it is compiled.
    "the compiler never ends": Tried(
        PLACE,
        _while_compiling(
            "var i = 1\nwhile i != 0:\n    i = (i * 5 + 3) % 1000003 + 1\nreturn i"
        ),
        "timeout",
        alone=True,
    ),
    "the compiler's memory": Tried(
        PLACE,
        _while_compiling(
            "var all = List[Int]()\nvar i = 1\nwhile i != 0:\n    i = (i * 5 + 3) % 1000003 + 1\n"
            "    all.append(i)\nreturn len(all)"
        ),
        "timeout",
        alone=True,
    ),
    "a forged listing": Tried(
        PLACE,
        _while_compiling(
            'try:\n    with open("p_h0_c0_forged.ptx", "w") as file:\n'
            '        file.write(".visible .entry h0_c0_forged() { ret; }")\nexcept:\n    return 1\n'
            "return 0",
        ),
        "lowering",
        alone=True,
    ),
    "reads what the grader puts beside it": Tried(
        PLACE,
        _while_compiling(
            'try:\n    with open("h0.mojo", "r") as file:\n        return file.read().byte_length()\n'
            "except:\n    return 1"
        ),
        "lowering",
        alone=True,
    ),
    "another process": Tried(
        PLACE,
        _while_compiling(
            'for _ in range(100):\n    _ = external_call["fork", Int32]()\nreturn 1',
            "from std.ffi import external_call\n",
        ),
        "lowering",
        alone=True,
    ),
}  # fmt: skip
