"""The solutions of chapter 13's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "total": lambda v: (
        (
            "        parts_gmem[block] = jnp.exp(x_gmem[block])\n"
            "        pl.semaphore_signal(done)\n",
            f"        @pl.when(block % {v['stride']} == 0)\n"
            "        def mine():\n"
            f"            parts_gmem[block] = (block + {v['shift']}) * jnp.exp(x_gmem[block])\n"
            "            pl.semaphore_signal(done)\n",
        ),
        ("value=blocks", f"value=len(range(0, blocks, {v['stride']}))"),
        ("range(1, blocks)", f"range({v['stride']}, blocks, {v['stride']})"),
    ),
    "pass_left": lambda v: (
        ("me + devices - 1", f"me + {v['places']} * (devices - 1)"),
        ("x_gmem[...] * 2", f"x_gmem[...] * {v['factor']}"),
    ),
    "neighbours": lambda v: (
        ("(0, 1)", f"(0, {v['places']})"),
        ("+ inbox_gmem[1]", f"+ {v['factor']} * inbox_gmem[1]"),
    ),
    "gather": lambda v: (
        ("me + devices - s", "me + s"),
        ("after", "before"),
        ("= y_gmem[shard]", f"= {v['factor']} * y_gmem[shard]"),
    ),
    "fetch": lambda v: (
        (
            "twice_gmem[...] = x_gmem[...] * 2",
            f"after = jax.lax.rem(me + {v['places']}, devices)\n"
            f"        before = jax.lax.rem(me + {v['places']} * (devices - 1), devices)\n"
            f"        twice_gmem[...] = x_gmem[...] * {v['factor']}",
        ),
        ("twice_gmem", "product_gmem"),
    ),
}
