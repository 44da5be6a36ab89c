"""The exercises of chapter 08: a roofline, a ring, when to release, the way out, turns."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import wgmma_pipelining as kernels


def _product(m: int, n: int, k: int, dtype: str = "float16", **static: int) -> Case:
    return Case((Spec((m, k), dtype), Spec((k, n), dtype)), static)


def _tiles(wg_m: int, wg_n: int, block_m: int, block_n: int) -> Case:
    return Case((), dict(wg_m=wg_m, wg_n=wg_n, block_m=block_m, block_n=block_n))


register(
    Exercise(
        id="wgmma_pipelining.roofline",
        function="roofline",
        title="A roofline for a tile",
        statement=(
            "Return the FLOP per cycle that SMEM, the L2 cache and the tensor core allow, in this "
            "order, as a float32 jnp.array of 3. Warpgroups compute wg_m x wg_n each, in float16, "
            "the block block_m x block_n. SMEM moves 128 bytes per cycle (reads by wgmma and "
            "writes by copies together), the L2 cache sends 64, the tensor core does 4096 FLOP."
        ),
        signature="roofline(*, wg_m: int, wg_n: int, block_m: int, block_n: int) -> float32[3]",
        lines=6,
        reference=kernels.roofline_reference,
        cases=(
            _tiles(128, 128, 128, 128),
            _tiles(64, 256, 128, 256),
            _tiles(64, 64, 64, 64),
            _tiles(128, 192, 256, 192),
            _tiles(64, 128, 256, 128),
        ),
        hints=(
            "Take 16 of K, as one wgmma instruction does. Count FLOP, bytes that wgmma reads from "
            "SMEM, and bytes that copies write there. What the copies write is what came from L2. "
            "Each of the three stands by itself: L2's may be above the tensor core's.",
            "flop = 2 * block_m * block_n * 16. The copies bring (block_m + block_n) * 16 * 2 "
            "bytes. A wgmma of 64 rows reads (64 + wg_n) * 16 * 2 bytes, and there are "
            "(block_m * block_n) / (64 * wg_n) of them in a block.",
            "wgmmas = block_m * block_n // (64 * wg_n)\n"
            "read = wgmmas * (64 + wg_n) * 16 * 2\n"
            "... and then [flop / (read + copied) * 128, flop / copied * 64, 4096] as a "
            "jnp.array of float32",
        ),
        needs_kernel=False,
        rtol=1e-4,
    )
)

register(
    Exercise(
        id="wgmma_pipelining.ring",
        function="ring",
        title="Mend the reference page's loop",
        statement=(
            "Multiply through a ring of `slots` slots: fill all slots, then in each step wait for "
            "the slot, multiply, wait until only the wgmma just issued may run, and refill the "
            "slot that is free now."
        ),
        signature="ring(a: float16[m, k], b: float16[k, n], *, slots: int) -> float16[m, n]",
        lines=12,
        reference=kernels.product_reference,
        cases=(
            _product(128, 128, 512, slots=3),
            _product(128, 256, 128, slots=2),
            _product(256, 128, 640, "bfloat16", slots=4),
        ),
        hints=(
            "Two things are to be mended in the page's loop, and they are one: the tiles of step "
            "load_i are read by step load_i. From which slot does that step read?",
            "Step i reads slot i % slots, so the tiles of load_i = i + slots - 1 belong in slot "
            "load_i % slots. That is the slot of step i - 1, whose wgmma is done.",
            "load_i = i + tiles.slots - 1\n"
            "@pl.when((i > 0) & (load_i < tiles.k_iters))\n"
            "def _refill():\n"
            "    tiles.fetch(load_i, jax.lax.rem(load_i, tiles.slots))\n"
            "... after the wgmma and plgpu.wgmma_wait(1)",
        ),
        requires={"wgmma_ref": 1, "barrier_wait": 1, "copy_gmem_to_smem": 2},
    )
)

register(
    Exercise(
        id="wgmma_pipelining.delay_release",
        function="pipelined",
        title="Choose delay_release",
        statement=(
            "Multiply with plgpu.emit_pipeline, `slots` slots, and leave `unfinished` wgmmas "
            "running at the end of each step (0 or 1). Keep no slot longer than needed: there may "
            "be only one more than unfinished wgmmas."
        ),
        signature=(
            "pipelined(a: float16[m, k], b: float16[k, n], *, slots: int, unfinished: int)"
            " -> float16[m, n]"
        ),
        lines=12,
        reference=kernels.product_reference,
        cases=(
            _product(128, 128, 512, slots=5, unfinished=1),  # a sixth has no room in SMEM
            _product(128, 128, 384, slots=2, unfinished=1),
            _product(128, 256, 256, slots=1, unfinished=0),
        ),
        hints=(
            "The pipeline releases a slot at the end of its step. With wgmma_wait(1) the wgmma of "
            "this step may still read it then. How many steps later is it done for sure?",
            "delay_release=unfinished, in both specs. step(indices, a_smem, b_smem) multiplies and "
            "calls plgpu.wgmma_wait(unfinished).",
            "def step(indices, a_smem, b_smem):\n"
            "    plgpu.wgmma(acc, a_smem, b_smem)\n"
            "    plgpu.wgmma_wait(unfinished)\n"
            "a_spec = plgpu.BlockSpec((128, 64), lambda ki: (0, ki), delay_release=unfinished)\n"
            "... b_spec of (64, 128) at (ki, 0), and plgpu.emit_pipeline(step, "
            "grid=(tiles.k_iters,), in_specs=[a_spec, b_spec], max_concurrent_steps=slots)"
            "(tiles.a_gmem, tiles.b_gmem)",
        ),
        requires={"wgmma_ref": 1, "wgmma_wait": 1, "copy_gmem_to_smem": 2},
    )
)

register(
    Exercise(
        id="wgmma_pipelining.epilogue",
        function="product",
        title="The way out, in pieces",
        statement=(
            "Write a block's tile of 128 x 256 to o_gmem in pieces of epi_tile_n columns, through "
            "the two buffers in buffers_smem, so that one piece leaves while the next is written."
        ),
        signature=(
            "product(a: float16[m, k], b: float16[k, n], *, epi_tile_n: int) -> float16[m, n]"
        ),
        lines=8,
        reference=kernels.product_reference,
        cases=(
            _product(128, 256, 128, epi_tile_n=64),
            _product(256, 512, 64, "bfloat16", epi_tile_n=32),
            _product(128, 256, 64, epi_tile_n=128),
        ),
        hints=(
            "This is chapter 05's way out: two slots, a loop over pieces. Before you write buffer "
            "i % 2, the copy of piece i - 2 must have read it. Which n says that?",
            "For each piece: plgpu.wait_smem_to_gmem(1, wait_read_only=True); "
            "buffers_smem[i % 2] = value[:, ...]; plgpu.commit_smem(); plgpu.copy_smem_to_gmem. "
            "After the loop wait for all of them.",
            "for i in range(256 // epi_tile_n):\n"
            "    cols = slice(i * epi_tile_n, (i + 1) * epi_tile_n)\n"
            "    plgpu.wait_smem_to_gmem(1, wait_read_only=True)\n"
            "    buffers_smem[i % 2] = value[:, cols]\n"
            "    plgpu.commit_smem()\n"
            "    plgpu.copy_smem_to_gmem(buffers_smem.at[i % 2], o_gmem.at[:, cols])\n"
            "... and plgpu.wait_smem_to_gmem(0) at the end",
        ),
        requires={"copy_smem_to_gmem": 2, "commit_smem": 2},
    )
)

register(
    Exercise(
        id="wgmma_pipelining.ping_pong",
        function="ping_pong",
        title="Taking turns",
        statement=(
            "Add up tile `number` in `acc`, as warpgroup `wg`: for each step along K wait for the "
            "copies of its slot, multiply, leave one wgmma running, and release the slot of the "
            "step before. In the end release the last slot, too."
        ),
        signature="ping_pong(a: float16[m, k], b: float16[k, n], *, slots: int) -> float16[m, n]",
        lines=15,
        reference=kernels.product_reference,
        cases=(
            _product(256, 256, 256, slots=3),
            _product(192, 384, 192, "bfloat16", slots=4),
            _product(128, 128, 64, slots=2),
        ),
        hints=(
            "The ring goes on from tile to tile: the slot depends on how many steps all tiles "
            "before this one had. The barrier of a slot is this warpgroup's own, wg * slots + "
            "slot. And when is the slot of the step before no longer read? If it gets stuck: the "
            "copying thread waits for `consumed` of a slot before it fills it again.",
            "step = number * turns.k_iters + ki, and slot = step % slots. After wgmma_wait(1) "
            "the wgmma of step - 1 is done: if ki > 0, arrive on consumed.at[(step - 1) % slots]. "
            "After the loop: wgmma_wait(0), and one more arrival.",
            "@pl.loop(0, turns.k_iters)\n"
            "def _(ki):\n"
            "    step = number * turns.k_iters + ki\n"
            "    slot = jax.lax.rem(step, slots)\n"
            "    plgpu.barrier_wait(turns.loaded.at[wg * slots + slot])\n"
            "    ... the wgmma, plgpu.wgmma_wait(1), and under @pl.when(ki > 0)\n"
            "    plgpu.barrier_arrive(turns.consumed.at[jax.lax.rem(step - 1, slots)])\n"
            "... after the loop the same for the last step, ki = turns.k_iters - 1",
        ),
        requires={"wgmma_ref": 1, "wgmma_wait": 1, "barrier_arrive": 2},
    )
)
