"""The exercises of chapter 11: products by pairs of SMs, and tiles taken over."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import collective_mma as kernels
from course_lib.tracing import SLOTS_IN_TURN


def _product(m: int, k: int, n: int) -> Case:
    return Case((Spec((m, k), "float16"), Spec((k, n), "float16")))


def _products(count: int, k: int, n: int) -> Case:
    return Case((Spec((256, k), "float16"), Spec((count, k, n), "float16")))


def _scaled(k: int, n: int) -> Case:
    return Case((Spec((256, k), "float32"), Spec((n, k), "float32")))


register(
    Exercise(
        id="collective_mma.pair_product",
        function="pair_product",
        title="A product by two SMs",
        statement=(
            "Return a @ b in float32 by one collective MMA of the two blocks of a cluster. Say "
            "what each block holds of a, of b and of the accumulator; load both halves; let the "
            "leader multiply; and let each block write its rows of c_gmem."
        ),
        signature="pair_product(a: float16[256, k], b: float16[k, n]) -> float32[256, n], n <= 128",
        lines=18,
        reference=kernels.pair_product_reference,
        cases=(_product(256, 64, 128), _product(256, 128, 64), _product(256, 192, 128)),
        hints=(
            "A block holds its own rows of a and of the result, and half of the columns of b. "
            "Both copies name the pair's axis, and which axis is cut in two. Only one block may "
            "wait for them.",
            "a_smem (128, k), b_smem (k, n // 2), acc_tmem (128, n) with collective=True. Copies "
            "with PARTITIONED(0) for a and PARTITIONED(1) for b. Under pl.when(block == 0): wait "
            "for loaded, then plgpu.tcgen05_mma(..., collective_axis='pair').",
            "plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded, collective_axes='pair', "
            "leader_tracked=plgpu.CopyPartition.PARTITIONED(1))\n"
            "@pl.when(block == 0)\n"
            "def leader():\n"
            "    plgpu.barrier_wait(loaded)\n"
            "    plgpu.tcgen05_mma(acc_tmem, a_smem, b_smem, done, accumulate=False, "
            "collective_axis='pair')\n"
            "plgpu.barrier_wait(done)\n"
            "c_gmem[pl.ds(block * 128, 128)] = plgpu.async_load_tmem(acc_tmem)",
        ),
        requires={"tcgen05_mma": 1, "copy_gmem_to_smem": 2, "async_load": 1},
        rtol=1e-3,
        atol=1e-2,
    )
)

register(
    Exercise(
        id="collective_mma.pair_products",
        function="pair_products",
        title="The accumulator, once more",
        statement=(
            "Return a @ b[i] for every i, one after the other, through one accumulator. What is "
            "missing is between the product and the next: nobody may overwrite the accumulator "
            "while the other block reads it."
        ),
        signature="pair_products(a: float16[256, k], b: float16[count, k, n]) -> float32[count, "
        "256, n]",
        lines=4,
        reference=kernels.pair_products_reference,
        cases=(_products(3, 64, 128), _products(1, 128, 64), _products(6, 64, 64)),
        hints=(
            "The leader starts the next MMA for both blocks, and it knows only its own reads. "
            "Who has to tell it what? And is a load from TMEM over when its values are there?",
            "plgpu.wait_load_tmem() ends this block's loads. Then both blocks arrive on a "
            "ClusterBarrier and wait for it. TMEM is the tensor core's, so the barrier has to "
            "order that as well.",
            "read=plgpu.ClusterBarrier(collective_axes=('pair',), orders_tensor_core=True)\n"
            "... and in the loop, after the loads\n"
            "plgpu.wait_load_tmem()\n"
            "plgpu.barrier_arrive(read)\n"
            "plgpu.barrier_wait(read)",
        ),
        requires={"tcgen05_mma": 1, "wait_load_tmem": 1},
        rtol=1e-3,
        atol=1e-2,
    )
)

register(
    Exercise(
        id="collective_mma.mx_product",
        function="mx_product",
        title="Scales for two",
        statement=(
            "Return a @ b.T of float8 values with scales. The values are there, and the MMA; "
            "issue the four copies, and say how many arrivals loaded counts. Which of the four "
            "does each block need whole?"
        ),
        signature="mx_product(a: float32[256, k], b: float32[n, k]) -> float32[256, n], n = 128 or "
        "256, k a multiple of 128",
        lines=6,
        reference=kernels.mx_product_reference,
        cases=(_scaled(128, 128), _scaled(256, 256)),
        hints=(
            "The tensor core of a block multiplies the block's own rows of a with all rows of b. "
            "Half of b it reads from the other block's SMEM. Scales it reads only from its own "
            "tensor memory.",
            "a, b and a's scales in halves along axis 0; b's scales whole: "
            "leader_tracked=plgpu.CopyPartition.REPLICATED. Four copies arrive on loaded.",
            "halves = dict(collective_axes='pair', "
            "leader_tracked=plgpu.CopyPartition.PARTITIONED(0))\n"
            "plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded, **halves)\n"
            "... b_gmem and as_gmem alike\n"
            "plgpu.copy_gmem_to_smem(bs_gmem, bs_smem, loaded, collective_axes='pair', "
            "leader_tracked=plgpu.CopyPartition.REPLICATED)\n"
            "loaded = plgpu.Barrier(num_arrivals=4)",
        ),
        requires={"tcgen05_mma": 1, "copy_gmem_to_smem": 4, "async_copy_scales_to_tmem": 2},
        rtol=1e-3,
        atol=1e-2,
    )
)

register(
    Exercise(
        id="collective_mma.take_over",
        function="take_over",
        title="Take tiles over",
        statement=(
            "Return 2 * x, a row per tile, with a block per row that takes over further rows "
            "while there are any. Ask for the next row before you work, and look at the answer "
            "after it. Two slots take turns."
        ),
        signature="take_over(x: float32[tiles, n]) -> float32[tiles, n], n a multiple of 128",
        lines=7,
        reference=kernels.double_reference,
        cases=tuple(Case((Spec((m, 128), "float32"),)) for m in (8, 1, 30)),
        hints=(
            "One round: ask, work on the row that you have, wait for the answer, read it. What "
            "comes back is the row of the next round, and whether there is one.",
            "slot = step % 2; plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot]); the "
            "row; plgpu.barrier_wait; plgpu.query_cluster_cancel(answers.at[slot], ('tile',)); "
            "plgpu.commit_smem(), since the slot is filled again by another unit.",
            "plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])\n"
            "y_gmem[i] = 2 * x_gmem[i]\n"
            "plgpu.barrier_wait(answered.at[slot])\n"
            "(following,), success = plgpu.query_cluster_cancel(answers.at[slot], ('tile',))\n"
            "plgpu.commit_smem()\n"
            "return following, success, step + 1",
        ),
        requires={
            "try_cluster_cancel": 1,
            "query_cluster_cancel": 1,
            "barrier_wait": 1,
            SLOTS_IN_TURN: 1,
        },
    )
)

register(
    Exercise(
        id="collective_mma.tiles_by_cluster",
        function="tiles_by_cluster",
        title="A loop with a carry, for two",
        statement=(
            "Return x + 1 and the number of tiles. Each block of a pair has half of every tile; "
            "plgpu.dynamic_scheduling_loop hands the tiles out and carries how many this cluster "
            "has had. count_gmem[i] gets that number from the cluster that was launched for tile "
            "i, and 0 where that launch was cancelled. Block 0 writes it."
        ),
        signature="tiles_by_cluster(x: float32[tiles, 2, n]) -> (float32[tiles, 2, n], int32[1])",
        lines=13,
        reference=kernels.tiles_by_cluster_reference,
        cases=tuple(Case((Spec((m, 2, 128), "float32"),)) for m in (9, 1, 24)),
        hints=(
            "The loop needs the names of the grid's axes and of the cluster's, and a carry to "
            "begin with. Its body gets the carry as well, and returns the next. What the "
            "decorated name is after the loop is the last one.",
            "@plgpu.dynamic_scheduling_loop(grid_names=('tile',), cluster_axes=('pair',), "
            "init_carry=jnp.int32(0)) over def computed(info, carry): the half of tile "
            "info.index[0], a 0 into count_gmem for it, and return carry + 1.",
            "def computed(info, carry):\n"
            "    (i,) = info.index\n"
            "    y_gmem[i, block] = x_gmem[i, block] + 1\n"
            "\n"
            "    @pl.when(block == 0)\n"
            "    def cancelled():\n"
            "        count_gmem[i] = jnp.int32(0)\n"
            "\n"
            "    return carry + 1\n"
            "... and after the loop, under pl.when(block == 0)\n"
            "count_gmem[jax.lax.axis_index('tile')] = computed",
        ),
        requires={"try_cluster_cancel": 1, "query_cluster_cancel": 1},
    )
)
