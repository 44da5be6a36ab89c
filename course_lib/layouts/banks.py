"""Bank conflicts: how long a store of registers to shared memory takes, and why.

Shared memory has 32 banks of 4 bytes; byte `b` is in bank `b // 4 % 32`. In one
*wavefront* each bank gives one 4-byte word, to all lanes that ask for it (a
broadcast). An instruction of a warp takes at least one wavefront for 32 lanes of
up to 4 bytes, two for 8 bytes a lane, four for 16. Where lanes of the same
wavefront need *different* words of one bank, the others wait: the *degree* is
the number of different words in the worst bank, 1 being free of conflicts.

That is the model behind JAX's `plan_tiled_transfer`, which prefers a transfer
without conflicts, else staggers it (half of the lanes go one register ahead), else
refuses; the tests compare the two. NVIDIA documents banks and broadcasts, not
which lanes share a wavefront of wider accesses; consecutive ones is what is
observed (CUDA Programming Guide, "Shared Memory").

Three kinds of instruction move an array (`Transfer.form`), as JAX chooses them:

- *vector*: `st.shared`, each lane a register to neighbouring bytes.
- *row*: `stmatrix` (`ldmatrix`), where a register has 32 bits and 4 lanes in a row hold 16
  neighbouring bytes. It moves matrices of 8 rows of 16 bytes; each is a wavefront, of the
  same words as the vector form's.
- *column*: `stmatrix.trans`, where 8 lanes (each fourth) hold neighbouring elements: memory
  has the array transposed, and the instruction turns it. Elements of 16 bits: a matrix is a
  register of all lanes. Of 8 bits (Blackwell): two registers whose elements lie 8 bytes
  apart make a matrix of 16 x 16, two wavefronts.

Sources: PTX ISA, "stmatrix" and "ldmatrix"; JAX's `FragmentedArray.transfer_tiled`.

    held = named("WGMMA", (64, 64))
    Transfer(held, SmemRef(shape=(64, 64), tiling=Tiling(((8, 64),)), swizzle=128)).degree      # 1
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.layouts import matrices
from course_lib.layouts.registers import LANES, WARPS, Layout, Replicated, Splat, Tiled
from course_lib.layouts.smem import BANK_BYTES, BANKS, SmemRef
from course_lib.layouts.tiling import Array, listed

__all__ = ["ARCHS", "BankUse", "Stagger", "Transfer"]

ARCHS = ("sm_90a", "sm_100a")
MAX_BYTES = 16
"""What one lane can transfer in one instruction."""


class BankUse(NamedTuple):
    """One bank in one wavefront.

    Attributes:
      bank: 0 to 31.
      words: the different words that lanes ask it for, as word numbers (bytes // 4).
      lanes: for each of these words, the lanes that ask for it.
    """

    bank: int
    words: tuple[int, ...]
    lanes: tuple[tuple[int, ...], ...]


class Stagger(NamedTuple):
    """A way around conflicts: half of the lanes transfer another register at that time.

    Attributes:
      group: lanes `l` with `l // group` odd are in the second half.
      ahead: how many registers further those are, modulo `period`.
      period: registers that take turns: `register // step % period` is rotated.
      step: how far apart they are in register numbers.
    """

    group: int
    ahead: int
    period: int
    step: int


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A store (or load) of an array between registers and shared memory.

    Attributes:
      layout: who holds what.
      ref: where it lies; its `view_shape` is the array's shape.
      arch: "sm_90a" or "sm_100a": `stmatrix` turns elements of 8 bits on Blackwell only.

    Raises:
      CourseError: the two do not fit together, or a register's elements are not neighbours
        in memory and cannot be turned, so that no instruction moves them; says what would.
    """

    layout: Layout
    ref: SmemRef
    arch: str = "sm_90a"

    def __post_init__(self) -> None:
        if self.arch not in ARCHS:
            raise CourseError(f"arch = {self.arch!r} is none of {listed(map(repr, ARCHS))}.")
        bits = self.vector_bits
        if bits % 8:
            raise CourseError(
                f"A register of {self.layout.vector_length} elements has {bits} bits, which is no "
                "whole number of bytes."
            )
        if bits > 8 * MAX_BYTES:
            raise CourseError(
                f"A register of {bits // 8} bytes is more than the {MAX_BYTES} that a lane "
                "transfers at once."
            )
        if self._steps and self._columns is None:
            raise CourseError(self._why_not())

    @functools.cached_property
    def _steps(self) -> int:
        """0 where a register's elements are neighbours, else their distance in bits."""
        steps = np.diff(self._bit_offsets, axis=-1)
        apart = steps[steps != self.ref.bits]
        return int(np.abs(apart).max()) if apart.size else 0

    def _why_not(self) -> str:
        turned = (
            " (stmatrix turns 8-bit elements on Blackwell, sm_100a, only)"
            if self._turned is not None
            else ""
        )
        return (
            f"The {self.layout.vector_length} elements of a register are not neighbours in memory "
            f"(they are up to {self._steps / 8:g} bytes apart), so no store moves them{turned}. "
            "For a transposed ref take WGMMA_TRANSPOSED or TCGEN05_TRANSPOSED, else a tile whose "
            "last axis runs along the register."
        )

    @functools.cached_property
    def _turned(self) -> matrices.Columns | None:
        """The transposing form, on any GPU: of layouts whose lanes are 8 x 4."""
        dims = self.layout.lane_dims if isinstance(self.layout, Tiled) else ()
        lanes = [dim for dim in dims if not isinstance(dim, Replicated)]
        if len(dims) != 2 or len(lanes) != 2:
            return None
        if self.ref.bits == 8 and lanes != sorted(lanes):  # JAX has no such transfer
            return None
        return matrices.columns(self._places, self.ref.bits)

    @property
    def _columns(self) -> matrices.Columns | None:
        """The transposing form, where this GPU has it and nothing else moves the registers."""
        if not self._steps or (self.ref.bits == 8 and self.arch != "sm_100a"):
            return None
        return self._turned

    @functools.cached_property
    def form(self) -> str:
        """The instruction: "vector" (`st.shared`), "row" (`stmatrix`) or "column" (`.trans`)."""
        if self._columns is not None:
            return "column"
        tiled = isinstance(self.layout, Tiled)
        rows = tiled and matrices.is_rows(self._places, self.ref.bits) and self.degree == 1
        return "row" if rows else "vector"

    @property
    def vector_bits(self) -> int:
        """Bits of a register, which one lane transfers at once."""
        return self.layout.vector_length * self.ref.bits

    @property
    def lane_bytes(self) -> int:
        """Bytes that one lane transfers at once."""
        return self.vector_bits // 8

    @property
    def wavefront_lanes(self) -> int:
        """Lanes that share a wavefront: 32, or 16 of 8 bytes, or 8 of 16 bytes."""
        return LANES // max(1, self.lane_bytes // BANK_BYTES)

    @functools.cached_property
    def _bit_offsets(self) -> Array:
        """Address in bits of each place: `[thread, register, element]`."""
        held = self.layout.elements(self.ref.view_shape)
        index = np.stack(np.unravel_index(held, self.ref.view_shape), axis=-1)
        return self.ref.bit_offset(index)

    @property
    def _places(self) -> Array:
        """The same, `[warp, lane, register, element]`."""
        return self._bit_offsets.reshape(WARPS, LANES, *self._bit_offsets.shape[1:])

    @functools.cached_property
    def byte_offsets(self) -> Array:
        """Where each lane's register begins: int64, shape `(4 warps, 32 lanes, registers)`."""
        return self._places[..., 0] // 8

    @functools.cached_property
    def registers(self) -> Array:
        """The registers of each instruction's turn: int64, `(turns, 1)`, or 2 of 8-bit columns."""
        if self._columns is not None:
            return self._columns.registers
        return np.arange(self.byte_offsets.shape[-1])[:, None]

    @functools.cached_property
    def slot_lanes(self) -> Array:
        """The lane of each slot of a turn, wavefront after wavefront: int64, 32 or 64."""
        return np.arange(LANES) if self._columns is None else self._columns.lanes

    @functools.cached_property
    def word_numbers(self) -> Array:
        """The 4-byte words of each slot: int64, `(4 warps, turns, slots, words)`."""
        if self._columns is not None:
            return self._columns.bits // (8 * BANK_BYTES)
        return _words(self.byte_offsets.swapaxes(1, 2), self.lane_bytes)

    @functools.cached_property
    def degrees(self) -> Array:
        """The degree of every wavefront: int64, `(4 warps, turns, wavefronts)`."""
        return _degrees(self.word_numbers, self.wavefront_lanes)

    @property
    def degree(self) -> int:
        """The worst degree: 1 is free of conflicts."""
        return int(self.degrees.max())

    @property
    def wavefronts(self) -> int:
        """Wavefronts that the warpgroup needs for the whole transfer."""
        return int(self.degrees.sum())

    @property
    def least_wavefronts(self) -> int:
        """The same if there were no conflicts."""
        return self.degrees.size

    def uses(self, warp: int, turn: int, wavefront: int = 0) -> list[BankUse]:
        """What each bank is asked for in one wavefront, in the order of the banks."""
        first = wavefront * self.wavefront_lanes
        slots = slice(first, first + self.wavefront_lanes)
        words = self.word_numbers[warp, turn, slots]
        by_word: dict[int, list[int]] = {}
        for lane, own in zip(self.slot_lanes[slots].tolist(), words.tolist(), strict=True):
            for word in dict.fromkeys(own):
                if lane not in by_word.setdefault(word, []):
                    by_word[word].append(lane)
        by_bank: dict[int, list[int]] = {}
        for word in sorted(by_word):
            by_bank.setdefault(word % BANKS, []).append(word)
        return [
            BankUse(b, tuple(ws), tuple(tuple(sorted(by_word[w])) for w in ws))
            for b, ws in sorted(by_bank.items())
        ]

    def reason(self, warp: int, turn: int, wavefront: int = 0) -> str:
        """A wavefront in a sentence or two: conflicts, with their lanes, words and bank."""
        uses = self.uses(warp, turn, wavefront)
        worst = max(uses, key=lambda use: len(use.words))
        asked = f"{len(uses)} of {BANKS} banks are used"
        told = self._sharing(max((len(lanes) for use in uses for lanes in use.lanes), default=1))
        if len(worst.words) == 1:
            return f"No conflict: each bank is asked for one word; {asked}.{told}"
        who = [
            f"{_lanes(lanes)} word {word}"
            for word, lanes in zip(worst.words, worst.lanes, strict=True)
        ]
        return (
            f"{len(worst.words)}-way conflict: bank {worst.bank} is asked for "
            f"{len(worst.words)} different words ({'; '.join(who)}), one after the other; "
            f"{asked}.{told}"
        )

    def _sharing(self, most: int) -> str:
        """What it means that `most` lanes have to do with one word."""
        if most == 1:
            return ""
        if self.form == "column":
            return f" A word is made of the elements of {most} lanes: stmatrix.trans turns them."
        return f" Up to {most} lanes share a word: a broadcast, no conflict."

    def stagger(self) -> Stagger | None:
        """A way to transfer without conflicts where half of the lanes go ahead, if there is one.

        What JAX does when the plain order has conflicts: in the same instruction, lanes of
        the second half transfer another register than those of the first.
        """
        if self._columns is not None:
            return None
        count = self.byte_offsets.shape[-1]
        for step, period in _rotations(count):
            if not self._is_an_axis(step, period):
                continue  # where JAX does not look
            for group, ahead in np.ndindex(5, period - 1):
                plan = Stagger(2**group, ahead + 1, period, step)
                if self._staggered_degree(plan, warps=1) > 1:
                    continue
                if self._staggered_degree(plan) == 1:
                    return plan
        return None

    def _is_an_axis(self, step: int, period: int) -> bool:
        """Whether `period` registers, `step` apart, are evenly apart in memory, by no whole rows.

        Before the swizzle; those that are not belong to several axes of the tiled array.
        """
        places = self._plain_starts[: step * period : step]
        return places[1] % (BANKS * BANK_BYTES * 8) != 0 and np.array_equal(
            places, np.arange(period) * places[1]
        )

    @functools.cached_property
    def _plain_starts(self) -> Array:
        """Where thread 0's registers begin, before the swizzle, in bits from its first."""
        first = self.layout.elements(self.ref.view_shape)[0, :, 0]
        index = np.stack(np.unravel_index(first, self.ref.view_shape), axis=-1)
        places = self.ref.element_offset(index) * self.ref.bits
        return places - places[0]

    def _staggered_degree(self, plan: Stagger, *, warps: int = WARPS) -> int:
        """The degree under a plan; of the first warp alone it tells most plans that fail."""
        register = np.arange(self.byte_offsets.shape[-1])
        turn = register // plan.step % plan.period
        other = register + ((turn + plan.ahead) % plan.period - turn) * plan.step
        if warps == 1:
            register, other = register[:4], other[:4]
        own, ahead = (self.byte_offsets[:warps, :, r] for r in (register, other))
        late = np.arange(LANES) // plan.group % 2 == 1
        offsets = np.where(late[:, None], ahead, own)
        words = _words(offsets.swapaxes(1, 2), self.lane_bytes)
        return int(_degrees(words, self.wavefront_lanes).max())

    def summary(self) -> str:
        """The whole transfer in a sentence or two."""
        if isinstance(self.layout, Splat):
            return "All elements are equal: any thread may store any of them."
        plain = f"{self._instruction()}; {self.least_wavefronts} wavefronts without conflicts."
        if self.degree == 1:
            return f"Free of bank conflicts. {plain}"
        mended = self._mended()
        return f"{self.degree}-way bank conflicts, {self.wavefronts} wavefronts. {plain} {mended}"

    def _instruction(self) -> str:
        if self.form == "vector":
            return f"Each lane transfers {self.lane_bytes} bytes at once"
        name = "stmatrix" if self.form == "row" else "stmatrix.trans"
        return f"{name} moves matrices of 8 rows of 16 bytes, each in one wavefront"

    def _mended(self) -> str:
        """What JAX does about conflicts."""
        refused = "so JAX refuses the transfer unless you pass optimized=False."
        if self.form == "column":
            return f"Nothing mends it, {refused}"
        plan = self.stagger()
        if plan is None:
            return f"No staggering of two halves of the lanes mends it, {refused}"
        return (
            f"JAX staggers it: lanes l with l // {plan.group} odd transfer the register "
            f"{plan.ahead * plan.step} further, which is free of conflicts."
        )


def _words(offsets: Array, lane_bytes: int) -> Array:
    """The word numbers that transfers at these byte offsets touch, on a new last axis."""
    count = max(1, lane_bytes // BANK_BYTES)
    return offsets[..., None] // BANK_BYTES + np.arange(count)


def _degrees(words: Array, wavefront_lanes: int) -> Array:
    """From `[warp, turn, slot, word]` to the most different words of a bank per wavefront."""
    warps, registers = words.shape[:2]
    flat = words.reshape(warps * registers * (words.shape[2] // wavefront_lanes), -1)
    flat = np.sort(flat, axis=1)
    new = np.ones(flat.shape, bool)
    new[:, 1:] = flat[:, 1:] != flat[:, :-1]
    row = np.broadcast_to(np.arange(len(flat))[:, None], flat.shape)
    counts = np.zeros((len(flat), BANKS), np.int64)
    np.add.at(counts, (row[new], flat[new] % BANKS), 1)
    return counts.max(axis=1).reshape(warps, registers, -1)


def _rotations(registers: int) -> list[tuple[int, int]]:
    """Pairs `(step, period)` of powers of two with `step * period` dividing the registers."""
    pairs = []
    step = 1
    while step < registers:
        period = 2
        while registers % (step * period) == 0:
            pairs.append((step, period))
            period *= 2
        step *= 2
    return pairs


def _lanes(lanes: Sequence[int]) -> str:
    most = 6
    if len(lanes) > most:
        return f"lanes {', '.join(map(str, lanes[:most]))}, ... ({len(lanes)}) want"
    return (
        f"lane {lanes[0]} wants" if len(lanes) == 1 else f"lanes {listed(lanes, word='and')} want"
    )
