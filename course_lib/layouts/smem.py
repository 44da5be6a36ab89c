"""Shared memory: from a logical index to a byte address and a bank, and back.

    tiles = Tiling(((8, 64),))
    ref = SmemRef(shape=(64, 128), bits=16, tiling=tiles, swizzle=128)
    ref.byte_offset([[0, 0], [1, 0]])      # array([  0, 144])

is what `plgpu.SMEM((64, 128), jnp.bfloat16, transforms=(plgpu.TilingTransform((8, 64)),
plgpu.SwizzleTransform(128)))` describes; `permutation` adds `ref.transpose(...)`.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from course_lib.diagnostics import CourseError
from course_lib.layouts import swizzle as swizzles
from course_lib.layouts.tiling import Array, Shape, Tiling, listed, row_major_strides

__all__ = ["BANKS", "BANK_BYTES", "BITS", "SmemRef", "bank"]

BANKS = 32
BANK_BYTES = 4
BITS = (4, 8, 16, 32)
"""Sizes of elements, in bits."""


def bank(byte_offset: Array) -> Array:
    """The bank of these bytes: 0 to 31. A bank is 4 bytes wide."""
    return np.asarray(byte_offset) // BANK_BYTES % BANKS


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmemRef:
    """A reference to shared memory and its transforms.

    Attributes:
      shape: as allocated, in elements.
      bits: of an element.
      tiling: what `TilingTransform`s cut it into; tiles lie one after the other in memory.
      swizzle: bytes of the `SwizzleTransform` that follows, None for none.
      permutation: of `ref.transpose(permutation)`, the identity by default. Moves no data.

    Raises:
      CourseError: what does not fit together; says what would.
    """

    shape: Shape
    bits: int = 16
    tiling: Tiling = dataclasses.field(default_factory=Tiling)
    swizzle: int | None = None
    permutation: Shape | None = None

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise CourseError(f"bits = {self.bits}: an element has {listed(BITS)} bits here.")
        if not self.shape or any(d < 1 for d in self.shape):
            raise CourseError(f"shape {self.shape} does not fit: each size must be 1 or more.")
        swizzles.check(self.swizzle)
        self._check_swizzle_fits(self.tiling.shape(self.shape)[-1])
        if self.permutation is not None:
            self._check_permutation(self.permutation)

    def _check_swizzle_fits(self, minor: int) -> None:
        if self.swizzle is None:
            return
        wanted = swizzles.minor_elements(self.swizzle, self.bits)
        if minor == wanted:
            return
        what = "tile" if self.tiling.tiles else "array (it has no tiling)"
        fits = [s for s in swizzles.SWIZZLES if swizzles.minor_elements(s, self.bits) == minor]
        other = f", or take swizzle {fits[0]}" if fits else ""
        raise CourseError(
            f"swizzle {self.swizzle} and {self.bits}-bit elements need {wanted} elements along the "
            f"last axis of a tile ({self.swizzle} bytes); this {what} has {minor}. Tile by "
            f"(8, {wanted}){other}."
        )

    def _check_permutation(self, permutation: Shape) -> None:
        axes = tuple(range(len(self.shape)))
        if tuple(sorted(permutation)) != axes:
            raise CourseError(
                f"transpose {permutation} does not order the axes {axes} of the shape {self.shape}."
            )

    # ---- sizes ----

    @property
    def view_shape(self) -> Shape:
        """The shape after `ref.transpose`."""
        return tuple(self.shape[axis] for axis in self.permutation or range(len(self.shape)))

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def smem_bytes(self) -> int:
        """Bytes that it takes."""
        return -(-self.size * self.bits // 8)

    @functools.cached_property
    def memory_shape(self) -> Shape:
        """The shape after tiling: memory is its row-major order, swizzled."""
        return self.tiling.shape(self.shape)

    # ---- logical index -> address ----

    def element_offset(self, index: npt.ArrayLike) -> Array:
        """Place in memory before the swizzle, in elements, of indices `[..., rank]` of the view."""
        own = np.asarray(index, np.int64)
        if self.permutation is not None:
            own = own[..., np.argsort(self.permutation)]
        return self.tiling.index(own) @ np.array(row_major_strides(self.memory_shape))

    def bit_offset(self, index: npt.ArrayLike) -> Array:
        """Address in bits, swizzled, of indices `[..., rank]` of the view."""
        return swizzles.swizzle_bits(self.element_offset(index) * self.bits, self.swizzle)

    def byte_offset(self, index: npt.ArrayLike) -> Array:
        """Address in bytes, swizzled, of indices `[..., rank]` of the view."""
        return self.bit_offset(index) // 8

    def byte_offsets(self) -> Array:
        """The byte address of every element: int64, shape `view_shape`."""
        return self.byte_offset(self.indices())

    def indices(self) -> Array:
        """Every index of the view: int64, shape `(*view_shape, rank)`."""
        return np.moveaxis(np.indices(self.view_shape, np.int64), 0, -1)

    def phases(self) -> Array:
        """What each element's chunk number was XORed with: int64, shape `view_shape`."""
        unswizzled = self.element_offset(self.indices()) * self.bits // 8
        return swizzles.phase(unswizzled, self.swizzle)

    # ---- address -> logical index ----

    def index_at(self, slot: npt.ArrayLike) -> Array:
        """The index `[..., rank]` of the view that lies in each slot of memory.

        Args:
          slot: address in elements: bytes `slot * bits // 8` onwards.
        """
        bits = np.asarray(slot, np.int64) * self.bits
        place = swizzles.swizzle_bits(bits, self.swizzle) // self.bits
        tiled = np.stack(np.unravel_index(place, self.memory_shape), axis=-1)
        own = self.tiling.logical(tiled)
        return own if self.permutation is None else own[..., list(self.permutation)]

    def memory(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """What memory holds, slot after slot, when the view holds `values` (shape `view_shape`)."""
        index = self.index_at(np.arange(self.size))
        return values[tuple(np.moveaxis(index, -1, 0))]

    # ---- code ----

    def code(self, dtype: str) -> str:
        """The `plgpu` expression that allocates it."""
        transforms = [f"plgpu.TilingTransform({tile})" for tile in self.tiling.tiles]
        if self.swizzle:
            transforms.append(f"plgpu.SwizzleTransform({self.swizzle})")
        comma = "," if len(transforms) == 1 else ""
        given = f", transforms=({', '.join(transforms)}{comma})" if transforms else ""
        return f"plgpu.SMEM({self.shape}, jnp.{dtype}{given})"
