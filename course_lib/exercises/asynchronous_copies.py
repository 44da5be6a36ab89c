"""The exercises of chapter 05: arrivals, waits for copies out, groups, edges, a gather, a ring."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import asynchronous_copies as kernels


def _cases(*shapes: tuple[int, int], arguments: int = 1) -> tuple[Case, ...]:
    return tuple(Case((Spec(shape),) * arguments) for shape in shapes)


register(
    Exercise(
        id="asynchronous_copies.multiply_add",
        function="multiply_add",
        title="Three copies, one barrier",
        statement=(
            "Return x * y + z. Each block starts three copies, of its 64 rows of x, y and z, that "
            "all arrive on the barrier `loaded`; it waits once and stores the result to o_gmem "
            "from registers. Allocate `loaded` so that one wait is enough."
        ),
        signature="multiply_add(x: float32[m, n], y, z: the same) -> float32[m, n], 64 divides m",
        lines=6,
        reference=kernels.multiply_add_reference,
        cases=_cases((128, 128), (64, 64), (192, 256), arguments=3),
        hints=(
            "Three copies may be under way at a time: start all of them before you wait. Each "
            "copy is one arrival on its barrier, and a phase of the barrier completes when all "
            "the arrivals that it was allocated with have come.",
            "A copy: plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded). After the three of "
            "them one plgpu.barrier_wait(loaded). plgpu.Barrier takes num_arrivals=.",
            "plgpu.copy_gmem_to_smem(x_gmem.at[rows], x_smem, loaded)\n"
            "... the same for y and z, then\n"
            "plgpu.barrier_wait(loaded)\n"
            "o_gmem[rows] = x_smem[...] * y_smem[...] + z_smem[...]\n"
            "and below: loaded = plgpu.Barrier(num_arrivals=3)",
        ),
        requires={"copy_gmem_to_smem": 3, "barrier_wait": 1},
    )
)

register(
    Exercise(
        id="asynchronous_copies.triple",
        function="triple",
        title="Two slots for the way out",
        statement=(
            "Return 3 * x from one block that goes through x in tiles of 64 rows, in a loop that "
            "stays a loop. Load a tile from x_gmem straight into registers, write 3 times it into "
            "slots_smem[ti % 2], and let the copy engine take it to y_gmem. When you write into a "
            "slot, the copy of the tile before may still be reading the other one: wait for no "
            "more than you must, and for reading only."
        ),
        signature="triple(x: float32[m, n]) -> float32[m, n], 64 divides m",
        lines=8,
        reference=kernels.triple_reference,
        cases=_cases((320, 128), (64, 64), (256, 128)),
        hints=(
            "Before step ti writes into its slot, the copy that started in step ti - 2 must have "
            "read it. The copy of step ti - 1 reads the other slot, and may go on. So how many of "
            "the last copies may still run at that moment? And one more thing lies between your "
            "write into SMEM and the copy that reads it.",
            "@pl.loop(0, x.shape[0] // 64) above a function of ti. At the start of a step: "
            "plgpu.wait_smem_to_gmem(1, wait_read_only=True), which returns at once in the first "
            "two steps. Then write, plgpu.commit_smem(), and start the copy. After the loop wait "
            "for everything.",
            "@pl.loop(0, x.shape[0] // 64)\n"
            "def _(ti):\n"
            "    rows = pl.ds(ti * 64, 64)\n"
            "    plgpu.wait_smem_to_gmem(1, wait_read_only=True)\n"
            "    slots_smem[ti % 2] = 3 * x_gmem[rows]\n"
            "    plgpu.commit_smem()\n"
            "    plgpu.copy_smem_to_gmem(slots_smem.at[ti % 2], y_gmem.at[rows])\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_smem_to_gmem": 1, "scan": 1},
    )
)

register(
    Exercise(
        id="asynchronous_copies.sum_and_difference",
        function="sum_and_difference",
        title="Two copies, one group",
        statement=(
            "Return x + y and x - y from one block, tile by tile: each step sends two tiles out, "
            "from s_smem[ti % 2] and d_smem[ti % 2], as one group. Wait as in `triple`. The loop's "
            "head, and what is read from GMEM, is given."
        ),
        signature=(
            "sum_and_difference(x: float32[m, n], y: the same) -> two float32[m, n], 64 divides m"
        ),
        lines=7,
        reference=kernels.sum_and_difference_reference,
        cases=_cases((256, 128), (64, 64), (192, 128), arguments=2),
        hints=(
            "wait_smem_to_gmem counts groups. With both copies of a step in one group, the "
            "arithmetic is that of `triple`: one group may still be reading while you write.",
            "The first copy of the step takes commit_group=False, so that it joins the group of "
            "the second, which commits both. One plgpu.commit_smem() is enough for both writes.",
            "plgpu.wait_smem_to_gmem(1, wait_read_only=True)\n"
            "s_smem[ti % 2] = x + y\n"
            "d_smem[ti % 2] = x - y\n"
            "plgpu.commit_smem()\n"
            "plgpu.copy_smem_to_gmem(s_smem.at[ti % 2], s_gmem.at[rows], commit_group=False)\n"
            "... and the same for d, without commit_group\n"
            "and after the loop plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_smem_to_gmem": 2, "commit_group=False": 1, "scan": 1},
    )
)

register(
    Exercise(
        id="asynchronous_copies.difference",
        function="difference",
        title="The row above the first row",
        statement=(
            "Return y[i] = x[i] - x[i - 1], and y[0] = x[0], for a matrix of any number of rows. "
            "Each block copies two tiles of 64 rows into SMEM, one of which begins a row earlier; "
            "what lies outside of x arrives as zeros. Send the result out with the copy engine, "
            "which leaves out what would lie outside of y."
        ),
        signature="difference(x: float32[m, n]) -> float32[m, n], any m, 4 divides n",
        lines=9,
        reference=kernels.difference_reference,
        cases=_cases((200, 128), (5, 64), (128, 256)),
        hints=(
            "x_gmem.at[pl.ds(start, 64)] may begin before row 0 and end after the last row: the "
            "copy engine knows how large x is. So no block needs a special case, neither the "
            "first nor the last. How many blocks are there if m is no multiple of 64?",
            "start = jax.lax.axis_index('tile') * 64. Copy pl.ds(start, 64) into here_smem and "
            "pl.ds(start - 1, 64) into above_smem, wait once, write the difference into here_smem, "
            "commit, copy it out, wait. The grid is pl.cdiv(m, 64), which rounds up.",
            "plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(start, 64)], here_smem, loaded)\n"
            "plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(start - 1, 64)], above_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "here_smem[...] = here_smem[...] - above_smem[...]\n"
            "plgpu.commit_smem()\n"
            "plgpu.copy_smem_to_gmem(here_smem, y_gmem.at[pl.ds(start, 64)])\n"
            "plgpu.wait_smem_to_gmem(0)\n"
            "and below: tiles = pl.cdiv(x.shape[0], 64)",
        ),
        requires={"copy_gmem_to_smem": 2, "copy_smem_to_gmem": 1},
    )
)

register(
    Exercise(
        id="asynchronous_copies.gather_rows",
        function="gather_rows",
        title="A table and a list of its rows",
        statement=(
            "Return x[indices]: row i of the result is row indices[i] of x. Each block takes 64 of "
            "the indices, gathers their rows into rows_smem with one copy, and sends them to "
            "y_gmem."
        ),
        signature=(
            "gather_rows(x: float32[m, n], indices: uint16[k]) -> float32[k, n], 64 divides k"
        ),
        lines=6,
        reference=kernels.gather_rows_reference,
        # uint16 is drawn from 0 to 255: all of them are rows of these tables
        cases=tuple(
            Case((Spec((m, n)), Spec((k,), "uint16")))
            for m, n, k in ((256, 128, 128), (1000, 64, 64), (300, 256, 192))
        ),
        hints=(
            "Four things happen: the indices come into registers, the rows into SMEM, you wait, "
            "and the rows leave for y_gmem, to where this block's part of the result begins.",
            "indices = plgpu.load(indices_gmem.at[part], layout=plgpu.Layout.TMA_INDICES, "
            "optimized=False), and then x_gmem.at[indices] is a source like any other. Each block "
            "has a part of its own, of the indices and of y_gmem: part.",
            "indices = plgpu.load(indices_gmem.at[part], layout=..., optimized=False)\n"
            "plgpu.copy_gmem_to_smem(x_gmem.at[indices], rows_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
    )
)

register(
    Exercise(
        id="asynchronous_copies.ring_copy",
        function="ring_copy",
        title="A ring of slots",
        statement=(
            "Return a copy of x through a ring of `stages` slots. Two blocks share the tiles; "
            "place(step), load(step) and steps are given. Keep `ahead` loads under way, and let "
            "`unread` copies out still be reading when you refill a slot. x may have so few rows "
            "that a block has fewer steps than `ahead`."
        ),
        signature=(
            "ring_copy(x: float32[m, n], *, stages, unread) -> float32[m, n], 128 divides m, "
            "unread < stages"
        ),
        lines=12,
        reference=kernels.copy_reference,
        cases=tuple(
            Case((Spec(shape),), {"stages": stages, "unread": unread})
            for shape, stages, unread in (
                ((1024, 128), 3, 1),
                ((768, 64), 4, 2),
                ((384, 128), 1, 0),
                ((128, 128), 4, 1),
            )
        ),
        hints=(
            "Three parts: start the first `ahead` loads; go through the steps; wait for the rest. "
            "In each step: wait for the slot's load, start its copy out, make sure that the slot "
            "you'll refill has been read, and refill it, unless there is nothing left to load.",
            "Step `step` refills the slot of step + ahead. That slot was last sent out `unread` "
            "steps ago, so plgpu.wait_smem_to_gmem(unread, wait_read_only=True) is what must come "
            "before load(step + ahead). A condition in a kernel is @pl.when(condition) above a "
            "function without arguments. steps is a Python number: min(ahead, steps) works.",
            "for step in range(min(ahead, steps)):\n"
            "    load(step)\n"
            "@pl.loop(0, steps)\n"
            "def _(step):\n"
            "    slot = step % stages\n"
            "    ... barrier_wait(loaded.at[slot]) and copy_smem_to_gmem from ring_smem.at[slot]\n"
            "    plgpu.wait_smem_to_gmem(unread, wait_read_only=True)\n"
            "    @pl.when(step + ahead < steps)\n"
            "    def _():\n"
            "        load(step + ahead)\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1, "scan": 1},
        forbids=("get", "swap"),
    )
)
