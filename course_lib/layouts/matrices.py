"""What `stmatrix` and `ldmatrix` can move: registers whose elements lie in rows of 16 bytes.

Both work on matrices of 8 rows of 16 bytes, of which the four lanes 4 j to 4 j + 3 hold
row j, 4 bytes each. Their transposing forms (`.trans`) take the 16 bytes the other way:
elements of one place of a register, in each fourth lane, are neighbours in memory.
Sources: PTX ISA, "Warp-level matrix store instruction: stmatrix" and "... ldmatrix".

All functions take places `[4 warps, 32 lanes, registers, elements]`: addresses in bits.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from course_lib.layouts.tiling import Array

__all__ = ["Columns", "columns", "is_rows"]

ROW_BITS = 128
REGISTER_BITS = 32
GROUPS = 8
"""Groups of four lanes: rows of a matrix."""


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """A transposed transfer, matrix after matrix.

    Attributes:
      registers: the registers that each matrix is made of: int64, `(matrices, 1 or 2)`.
      lanes: the lane of each slot of a matrix, wavefront after wavefront: `(slots,)`.
      bits: the address in bits of the elements in each slot: `(4 warps, matrices, slots,
        elements)`.
    """

    registers: Array
    lanes: Array
    bits: Array


def is_rows(places: Array, bits: int) -> bool:
    """Whether each four lanes in a row hold 16 neighbouring bytes, 4 bytes each."""
    if places.shape[-1] * bits != REGISTER_BITS:
        return False
    fours = places[..., 0].reshape(4, GROUPS, 4, -1)
    first = fours[:, :, :1]
    steps = (np.arange(4) * REGISTER_BITS)[:, None]
    return bool(np.all(fours == first + steps) and np.all(first % ROW_BITS == 0))


def columns(places: Array, bits: int) -> Columns | None:
    """How the transposing form moves these, or None where it cannot.

    That it takes Blackwell for elements of 8 bits is for the caller to check.
    """
    if bits not in (8, 16) or places.shape[-1] * bits != REGISTER_BITS:
        return None
    by_group = places.reshape(4, GROUPS, 4, *places.shape[2:])
    steps = (np.arange(GROUPS) * bits)[:, None, None, None]
    if np.any(by_group != by_group[:, :1] + steps):
        return None
    return _of_16_bits(places) if bits == 16 else _of_8_bits(places)


def _of_16_bits(places: Array) -> Columns | None:
    if np.any(places[:, :4] % ROW_BITS):
        return None
    registers = np.arange(places.shape[2])[:, None]
    return Columns(registers, np.arange(32), places.swapaxes(1, 2))


def _of_8_bits(places: Array) -> Columns | None:
    """Pairs of registers, 8 bytes apart; its first wavefront serves lanes 0 and 1 of each four."""
    start = places[0, 0, :, 0]
    by_start = {int(place): register for register, place in enumerate(start)}
    evens = [r for r, place in enumerate(start) if place % ROW_BITS == 0]
    pairs = [(r, by_start.get(int(start[r]) + ROW_BITS // 2)) for r in evens]
    if 2 * len(pairs) != len(start) or any(odd is None for _, odd in pairs):
        return None
    registers = np.array(pairs, np.int64)
    even, odd = (places[:, :, registers[:, i]] for i in (0, 1))
    if np.any(even[:, :4] % ROW_BITS) or np.any(odd != even + ROW_BITS // 2):
        return None
    lane = np.arange(32)
    halves = [np.tile(lane[lane % 4 // 2 == half], 2) for half in (0, 1)]
    of_slot = [np.repeat([0, 1], 16)] * 2
    slots = np.concatenate(halves)
    both = np.stack([even, odd])[np.concatenate(of_slot), :, slots]
    return Columns(registers, slots, np.moveaxis(both, 0, 2))
