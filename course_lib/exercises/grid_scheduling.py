"""The exercises of chapter 02: a tiled grid, a snake by hand, a persistent kernel."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import grid_scheduling as kernels
from course_lib.kernels.grid_scheduling import TILE


def _operands(m_tiles: int, n_tiles: int, k: int) -> tuple[Spec, Spec]:
    return Spec((m_tiles * TILE, k)), Spec((k, n_tiles * TILE))


register(
    Exercise(
        id="grid_scheduling.tiled_product",
        function="tiled_product",
        title="Find your tile in a tiled grid",
        statement=(
            "Return the product of a and b and, for every tile, the index in the grid of the "
            "block that computed it. The grid is (m // mt, n, mt): bands of mt tile rows, and "
            "down each column of a band first."
        ),
        signature="tiled_product(a: float32[m * 64, k], b: float32[k, n * 64], *, mt) -> "
        "(float32[m * 64, n * 64], int32[m, n])",
        lines=4,
        reference=kernels.tiled_product_reference,
        cases=(
            Case(_operands(4, 3, 3), {"mt": 2}),
            Case(_operands(6, 2, 2), {"mt": 3}),
            Case(_operands(3, 4, 4), {"mt": 1}),
        ),
        hints=(
            "The grid has three axes: which band of mt tile rows, which tile column, which row "
            "within the band. The tile column is the middle one. How many tile rows lie above "
            "band number 2 if a band has mt = 3 of them? And `block` is the block's place in this "
            "grid, not the tile's place in C: block (0, 0, 1) is number 1, one tile row down.",
            "mi = outer * mt + inner, ni is the axis 'n'. The block's index counts the grid in "
            "row-major order: the last axis is the fastest. With axes of sizes (M, N, P), block "
            "(i, j, k) is number (i * N + j) * P + k.",
            "outer, ni, inner = (jax.lax.axis_index(name) for name in ('m_outer', 'n', "
            "'m_inner')), then mi = outer * mt + inner and block = (outer * n + ni) * mt + inner.",
        ),
    )
)

register(
    Exercise(
        id="grid_scheduling.snake",
        function="snake",
        title="A snake by hand",
        statement=(
            "Return, for every tile of an m x n grid, its place in the snake's order, written by "
            "a kernel of m * n blocks: block i writes i to the i-th tile. The snake walks bands "
            "of `width` tile rows, down each column of a band, the odd bands from right to left. "
            "`width` divides m."
        ),
        signature="snake(*, m, n, width) -> int32[m, n]",
        lines=6,
        reference=kernels.snake_reference,
        cases=(
            Case((), {"m": 4, "n": 3, "width": 2}),
            Case((), {"m": 6, "n": 4, "width": 2}),
            Case((), {"m": 3, "n": 5, "width": 1}),
            Case((), {"m": 6, "n": 2, "width": 3}),
        ),
        hints=(
            "Take i apart from the outside in: which band is it in, and which place within the "
            "band? A band holds width * n tiles. Within a band, every step to the next column "
            "takes `width` tiles.",
            "band, place = i // (width * n), i % (width * n). Then the column is place // width, "
            "the row within the band place % width. In bands 1, 3, 5, ... the columns count "
            "backwards: column 0 becomes n - 1.",
            "ni = place // width; ni = jnp.where(band % 2 == 0, ni, n - 1 - ni); "
            "mi = band * width + place % width; then order_gmem[mi, ni] = i.",
        ),
    )
)

register(
    Exercise(
        id="grid_scheduling.persistent_product",
        function="persistent_product",
        title="A persistent matmul",
        statement=(
            "Return the product of a and b and, for every tile, the index of the block that "
            "computed it. Launch num_sms blocks, whatever the number of tiles; each of them loops "
            "over its share of the m x n tiles with plgpu.nd_loop."
        ),
        signature="persistent_product(a: float32[m * 64, k], b: float32[k, n * 64], *, num_sms) "
        "-> (float32[m * 64, n * 64], int32[m, n])",
        lines=8,
        reference=kernels.persistent_product_reference,
        cases=(
            Case(_operands(3, 4, 3), {"num_sms": 5}),
            Case(_operands(4, 2, 2), {"num_sms": 4}),
            Case(_operands(2, 3, 4), {"num_sms": 7}),
        ),
        # nd_loop's number of steps differs from block to block; a launch of m * n blocks has none
        requires={"while": 1},
        hints=(
            "Begin with the kernel: a function of four refs, one for each input and each output. "
            "The launch has one axis of num_sms blocks. What a block did for its one tile, the "
            "body of the loop does for each tile that is this block's; nd_loop finds out which.",
            "@plgpu.nd_loop((m, n), collective_axes='sm') above def tile(info): and in it "
            "mi, ni = info.index. The loop runs where it is defined; nobody calls tile. The "
            "block's own index is jax.lax.axis_index('sm').",
            "def kernel(a_gmem, b_gmem, c_gmem, block_gmem), with the loop in it. In its body: "
            "multiply_tile(a_gmem, b_gmem, c_gmem, mi, ni), then block_gmem[mi, ni] = "
            "jax.lax.axis_index('sm'). Last: return plgpu.kernel(kernel, out_type=out_type, "
            "grid=(num_sms,), grid_names=('sm',))(a, b).",
        ),
    )
)
