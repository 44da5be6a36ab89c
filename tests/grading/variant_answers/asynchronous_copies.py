"""The solutions of chapter 05's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "multiply_add": lambda v: (
        ("= x_smem[...]", f"= {v['a']} * x_smem[...]"),
        ("+ z_smem[...]", f"+ {v['b']} * z_smem[...]"),
    ),
    "triple": lambda v: (
        ("3 * x_gmem", f"{v['factor']} * x_gmem"),
        ("ti % 2", f"ti % {v['slots']}"),
        ("wait_smem_to_gmem(1,", f"wait_smem_to_gmem({v['slots'] - 1},"),
    ),
    "sum_and_difference": lambda v: (
        ("= x + y", f"= {v['a']} * x + y"),
        ("= x - y", f"= x - {v['b']} * y"),
    ),
    "difference": lambda v: (
        ("start - 1", f"start - {v['above']}"),
        ("- above_smem[...]", f"- {v['factor']} * above_smem[...]"),
    ),
    "gather_rows": lambda v: (
        (
            "plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])",
            f"rows_smem[...] = {v['factor']} * rows_smem[...]\n"
            "        plgpu.commit_smem()\n"
            "        plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])",
        ),
    ),
    "ring_copy": lambda v: (
        (
            "plgpu.copy_smem_to_gmem(ring_smem.at[slot], y_gmem.at[place(step)])",
            "tile = step * 2 + jax.lax.axis_index('block')\n"
            f"            there = pl.ds((tile + {v['shift']}) % (x.shape[0] // 64) * 64, 64)\n"
            "            plgpu.copy_smem_to_gmem(ring_smem.at[slot], y_gmem.at[there])",
        ),
    ),
}
