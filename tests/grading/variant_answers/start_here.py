"""The solutions of chapter 00's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "fill_iota": lambda v: (
        ('("block") * 128', f'("block") * {v["width"]}'),
        ("pl.ds(start, 128)", f"pl.ds(start, {v['width']})"),
        ("start + jnp.arange(128)", f"{v['step']} * (start + jnp.arange({v['width']}))"),
    ),
    "reverse_rows": lambda v: (
        ("rows - 1 - row", f"jax.lax.rem(rows - 1 - row + {v['shift']}, rows)"),
    ),
    "shift_tiles": lambda v: (
        ("m // 64", f"m // {v['rows']}"),
        ('rows = pl.ds(jax.lax.axis_index("mi") * 64, 64)', 'mi = jax.lax.axis_index("mi")'),
        (
            "to = jax.lax.rem(ni + 1, n // 128)",
            f"to = jax.lax.rem(mi + {v['down']}, m // {v['rows']})\n"
            "        columns = pl.ds(ni * 128, 128)",
        ),
        (
            "y_gmem[rows, pl.ds(to * 128, 128)] = x_gmem[rows, pl.ds(ni * 128, 128)]",
            "y_gmem[pl.ds(to * {0}, {0}), columns] = x_gmem[pl.ds(mi * {0}, {0}), columns]".format(
                v["rows"]
            ),
        ),
    ),
    "double_through_smem": lambda v: (
        (
            'part = pl.ds(jax.lax.axis_index("block") * 128, 128)',
            'block, blocks = jax.lax.axis_index("block"), x.shape[0] // 128\n'
            "        part = pl.ds(block * 128, 128)\n"
            f"        source = jax.lax.rem(block + {v['shift']}, blocks)",
        ),
        ("x_gmem.at[part]", "x_gmem.at[pl.ds(source * 128, 128)]"),
        ("* 2", f"* {v['factor']}"),
    ),
}
