"""The solutions of chapter 08's variants."""

from __future__ import annotations

from tests.grading.variant_answers import Edits, Values


def _roofline(v: Values) -> tuple[tuple[str, str], ...]:
    size, tiles = v["size"], v["tiles"]
    return (
        ("* block_n * 16", f"* block_n * {32 // size} * {tiles}"),
        ("(64 * wg_n)", f"(64 * wg_n) * {tiles}"),
        ("(64 + wg_n) * 16 * 2", "(64 + wg_n) * 32"),
        ("(block_m + block_n) * 16 * 2", f"(block_m + {tiles} * block_n) * 32"),
        ("4096", str({1: 8192, 4: 2048}[size])),
    )


def _ring(v: Values) -> tuple[tuple[str, str], ...]:
    first, stride = v["first"], v["stride"]
    count = f"        count = (tiles.k_iters - {first} + {stride - 1}) // {stride}\n"
    return (
        (
            "        for slot in range(tiles.slots):\n",
            f"{count}        for slot in range(tiles.slots):\n",
        ),
        ("tiles.fetch(slot,", f"tiles.fetch({first} + {stride} * slot,"),
        ("pl.loop(0, tiles.k_iters)", "pl.loop(0, count)"),
        ("load_i < tiles.k_iters", "load_i < count"),
        ("tiles.fetch(load_i,", f"tiles.fetch({first} + {stride} * load_i,"),
    )


def _ping_pong(v: Values) -> tuple[tuple[str, str], ...]:
    skip = v["skip"]
    wait = "plgpu.barrier_wait(turns.loaded.at[wg * slots + slot])"
    return (
        (
            "        @pl.loop(0, turns.k_iters)\n",
            f"        @pl.loop(0, {skip})\n"
            "        def _pass(ki):\n"
            "            slot = jax.lax.rem(first + ki, slots)\n"
            f"            {wait}\n"
            "            plgpu.barrier_arrive(turns.consumed.at[slot])\n\n"
            f"        @pl.loop({skip}, turns.k_iters)\n",
        ),
        ("pl.when(ki > 0)", f"pl.when(ki > {skip})"),
    )


ANSWERS: dict[str, Edits] = {
    "roofline": _roofline,
    "ring": _ring,
    "delay_release": lambda v: (
        (
            "lambda ki: (ki, 0)",
            f"lambda ki: (jax.lax.rem(ki + {v['shift']}, tiles.k_iters), 0)",
        ),
    ),
    "epilogue": lambda v: (
        (
            "            plgpu.wait_smem_to_gmem(1, wait_read_only=True)\n",
            f"            place = (i + {v['shift']}) % (256 // epi_tile_n)\n"
            "            there = slice(place * epi_tile_n, (place + 1) * epi_tile_n)\n"
            "            plgpu.wait_smem_to_gmem(1, wait_read_only=True)\n",
        ),
        ("= value[:, cols]", f"= jnp.maximum(value[:, cols], {v['low']})"),
        ("o_gmem.at[:, cols]", "o_gmem.at[:, there]"),
    ),
    "ping_pong": _ping_pong,
}
