"""The exercises of chapter 21: a block's sum, a histogram, tiles of a product, fragments."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.mojo_judging import MojoTask
from course_lib.exercises.registry import Case, Exercise, Spec, register

_TPB = 512
_BINS = 16

_BLOCK_SUM = """\
from course import ON_GPU, Arrays
from answer import TPB, block_sum, step, steps

comptime WARP = 32
comptime GARBAGE = 1 << 20


def try_case[*, blocks: Int](mut arrays: Arrays) raises:
    var x = arrays.input[DType.int32]()
    var y = arrays.zeros[DType.int32](1)
    comptime if ON_GPU:
        arrays.ctx.enqueue_function[block_sum](y, x, grid_dim=blocks, block_dim=TPB)
    else:
        for block in range(blocks):
            var store = List[Int32](length=2 * TPB, fill=GARBAGE)
            for tid in range(TPB):
                store[tid] = x[unsafe_offset=block * TPB + tid]
            comptime for i in range(steps(TPB, WARP)):
                # Lanes have no order: upwards in one block, downwards in the next.
                for number in range(TPB):
                    var tid = number if block % 2 == 0 else TPB - 1 - number
                    step(tid, TPB >> (i + 1), store.unsafe_ptr())
            for lane in range(WARP):
                y[unsafe_offset=0] += store[lane]
"""

_HISTOGRAM = """\
from course import ON_GPU, Arrays
from answer import BINS, TPB, count, histogram, merge


def try_case[*, blocks: Int](mut arrays: Arrays) raises:
    var x = arrays.input[DType.int32]()
    var all = arrays.zeros[DType.int32](BINS)
    comptime if ON_GPU:
        arrays.ctx.enqueue_function[histogram](all, x, grid_dim=blocks, block_dim=TPB)
    else:
        for block in range(blocks):
            var mine = List[Int32](length=TPB, fill=1)  # behind the bins stands something else
            for bin in range(BINS):
                mine[bin] = 0
            for tid in range(TPB):
                count(x[unsafe_offset=block * TPB + tid], mine.unsafe_ptr())
            for tid in range(TPB):
                merge(tid, mine.unsafe_ptr(), all)
"""

_LOAD = """\
from layout import TileTensor, row_major
from course import ON_GPU, Arrays
from answer import SIZE, dtype, layout, load, matmul

comptime TILE = 16
comptime tile_layout = row_major[TILE, TILE]()


def try_case(mut arrays: Arrays) raises:
    var x = TileTensor(arrays.input[dtype](), layout)
    var y = TileTensor(arrays.input[dtype](), layout)
    var z = TileTensor(arrays.output[dtype](SIZE * SIZE), layout)
    comptime if ON_GPU:
        arrays.ctx.enqueue_function[matmul](x, y, z, grid_dim=(4, 4), block_dim=(TILE, TILE))
    else:
        var unset = Float32(0) / Float32(0)
        var a_store = List[Float32](length=TILE * TILE, fill=unset)
        var b_store = List[Float32](length=TILE * TILE, fill=unset)
        var a = TileTensor(a_store.unsafe_ptr(), tile_layout)
        var b = TileTensor(b_store.unsafe_ptr(), tile_layout)
        for row0 in range(0, SIZE, TILE):
            for col0 in range(0, SIZE, TILE):
                for i in range(TILE):
                    for j in range(TILE):
                        if row0 + i < SIZE and col0 + j < SIZE:
                            z[row0 + i, col0 + j] = 0
                for k0 in range(0, SIZE, TILE):
                    for i in range(TILE):
                        for j in range(TILE):
                            load(i, j, row0 + i, k0 + j, x, a)
                            load(i, j, k0 + i, col0 + j, y, b)
                    for i in range(TILE):
                        for j in range(TILE):
                            if row0 + i < SIZE and col0 + j < SIZE:
                                for k in range(TILE):
                                    z[row0 + i, col0 + j] += a[i, k] * b[k, j]
"""

_COPY = """\
from layout import TileTensor, row_major
from course import ON_GPU, Arrays
from answer import COLS, ROWS, copy_part, copy_tiles, dtype


