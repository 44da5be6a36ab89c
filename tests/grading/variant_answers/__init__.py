"""How the course's solution becomes the solution of a variant: edits of its text.

    edited(exercise_id, values, text)

`text` is the solution's region; what comes back is an answer to the variant with `values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Values = Mapping[str, int]
Edits = Callable[[Values], tuple[tuple[str, str], ...]]

ANSWERS: dict[str, Edits] = {
    "transforms.tiled_by_hand": lambda v: (
        ("pl.ds(mi * 8, 8)", f"pl.ds(mi * {v['rows']}, {v['rows']})"),
        ("pl.ds(ni * 64, 64)", f"pl.ds(ni * {v['columns']}, {v['columns']})"),
    ),
    "transforms.addresses": lambda v: (
        ("r // 8 * (128 // width)", f"r // 8 * ({v['columns']} // width)"),
        ("address_gmem[...] = address", f"address_gmem[...] = {v['base']} + (address"),
        (" << 4)", " << 4))"),
    ),
    "transforms.chosen": lambda v: (
        ("shape[0] % 8", f"shape[0] % {v['rows']}"),
        (
            "plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)",
            f"min({v['widest']}, plgpu.find_swizzle(shape[1] * dtype.itemsize * 8))",
        ),
    ),
    "transforms.swap_axes": lambda v: (
        (
            "copy_gmem_to_smem(x_gmem,",
            f"copy_gmem_to_smem(x_gmem.at[pl.ds({v['skip']}, m - {v['skip']})],",
        ),
    ),
    "transforms.transposed": lambda v: (
        ("layout=plgpu.Layout.WGMMA)", f"layout=plgpu.Layout.WGMMA) * {v['factor']}"),
    ),
    "asynchronous_copies.multiply_add": lambda v: (
        ("= x_smem[...]", f"= {v['a']} * x_smem[...]"),
        ("+ z_smem[...]", f"+ {v['b']} * z_smem[...]"),
    ),
    "asynchronous_copies.triple": lambda v: (
        ("3 * x_gmem", f"{v['factor']} * x_gmem"),
        ("ti % 2", f"ti % {v['slots']}"),
        ("wait_smem_to_gmem(1,", f"wait_smem_to_gmem({v['slots'] - 1},"),
    ),
    "asynchronous_copies.sum_and_difference": lambda v: (
        ("= x + y", f"= {v['a']} * x + y"),
        ("= x - y", f"= x - {v['b']} * y"),
    ),
    "asynchronous_copies.difference": lambda v: (
        ("start - 1", f"start - {v['above']}"),
        ("- above_smem[...]", f"- {v['factor']} * above_smem[...]"),
    ),
    "asynchronous_copies.gather_rows": lambda v: (
        (
            "plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])",
            f"rows_smem[...] = {v['factor']} * rows_smem[...]\n"
            "        plgpu.commit_smem()\n"
            "        plgpu.copy_smem_to_gmem(rows_smem, y_gmem.at[part])",
        ),
    ),
    "asynchronous_copies.ring_copy": lambda v: (
        (
            "plgpu.copy_smem_to_gmem(ring_smem.at[slot], y_gmem.at[place(step)])",
            "tile = step * 2 + jax.lax.axis_index('block')\n"
            f"            there = pl.ds((tile + {v['shift']}) % (x.shape[0] // 64) * 64, 64)\n"
            "            plgpu.copy_smem_to_gmem(ring_smem.at[slot], y_gmem.at[there])",
        ),
    ),
}


def edited(exercise_id: str, values: Values, text: str) -> str:
    """An answer to a variant, from the text of the course's solution."""
    for old, new in ANSWERS[exercise_id](values):
        assert old in text, (exercise_id, old)
        text = text.replace(old, new)
    return text
