"""The solutions of chapter 03's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "tiled_by_hand": lambda v: (
        ("pl.ds(mi * 8, 8)", f"pl.ds(mi * {v['rows']}, {v['rows']})"),
        ("pl.ds(ni * 64, 64)", f"pl.ds(ni * {v['columns']}, {v['columns']})"),
    ),
    "addresses": lambda v: (
        ("r // 8 * (128 // width)", f"r // 8 * ({v['columns']} // width)"),
        ("address_gmem[...] = address", f"address_gmem[...] = {v['base']} + (address"),
        (" << 4)", " << 4))"),
    ),
    "chosen": lambda v: (
        ("shape[0] % 8", f"shape[0] % {v['rows']}"),
        (
            "plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)",
            f"min({v['widest']}, plgpu.find_swizzle(shape[1] * dtype.itemsize * 8))",
        ),
    ),
    "swap_axes": lambda v: (
        (
            "copy_gmem_to_smem(x_gmem,",
            f"copy_gmem_to_smem(x_gmem.at[pl.ds({v['skip']}, m - {v['skip']})],",
        ),
    ),
    "transposed": lambda v: (
        ("layout=plgpu.Layout.WGMMA)", f"layout=plgpu.Layout.WGMMA) * {v['factor']}"),
    ),
}
