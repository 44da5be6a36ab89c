"""The solutions of chapter 10's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "sum_in_tmem": lambda v: (
        ("x_smem[0]", "x_smem[x.shape[0] - 1]"),
        (
            "plgpu.async_load_tmem(total_tmem) + x_smem[ti]",
            f"{v['factor']} * plgpu.async_load_tmem(total_tmem) + x_smem[x.shape[0] - 1 - ti]",
        ),
    ),
    "one_commit": lambda v: (
        (
            "plgpu.tcgen05_mma(acc_tmem, a_smem.at[ki], b_smem.at[ki], accumulate=ki > 0)",
            f"acc = acc_tmem.at[:, pl.ds(ki % {v['groups']} * n, n)]\n"
            f"            more = ki >= {v['groups']}\n"
            "            plgpu.tcgen05_mma(acc, a_smem.at[ki], b_smem.at[ki], accumulate=more)",
        ),
        (
            "c_gmem[...] = plgpu.async_load_tmem(acc_tmem)",
            f"for g in range({v['groups']}):\n"
            "            c_gmem[g] = plgpu.async_load_tmem(acc_tmem.at[:, pl.ds(g * n, n)])",
        ),
    ),
    "batched": lambda v: (
        ("accumulate=False", "accumulate=i > 0"),
        (
            "plgpu.async_load_tmem(acc_tmem)",
            f"{v['times']} * plgpu.async_load_tmem(acc_tmem) + {v['plus']}",
        ),
    ),
    "two_products": lambda v: (
        (
            "relu = jnp.maximum(plgpu.async_load_tmem(acc_tmem), 0)",
            f"relu = jnp.maximum(plgpu.async_load_tmem(acc_tmem), {v['low']})\n"
            f"        relu = jnp.minimum(relu, {v['high']})",
        ),
    ),
    "eight_bit_product": lambda v: (
        (
            "        plgpu.barrier_wait(done)",
            "        plgpu.barrier_wait(done)\n"
            f"        product = {v['times']} * plgpu.async_load_tmem(acc_tmem)\n"
            f"        c_gmem[...] = jnp.maximum(product, {v['low']})",
        ),
    ),
}
