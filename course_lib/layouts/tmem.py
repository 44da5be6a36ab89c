"""Tensor memory (Blackwell): 128 lanes x 512 columns of 32 bits, and where an array lies in it.

TMEM is reached by a block's warps through instructions of their own. Warp `w` of a
warpgroup reads and writes lanes `32 * w` to `32 * w + 31` only. An allocation is a
range of columns over all lanes: a power of two, 32 at least.

A TMEM layout is a register layout whose thread is the lane and whose register is the
column (`jax.experimental.mosaic.gpu.tcgen05.TMEMLayout`): *packed* puts 32 bits' worth
of elements in a column, *unpacked* one element, whatever its size.
Source: PTX ISA, "Tensor Memory"; "Data Path Layout Organization".
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

from course_lib.diagnostics import CourseError
from course_lib.layouts import registers
from course_lib.layouts.registers import Tiled
from course_lib.layouts.tiling import Array, Shape, Tiling, listed

__all__ = ["COLUMNS", "LANES", "TmemRef", "allocate", "allocated_columns", "parse"]

LANES, COLUMNS = 128, 512
MIN_COLUMNS = 32
ALIGNMENT = 4
"""Columns: where Mosaic GPU lets an array begin."""


def default(packing: int) -> Tiled:
    """Row `r` in lane `r`: M = 128 of one block, M = 256 of two."""
    return registers.tmem_native(packing)


def half_lane(columns: int, packing: int) -> Tiled:
    """M = 64 of one block: each warp's lanes hold 16 rows, the two halves of their columns."""
    tiles = ((64, columns), (16, columns // 2), (packing,))
    return Tiled(Tiling(tiles), (-5,), (-4, -3))


def m64_collective(columns: int, packing: int) -> Tiled:
    """M = 128 of two blocks, 64 rows each: warps 2 and 3 hold the right half of the columns."""
    return registers.m64_collective_native(columns, packing)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TmemRef:
    """An array in tensor memory.

    Attributes:
      shape: (128 or 64, columns).
      bits: of an element.
      packed: several elements of fewer than 32 bits in a column.
      collective: of an MMA that two blocks share.

    Raises:
      CourseError: what TMEM cannot hold; says what it could.
    """

    shape: Shape
    bits: int = 32
    packed: bool = False
    collective: bool = False

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or self.shape[0] not in (64, 128):
            raise CourseError(
                f"shape {self.shape} does not fit TMEM: it holds (128, N) or (64, N), the rows "
                f"being those of an MMA with M = 128 or 64."
            )
        if self.bits not in (8, 16, 32):
            raise CourseError(f"bits = {self.bits}: TMEM holds elements of 8, 16 or 32 bits.")
        if self.shape[1] < 1 or self.shape[1] % self.packing:
            raise CourseError(
                f"{self.shape[1]} columns of {self.bits} bits cannot be packed {self.packing} to a "
                f"column: take a multiple of {self.packing}."
            )
        if self.shape[0] == 64 and (self.shape[1] < 16 or self.shape[1] % 16):
            raise CourseError(
                f"{self.shape[1]} columns with M = 64: it must be a multiple of 16, because two "
                "halves of the lanes share them."
            )
        if self.columns > COLUMNS:
            raise CourseError(
                f"{self.shape} of {self.bits} bits{'' if self.packed else ', unpacked,'} takes "
                f"{self.columns} columns of TMEM; there are {COLUMNS}."
            )

    @property
    def packing(self) -> int:
        """Elements in a column of one lane."""
        return 32 // self.bits if self.packed else 1

    @property
    def layout(self) -> Tiled:
        """Where its elements lie: thread stands for lane, register for column."""
        if self.shape[0] == 128:
            return default(self.packing)
        make = m64_collective if self.collective else half_lane
        return make(self.shape[1], self.packing)

    @property
    def columns(self) -> int:
        """Columns that its elements take."""
        return math.prod(self.shape) // LANES // self.packing

    @property
    def allocated(self) -> int:
        """Columns that must be allocated: a power of two, 32 at least."""
        return max(MIN_COLUMNS, 1 << (self.columns - 1).bit_length())

    def places(self) -> Array:
        """Where each element lies: int64, shape `(*shape, 3)`: lane, column, place in the column.

        Columns are counted from the first of the allocation.
        """
        return self.layout.holders(self.shape)[:, 0].reshape(*self.shape, 3)

    def code(self, dtype: str) -> str:
        """The `plgpu` expression that allocates it."""
        given = f", packed={self.packed}" if self.bits < 32 else ""
        given += ", collective=True" if self.collective else ""
        return f"plgpu.TMEM({self.shape}, jnp.{dtype}{given})"


def allocate(refs: Sequence[TmemRef]) -> list[int]:
    """The first column of each of several arrays of a kernel's scratch.

    Mosaic GPU puts them one after the other, each from a multiple of 4 columns, and
    allocates the next power of two for all of them at once.

    Raises:
      CourseError: together they take more than 512 columns, or some are collective and
        some are not.
    """
    if len({ref.collective for ref in refs}) > 1:
        raise CourseError("A kernel's TMEM is all collective or all not; these are mixed.")
    starts, end = [], 0
    for ref in refs:
        starts.append(end)
        end += -(-ref.columns // ALIGNMENT) * ALIGNMENT
    if end > COLUMNS:
        sizes = listed((ref.columns for ref in refs), word="and")
        raise CourseError(f"{sizes} columns are {end} together; TMEM has {COLUMNS}.")
    return starts


def allocated_columns(refs: Sequence[TmemRef]) -> int:
    """What a kernel with these arrays allocates: a power of two, 32 columns at least.

    Raises:
      CourseError: as `allocate`.
    """
    end = allocate(refs)[-1] + -(-refs[-1].columns // ALIGNMENT) * ALIGNMENT
    return max(MIN_COLUMNS, 1 << (end - 1).bit_length())


def parse(text: str, *, collective: bool = False) -> list[TmemRef]:
    """The arrays of "128x64x32, 128x64x16p": rows x columns x bits, and p for packed.

    Raises:
      CourseError: what is no such array.
    """
    made = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = re.fullmatch(r"(\d+)\s*x\s*(\d+)\s*x\s*(\d+)(p?)", part)
        if found is None:
            raise CourseError(
                f"'{part}' is no array of TMEM: write rows x columns x bits, as 128x64x32, and p "
                "for packed."
            )
        rows, columns, bits = map(int, found.groups()[:3])
        packed = bool(found[4]) and bits < 32
        made.append(TmemRef(shape=(rows, columns), bits=bits, packed=packed, collective=collective))
    return made
