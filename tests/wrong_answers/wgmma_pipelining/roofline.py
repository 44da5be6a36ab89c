"""Wrong answers to wgmma_pipelining.roofline."""

from __future__ import annotations

import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _ceilings(flop, read, copied):
    return jnp.array([flop / (read + copied) * 128, flop / copied * 64, 4096], jnp.float32)


def one_flop_per_product(*, wg_m, wg_n, block_m, block_n):
    """A multiply-add is two FLOP."""
    read = block_m * block_n // (64 * wg_n) * (64 + wg_n) * 16 * 2
    return _ceilings(block_m * block_n * 16, read, (block_m + block_n) * 16 * 2)


def forgets_the_copies(*, wg_m, wg_n, block_m, block_n):
    """SMEM is written by the copies, too."""
    flop, copied = 2 * block_m * block_n * 16, (block_m + block_n) * 16 * 2
    read = block_m * block_n // (64 * wg_n) * (64 + wg_n) * 16 * 2
    return jnp.array([flop / read * 128, flop / copied * 64, 4096], jnp.float32)


def reads_each_operand_once(*, wg_m, wg_n, block_m, block_n):
    """B is read again for each 64 rows."""
    flop, copied = 2 * block_m * block_n * 16, (block_m + block_n) * 16 * 2
    return _ceilings(flop, copied, copied)


def takes_the_smallest(*, wg_m, wg_n, block_m, block_n):
    """One number, where three are asked for."""
    read = block_m * block_n // (64 * wg_n) * (64 + wg_n) * 16 * 2
    three = _ceilings(2 * block_m * block_n * 16, read, (block_m + block_n) * 16 * 2)
    return jnp.min(three)


def plain_numbers(*, wg_m, wg_n, block_m, block_n):
    """A tuple of Python's numbers."""
    flop, copied = 2 * block_m * block_n * 16, (block_m + block_n) * 16 * 2
    read = block_m * block_n // (64 * wg_n) * (64 + wg_n) * 16 * 2
    return flop / (read + copied) * 128, flop / copied * 64, 4096.0


def float16_overflows_nothing_but_rounds(*, wg_m, wg_n, block_m, block_n):
    """The result in the operands' dtype."""
    read = block_m * block_n // (64 * wg_n) * (64 + wg_n) * 16 * 2
    three = _ceilings(2 * block_m * block_n * 16, read, (block_m + block_n) * 16 * 2)
    return three.astype(jnp.float16)


WRONG = {
    "one FLOP per product": Wrong(one_flop_per_product, "value", ("[0]", "3276.8")),
    "forgets the copies": Wrong(forgets_the_copies, "value", ("[0]", "3276.8")),
    "reads each operand once": Wrong(reads_each_operand_once, "value", ("[0]", "3276.8")),
    "takes the smallest": Wrong(takes_the_smallest, "shape", ("float32[3]",)),
    "plain numbers": Wrong(plain_numbers, "outputs", ("plain number",)),
    "float16": Wrong(float16_overflows_nothing_but_rounds, "dtype", ("float16", "float32")),
}
