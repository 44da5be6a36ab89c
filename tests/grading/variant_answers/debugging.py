"""The solutions of chapter 14's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "normalised": lambda v: (
        ("def more(i, total):", "def more(i, sums):"),
        (
            "return total + jnp.sum(piece * piece)",
            "return sums[0] + jnp.sum(piece), sums[1] + jnp.sum(piece * piece)",
        ),
        (
            "total = jax.lax.fori_loop(0, pieces, more, 0.0)",
            "total, squares = jax.lax.fori_loop(0, pieces, more, (0.0, 0.0))\n"
            "        mean = total / x.size\n"
            f"        variance = squares / x.size - mean * mean + {v['extra']}",
        ),
        (
            "= x_gmem[pl.ds(i * 16, 16)] * jax.lax.rsqrt(total)",
            "= (x_gmem[pl.ds(i * 16, 16)] - mean) * jax.lax.rsqrt(variance)",
        ),
    ),
    "gelu": lambda v: (
        ("x = x_gmem[...]", f"x = x_gmem[...] + {v['shift']}"),
        (
            "= 0.5 * x * (1 + jnp.tanh(inner))",
            f"= {v['cap']} * jnp.tanh(0.5 / {v['cap']} * x * (1 + jnp.tanh(inner)))",
        ),
    ),
    "pull_back": lambda v: (
        (
            "* 2 * x / ((1 + x * x) * (1 + x * x))",
            f"* {v['power'] * v['plus']} * x ** {v['power'] - 1}"
            f" / ({v['plus']} + x ** {v['power']}) ** 2",
        ),
    ),
}
