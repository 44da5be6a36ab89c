"""Swizzles: which 16-byte chunks of shared memory change places, and why.

A swizzle of `s` bytes looks at SMEM in rows of 128 bytes (all 32 banks once) and
XORs the number of a 16-byte chunk with the number of its row, modulo `s // 16`:

    swizzled = offset ^ (((offset >> 7) & (s // 16 - 1)) << 4)

So elements of one column, which lie in the same banks without it, spread over
different chunks. The pattern repeats every `8 * s` bytes, the swizzle atom, and
doing it twice undoes it. Source: PTX ISA, "Asynchronous Warpgroup Level
Matrix Shared Memory Layout"; it is CuTe's `Swizzle<3 | 2 | 1, 4, 3>`.

Offsets are counted from a multiple of 1024 bytes, where Mosaic GPU puts every
buffer: the hardware takes the bits from the address itself.
"""

from __future__ import annotations

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.layouts.tiling import Array, listed

__all__ = ["SWIZZLES", "check", "minor_elements", "phase", "swizzle_bits", "swizzle_bytes"]

SWIZZLES = (128, 64, 32)
"""The swizzles that there are, in bytes."""

ROW_BYTES = 128
CHUNK_BYTES = 16


def check(swizzle: int | None) -> None:
    """Whether this swizzle exists; `None` stands for no swizzle.

    Raises:
      CourseError: it does not; says what to write instead.
    """
    if swizzle is None or swizzle in SWIZZLES:
        return
    none = " 16 bytes would move nothing: leave the transform out." if swizzle == 16 else ""
    raise CourseError(
        f"swizzle = {swizzle} does not exist: there are {listed(SWIZZLES)} bytes.{none}"
    )


def minor_elements(swizzle: int, bits: int) -> int:
    """How many elements of `bits` bits the last axis of a tile has to have under a swizzle."""
    return swizzle * 8 // bits


def phase(offset: Array, swizzle: int | None) -> Array:
    """What the chunk number of these byte offsets is XORed with: 0 to `swizzle // 16 - 1`."""
    groups = (swizzle or CHUNK_BYTES) // CHUNK_BYTES
    return (np.asarray(offset) // ROW_BYTES) & (groups - 1)


def swizzle_bytes(offset: Array, swizzle: int | None) -> Array:
    """Where the byte at an unswizzled offset really is; its own inverse."""
    return np.asarray(offset) ^ (phase(offset, swizzle) * CHUNK_BYTES)


def swizzle_bits(offset: Array, swizzle: int | None) -> Array:
    """The same for offsets in bits, for elements smaller than a byte."""
    return np.asarray(offset) ^ (phase(np.asarray(offset) // 8, swizzle) * CHUNK_BYTES * 8)
