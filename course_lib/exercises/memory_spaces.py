"""The exercises of chapter 01: SMEM both ways, one buffer for two, registers, a pipeline."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import memory_spaces as kernels


def _cases(*specs: tuple[tuple[int, int], str], arguments: int = 1) -> tuple[Case, ...]:
    return tuple(Case((Spec(shape, dtype),) * arguments) for shape, dtype in specs)


register(
    Exercise(
        id="memory_spaces.stage_through_smem",
        function="stage_through_smem",
        title="Through SMEM and back",
        statement=(
            "Return 1 - x. Each block lets the copy engine bring its 64 rows of x into "
            "buffer_smem, computes in registers, writes the result into the same buffer, and "
            "lets the copy engine bring that to y_gmem."
        ),
        signature="stage_through_smem(x: float[m, n]) -> float[m, n], m a multiple of 64",
        lines=6,
        reference=kernels.stage_through_smem_reference,
        cases=_cases(((128, 128), "float32"), ((320, 64), "float32"), ((64, 256), "bfloat16")),
        hints=(
            "There and back again, in the order of the picture: GMEM -> SMEM -> registers -> "
            "SMEM -> GMEM. Both copies run by themselves: each needs something that tells you "
            "that it is done. And the copy engine sees what you wrote into SMEM only after "
            "you have committed it.",
            "In: plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded), then "
            "plgpu.barrier_wait(loaded). Out: plgpu.commit_smem(), "
            "plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows]), then a wait of its own kind, "
            "as copies out have no barrier.",
            "plgpu.copy_gmem_to_smem(x_gmem.at[rows], buffer_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "buffer_smem[...] = 1 - buffer_smem[...]\n"
            "plgpu.commit_smem()\n"
            "plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
    )
)

register(
    Exercise(
        id="memory_spaces.add_in_one_buffer",
        function="add_in_one_buffer",
        title="Two matrices, one buffer",
        statement=(
            "Return a + b from one block that has SMEM for one matrix only. Allocate that buffer "
            "and a barrier with pl.run_scoped. Bring a in and load it into registers, bring b "
            "into the same buffer, add, and send the sum out through the buffer too."
        ),
        signature="add_in_one_buffer(a: float[m, n], b: float[m, n]) -> float[m, n]",
        lines=13,
        reference=kernels.add_in_one_buffer_reference,
        cases=_cases(
            ((64, 128), "float32"),
            ((240, 128), "float32"),  # 120 KB: two buffers do not fit into one block's SMEM
            ((64, 64), "float16"),
            arguments=2,
        ),
        hints=(
            "buffer_smem[...] is a value: it stays in registers whatever happens to the buffer "
            "afterwards, so a = buffer_smem[...] keeps a safe. Then go through the table in "
            "'There and back again': the engine fills the buffer, you read it, the engine fills "
            "it again, you read and write it, the engine reads it. What does each step need?",
            "Inside kernel: def scope(buffer_smem, loaded): ... and then pl.run_scoped(scope, "
            "buffer_smem=plgpu.SMEM(a.shape, a.dtype), loaded=plgpu.Barrier()). One barrier is "
            "enough for both copies, if you wait for it after each of them. plgpu.commit_smem() "
            "comes twice: between reading a and copying b, and before the copy out.",
            "def scope(buffer_smem, loaded):\n"
            "    plgpu.copy_gmem_to_smem(a_gmem, buffer_smem, loaded)\n"
            "    plgpu.barrier_wait(loaded)\n"
            "    in_registers = buffer_smem[...]\n"
            "    plgpu.commit_smem()\n"
            "    ... the same two lines for b_gmem, then\n"
            "    buffer_smem[...] = in_registers + buffer_smem[...]\n"
            "    plgpu.commit_smem()\n"
            "    ... copy_smem_to_gmem and wait_smem_to_gmem(0), as in the exercise before\n"
            "pl.run_scoped(scope, buffer_smem=plgpu.SMEM(a.shape, a.dtype), "
            "loaded=plgpu.Barrier())",
        ),
        requires={"copy_gmem_to_smem": 2, "copy_smem_to_gmem": 1, "run_scoped": 1},
    )
)

register(
    Exercise(
        id="memory_spaces.shift_in_slices",
        function="shift_in_slices",
        title="Fewer registers for the same work",
        statement=(
            "Return x - 2 from one block, with at most 16 rows of x in registers at a time: a "
            "loop in the kernel (pl.loop) reads 16 rows from GMEM, and writes them back."
        ),
        signature="shift_in_slices(x: float32[m, n]) -> float32[m, n], m a multiple of 16",
        lines=4,
        reference=kernels.shift_reference,
        cases=_cases(((128, 256), "float32"), ((16, 128), "float32"), ((96, 64), "float32")),
        hints=(
            "A Python `for` is unrolled when the kernel is traced: the compiler then sees m / 16 "
            "copies of its body. A loop that stays a loop in the kernel is @pl.loop(0, count) "
            "above a function of the step's number.",
            "The loop runs m // 16 times. Step i works on the 16 rows that begin at row i * 16: "
            "part = pl.ds(i * 16, 16).",
            "@pl.loop(0, x.shape[0] // 16)\n"
            "def _(i):\n"
            "    part = pl.ds(i * 16, 16)\n"
            "    y_gmem[part] = x_gmem[part] - 2",
        ),
        requires={"scan": 1},
    )
)

register(
    Exercise(
        id="memory_spaces.sum_of_products",
        function="sum_of_products",
        title="A pipeline over tiles",
        statement=(
            "a and b are rows of tiles: tile ti is columns ti * 128 to ti * 128 + 127. Return the "
            "sum of a_tile * b_tile over all tiles, from one block. Let plgpu.emit_pipeline bring "
            "the tiles of both into SMEM, keep the running sum as its carry, and store it."
        ),
        signature="sum_of_products(a: float32[m, tiles * 128], b: the same) -> float32[m, 128]",
        lines=13,
        reference=kernels.sum_of_products_reference,
        cases=_cases(
            ((64, 512), "float32"),
            ((64, 128), "float32"),
            ((32, 640), "float32"),
            arguments=2,
        ),
        hints=(
            "Start from largest_of_tiles above. What changes: two inputs, hence two BlockSpecs "
            "and two references in step; the tiles lie side by side; sums start at 0; and the "
            "values are multiplied before they are added.",
            "The index map answers in tiles, not in elements: lambda ti: (0, ti) is the first "
            "(and only) row of tiles and the ti-th column of tiles. step takes (indices, a_smem, "
            "b_smem, total) and returns the new total. Commit your reads of SMEM before the step "
            "ends: the pipeline's next copy will write there.",
            "def step(indices, a_smem, b_smem, total):\n"
            "    total = total + a_smem[...] * b_smem[...]\n"
            "    plgpu.commit_smem()\n"
            "    return total\n"
            "spec = plgpu.BlockSpec(tile, lambda ti: (0, ti))\n"
            "pipeline = plgpu.emit_pipeline(\n"
            "    step, grid=(a.shape[1] // 128,), in_specs=[spec, spec],\n"
            "    max_concurrent_steps=2, init_carry=jnp.zeros(tile, a.dtype))\n"
            "... and pipeline(a_gmem, b_gmem) is the sum, for you to store",
        ),
        requires={"copy_gmem_to_smem": 2},
        # a few tens of float32 roundings of a running sum
        rtol=1e-5,
        atol=1e-5,
    )
)
