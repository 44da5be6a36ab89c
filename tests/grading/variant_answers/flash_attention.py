"""The solutions of chapter 12's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "online": lambda v: (
        (
            "new_max = jnp.maximum(row_max, jnp.max(s, axis=1) * scale)",
            f"s = {v['cap']} * jnp.tanh(s * scale / {v['cap']})\n"
            "        new_max = jnp.maximum(row_max, jnp.max(s, axis=1))",
        ),
        ("s * scale - new_max", "s - new_max"),
    ),
    "weights": lambda v: (
        ("math.log2(math.e)", f"math.log2({v['base']})"),
        ("(row_max * factor)", f"((row_max + {v['margin']}) * factor)"),
    ),
    "ping_pong": lambda v: (
        ("wg == 1", f"wg == {1 - v['first']}!"),
        ("wg == 0", f"wg == {v['first']}"),
        ("!", ""),
        ("turn.at[0]", f"turn.at[{v['first']}]"),
    ),
    "causal": lambda v: (
        ("row + 63", f"jnp.maximum(row + 63 + {v['past']}, {v['prefix'] - 1})"),
        ("keys <= queries", f"keys <= jnp.maximum(queries + {v['past']}, {v['prefix'] - 1})"),
    ),
    "merge": lambda v: (
        ("jnp.maximum(a, b)", f"jnp.maximum(jnp.maximum(a, b), {float(v['sink'])})"),
        ("jnp.exp(b - top)", f"{v['copies']} * jnp.exp(b - top)"),
        ("total = a + b", f"total = a + b + jnp.exp({v['sink']} - top)"),
    ),
}
