"""The solutions of chapter 01's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "stage_through_smem": lambda v: (
        ("1 - buffer_smem", f"{v['whole']} - buffer_smem"),
        (
            "plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[rows])",
            f"for copy in range({v['copies']}):\n"
            '            start = copy * x.shape[0] + jax.lax.axis_index("tile") * 64\n'
            "            plgpu.copy_smem_to_gmem(buffer_smem, y_gmem.at[pl.ds(start, 64)])",
        ),
    ),
    "add_in_one_buffer": lambda v: (
        (
            "def scope(buffer_smem, loaded):\n",
            "def scope(buffer_smem, loaded):\n"
            f"            for part in range({v['parts']}):\n"
            "                one_part(buffer_smem, loaded, pl.ds(part * rows, rows))\n"
            "\n"
            f"        rows = a.shape[0] // {v['parts']}\n"
            "\n"
            "        def one_part(buffer_smem, loaded, part):\n",
        ),
        ("(a_gmem, buffer_smem", "(a_gmem.at[part], buffer_smem"),
        ("(b_gmem, buffer_smem", "(b_gmem.at[part], buffer_smem"),
        ("in_registers + buffer_smem[...]", f"in_registers + {v['factor']} * buffer_smem[...]"),
        ("(buffer_smem, y_gmem)", "(buffer_smem, y_gmem.at[part])"),
        ("plgpu.SMEM(a.shape, a.dtype)", "plgpu.SMEM((rows, a.shape[1]), a.dtype)"),
    ),
    "shift_in_slices": lambda v: (
        ("x.shape[0] // 16", f"x.shape[0] // {v['rows']}"),
        (
            "part = pl.ds(i * 16, 16)",
            f"part = pl.ds(i * {v['rows']}, {v['rows']})\n"
            f"            there = pl.ds(x.shape[0] - (i + 1) * {v['rows']}, {v['rows']})",
        ),
        ("y_gmem[part] = x_gmem[part] - 2", f"y_gmem[there] = x_gmem[part] - {v['minus']}"),
    ),
    "sum_of_products": lambda v: (
        ("* b_smem[...]", f"* (b_smem[...] + {v['plus']})"),
        ("// 128", f"// {v['columns']}"),
    ),
}