def try_case[*, m: Int, n: Int](mut arrays: Arrays) raises:
    comptime layout = row_major[m, n]()
    var x = TileTensor(arrays.input[dtype](), layout)
    var y = TileTensor(arrays.output[dtype](m * n), layout)
    comptime if ON_GPU:
        comptime kernel = copy_tiles[type_of(layout)]
        arrays.ctx.enqueue_function[kernel](x, y, grid_dim=(n // COLS, m // ROWS), block_dim=32)
    else:
        for row in range(m // ROWS):
            for col in range(n // COLS):
                for lane in range(32):
                    copy_part(lane, x.tile[ROWS, COLS](row, col), y.tile[ROWS, COLS](row, col))
"""


def block_sum_reference(x: Any, *, blocks: int) -> Any:
    """The sum of all numbers: int32 (1,)."""
    assert x.shape == (blocks * _TPB,)
    return x.sum(dtype=np.int64, keepdims=True).astype(np.int32)


def histogram_reference(x: Any, *, blocks: int) -> Any:
    """How many numbers have each value of their low 4 bits: int32 (16,)."""
    assert x.size % blocks == 0
    return np.bincount(x & (_BINS - 1), minlength=_BINS).astype(np.int32)


def product_reference(x: Any, y: Any) -> Any:
    """The product of two matrices: float32 (m, n) from (m, k) and (k, n)."""
    return (x.astype(np.float64) @ y.astype(np.float64)).astype(np.float32)


def copy_reference(x: Any, *, m: int, n: int) -> Any:
    """The same matrix: float32 (m, n)."""
    assert x.shape == (m, n)
    return x.copy()


register(
    Exercise(
        id="mojo_tiles.block_sum",
        function="block_sum",
        title="A block's sum that is right",
        statement=(
            "Mend the guide's reduction. steps says how many rounds of the tree run before the "
            "warp adds up what is left; step is what lane tid does in a round in which `active` "
            "lanes add."
        ),
        signature="block_sum: steps(threads, warp_size) -> Int, step(tid, active, sums)",
        lines=3,
        reference=block_sum_reference,
        cases=tuple(Case((Spec((b * _TPB,), "int32"),), {"blocks": b}) for b in (1, 4)),
        hints=(
            "warp.sum adds 32 slots, whatever is in them. After which round do exactly the first "
            "32 slots hold partial sums that have not been added to anything yet?",
            "512, 256, 128, 64, 32: stop when as many sums are left as a warp has lanes. That is "
            "the logarithm of threads // warp_size. In a round, only the first `active` lanes add, "
            "each the slot that is `active` further on.",
            "return log2_floor(threads // warp_size)\n"
            "... and in step\n"
            "if tid < active:\n"
            "    sums[unsafe_offset=tid] += sums[unsafe_offset=tid + active]",
        ),
        expects={"sm_90a": {"bar.sync": ">=5", "shfl.sync": ">=5", "spill_bytes": 0}},
        program=MojoTask(harness=_BLOCK_SUM),
    )
)

register(
    Exercise(
        id="mojo_tiles.histogram",
        function="histogram",
        title="A histogram",
        statement=(
            "Count how many numbers of x have each value of their low four bits. count adds one "
            "number to the block's own counts; merge adds the block's count number tid, if there "
            "is one, to those of all blocks."
        ),
        signature="histogram: count(number, mine), merge(tid, mine, all)",
        lines=3,
        reference=histogram_reference,
        cases=tuple(Case((Spec((b * 256,), "int32"),), {"blocks": b}) for b in (1, 4)),
        hints=(
            "Many lanes find the same bin at the same time, and several blocks merge into the "
            "same counts. What keeps an addition in one piece?",
            "Atomic.fetch_add(pointer, 1) in count, where pointer is mine.unsafe_offset(bin), and "
            "bin is Int(number & 15). In merge 256 lanes come by, and there are 16 bins.",
            "_ = Atomic.fetch_add(mine.unsafe_offset(Int(number & 15)), 1)\n"
            "... and in merge\n"
            "if tid < BINS:\n"
            "    _ = Atomic.fetch_add(all.unsafe_offset(tid), mine[unsafe_offset=tid])",
        ),
        expects={"sm_90a": {"atom.*": ">=2", "bar.sync": ">=2", "spill_bytes": 0}},
        program=MojoTask(harness=_HISTOGRAM),
    )
)

register(
    Exercise(
        id="mojo_tiles.load",
        function="load",
        title="Load a tile",
        statement=(
            "Put x[row, col] into tile[ty, tx], and a zero where the matrix of 50 x 50 has no such "
            "element. The kernel multiplies the tiles."
        ),
        signature="load(ty, tx, row, col, x, tile)",
        lines=4,
        reference=product_reference,
        cases=(Case((Spec((50, 50)), Spec((50, 50)))),),
        hints=(
            "50 is no multiple of 16, so the last tiles stand out over the edges of the matrix. "
            "Which elements of them exist? And what must stand in the others, so that they add "
            "nothing to a product?",
            "If row and col are both less than SIZE, copy the element; else store 0. Every lane "
            "writes its slot of the tile in both cases, as an older tile still stands there.",
            "if row < SIZE and col < SIZE:\n"
            "    tile[ty, tx] = rebind[tile.ElementType](x[row, col])\n"
            "else:\n"
            "    tile[ty, tx] = 0",
        ),
        expects={"sm_90a": {"st.shared": ">=2", "bar.sync": 2, "spill_bytes": 0}},
        atol=3e-5,  # sums of 50 products in float32, which may cancel each other
        program=MojoTask(harness=_LOAD),
    )
)

register(
    Exercise(
        id="mojo_tiles.copy_part",
        function="copy_part",
        title="A lane's fragment",
        statement=(
            "Copy lane's part of a tile of 16 x 32 from x to y: vectors of four numbers, dealt to "
            "the 32 lanes by the layout `threads`."
        ),
        signature="copy_part(lane, x, y)",
        lines=3,
        reference=copy_reference,
        cases=tuple(Case((Spec((m, n)),), {"m": m, "n": n}) for m, n in ((16, 32), (48, 64))),
        hints=(
            "Two steps for each of the two tensors: first make vectors of it, then take the "
            "lane's share of these.",
            "x.vectorize[1, 4]() has 16 x 8 vectors; .distribute[thread_layout=threads](lane) "
            "leaves this lane's four of them. copy_from copies a whole fragment.",
            "var mine = x.vectorize[1, 4]().distribute[thread_layout=threads](lane)\n"
            "... the same for y, and then\n"
            "there.copy_from(mine)",
        ),
        expects={"sm_90a": {"ld.global.v4": 4, "st.global.v4": 4, "spill_bytes": 0}},
        program=MojoTask(harness=_COPY),
    )
)
