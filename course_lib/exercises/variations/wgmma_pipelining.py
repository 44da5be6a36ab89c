"""Variants of the exercises of chapter 08: other bytes, tiles left out, turned or moved."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from course_lib.exercises.registry import Case, Spec
from course_lib.exercises.variations import Variants, Varied
from course_lib.kernels import wgmma_pipelining as kernels

Array = np.ndarray[Any, Any]

_TILE_K = 64  # how much of K a slot of this chapter's rings holds
_BLOCK_N = 256  # columns of a block whose epilogue goes in pieces
# bytes of an element -> what it is called, and the dense FLOP per cycle and SM of an H100 or
# H200 (data sheet: 1979 TFLOP/s of float8, 495 of tf32, 989 of 16 bits, which are 4096)
_OPERANDS = {1: ("a float8 of 1 byte", 8192), 4: ("a tf32 of 4 bytes", 2048)}


def _product(m: int, n: int, steps: int, dtype: str = "float16", **static: int) -> Case:
    k = steps * _TILE_K
    return Case((Spec((m, k), dtype), Spec((k, n), dtype)), static)


def _roofline(*, size: int, tiles: int) -> Varied:
    name, flop = _OPERANDS[size]
    return Varied(
        statement=(
            "Return the FLOP per cycle that SMEM, the L2 cache and the tensor core allow, in this "
            f"order, as a float32 jnp.array of 3. An element is {name}. Warpgroups compute "
            f"wg_m x wg_n each, the block block_m x block_n. It does so {tiles} times: tiles of "
            "the result beside each other, one after the other, with the same rows of A, which "
            "stay in SMEM and are copied once. SMEM moves 128 bytes per cycle (reads by wgmma and "
            "writes by copies together), the L2 cache sends 64, the tensor core does "
            f"{flop} FLOP."
        ),
        reference=functools.partial(_roofline_reference, size=size, tiles=tiles),
        edits=(
            (
                "There is no kernel in this one.",
                f"Two things are different from the table above. An element is {name}: a wgmma "
                f"instruction takes {32 // size} of K, and the TensorCore does {flop} FLOP per "
                f"clock. And the block computes {tiles} tiles of the result beside each other, of "
                "`block_m` x `block_n` each, one after the other: its rows of A stay in SMEM and "
                "are copied once for all of them. There is no kernel in this one.",
            ),
        ),
    )


def _roofline_reference(
    *, wg_m: int, wg_n: int, block_m: int, block_n: int, size: int, tiles: int
) -> Array:
    k = 32 // size
    flop = 2 * block_m * block_n * k * tiles
    read = (block_m * block_n) // (64 * wg_n) * tiles * (64 + wg_n) * k * size
    copied = (block_m + tiles * block_n) * k * size
    smem = flop / (read + copied) * kernels.SMEM_BYTES_PER_CYCLE
    l2 = flop / copied * kernels.L2_BYTES_PER_CYCLE
    return np.asarray((smem, l2, _OPERANDS[size][1]), np.float32)


def _ring(*, first: int, stride: int) -> Varied:
    nth = {2: "2nd", 3: "3rd"}[stride]
    tiles = f"{first}, {first + stride}, {first + 2 * stride} ..."
    return Varied(
        statement=(
            f"Multiply only the tiles {tiles} along K, every {nth} one from tile {first} on, and "
            "leave out the others. Use a ring of `slots` slots: fill all slots, then in each step "
            "wait for the slot, multiply, wait until only the wgmma just issued may run, and "
            "refill the slot that is free now. There are at least as many such tiles as slots."
        ),
        reference=functools.partial(_ring_reference, first=first, stride=stride),
        cases=(
            _product(128, 128, first + 4 * stride + 1, slots=3),
            _product(128, 256, first + 2 * stride, slots=2),
            _product(256, 128, first + 5 * stride + 1, "bfloat16", slots=4),
        ),
        edits=(
            (
                "Write the loop so that it works for any number of slots from 2.",
                "Write the loop so that it works for any number of slots from 2. Here it is to go "
                f"along every {nth} tile of K only: tiles {tiles} are multiplied and "
                "added up, the others are neither fetched nor multiplied. There are at least as "
                "many of them as slots.",
            ),
        ),
    )


def _ring_reference(a: Array, b: Array, *, slots: int, first: int, stride: int) -> Array:
    used = np.arange(a.shape[1]) // _TILE_K % stride == first
    return kernels.product_reference(a[:, used], b[used])


def _delay_release(*, shift: int) -> Varied:
    partner = f"(ki + {shift}) % tiles.k_iters"
    return Varied(
        statement=(
            f"Along K, multiply tile ki of a with tile (ki + {shift}) % k_iters of b, where "
            "k_iters is how many tiles there are, and add up. Do it with plgpu.emit_pipeline, "
            "`slots` slots, and leave `unfinished` wgmmas running at the end of each step (0 or "
            "1). Keep no slot longer than needed: there may be only one more than unfinished "
            "wgmmas."
        ),
        reference=functools.partial(_shifted_reference, shift=shift),
        edits=(
            (
                "Multiply with `emit_pipeline`, `slots` slots,",
                f"Multiply tile `ki` of A along K with tile `{partner}` of B, and add up. Do it "
                "with `emit_pipeline`, `slots` slots,",
            ),
            (
                "About 12 lines.",
                "About 12 lines. (`score`, at the end of this chapter, wants a plain product: "
                "leave the shift out for it.)",
            ),
        ),
    )


def _shifted_reference(a: Array, b: Array, *, shift: int, **how: int) -> Array:
    return kernels.product_reference(a, np.roll(b, -shift * _TILE_K, axis=0), **how)


def _epilogue(*, shift: int, low: int) -> Varied:
    return Varied(
        statement=(
            "Write a block's tile of 128 x 256 to o_gmem in pieces of epi_tile_n columns, through "
            "the two buffers in buffers_smem, so that one piece leaves while the next is written. "
            f"Piece i goes to the place of piece (i + {shift}) % pieces, where pieces is how many "
            f"there are, and what is below {low} becomes {low}."
        ),
        reference=functools.partial(_epilogue_reference, shift=shift, low=low),
        edits=(
            (
                "Chapter 05 has all that you need.",
                f"What is below {low} becomes {low}. And piece `i` goes to the place of piece "
                f"`(i + {shift}) % pieces`, where `pieces` is how many there are. Chapter 05 has "
                "all that you need.",
            ),
        ),
    )


def _epilogue_reference(a: Array, b: Array, *, epi_tile_n: int, shift: int, low: int) -> Array:
    product = np.maximum(kernels.product_reference(a, b), np.asarray(low, a.dtype))
    pieces = product.reshape(len(a), -1, _BLOCK_N // epi_tile_n, epi_tile_n)
    return np.roll(pieces, shift, axis=2).reshape(product.shape)


def _ping_pong(*, skip: int) -> Varied:
    return Varied(
        statement=(
            f"Add up tile `number` in `acc`, as warpgroup `wg`, without its steps ki < {skip} "
            "along K: their operands come like all others, and their slots have to be "
            "released, but they are not multiplied. For each other step wait for the copies of its "
            "slot, multiply, leave one wgmma running, and release the slot of the step before. In "
            "the end release the last slot, too."
        ),
        reference=functools.partial(_ping_pong_reference, skip=skip),
        cases=(
            _product(256, 256, skip + 3, slots=3),
            _product(192, 384, skip + 2, "bfloat16", slots=4),
            _product(128, 128, skip + 1, slots=2),
        ),
        edits=(
            (
                "`multiply(acc, number, wg, turns)` adds up this block's tile\n`number` in `acc`.",
                "`multiply(acc, number, wg, turns)` adds up this block's tile\n`number` in `acc`, "
                f"and here it leaves out its steps `ki < {skip}` along K: their operands "
                "come like all others, and their slots have to be released, but they are not "
                "multiplied.",
            ),
            (
                "Leave one wgmma running, and release",
                "In the other steps leave one wgmma running, and release",
            ),
        ),
    )


def _ping_pong_reference(a: Array, b: Array, *, skip: int, **how: int) -> Array:
    rest = slice(skip * _TILE_K, None)
    return kernels.product_reference(a[:, rest], b[rest], **how)


VARIANTS = {
    "roofline": Variants({"size": (1, 4), "tiles": (2, 4, 8)}, _roofline),
    "ring": Variants({"first": (0, 1), "stride": (2, 3)}, _ring),
    "delay_release": Variants({"shift": (1, 2, 3)}, _delay_release),
    # odd: a tile of two pieces would not notice an even shift
    "epilogue": Variants({"shift": (1, 3, 5), "low": (-8, -4, 0, 4)}, _epilogue),
    "ping_pong": Variants({"skip": (1, 2, 3)}, _ping_pong),
}
