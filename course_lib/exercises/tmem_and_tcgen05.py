"""The exercises of chapter 10: loads and stores of TMEM, commits, hand-overs, A in TMEM, scales."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import tmem_and_tcgen05 as kernels


def _case(*shapes: tuple[int, ...], dtype: str = "float16") -> Case:
    return Case(tuple(Spec(shape, dtype) for shape in shapes))


register(
    Exercise(
        id="tmem_and_tcgen05.sum_in_tmem",
        function="sum_in_tmem",
        title="A running sum in TMEM",
        statement=(
            "Return x[0] + x[1] + ..., the sum of the tiles of x, which are in x_smem. Keep the "
            "running sum in total_tmem: store the first tile there, then add one tile after the "
            "other, each time with a load from TMEM and a store back. In the end write the sum to "
            "y_gmem."
        ),
        signature="sum_in_tmem(x: float32[tiles, 128, n]) -> float32[128, n]",
        lines=9,
        reference=kernels.sum_in_tmem_reference,
        cases=(
            _case((4, 128, 64), dtype="float32"),
            _case((1, 128, 128), dtype="float32"),
            _case((3, 128, 32), dtype="float32"),
        ),
        hints=(
            "A step is: load the total, add the next tile, store the total back. Two of the four "
            "functions of this section stand between a load and a store to the same place, and "
            "between a store and a load.",
            "Before the loop: async_store_tmem of the first tile, commit_tmem. In the loop over "
            "tiles 1 and up: async_load_tmem and add, wait_load_tmem, async_store_tmem, "
            "commit_tmem. After it: async_load_tmem once more.",
            "plgpu.async_store_tmem(total_tmem, x_smem[0])\n"
            "plgpu.commit_tmem()\n"
            "\n"
            "@pl.loop(1, x.shape[0])\n"
            "def _(ti):\n"
            "    total = plgpu.async_load_tmem(total_tmem) + x_smem[ti]\n"
            "    plgpu.wait_load_tmem()\n"
            "    ... store the total and commit it; after the loop write it to y_gmem",
        ),
        requires={"async_load": 2, "async_store_tmem": 2, "scan": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="tmem_and_tcgen05.one_commit",
        function="one_commit",
        title="One commit for all MMAs",
        statement=(
            "Return a @ b. The tiles along K are on their way already, each with a barrier of its "
            "own. Multiply them one after the other into acc_tmem, without a barrier, let one "
            "commit say when all are done, and write the result to c_gmem."
        ),
        signature="one_commit(a: float16[128, k], b: float16[k, n]) -> float32[128, n]",
        lines=6,
        reference=kernels.product_reference,
        cases=(
            _case((128, 256), (256, 128)),
            _case((128, 64), (64, 64)),
            _case((128, 192), (192, 128)),
        ),
        hints=(
            "MMAs of one thread run in the order in which it issues them, so none has to wait for "
            "another. Each has to wait for its own tiles of A and B. And what does the very first "
            "one find in acc_tmem?",
            "for ki in range(steps): barrier_wait(loaded.at[ki]), then tcgen05_mma without a "
            "barrier, accumulate=ki > 0. After the loop: tcgen05_commit_arrive(done), "
            "barrier_wait(done), and the load.",
            "for ki in range(steps):\n"
            "    plgpu.barrier_wait(loaded.at[ki])\n"
            "    plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)\n"
            "plgpu.tcgen05_commit_arrive(done)\n"
            "... wait for done, and c_gmem[...] = plgpu.async_load_tmem(acc_tmem)",
        ),
        requires={"tcgen05_mma": 1, "tcgen05_commit_arrive": 1},
        rtol=1e-3,
        atol=1e-3,
    )
)

register(
    Exercise(
        id="tmem_and_tcgen05.batched",
        function="batched",
        title="One multiplies, one stores",
        statement=(
            "Return a[i] @ b for every i. Thread 0 multiplies, product after product, all into "
            "the same accumulator. Thread 1 writes each to c_gmem[i]. Allocate the barrier "
            "`stored`, on which thread 1 says that the accumulator is free again. Every completion "
            "is waited for."
        ),
        signature="batched(a: float16[batches, 128, 64], b: float16[64, n]) -> float32",
        lines=12,
        reference=lambda a, b: kernels.product_reference(a.reshape(-1, a.shape[-1]), b).reshape(
            *a.shape[:2], -1
        ),
        cases=(
            _case((3, 128, 64), (64, 128)),
            _case((1, 128, 64), (64, 64)),
            _case((2, 128, 64), (64, 64)),
        ),
        hints=(
            "It is chapter 06's taking turns: done says 'the product is there', and stored says "
            "'I have taken it out'. In the first round the accumulator is free already. What makes "
            "a load from TMEM be over? And what may move across a barrier, unless you say no?",
            "stored = plgpu.Barrier(orders_tensor_core=True). Thread 0 waits for stored before "
            "every MMA but the first, and once after the last. Thread 1: wait for done, load and "
            "write, wait_load_tmem, arrive on stored.",
            "Thread 0:\n"
            "for i in range(batches):\n"
            "    plgpu.barrier_wait(a_loaded.at[i])\n"
            "    if i > 0:\n"
            "        plgpu.barrier_wait(stored)\n"
            "    plgpu.tcgen05_mma(acc_tmem, a_smem.at[i], b_smem, done, accumulate=False)\n"
            "... and one more wait for stored. Thread 1, in its loop: wait for done, c_gmem[i] = "
            "plgpu.async_load_tmem(acc_tmem), wait_load_tmem, arrive on stored",
        ),
        requires={"tcgen05_mma": 1, "async_load": 1, "barrier_arrive": 1},
        rtol=1e-3,
        atol=1e-3,
    )
)

register(
    Exercise(
        id="tmem_and_tcgen05.two_products",
        function="two_products",
        title="The left operand in TMEM",
        statement=(
            "Return relu(a @ b) @ c, where relu is max(., 0) and its result is rounded to float16. "
            "The first product is in acc_tmem. Take it out, put relu of it back into TMEM as "
            "float16, and let it be the left operand of the second product. Allocate relu_tmem."
        ),
        signature="two_products(a: float16[128, k], b: float16[k, n], c: float16[n, p]) -> float32",
        lines=7,
        reference=kernels.two_products_reference,
        cases=(
            _case((128, 64), (64, 128), (128, 64)),
            _case((128, 128), (128, 64), (64, 128)),
        ),
        hints=(
            "relu_tmem is (128, n) of float16: what does a left operand in TMEM have to be? The "
            "way is: load, compute in registers, store, and something before the MMA may read it.",
            "relu_tmem = plgpu.TMEM((128, n), jnp.float16, packed=True). relu = "
            "jnp.maximum(plgpu.async_load_tmem(acc_tmem), 0); store relu.astype(jnp.float16); "
            "commit_tmem; tcgen05_mma(out_tmem, relu_tmem, c_smem, done, accumulate=False); wait.",
            "relu = jnp.maximum(plgpu.async_load_tmem(acc_tmem), 0)\n"
            "plgpu.async_store_tmem(relu_tmem, relu.astype(jnp.float16))\n"
            "plgpu.commit_tmem()\n"
            "... the second MMA, the wait for done, and d_gmem[...] = "
            "plgpu.async_load_tmem(out_tmem); below, relu_tmem = plgpu.TMEM(..., packed=True)",
        ),
        requires={"tcgen05_mma": 2, "async_load": 2, "async_store_tmem": 1},
        rtol=1e-2,
        atol=5e-2,
    )
)

register(
    Exercise(
        id="tmem_and_tcgen05.eight_bit_product",
        function="eight_bit_product",
        title="8 bits, with scales",
        statement=(
            "Return x @ w.T, both in 8 bits with a scale for each 32 elements. Quantizing and "
            "loading is done. Copy both operands' scales to TMEM, start the scaled MMA, and wait "
            "for it. Allocate the two arrays of scales in TMEM."
        ),
        signature="eight_bit_product(x: float32[128, k], w: float32[n, k]) -> float32[128, n]",
        lines=14,
        reference=kernels.eight_bit_product_reference,
        cases=(
            _case((128, 128), (256, 128), dtype="float32"),
            _case((128, 256), (128, 256), dtype="float32"),
        ),
        hints=(
            "Three steps in the kernel: two copies of scales, one MMA, one wait. Must anything "
            "be waited for between the copies and the MMA? w_smem is (n, k), and the MMA wants "
            "(k, n). In TMEM, scales have a layout of their own.",
            "plgpu.async_copy_scales_to_tmem(x_scales_smem, x_scales_tmem), the same for w. Then "
            "tcgen05_mma(acc_tmem, x_smem, w_smem.transpose((1, 0)), done, a_scale=..., "
            "b_scale=..., accumulate=False). Shapes: (128, k // 32) and (n, k // 32), of "
            "jnp.float8_e8m0fnu, layout=plgpu.TMEMLayout.SCALES_LAYOUT.",
            "plgpu.async_copy_scales_to_tmem(x_scales_smem, x_scales_tmem)\n"
            "plgpu.async_copy_scales_to_tmem(w_scales_smem, w_scales_tmem)\n"
            "plgpu.tcgen05_mma(\n"
            "    acc_tmem, x_smem, w_smem.transpose((1, 0)), done,\n"
            "    a_scale=x_scales_tmem, b_scale=w_scales_tmem, accumulate=False,\n"
            ")\n"
            "... wait for done; and below\n"
            "x_scales_tmem = plgpu.TMEM((128, k // 32), SCALE, layout=LAYOUT)",
        ),
        requires={"tcgen05_mma": 1, "async_copy_scales_to_tmem": 2},
        rtol=1e-3,
        atol=1e-3,
    )
)
