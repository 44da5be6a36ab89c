"""The solutions of chapter 07's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "multiply_add": lambda v: (
        (
            "plgpu.wgmma(acc, a_smem, b_smem)",
            f"for _ in range({v['times']}):\n                plgpu.wgmma(acc, a_smem, b_smem)",
        ),
        ("init(c_smem[...])", f"init({v['start']} * c_smem[...])"),
    ),
    "wide_product": lambda v: (
        ("range(0, n, 256)", f"range(0, n, {v['width']})"),
        ("min(256, n - start)", f"min({v['width']}, n - start)"),
        (
            "= pl.run_scoped(multiply, acc_type)",
            f"= (start // {v['width']} + {v['plus']}) * pl.run_scoped(multiply, acc_type)",
        ),
    ),
    "gram": lambda v: (
        (
            "plgpu.wgmma(acc, x_smem.transpose((1, 0)), x_smem)",
            f"z_smem = x_smem.at[pl.ds({v['skip']}, k - {v['skip']})]\n"
            f"            left = z_smem.at[:, pl.ds({v['first']}, 64)].transpose((1, 0))\n"
            "            plgpu.wgmma(acc, left, z_smem)",
        ),
        ("plgpu.ACC((n, n),", "plgpu.ACC((64, n),"),
    ),
    "split_product": lambda v: (
        (
            "            full = high_smem[...]\n",
            "            full = high_smem[...]\n"
            "            if high_smem is x_smem:\n"
            f"                full = jnp.maximum(jnp.minimum(full, {v['limit']}), -{v['limit']})\n",
        ),
        (
            "plgpu.ACC(y_gmem.shape, jnp.float32))",
            f"plgpu.ACC(y_gmem.shape, jnp.float32)) + {v['plus']}",
        ),
    ),
    "relu_product": lambda v: (
        (
            "jnp.maximum(a_smem[:, ks], 0)",
            f"jnp.minimum(jnp.maximum(a_smem[:, ks], {v['low']}), {v['high']})",
        ),
    ),
    "matmul": lambda v: (
        ("k // 64", f"k // {v['step']}"),
        ("pl.ds(ki * 64, 64)", f"pl.ds(ki * {v['step']}, {v['step']})"),
        ("return acc[...]", f"return jnp.maximum(acc[...], {v['low']})"),
    ),
}
