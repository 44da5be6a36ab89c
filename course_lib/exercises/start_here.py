"""The exercises of chapter 00: a grid, a copy, a grid with two axes, a copy that is waited for."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import start_here as kernels

register(
    Exercise(
        id="start_here.fill_iota",
        function="fill_iota",
        title="Count over a grid",
        statement=(
            "Return the int32 vector 0, 1, 2, ... of blocks * 128 elements, written by a kernel "
            "of `blocks` blocks: each of them writes 128 consecutive numbers."
        ),
        signature="fill_iota(*, blocks) -> int32[blocks * 128]",
        lines=2,
        reference=kernels.fill_iota_reference,
        cases=tuple(Case((), {"blocks": blocks}) for blocks in (1, 3, 8)),
        hints=(
            "Every block runs the same code. What differs is jax.lax.axis_index: block 0 writes "
            "0 to 127, block 1 writes 128 to 255. With which number does block b begin?",
            "Block b begins with start = b * 128, and writes to the elements that begin at start: "
            "y_gmem[pl.ds(start, 128)] = ... For the values, jnp.arange(128) gives 0 to 127 in "
            "registers.",
            "start = jax.lax.axis_index('block') * 128\n"
            "... and the value to store is start + jnp.arange(128)",
        ),
    )
)

register(
    Exercise(
        id="start_here.reverse_rows",
        function="reverse_rows",
        title="Copy rows in reverse order",
        statement=(
            "Return the rows of x in reverse order: the last row comes first. A kernel with one "
            "block per row copies them, from GMEM to registers and back."
        ),
        signature="reverse_rows(x: float32[rows, 128]) -> float32[rows, 128]",
        lines=2,
        reference=kernels.reverse_rows_reference,
        cases=tuple(Case((Spec((rows, 128)),)) for rows in (4, 1, 7)),
        hints=(
            "A block copies one row: it reads x_gmem[...] at one row number and writes "
            "y_gmem[...] at another. With 4 rows, where does row 0 go? And row 3?",
            "Row 0 goes to the last row, rows - 1; row 1 to rows - 2. The last row's number is "
            "rows - 1, since counting begins with 0.",
            "row = jax.lax.axis_index('row')\ny_gmem[rows - 1 - row] = x_gmem[row]",
        ),
    )
)

register(
    Exercise(
        id="start_here.shift_tiles",
        function="shift_tiles",
        title="Move tiles over a grid with two axes",
        statement=(
            "Return x with every tile of 64 x 128 elements moved one tile to the right; the last "
            "column of tiles comes first. A kernel with one block per tile copies them."
        ),
        signature="shift_tiles(x: float32[m, n]) -> float32[m, n]",
        lines=8,
        reference=kernels.shift_tiles_reference,
        cases=tuple(Case((Spec(shape),)) for shape in ((128, 384), (64, 128), (192, 256))),
        hints=(
            "The grid has two axes: as many blocks along each as x has tiles along it. A block "
            "reads tile (mi, ni). To which tile does it write, and what if that is past the end?",
            "grid=(m // 64, n // 128), grid_names=('mi', 'ni'). Rows mi * 64 and on: "
            "pl.ds(mi * 64, 64); the columns in the same way. The target is tile (mi, ni + 1), "
            "and after the last column of tiles comes column 0: "
            "jax.lax.rem(ni + 1, n // 128).",
            "Inside the kernel, after mi and ni:\n"
            "rows = pl.ds(mi * 64, 64)\n"
            "to = jax.lax.rem(ni + 1, n // 128)\n"
            "y_gmem[rows, pl.ds(to * 128, 128)] = x_gmem[rows, pl.ds(ni * 128, 128)]",
        ),
    )
)

register(
    Exercise(
        id="start_here.double_through_smem",
        function="double_through_smem",
        title="A copy that runs by itself",
        statement=(
            "Return 2 * x. Each block lets the copy engine bring its 128 elements into x_smem, "
            "waits for the copy, and writes twice what x_smem holds."
        ),
        signature="double_through_smem(x: float32[n]) -> float32[n], n a multiple of 128",
        lines=4,
        reference=kernels.double_through_smem_reference,
        cases=tuple(Case((Spec((n,)),)) for n in (256, 128, 640)),
        hints=(
            "Three steps: start the copy of this block's part of x_gmem into x_smem; wait for it; "
            "read x_smem. The copy needs to be told which barrier it should complete.",
            "plgpu.copy_gmem_to_smem(source, x_smem, loaded) starts it and plgpu.barrier_wait"
            "(loaded) waits. The source is a place and not a value: x_gmem.at[part], with .at.",
            "part = pl.ds(jax.lax.axis_index('block') * 128, 128)\n"
            "plgpu.copy_gmem_to_smem(x_gmem.at[part], x_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "y_gmem[part] = x_smem[...] * 2",
        ),
        requires={"copy_gmem_to_smem": 1, "barrier_wait": 1},
    )
)
