"""The exercises of chapter 22: rows standardized in both languages, an accumulator's places."""

from __future__ import annotations

from course_lib.exercises.mojo_judging import MojoTask
from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import two_languages as kernels

_STANDARDIZE = """\
from std.math import sqrt
from layout import TileTensor, row_major
from course import Arrays, ON_GPU
from answer import lane_squares, lane_store, lane_sum, standardize

def try_case[*, rows: Int, cols: Int](mut arrays: Arrays) raises:
    comptime layout = row_major[rows, cols]()
    var x = TileTensor(arrays.input[DType.float32](), layout)
    var y = TileTensor(arrays.output[DType.float32](rows * cols), layout)
    comptime if ON_GPU:
        comptime kernel = standardize[type_of(layout)]
        arrays.ctx.enqueue_function[kernel](x, y, grid_dim=rows // 8, block_dim=256)
    else:
        for row in range(rows):
            var mean: Float32 = 0
            for lane in range(32):
                mean += lane_sum(lane, row, x) / Float32(cols)
            var variance: Float32 = 0
            for lane in range(32):
                variance += lane_squares(lane, row, mean, x) / Float32(cols)
            for lane in range(32):
                lane_store(lane, row, mean, 1 / sqrt(variance + 1e-5), x, y)
"""

_PLACE = """\
from course import Arrays, ON_GPU
from answer import place, store_lane

def try_case(mut arrays: Arrays) raises:
    var acc = arrays.input[DType.float32]()
    var z = arrays.output[DType.float32](64 * 128)
    comptime if ON_GPU:
        arrays.ctx.enqueue_function[place](acc, z, grid_dim=1, block_dim=128)
    else:
        for lane in range(128):
            store_lane(lane, acc, z)
"""

_SHAPES = ((64, 256), (8, 1024))

register(
    Exercise(
        id="two_languages.standardize_lanes",
        function="standardize_lanes",
        title="Standardize rows, by lanes",
        statement=(
            "Standardize every row of x: (x - mean) / sqrt(variance + 1e-5). A warp has a row, "
            "and each lane every 32nd column of it."
        ),
        signature="standardize_lanes: lane_sum(lane, row, x), lane_squares(lane, row, mean, x)",
        lines=6,
        reference=kernels.standardize_reference,
        cases=tuple(Case((Spec((m, n)),), {"rows": m, "cols": n}) for m, n in _SHAPES),
        hints=(
            "lane_store shows which columns are a lane's. In the kernel, each lane has a sum of "
            "its own, and all 32 need the sum of these.",
            "A loop over range(lane, Int(x.dim[1]()), 32) in both functions. warp.sum gives every "
            "lane the sum over the warp, so each of them can divide it by cols.",
            "lane_sum: `for col in range(lane, Int(x.dim[1]()), 32):` and `total += x[row, "
            "col][0]`. lane_squares adds `(x[row, col][0] - mean) ** 2`. The kernel: `var mean = "
            "warp.sum(lane_sum(lane_id(), row, x)) / cols`, and the same for `variance`.",
        ),
        expects={"sm_90a": {"shfl.sync": ">=10", "bar.sync": 0, "spill_bytes": 0}},
        rtol=1e-4,
        atol=1e-5,
        program=MojoTask(_STANDARDIZE),
    )
)

register(
    Exercise(
        id="two_languages.standardize_rows",
        function="standardize_rows",
        title="Standardize rows, by a warpgroup",
        statement="Standardize every row of x: (x - mean) / sqrt(variance + 1e-5), a block a row.",
        signature="standardize_rows(x: float32[rows, cols]) -> float32[rows, cols]",
        lines=4,
        reference=kernels.standardize_reference,
        cases=tuple(Case((Spec(shape),)) for shape in _SHAPES),
        hints=(
            "The whole row is one array. Its sum is one number, and the array minus a number is "
            "an array again: no lane appears anywhere.",
            "Load x_gmem[row], subtract jnp.sum(x) / cols, and take the mean of the squares of "
            "that. Store to y_gmem[row].",
            "x = x_gmem[row]\n"
            "centred = x - jnp.sum(x) / cols\n"
            "variance = jnp.sum(centred * centred) / cols\n"
            "y_gmem[row] = centred / jnp.sqrt(variance + 1e-5)",
        ),
        requires={"reduce_sum": 2},
        rtol=1e-4,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="two_languages.place",
        function="place",
        title="Whose element is it?",
        statement=(
            "Say in which row and column of the accumulator register i of lane `lane` lies, as "
            "wgmma with 64 rows and 128 columns has it."
        ),
        signature="place: row_of(lane, i) -> Int, col_of(lane, i) -> Int",
        lines=2,
        reference=kernels.place_reference,
        cases=(Case((Spec((128, 64)),)),),
        hints=(
            "Each warp has 16 rows of its own. In a warp, four lanes share a row. Two registers "
            "lie side by side; the next two are 8 rows further down; then it goes on 8 columns "
            "further to the right.",
            "lane // 32 is the warp, lane % 32 // 4 the row among eight, lane % 4 the pair of "
            "columns. i % 2 is which of the pair, i // 2 % 2 whether it is 8 rows down, i // 4 "
            "how many times 8 columns to the right.",
            "row_of: `return lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8`. col_of: "
            "`return lane % 4 * 2 + i % 2 + i // 4 * 8`.",
        ),
        program=MojoTask(_PLACE),
    )
)
