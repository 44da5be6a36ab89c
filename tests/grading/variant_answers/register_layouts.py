"""The solutions of chapter 04's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

# Neighbouring columns that a lane holds, and where the sums of rows and columns lie in y.
_COLUMNS = {64: 4, 128: 2}
_ALONG = {0: ":, None", 1: "None, :"}

ANSWERS: dict[str, Edits] = {
    "lane_numbers": lambda v: (
        ("row % 64 // 16", f"row % {v['rows']} // {v['rows'] // 4}"),
        (
            "column % 8 // 2",
            f"(column + {v['right']}) % {_COLUMNS[v['rows']] * 4} // {_COLUMNS[v['rows']]}",
        ),
    ),
    "softmax_rows": lambda v: (
        (".astype(jnp.float32)\n", f".astype(jnp.float32) * {v['scale']}\n"),
        ("jnp.sum(e, axis=1)", f"jnp.sum(e, axis=1) + jnp.exp({v['sink']} - largest)"),
    ),
    "row_argmax": lambda v: (
        (
            "largest = jnp.max",
            f"x = jnp.where(column % {v['step']} == {v['offset']}, x, -jnp.inf)\n"
            "        largest = jnp.max",
        ),
        ("column, n)", "column, -1)"),
        ("jnp.min(bids", "jnp.max(bids"),
    ),
    "rms_norm": lambda v: (
        ("w = plgpu", "x = x - jnp.mean(x, axis=1)[:, None]\n        w = plgpu"),
        ("+ 1e-6", f"+ {v['under']}"),
        ("* w[None, :]", f"* (w + {v['plus']})[None, :]"),
    ),
    "rows_plus_columns": lambda v: (
        ("sums_smem[...] = jnp.sum(x, axis=1)", f"sums_smem[...] = jnp.sum(x, axis={v['axis']})"),
        (
            "y_gmem[...] = sums_smem[...] + jnp.sum(x, axis=0)",
            f"s = sums_smem[...] + jnp.sum(x, axis={1 - v['axis']})\n"
            f"        y_gmem[...] = {v['factor']} * x + s[{_ALONG[v['axis']]}]",
        ),
    ),
}
