"""The solutions of chapter 02's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

_BLOCK = {0: "(j * (m // mt) + outer) * mt + inner", 2: "(outer * mt + inner) * n + j"}

ANSWERS: dict[str, Edits] = {
    "tiled_product": lambda v: (
        (
            'ni = jax.lax.axis_index("n")',
            f'j = jax.lax.axis_index("n")\n        ni = (j + {v["shift"]} * outer) % n',
        ),
        ("(outer * n + ni) * mt + inner", _BLOCK[v["n_axis"]]),
    ),
    "snake": lambda v: (
        (
            "jnp.where(band % 2 == 0, along, n - 1 - along)",
            f"jnp.where(band % {v['period']} == {v['first']}, n - 1 - along, along)",
        ),
    ),
    "persistent_product": lambda v: (
        ("nd_loop((m, n)", "nd_loop((n, m)"),
        ("mi, ni = info.index", "ni, mi = info.index"),
        (
            '= jax.lax.axis_index("sm")',
            f'= info.local_index * {v["weight"]} + jax.lax.axis_index("sm")',
        ),
    ),
}
