"""The solutions of chapter 06's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits

ANSWERS: dict[str, Edits] = {
    "hand_off": lambda v: (
        (
            "plgpu.barrier_arrive(ready)",
            "plgpu.barrier_arrive(ready.at[0])\n"
            "\n"
            f"        @pl.when((thread > 0) & (thread < {v['threads'] - 1}))\n"
            "        def between():\n"
            "            plgpu.barrier_wait(ready.at[thread - 1])\n"
            f"            item_smem[...] = item_smem[...] * {v['factor']}\n"
            "            plgpu.barrier_arrive(ready.at[thread])",
        ),
        ("thread == 1", f"thread == {v['threads'] - 1}"),
        ("plgpu.barrier_wait(ready)", f"plgpu.barrier_wait(ready.at[{v['threads'] - 2}])"),
    ),
    "exp_minus": lambda v: (
        ("num_arrivals=2", f"num_arrivals={v['producers']}"),
        ("thread == 1", f"(thread > 0) & (thread < {v['producers']})"),
        ("items_smem[1] = -x_gmem[1]", f"items_smem[thread] = -{v['factor']} * x_gmem[thread]"),
        ("thread == 2", f"thread == {v['producers']}"),
        (
            "items_smem[0] + items_smem[1]",
            f"sum(items_smem[t] for t in range({v['producers']}))",
        ),
    ),
    "take_turns": lambda v: (
        ("plgpu.barrier_wait(added)", "plgpu.barrier_wait(multiplied)"),
        ("item_smem[...] + 1", f"item_smem[...] + {v['plus']}"),
        (
            "plgpu.barrier_arrive(added)",
            "plgpu.barrier_arrive(added)\n"
            "\n"
            "        @pl.when(thread == 2)\n"
            "        def multiplies():\n"
            "            @pl.loop(0, rounds)\n"
            "            def _(i):\n"
            "                plgpu.barrier_wait(added)\n"
            f"                item_smem[...] = item_smem[...] * {v['factor']}\n"
            "                plgpu.barrier_arrive(multiplied)",
        ),
    ),
    "queue": lambda v: (
        ("x_gmem[i] * 2", f"x_gmem[i] * {v['factor']}"),
        (
            "        def consumer():\n            @pl.loop(0, steps)\n            def _(i):\n",
            "        def consumer():\n            def step(i, total):\n",
        ),
        (
            "y_gmem[i] = items_smem[slot] + 1",
            "total = total + items_smem[slot]\n                y_gmem[i] = total",
        ),
        (
            "plgpu.barrier_arrive(consumed.at[slot])",
            "plgpu.barrier_arrive(consumed.at[slot])\n"
            "                return total\n"
            "\n"
            f"            start = jnp.full(x.shape[2:], {v['start']}, x.dtype)\n"
            "            jax.lax.fori_loop(0, steps, step, start)",
        ),
    ),
    "ring": lambda v: (
        ("(thread + 1).astype", f"(thread + {v['plus']}).astype"),
        ("(thread + 1, 3)", f"(thread + 1, {v['threads']})"),
    ),
    "two_compute_threads": lambda v: (
        ("232", "152"),
        ("        rows = pl.ds(thread * 32, 32)\n", ""),
        (
            "jnp.exp(x_smem[slot, rows])",
            f"jnp.exp(x_smem[slot] / (thread + {v['divisor']}).astype(jnp.float32))",
        ),
        ("y_gmem[rows]", "y_gmem[thread]"),
        ("jnp.zeros((32, 128)", "jnp.zeros((64, 128)"),
        ("num_arrivals=2", "num_arrivals=3"),
    ),
    "sum_of_products": lambda v: (
        (
            "pipeline = plgpu.emit",
            "tiles = a.shape[0] // 64\n"
            "        other = plgpu.BlockSpec(\n"
            f"            (64, 128), lambda ti: (jax.lax.rem(ti + {v['shift']}, tiles), 0)\n"
            "        )\n"
            "        pipeline = plgpu.emit",
        ),
        ("[spec, spec]", "[spec, other]"),
    ),
}
