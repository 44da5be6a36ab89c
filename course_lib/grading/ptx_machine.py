"""Runs a kernel's PTX on arrays: every lane of a launch, without a GPU and without running code.

    kernel = ptx_text.read(listing)
    ran = run(kernel, arguments=[buffer, 1000], grid=(4, 1, 1), block=(256, 1, 1), seed=7)
    ran.faults, ran.buffers[0]

A warp's lanes go together as long as they are at one instruction, those that are behind go
first. Between two barriers the warps of a block run one after the other, in an order drawn anew
each time: no GPU promises another one. Every access in global and shared memory is compared with
those of other lanes since the last barrier that both were at (PTX ISA, chapter 8, "Memory
Consistency Model": two accesses of one place, one of them a write, not both atomic, not ordered,
are a race). Memory that nobody wrote holds ones in all bits: NaN, or -1.

An instruction, a memory or a barrier that this model has not is `Unknown`: nobody's fault.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from course_lib.grading.ptx_memory import BLOCK_BARRIER, WARP, Array, Memory, Who
from course_lib.grading.ptx_steps import decoded
from course_lib.grading.ptx_text import LOCAL, SHARED, Kernel, Unknown
from course_lib.grading.ptx_values import TYPES, Lanes, constant

Size = tuple[int, int, int]

MOST_LANES = 1 << 17
MOST_STEPS = 500_000
_GLOBAL = 1 << 32
_GAP = 1 << 16  # bytes between two buffers, so that no small mistake leads from one into the other
_ADDRESS = re.compile(r"\[([\w$%]+)\s*(?:\+\s*(-?\d+))?\]")
_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid)\.([xyz])|%(laneid|warpid|lanemask_(?:eq|lt|le|gt|ge))"
)


class Endless(Exception):  # noqa: N818
    """More steps than there are for it."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What a kernel did wrong.

    Attributes:
      kind: "out-of-bounds", "race", "barrier", "crash".
      what: a sentence, without values.
    """

    kind: str
    what: str


@dataclasses.dataclass(frozen=True)
class Ran:
    """What came of a launch.

    Attributes:
      buffers: the buffers among the arguments as they are now, in their order.
      faults: what it did wrong; the first of each kind.
      used: the numbers of the instructions that some lane has done.
    """

    buffers: tuple[Array, ...]
    faults: tuple[Fault, ...]
    used: frozenset[int]


def run(
    kernel: Kernel, arguments: Sequence[Array | int], *, grid: Size, block: Size, seed: int,
    most_steps: int = MOST_STEPS, idle: Callable[[str], bool] | None = None,
) -> Ran:  # fmt: skip
    """Launches a kernel.

    Args:
      kernel: what `ptx_text.read` read.
      arguments: an array is a buffer in global memory, of its bytes; a number is one.
      grid, block: how many blocks, and lanes of a block, in x, y and z.
      seed: what the order of the warps is drawn from.
      most_steps: how many instructions all warps may do together.
      idle: says of an instruction's name whether it shall do nothing.

    Raises:
      Unknown: it does something that this model has not.
      Endless: it takes too many steps.
    """
    with np.errstate(all="ignore"):
        machine = Machine(kernel, arguments, grid, block, seed, idle or (lambda opcode: False))
        machine.run(most_steps)
        used = frozenset(map(int, np.flatnonzero(machine.used)))
        return Ran(machine.buffers(), tuple(machine.faults.values()), used)


class Group:
    """The warps of one number in all blocks, which run together.

    Attributes:
      size: how many lanes, with those that the last warp of a block may lack.
      registers: the values of all lanes, by name: unsigned, or predicates.
      at: the number of each lane's next instruction.
      live: which lanes have not ended; waiting: which are at a barrier.
    """

    def __init__(self, warp: int, blocks: int, lanes: int, grid: Size, block: Size) -> None:
        self.size = blocks * WARP
        number = np.arange(self.size)
        self.block = number // WARP
        self.thread = warp * WARP + number % WARP
        self.lane = np.minimum(self.block * lanes + self.thread, blocks * lanes - 1)
        self.registers: dict[str, Lanes] = {}
        self.at = np.zeros(self.size, np.int64)
        self.live = self.thread < lanes
        self.waiting = np.zeros(self.size, bool)
        self.passed = np.zeros(self.size, np.int64)  # barriers, as `Who.times`
        self.special = {f"tid.{axis}": v for axis, v in _coordinates(self.thread, block)}
        self.special |= {f"ctaid.{axis}": v for axis, v in _coordinates(self.block, grid)}
        for name, size in (("ntid", block), ("nctaid", grid)):
            self.special |= {
                f"{name}.{axis}": np.full(self.size, n, np.uint32)
                for axis, n in zip("xyz", size, strict=True)
            }
        lane = (number % WARP).astype(np.uint32)
        one = np.uint32(1) << lane
        self.special |= {"laneid": lane, "warpid": np.full(self.size, warp, np.uint32)}
        less = one - np.uint32(1)
        self.special |= {"lanemask_eq": one, "lanemask_lt": less, "lanemask_le": less | one}
        self.special |= {"lanemask_ge": ~less, "lanemask_gt": ~less ^ one}

    @property
    def ready(self) -> Array:
        """Which lanes could go on."""
        return self.live & ~self.waiting

    def whole(self, mask: Array) -> Array:
        """The lanes of a mask whose warps are in it with all lanes that are alive."""
        missing = (self.live & ~mask).reshape(-1, WARP).any(axis=1)
        return mask & ~np.repeat(missing, WARP)


def _coordinates(number: Array, size: Size) -> Iterator[tuple[str, Lanes]]:
    x, y, _ = size
    yield "x", (number % x).astype(np.uint32)
    yield "y", (number // x % y).astype(np.uint32)
    yield "z", (number // (x * y)).astype(np.uint32)


Step = Callable[[Group, Array], None]


class Machine:
    """A launch."""

    def __init__(
        self, kernel: Kernel, arguments: Sequence[Array | int], grid: Size, block: Size, seed: int,
        idle: Callable[[str], bool],
    ) -> None:  # fmt: skip
        self._kernel = kernel
        blocks, self._lanes = int(np.prod(grid)), int(np.prod(block))
        if not 0 < self._lanes <= 1024 or not 0 < blocks * self._lanes <= MOST_LANES:
            raise Unknown(f"a launch of {blocks} blocks of {self._lanes} lanes")
        self._blocks = blocks
        lanes = np.arange(blocks * self._lanes)
        self._block_of = lanes // self._lanes
        self._warp_of = self._block_of * WARP + lanes % self._lanes // WARP
        self._rng = np.random.default_rng(seed)
        self.faults: dict[str, Fault] = {}
        self._arguments = list(arguments)
        self._place_arguments()
        shared, local = kernel.size_of("shared"), kernel.size_of("local")
        self._shared_bytes, self._local_bytes = -(-shared // 16) * 16, -(-local // 16) * 16
        self._shared = self._variables("shared", self._shared_bytes, blocks, watched=True)
        self._local = self._variables("local", self._local_bytes, blocks * self._lanes)
        warps = -(-self._lanes // WARP)
        self._groups = [Group(w, blocks, self._lanes, grid, block) for w in range(warps)]
        self._steps = [decoded(self, i, idle) for i in kernel.instructions]
        self.used = np.zeros(len(self._steps), bool)
        self._ends = self._block_ends()
        self._meets = [_is_meeting(i.parts) for i in kernel.instructions]

    # memory

    def _place_arguments(self) -> None:
        """Puts the buffers into global memory, and all arguments where the parameters are."""
        if len(self._arguments) != len(self._kernel.params):
            raise Unknown("a kernel with other parameters than it was asked for")
        size = sum(_GAP + a.nbytes for a in self._arguments if isinstance(a, np.ndarray))
        self._global = Memory("global memory", size + _GAP, watched=True)
        self._params: dict[str, bytes] = {}
        self._buffers: list[tuple[int, Array]] = []
        at = _GAP
        for (name, width), value in zip(self._kernel.params, self._arguments, strict=True):
            if isinstance(value, np.ndarray):
                data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
                self._global.data[at : at + data.size] = data
                self._global.there[at : at + data.size] = True
                self._buffers.append((at, value))
                number = _GLOBAL + at
                at += -(-data.size // 256) * 256 + _GAP - 256 if data.size > 256 else _GAP
            else:
                number = value
            if width not in (4, 8) or (isinstance(value, np.ndarray) and width != 8):
                raise Unknown("a kernel with other parameters than it was asked for")
            self._params[name] = (number % (1 << 8 * width)).to_bytes(width, "little")

    def _variables(self, space: str, size: int, count: int, *, watched: bool = False) -> Memory:
        if size * count > 1 << 28:
            raise Unknown(f"so much {space} memory")
        memory = Memory(f"{space} memory", size * count, watched=watched)
        rows = memory.there[: size * count].reshape(count, size) if size else None
        for variable in self._kernel.variables.values():
            if variable.space == space and rows is not None:
                rows[:, variable.offset : variable.offset + variable.size] = True
        return memory

    def buffers(self) -> tuple[Array, ...]:
        """The buffers as they are now."""
        return tuple(
            np.frombuffer(self._global.data[at : at + a.nbytes].tobytes(), a.dtype).reshape(a.shape)
            for at, a in self._buffers
        )

    def fault(self, kind: str, what: str) -> None:
        """Notes the first of a kind; a write counts for more than a read."""
        if kind not in self.faults or ("reads" in self.faults[kind].what and "reads" not in what):
            self.faults[kind] = Fault(kind, what)

    # running

    def _block_ends(self) -> Array:
        """For each instruction the first behind it that lanes may come to from elsewhere."""
        count = len(self._steps)
        begins = {*self._kernel.labels.values(), count}
        ends = np.empty(count, np.int64)
        end = count
        for i in range(count - 1, -1, -1):
            name = self._kernel.instructions[i].parts[0]
            if name in ("bra", "bar", "barrier", "ret", "exit", "trap", "shfl", "vote", "redux"):
                end = i + 1
            ends[i] = end
            if i in begins:
                end = i
        return ends

    def run(self, most_steps: int) -> None:
        """All lanes to their end."""
        self._left = most_steps
        while any(g.live.any() for g in self._groups):
            for number in self._rng.permutation(len(self._groups)):
                self._go(self._groups[number])
            self._open_barriers()

    def _go(self, group: Group) -> None:
        """A group's lanes to their end, or to a barrier."""
        while True:
            ready = group.ready
            if not ready.any():
                return
            mask = self._chosen(group, ready)
            at = int(group.at[mask][0])
            for number in range(at, int(self._ends[at])):
                self._left -= 1
                if self._left < 0:
                    raise Endless
                group.at[mask] = number + 1
                step, doing = self._steps[number], mask
                if guard := self._kernel.instructions[number].guard:
                    holds = self.value(group, guard, "pred")
                    doing = mask & (holds != self._kernel.instructions[number].negated)
                if not guard or doing.any():
                    self.used[number] = True
                    step(group, doing)

    def _chosen(self, group: Group, ready: Array) -> Array:
        """The lanes that are furthest behind; of those that are to meet, all or none."""
        left = ready.copy()
        while left.any():
            at = int(group.at[left].min())
            if at >= len(self._steps):
                raise Unknown("a kernel that goes on behind its end")
            mask = left & (group.at == at)
            if not self._meets[at]:
                return mask
            whole = group.whole(mask)
            if whole.any():
                return whole
            left &= ~mask
        what = "Some lanes of a warp wait for others that do not come: they took another branch."
        self.fault("barrier", what)
        return ready & (group.at == int(group.at[ready].min()))

    def _open_barriers(self) -> None:
        """Lets the blocks go on in which every lane that is alive waits."""
        going = np.zeros(self._blocks, bool)
        for group in self._groups:
            going |= group.ready.reshape(-1, WARP).any(axis=1)
            waits = group.waiting.reshape(-1, WARP)
            at = np.where(waits, group.at.reshape(-1, WARP), -1)
            low = np.where(waits, at, len(self._steps)).min(axis=1)
            partly = waits.any(axis=1) & (group.live.reshape(-1, WARP) & ~waits).any(axis=1)
            if (partly | (waits.any(axis=1) & (at.max(axis=1) != low))).any():
                self.fault("barrier", "Lanes of one warp are at different barriers.")
        for group in self._groups:
            opened = group.waiting & ~going[group.block]
            group.waiting[opened] = False
            group.passed[opened] += BLOCK_BARRIER

    # what instructions do

    def value(self, group: Group, operand: str, kind: str) -> Lanes:
        """An operand's value for all lanes, or for none in particular."""
        if operand in self._kernel.registers:
            return _as(self.register(group, operand), kind)
        if found := _SPECIAL.fullmatch(operand):
            return _as(group.special[f"{found[1]}.{found[2]}" if found[1] else found[3]], kind)
        if operand in self._kernel.variables:
            return _as(np.array(self._kernel.variables[operand].offset, np.uint64), kind)
        if operand == "WARP_SZ":
            return _as(np.array(WARP, np.uint32), kind)
        literal = constant(operand, kind)
        if literal is None:
            raise Unknown(f"the operand `{operand[:40]}`")
        return literal

    def register(self, group: Group, name: str) -> Lanes:
        """A register of all lanes; 0 as long as nobody wrote it."""
        if name not in group.registers:
            width = self._kernel.registers.get(name)
            if width is None:
                raise Unknown(f"the operand `{name[:40]}`")
            dtype = np.dtype(f"u{width}") if width else np.dtype(bool)
            group.registers[name] = np.zeros(group.size, dtype)
        return group.registers[name]

    def set(self, group: Group, mask: Array, name: str, value: Lanes, kind: str) -> None:
        """Writes a register; one that is wider is filled with the sign, or with zeros."""
        if name == "_":
            return
        register = self.register(group, name)
        if (register.dtype == bool) != (kind == "pred"):
            raise Unknown(f"`{name[:40]}` with a type that it has not")
        value = np.asarray(value).astype(TYPES[kind], copy=False)
        if register.dtype != bool:
            if register.dtype.itemsize < value.dtype.itemsize:
                raise Unknown(f"`{name[:40]}` with a type that is wider than it")
            wide = value if kind[0] == "s" else value.view(f"u{value.dtype.itemsize}")
            value = wide.astype(f"{wide.dtype.kind}{register.dtype.itemsize}").view(register.dtype)
        np.copyto(register, value, where=mask)

    def address(self, group: Group, operand: str) -> Lanes:
        """The address in brackets, for each lane: int64."""
        found = _ADDRESS.fullmatch(operand)
        if found is None:
            raise Unknown(f"the address `{operand[:40]}`")
        base = self.value(group, found[1], "u64")
        return np.broadcast_to(base.astype(np.int64) + int(found[2] or 0), (group.size,))

    def located(
        self, group: Group, space: str, address: Lanes, lanes: Array
    ) -> tuple[Memory, Array]:
        """The memory that the address of some lanes is in, and where there, for each lane."""
        if space == "":
            space = _space_of(address[lanes])
            base = {"global": 0, "shared": SHARED, "local": LOCAL}[space]
            address = address - base
        if space == "global":
            return self._global, address - _GLOBAL
        if space == "shared":
            outside = (address < 0) | (address >= self._shared_bytes)
            return self._shared, np.where(outside, -1, group.block * self._shared_bytes + address)
        outside = (address < 0) | (address >= self._local_bytes)
        return self._local, np.where(outside, -1, group.lane * self._local_bytes + address)

    def who(self, group: Group, mask: Array) -> Who:
        """The lanes of a mask, and when it is."""
        return Who(group.lane[mask], group.passed[mask], self._block_of, self._warp_of)

    def usable(
        self, group: Group, mask: Array, space: str, operand: str, size: int, verb: str
    ) -> tuple[Memory, Array, Array]:
        """The memory, the lanes whose address is there, and their places in it."""
        address = self.address(group, operand)
        lanes = np.flatnonzero(mask)
        memory, places = self.located(group, space, address, lanes)
        places = places[lanes]
        inside = memory.inside(places, size)
        if not inside.all():
            self.fault("out-of-bounds", f"It {verb} {memory.name} beyond what is there.")
        crooked = inside & (places % size != 0)
        if crooked.any():
            self.fault("crash", f"It {verb} {memory.name} at an address that is not aligned.")
        chosen = inside & ~crooked
        return memory, lanes[chosen], places[chosen]

    def parameter(self, operand: str, width: int) -> bytes:
        """The bytes of a parameter at an address in brackets."""
        found = _ADDRESS.fullmatch(operand)
        data = self._params.get(found[1]) if found else None
        begin = int(found[2] or 0) if found else 0
        if data is None or begin < 0 or begin + width > len(data):
            raise Unknown(f"the parameter `{operand[:40]}`")
        return data[begin : begin + width]

    def label(self, name: str) -> int:
        """The number of the instruction behind a label."""
        if name not in self._kernel.labels:
            raise Unknown(f"the label `{name[:40]}`")
        return self._kernel.labels[name]

    def shuffled(self, lanes: Array) -> Array:
        """Lanes in an order that nobody can rely on."""
        return self._rng.permutation(lanes)


def _is_meeting(parts: tuple[str, ...]) -> bool:
    """Whether it is an instruction that the lanes of a warp do together."""
    return parts[0] in ("shfl", "vote", "redux") or parts[:2] == ("bar", "warp")


def _as(value: Lanes, kind: str) -> Lanes:
    """A register's bits as a value of a type that is not wider."""
    dtype = TYPES[kind]
    if (value.dtype.kind == "b") != (dtype.kind == "b"):
        raise Unknown(f"a register with the type .{kind}")
    if value.dtype == dtype:
        return value
    if value.dtype.itemsize < dtype.itemsize:
        if value.ndim and not value.dtype == np.uint32:
            raise Unknown(f"a register with the type .{kind}, which is wider")
        return value.astype(f"u{dtype.itemsize}").view(dtype)
    narrow = value.astype(f"u{dtype.itemsize}")
    return narrow.view(dtype)


def _space_of(address: Lanes) -> str:
    """Which memory a generic address is in: of one instruction, all lanes in the same."""
    high = np.unique(address[address >= SHARED] >> 44)
    if high.size == 0:
        return "global"
    if high.size > 1 or (address < SHARED).any():
        raise Unknown("one access to different memories")
    return "shared" if int(high[0]) == 1 else "local"
