"""The solutions of chapter 11's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "pair_product": lambda v: (
        ("(k, n // 2)", "(n // 2, k)"),
        (
            "for axis, (source, target) in enumerate(((a_gmem, a_smem), (b_gmem, b_smem))):",
            "for source, target in ((a_gmem, a_smem), (b_gmem, b_smem)):",
        ),
        ("PARTITIONED(axis)", "PARTITIONED(0)"),
        ("a_smem, b_smem, done", "a_smem, b_smem.transpose((1, 0)), done"),
        (
            "= plgpu.async_load_tmem(acc_tmem)",
            f"= {v['times']} * plgpu.async_load_tmem(acc_tmem) + {v['plus']}",
        ),
    ),
    "pair_products": lambda v: (
        (
            "            plgpu.barrier_arrive(read)",
            f"            place = jax.lax.rem(i + {v['shift']}, b_gmem.shape[0])\n"
            f"            product = jnp.maximum(plgpu.async_load_tmem(acc_tmem), {v['low']})\n"
            "            c_gmem[place, pl.ds(block * 128, 128)] = product\n"
            "            plgpu.wait_load_tmem()\n"
            "            plgpu.barrier_arrive(read)",
        ),
    ),
    "mx_product": lambda v: (
        (
            "        half, whole =",
            f"        scales = sources[2].at[pl.ds(2 * {v['chosen']}, 2)]\n"
            "        sources = (*sources[:2], scales, sources[3])\n"
            "        half, whole =",
        ),
    ),
    "take_over": lambda v: (
        ("(step, 2)", f"(step, {v['slots']})"),
        ("y_gmem[i] =", f"y_gmem[jax.lax.rem(i + {v['shift']}, x.shape[0])] ="),
    ),
    "tiles_by_cluster": lambda v: (
        ("x_gmem[i, block] + 1", f"x_gmem[i, block] + {v['add']}"),
        ("return carry + 1", f"return carry + {v['times']} * i + {v['plus']}"),
    ),
}
