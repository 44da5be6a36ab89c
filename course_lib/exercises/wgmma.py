"""The exercises of chapter 07: accumulators, shapes, transposes, tf32, registers, a matmul."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import wgmma as kernels


def _product(m: int, k: int, n: int, dtype: str = "bfloat16") -> Case:
    return Case((Spec((m, k), dtype), Spec((k, n), dtype)))


register(
    Exercise(
        id="wgmma.multiply_add",
        function="multiply_add",
        title="Start from c",
        statement=(
            "Return a @ b + c in float32, with an accumulator that starts from c: "
            "plgpu.ACC.init, in pl.run_state. a, b and c are in SMEM already."
        ),
        signature=(
            "multiply_add(a: bfloat16[m, k], b: bfloat16[k, n], c: float32[m, n]) -> float32[m, n]"
        ),
        lines=3,
        reference=kernels.multiply_add_reference,
        cases=tuple(
            Case((Spec((m, k), dtype), Spec((k, n), dtype), Spec((m, n))))
            for m, k, n, dtype in ((64, 64, 128, "bfloat16"), (128, 128, 64, "float16"))
        ),
        rtol=1e-4,
        atol=1e-4,
        hints=(
            "The TensorCore adds to what the accumulator holds. pl.run_scoped gives you zeros; "
            "pl.run_state gives you an accumulator with values that you choose, and returns what "
            "is in it in the end.",
            "Define a function of acc that only calls plgpu.wgmma. The values to start from are "
            "plgpu.ACC.init(c_smem[...]). pl.run_state(function) is called with them, and what it "
            "returns is the result: store that.",
            "def multiply(acc):\n"
            "    plgpu.wgmma(acc, a_smem, b_smem)\n"
            "y_gmem[...] = pl.run_state(multiply)(plgpu.ACC.init(c_smem[...]))",
        ),
        requires={"wgmma_ref": 1, "run_state": 1},
        forbids=("add",),
    )
)

register(
    Exercise(
        id="wgmma.wide_product",
        function="wide_product",
        title="More than 256 columns",
        statement=(
            "Return a @ b for any number of columns: 256 of them at a time, the last part may "
            "have fewer. Each part has an accumulator of its own, and is stored before the next "
            "one begins."
        ),
        signature="wide_product(a: bfloat16[64, k], b: bfloat16[k, n]) -> float32[64, n]",
        lines=7,
        reference=kernels.product_reference,
        cases=(_product(64, 64, 512), _product(64, 64, 320, "float16"), _product(64, 128, 64)),
        rtol=1e-4,
        atol=1e-4,
        hints=(
            "A plain Python loop over range(0, n, 256) will do. How many columns does the part "
            "have that begins at `start`? The operand's part is a slice of b_smem, and the "
            "result's part is the same slice of y_gmem.",
            "columns = pl.ds(start, min(256, n - start)). The right operand is "
            "b_smem.at[:, columns], the accumulator plgpu.ACC((64, columns.size), jnp.float32), "
            "and the target y_gmem[:, columns].",
            "for start in range(0, n, 256):\n"
            "    columns = pl.ds(start, min(256, n - start))\n"
            "    def multiply(acc):\n"
            "        plgpu.wgmma(acc, a_smem, b_smem.at[:, columns])\n"
            "        return acc[...]\n"
            "    acc_type = plgpu.ACC((64, columns.size), jnp.float32)\n"
            "    y_gmem[:, columns] = pl.run_scoped(multiply, acc_type)",
        ),
        requires={"wgmma_ref": 1},
    )
)

register(
    Exercise(
        id="wgmma.gram",
        function="gram",
        title="One buffer, two operands",
        statement=(
            "Return x.T @ x. There is one buffer, x_smem, with x in it as it is in GMEM. Use it "
            "for both operands: the left one is its transpose, which the TensorCore makes itself."
        ),
        signature="gram(x: bfloat16[k, n]) -> float32[n, n], 64 divides n",
        lines=4,
        reference=kernels.gram_reference,
        cases=(
            Case((Spec((64, 128), "bfloat16"),)),
            Case((Spec((192, 64), "float16"),)),
            Case((Spec((128, 256), "bfloat16"),)),
        ),
        rtol=1e-4,
        atol=1e-3,
        hints=(
            "x.T is (n, k) and x is (k, n), so the accumulator is (n, n). Nothing has to be "
            "moved: say how the buffer is to be read.",
            "x_smem.transpose((1, 0)) is a ref to the same bytes with its axes exchanged. Give it "
            "to plgpu.wgmma as the left operand, and x_smem as the right one.",
            "def multiply(acc):\n"
            "    plgpu.wgmma(acc, x_smem.transpose((1, 0)), x_smem)\n"
            "    return acc[...]\n"
            "y_gmem[...] = pl.run_scoped(multiply, plgpu.ACC((n, n), jnp.float32))",
        ),
        requires={"wgmma_ref": 1, "copy_gmem_to_smem": 1},
    )
)

register(
    Exercise(
        id="wgmma.split_product",
        function="split_product",
        title="Nearly float32 from three products in tf32",
        statement=(
            "Return x @ w.T in nearly the precision of float32. Split each operand into what the "
            "TensorCore reads of it, upper(x), and the rest, x - upper(x). Put both parts into "
            "SMEM, and add three products up in one accumulator: the two of an upper part with a "
            "rest, and that of the upper parts."
        ),
        signature="split_product(x: float32[m, k], w: float32[n, k]) -> float32[m, n]",
        lines=11,
        reference=kernels.split_product_reference,
        cases=tuple(
            Case((Spec((m, k)), Spec((n, k))))
            for m, k, n in ((64, 64, 64), (64, 32, 128), (128, 64, 64))
        ),
        rtol=1e-5,
        atol=1e-4,
        hints=(
            "x = high + low and w = high + low make four products. The one of the two rests is "
            "too small to matter, and wgmma adds: three calls with the same acc are the sum. Who "
            "wrote the parts that the TensorCore is to read?",
            "Load x from x_smem, store upper(x) there and x - upper(x) in x_low_smem; the same "
            "for w. Then plgpu.commit_smem(), since lanes wrote what the TensorCore reads. In "
            "each call the right operand is transposed: w_smem.transpose((1, 0)).",
            "x = x_smem[...]\n"
            "x_smem[...] = upper(x)\n"
            "x_low_smem[...] = x - upper(x)\n"
            "... the same for w, then plgpu.commit_smem(), and in multiply(acc):\n"
            "plgpu.wgmma(acc, x_low_smem, w_smem.transpose((1, 0)))\n"
            "plgpu.wgmma(acc, x_smem, w_low_smem.transpose((1, 0)))\n"
            "plgpu.wgmma(acc, x_smem, w_smem.transpose((1, 0)))\n"
            "return acc[...]",
        ),
        requires={"wgmma_ref": 3},
    )
)

register(
    Exercise(
        id="wgmma.relu_product",
        function="relu_product",
        title="The left operand from registers",
        statement=(
            "Return max(a, 0) @ b. Go along K in steps of 64. In each step load 64 columns of a "
            "into registers, take the maximum with 0, multiply from there, and wait for the "
            "product before the next step needs the registers."
        ),
        signature="relu_product(a: float16[m, k], b: float16[k, n]) -> float32[m, n], 64 divides k",
        lines=6,
        reference=kernels.relu_product_reference,
        cases=(
            _product(64, 128, 64, "float16"),
            _product(64, 64, 128, "bfloat16"),
            _product(128, 192, 64, "float16"),
        ),
        rtol=1e-4,
        atol=1e-4,
        hints=(
            "plgpu.wgmma takes an array as its left operand as well as a ref. The right one stays "
            "in SMEM. A Python loop over range(0, k, 64) inside of multiply(acc) will do.",
            "ks = pl.ds(start, 64); left = jnp.maximum(a_smem[:, ks], 0); the right operand is "
            "b_smem.at[ks]. At the end of a step, plgpu.wgmma_wait(0): as long as the product "
            "runs, the registers of `left` are the TensorCore's.",
            "def multiply(acc):\n"
            "    for start in range(0, a.shape[1], 64):\n"
            "        ks = pl.ds(start, 64)\n"
            "        left = jnp.maximum(a_smem[:, ks], 0)\n"
            "        plgpu.wgmma(acc, left, b_smem.at[ks])\n"
            "        plgpu.wgmma_wait(0)\n"
            "    return acc[...]",
        ),
        requires={"wgmma_ref": 1, "wgmma_wait": 1},
        forbids=("commit_smem",),
    )
)

register(
    Exercise(
        id="wgmma.matmul",
        function="matmul",
        title="The first matmul",
        statement=(
            "Return a @ b. Each block computes a tile of 128 x 128 of the result. It goes along K "
            "in steps of 64: copy a tile of a and one of b into SMEM, wait for both, multiply, and "
            "wait for the product before the next copies overwrite its operands. What comes after "
            "the loop is given."
        ),
        signature="matmul(a: bfloat16[m, k], b: bfloat16[k, n]) -> bfloat16[m, n]",
        lines=9,
        reference=kernels.matmul_reference,
        cases=(_product(128, 192, 256), _product(256, 64, 128, "float16"), _product(128, 64, 128)),
        rtol=1.6e-2,
        atol=2e-2,
        hints=(
            "In step ki you need columns ki * 64 to ki * 64 + 63 of a, and the same rows of b. "
            "Two copies arrive on `loaded`, so one wait is for both. The accumulator adds up over "
            "the steps by itself. Which two waits does a step need?",
            "@pl.loop(0, k // 64) above a function of ki. In it: ks = pl.ds(ki * 64, 64), two "
            "copies from a_gmem.at[rows, ks] and b_gmem.at[ks, columns], plgpu.barrier_wait, "
            "plgpu.wgmma, plgpu.wgmma_wait(0). After the loop: return acc[...].",
            "@pl.loop(0, k // 64)\n"
            "def _(ki):\n"
            "    ks = pl.ds(ki * 64, 64)\n"
            "    plgpu.copy_gmem_to_smem(a_gmem.at[rows, ks], a_smem, loaded)\n"
            "    plgpu.copy_gmem_to_smem(b_gmem.at[ks, columns], b_smem, loaded)\n"
            "    plgpu.barrier_wait(loaded)\n"
            "    plgpu.wgmma(acc, a_smem, b_smem)\n"
            "    plgpu.wgmma_wait(0)\n"
            "return acc[...]",
        ),
        requires={"wgmma_ref": 1, "copy_gmem_to_smem": 2, "scan": 1},
    )
)
