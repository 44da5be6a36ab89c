"""The solutions of chapter 22's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "standardize_rows": lambda v: (
        (
            "centred = x - jnp.sum(x) / cols",
            f"mean = (jnp.sum(x) + {v['known']}) / (cols + {v['known']})\n"
            "        centred = x - mean",
        ),
        (
            "variance = jnp.sum(centred * centred) / cols",
            f"variance = jnp.sum(centred * centred) + {v['known']} * (1 - mean) * (1 - mean)\n"
            f"        variance = variance / (cols + {v['known'] - v['degrees']})",
        ),
    ),
}
