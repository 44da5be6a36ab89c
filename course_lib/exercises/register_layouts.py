"""The exercises of chapter 04: who holds what, softmax, argmax, two broadcasts, SMEM."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import register_layouts as kernels

register(
    Exercise(
        id="register_layouts.lane_numbers",
        function="lane_numbers",
        title="Which lane holds it?",
        statement=(
            "Return an m x n matrix of int32 with, for each element, the number of the lane (0 to "
            "127) that holds it in WGMMA's layout, from one block. The kernel has every element's "
            "row and column, as two arrays in that layout."
        ),
        signature="lane_numbers(*, m, n) -> int32[m, n], m a multiple of 64, n of 8",
        lines=3,
        reference=kernels.lane_numbers_reference,
        cases=(
            Case((), {"m": 64, "n": 16}),
            Case((), {"m": 128, "n": 24}),
            Case((), {"m": 192, "n": 8}),
        ),
        hints=(
            "First the warp: of every 64 rows, each of the four warps holds 16. Then the lane "
            "within the warp: 8 rows of 4 lanes each, and a lane has two neighbouring columns. "
            "After 8 columns, and after 8 rows, the same lanes begin again.",
            "warp = row % 64 // 16. Within the warp, rows count by their remainder modulo 8, and "
            "columns by theirs modulo 8, in pairs. The lane's number among the 128 is "
            "warp * 32 + lane within the warp.",
            "warp = row % 64 // 16\n"
            "lane = row % 8 * 4 + column % 8 // 2\n"
            "lane_gmem[...] = warp * 32 + lane",
        ),
    )
)

register(
    Exercise(
        id="register_layouts.softmax_rows",
        function="softmax_rows",
        title="A softmax over rows",
        statement=(
            "Return the softmax of each row of x: exp(x - largest) / total, where largest is the "
            "row's largest element and total the row's sum of the exps. Each block has 64 rows. "
            "Load in WGMMA's layout, compute in float32, store in the dtype of x."
        ),
        signature="softmax_rows(x: float[m, n]) -> float[m, n], m a multiple of 64",
        lines=5,
        reference=kernels.softmax_rows_reference,
        cases=(
            Case((Spec((128, 128)),)),
            Case((Spec((192, 64)),)),
            Case((Spec((64, 256), "bfloat16"),)),
        ),
        hints=(
            "subtract_row_max does the first half: load with a layout, reduce along axis 1, and "
            "broadcast the result back with [:, None]. Then the same once more, with exp and sum. "
            "Is only bfloat16 wrong? Then something is computed before .astype(jnp.float32).",
            "x = plgpu.load(buffer_smem, layout=plgpu.Layout.WGMMA).astype(jnp.float32), "
            "largest = jnp.max(x, axis=1), e = jnp.exp(x - largest[:, None]), "
            "total = jnp.sum(e, axis=1). What is left is the division and the store.",
            "Load, largest, e and total as in the hint before, and then: "
            "buffer_smem[...] = (e / total[:, None]).astype(buffer_smem.dtype). A store converts "
            "nothing, which is why the dtype has to be there.",
        ),
        requires={"layout_cast": 1, "reduce_max": 1, "reduce_sum": 1},
        # two units in the last place of bfloat16, and small enough for 1 / 256 of a row
        rtol=8e-3,
        atol=1e-6,
    )
)

register(
    Exercise(
        id="register_layouts.row_argmax",
        function="row_argmax",
        title="Where is the largest element?",
        statement=(
            "Return, for each row of x, the column of its largest element; of several equal ones, "
            "the first. Each block has 64 rows, in x_smem. The kernel has the column numbers too, "
            "as a matrix. jnp.argmax has no CUDA form: use jnp.max, jnp.where and jnp.min."
        ),
        signature="row_argmax(x: float[m, n]) -> int32[m], m a multiple of 64",
        lines=3,
        reference=kernels.row_argmax_reference,
        cases=(
            Case((Spec((128, 128)),)),
            Case((Spec((64, 64)),)),
            Case((Spec((512, 256), "bfloat16"),)),  # so coarse that largest elements come twice
        ),
        hints=(
            "Two reductions along the rows, one after the other. The first finds the largest "
            "element. Then every element that equals it bids its column number, and all others a "
            "number that cannot win. The second reduction finds the least of these. Is only "
            "bfloat16 wrong? There the largest often comes twice, and the first one counts.",
            "largest = jnp.max(x, axis=1). The comparison needs it as a matrix: "
            "x == largest[:, None]. jnp.where(that, column, n) has the bids: n is larger than any "
            "column.",
            "largest = jnp.max(x, axis=1)\n"
            "bids = jnp.where(x == largest[:, None], column, n)\n"
            "y_gmem[rows] = jnp.min(bids, axis=1)",
        ),
        requires={"reduce_max": 1},
    )
)

register(
    Exercise(
        id="register_layouts.rms_norm",
        function="rms_norm",
        title="A value per row, a value per column",
        statement=(
            "Return x * scale * w: scale is one number per row, 1 / sqrt(mean of the row's squares "
            "+ 1e-6), and w has one number per column. Each block has 64 rows, in buffer_smem. "
            "Load w from GMEM in the layout that its broadcast needs."
        ),
        signature="rms_norm(x: float32[m, n], w: float32[n]) -> float32[m, n], m a multiple of 64",
        lines=4,
        reference=kernels.rms_norm_reference,
        cases=(
            Case((Spec((128, 128)), Spec((128,)))),
            Case((Spec((64, 64)), Spec((64,)))),
            Case((Spec((192, 256)), Spec((256,)))),
        ),
        hints=(
            "scale has an element for each row, and becomes a matrix with [:, None]. w has one for "
            "each column, and becomes one with [None, :]. Which reduction of WGMMA's layout "
            "leaves a value per column? Load w in that.",
            "x = plgpu.load(buffer_smem, layout=plgpu.Layout.WGMMA); "
            "w = plgpu.load(w_gmem, layout=plgpu.Layout.WGMMA.reduce(0), optimized=False); "
            "scale = jax.lax.rsqrt(jnp.mean(x * x, axis=1) + 1e-6).",
            "x, w and scale as in the hint before, and then: "
            "buffer_smem[...] = x * scale[:, None] * w[None, :].",
        ),
        requires={"layout_cast": 1},
        rtol=1e-4,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="register_layouts.rows_plus_columns",
        function="rows_plus_columns",
        title="Two layouts, one sum",
        statement=(
            "Return y with y[i] = the sum of row i plus the sum of column i of a square matrix, "
            "from one block. Row sums and column sums have different layouts: send one of the two "
            "through the SMEM that the kernel has."
        ),
        signature="rows_plus_columns(x: float32[n, n]) -> float32[n], n a multiple of 64",
        lines=3,
        reference=kernels.rows_plus_columns_reference,
        # the smaller first: where no layout is named, JAX is quick to say so
        cases=(Case((Spec((64, 64)),)), Case((Spec((128, 128)),))),
        hints=(
            "SMEM has no lanes. Whoever stores to it and whoever loads from it need not have "
            "the same layout, so a store and a load change the layout. Which array do you send "
            "that way? Either of the two sums will do.",
            "x = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False), and then one of "
            "the sums into sums_smem[...]. Read it back as sums_smem[...], without a layout: "
            "inference takes the one that the addition needs.",
            "x = plgpu.load(x_gmem, layout=plgpu.Layout.WGMMA, optimized=False)\n"
            "sums_smem[...] = jnp.sum(x, axis=1)\n"
            "y_gmem[...] = sums_smem[...] + jnp.sum(x, axis=0)",
        ),
        requires={"reduce_sum": 2},
        rtol=1e-4,
        atol=1e-4,
    )
)
