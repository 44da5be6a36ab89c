"""What each PTX instruction does to the lanes that are at it: PTX ISA, chapter 9.7.

`decoded` gives a function of the lanes for each instruction, or says that it is `Unknown`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.grading.ptx_memory import WARP, Array, Memory
from course_lib.grading.ptx_text import LOCAL, SHARED, Instruction, Unknown, operands_of
from course_lib.grading.ptx_values import TYPES, Computing, Lanes, computing

if TYPE_CHECKING:
    from course_lib.grading.ptx_machine import Group, Machine

    Step = Callable[[Group, Array], None]

_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"})
# What says how, and not what: PTX ISA, chapter 9.7.9, "Data Movement and Conversion Instructions".
_HOW = re.compile(
    r"weak|volatile|relaxed|acquire|release|acq_rel|sys|gpu|cta|cluster|ca|cg|cs|lu|cv|wb|wt|nc|"
    r"L1::\w+|L2::\w+|global|shared|shared::cta|local|param|param::entry"
)
_SPACES = ("global", "shared", "local", "param")


def decoded(machine: Machine, instruction: Instruction, idle: Callable[[str], bool]) -> Step:
    """What an instruction does to the lanes that are at it, and for which its guard holds."""
    if instruction.parts[0] not in ("bra", "ret", "exit") and idle(instruction.opcode):
        return _nothing(machine, instruction)
    known = computing(instruction.opcode)
    if known is not None and _fits(instruction, known):
        return functools.partial(_compute, machine, instruction, known)
    make = _STEPS.get(instruction.parts[0])
    step = make(machine, instruction) if make else None
    if step is None:
        raise Unknown(f"the instruction `{instruction.opcode}`")
    return step


def _fits(instruction: Instruction, known: Computing) -> bool:
    return len(instruction.operands) == 1 + len(known.operands) and not any(
        o[:1] in "{[" or "|" in o for o in instruction.operands
    )


def _compute(
    machine: Machine, instruction: Instruction, known: Computing, group: Group, mask: Array
) -> None:
    target, *names = instruction.operands
    values = []
    for name, kind in zip(names, known.operands, strict=True):
        inverted = kind == "pred" and name.startswith("!")
        value = machine.value(group, name.removeprefix("!"), kind)
        values.append(~value if inverted else value)
    machine.set(group, mask, target, known.compute(*map(np.asarray, values)), known.result)


def _branch(machine: Machine, i: Instruction) -> Step | None:
    if i.opcode not in ("bra", "bra.uni") or len(i.operands) != 1:
        return None
    target = machine.label(i.operands[0])

    def step(group: Group, mask: Array) -> None:
        group.at[mask] = target

    return step


def _end(machine: Machine, i: Instruction) -> Step | None:
    if i.operands or len(i.parts) != 1:
        return None

    def step(group: Group, mask: Array) -> None:
        group.live &= ~mask

    return step


def _trap(machine: Machine, i: Instruction) -> Step | None:
    def step(group: Group, mask: Array) -> None:
        machine.fault("crash", "It ends itself: an assertion failed, or it came where it must not.")
        group.live &= ~mask

    return step if i.opcode == "trap" else None


def _nothing(machine: Machine, i: Instruction) -> Step:
    """Fences order what the model does in order anyway."""
    return lambda group, mask: None


def _barrier(machine: Machine, i: Instruction) -> Step | None:
    if i.opcode == "bar.warp.sync":
        return functools.partial(_warp_barrier, machine)
    if i.opcode not in ("bar.sync", "barrier.sync", "bar.cta.sync", "barrier.cta.sync") and (
        i.opcode not in ("barrier.sync.aligned", "barrier.cta.sync.aligned")
    ):
        return None
    if i.operands != ("0",):
        return None

    def step(group: Group, mask: Array) -> None:
        group.waiting |= mask

    return step


def _warp_barrier(machine: Machine, group: Group, mask: Array) -> None:
    group.passed[mask] += 1


def _access(i: Instruction) -> tuple[str, int, str, bool] | None:
    """Of a load or store: space, elements, type, whether it is atomic; None if it is none."""
    *mods, kind = i.parts[1:]
    count = 1
    if mods and mods[-1] in ("v2", "v4", "v8"):
        count = int(mods.pop()[1:])
    if kind not in TYPES or kind == "pred" or not all(_HOW.fullmatch(m) for m in mods):
        return None
    spaces = [m.split("::")[0] for m in mods if m.split("::")[0] in _SPACES]
    if len(spaces) > 1:
        return None
    return spaces[0] if spaces else "", count, kind, bool(_STRONG & set(mods))


def _vector(operand: str, count: int) -> list[str] | None:
    """The registers of an operand: one, or those between braces."""
    if count == 1 and operand[:1] != "{":
        return [operand]
    names = list(operands_of(operand[1:-1])) if operand[:1] == "{" and operand[-1:] == "}" else []
    return names if len(names) == count else None


def _load(machine: Machine, i: Instruction) -> Step | None:
    found = _access(i)
    if found is None or len(i.operands) != 2:
        return None
    space, count, kind, atomic = found
    targets = _vector(i.operands[0], count)
    if targets is None:
        return None
    width = TYPES[kind].itemsize
    if space == "param":
        return _load_parameter(machine, i.operands[1], targets, kind)

    def step(group: Group, mask: Array) -> None:
        memory, lanes, places = machine.usable(
            group, mask, space, i.operands[1], width * count, "reads"
        )
        chosen = np.zeros(group.size, bool)
        chosen[lanes] = True
        who = machine.who(group, chosen)
        for number, target in enumerate(targets):
            at = places + number * width
            if memory.races(at, who, write=False, atomic=atomic):
                _race(machine, memory)
            value = np.full(group.size, -1, f"i{width}").view(TYPES[kind])
            value[lanes] = memory.data.view(TYPES[kind])[at // width]
            machine.set(group, mask, target, value, kind)

    return step


def _load_parameter(machine: Machine, place: str, targets: list[str], kind: str) -> Step:
    width = TYPES[kind].itemsize
    data = machine.parameter(place, width * len(targets))
    values = [np.frombuffer(data, TYPES[kind], 1, n * width)[0] for n in range(len(targets))]

    def step(group: Group, mask: Array) -> None:
        for target, value in zip(targets, values, strict=True):
            machine.set(group, mask, target, np.asarray(value), kind)

    return step


def _store(machine: Machine, i: Instruction) -> Step | None:
    found = _access(i)
    if found is None or len(i.operands) != 2 or found[0] == "param":
        return None
    space, count, kind, atomic = found
    sources = _vector(i.operands[1], count)
    if sources is None:
        return None
    width = TYPES[kind].itemsize

    def step(group: Group, mask: Array) -> None:
        memory, lanes, places = machine.usable(
            group, mask, space, i.operands[0], width * count, "writes to"
        )
        chosen = np.zeros(group.size, bool)
        chosen[lanes] = True
        who = machine.who(group, chosen)
        view = memory.data.view(TYPES[f"u{8 * width}"])
        for number, source in enumerate(sources):
            at = places + number * width
            value = machine.value(group, source, f"u{8 * width}" if kind[0] != "f" else kind)
            value = np.broadcast_to(value, (group.size,)).view(f"u{width}")[lanes]
            if memory.races(at, who, write=True, atomic=atomic, values=value):
                _race(machine, memory)
            order = machine.shuffled(np.arange(lanes.size))
            view[at[order] // width] = value[order]

    return step


def _race(machine: Machine, memory: Memory) -> None:
    machine.fault(
        "race",
        f"Two lanes use one place in {memory.name}, one of them writes to it, and neither a "
        "barrier nor an atomic operation says which comes first.",
    )


_ATOMIC: dict[str, Callable[..., Any]] = {
    "add": lambda old, b, c: old + b,
    "min": lambda old, b, c: np.minimum(old, b),
    "max": lambda old, b, c: np.maximum(old, b),
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "cas": lambda old, b, c: np.where(old == b, c, old),
    "inc": lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, b, c: np.where((old == 0) | (old > b), b, old - old.dtype.type(1)),
}


def _atomic(machine: Machine, i: Instruction) -> Step | None:
    """`atom` and `red`: the lanes one after the other."""
    *mods, kind = i.parts[1:]
    names = [m for m in mods if m in _ATOMIC]
    others = [m for m in mods if m not in _ATOMIC]
    if kind not in TYPES or kind == "pred" or len(names) != 1:
        return None
    if not all(_HOW.fullmatch(m) for m in others) or TYPES[kind].itemsize < 4:
        return None
    spaces = [m.split("::")[0] for m in others if m.split("::")[0] in _SPACES]
    operands = i.operands if i.parts[0] == "atom" else ("_", *i.operands)
    if len(operands) != 3 + (names[0] == "cas") or len(spaces) > 1 or spaces == ["param"]:
        return None
    space, width = spaces[0] if spaces else "", TYPES[kind].itemsize
    change = _ATOMIC[names[0]]

    def step(group: Group, mask: Array) -> None:
        memory, lanes, places = machine.usable(
            group, mask, space, operands[1], width, "adds atomically to"
        )
        chosen = np.zeros(group.size, bool)
        chosen[lanes] = True
        if memory.races(places, machine.who(group, chosen), write=True, atomic=True):
            _race(machine, memory)
        values = [
            np.broadcast_to(machine.value(group, o, kind), (group.size,)) for o in operands[2:]
        ]
        view, old = memory.data.view(TYPES[kind]), np.zeros(group.size, TYPES[kind])
        for number in machine.shuffled(np.arange(lanes.size)):
            lane, at = lanes[number], places[number] // width
            old[lane] = view[at]
            view[at] = change(view[at], values[0][lane], values[-1][lane])
        machine.set(group, mask, operands[0], old, kind)

    return step


def _to_space(machine: Machine, i: Instruction) -> Step | None:
    """`cvta`: an address in one memory, and its generic one."""
    to, *mods = i.parts[1:]
    back = to == "to"
    space = (mods[0] if back and mods else to).split("::")[0]
    base = {"global": 0, "shared": SHARED, "local": LOCAL}.get(space)
    if base is None or i.parts[-1] != "u64" or len(i.operands) != 2:
        return None

    def step(group: Group, mask: Array) -> None:
        value = machine.value(group, i.operands[1], "u64")
        moved = value - np.uint64(base) if back else value + np.uint64(base)
        machine.set(group, mask, i.operands[0], moved, "u64")

    return step


def _shuffle(machine: Machine, i: Instruction) -> Step | None:
    """`shfl.sync`: PTX ISA, 9.7.9.6, with its formulas."""
    if len(i.parts) != 4 or i.parts[1] != "sync" or i.parts[3] != "b32" or len(i.operands) != 5:
        return None
    mode = i.parts[2]
    if mode not in ("up", "down", "bfly", "idx"):
        return None
    target, _, predicate = i.operands[0].partition("|")

    def step(group: Group, mask: Array) -> None:
        a = np.broadcast_to(machine.value(group, i.operands[1], "u32"), (group.size,))
        b = machine.value(group, i.operands[2], "u32").astype(np.int64) & 31
        c = machine.value(group, i.operands[3], "u32").astype(np.int64)
        lane = np.arange(group.size) % WARP
        clamp, segment = c & 31, c >> 8 & 31
        top = (lane & segment) | (clamp & ~segment & 31)
        bottom = lane & segment
        if mode == "up":
            source = lane - b
            fits = source >= top
        elif mode == "down":
            source = lane + b
            fits = source <= top
        elif mode == "bfly":
            source = lane ^ b
            fits = source <= top
        else:
            source = bottom | (b & ~segment & 31)
            fits = source <= top
        source = np.where(fits, source, lane) + np.arange(group.size) // WARP * WARP
        if (mask & ~group.live[source]).any():
            machine.fault("barrier", "A lane takes a value from a lane that has ended.")
        machine.set(group, mask, target.strip(), a[source], "b32")
        if predicate:
            machine.set(group, mask, predicate.strip(), fits, "pred")

    return step


def _vote(machine: Machine, i: Instruction) -> Step | None:
    modes = ("all", "any", "uni", "ballot")
    if len(i.parts) != 4 or i.parts[1] != "sync" or i.parts[2] not in modes or len(i.operands) != 3:
        return None
    mode, kind = i.parts[2], i.parts[3]
    if kind != ("b32" if mode == "ballot" else "pred"):
        return None

    def step(group: Group, mask: Array) -> None:
        name = i.operands[1]
        holds = machine.value(group, name.removeprefix("!"), "pred") != name.startswith("!")
        warps = (np.broadcast_to(holds, (group.size,)) & mask).reshape(-1, WARP)
        there = mask.reshape(-1, WARP)
        if mode == "ballot":
            bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
            found: Lanes = (warps * bits).sum(axis=1, dtype=np.uint32)
        elif mode == "any":
            found = warps.any(axis=1)
        else:
            found = (warps | ~there).all(axis=1)
            found |= ~warps.any(axis=1) if mode == "uni" else False
        machine.set(group, mask, i.operands[0], np.repeat(found, WARP), kind)

    return step


def _reduce(machine: Machine, i: Instruction) -> Step | None:
    """`redux.sync`."""
    if len(i.parts) != 4 or i.parts[1] != "sync" or len(i.operands) != 3:
        return None
    functions: dict[str, tuple[Any, int]] = {
        "add": (np.add, 0), "and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
    }  # fmt: skip
    if i.parts[2] not in functions or i.parts[3] not in ("u32", "s32", "b32"):
        return None
    function, neutral = functions[i.parts[2]]

    def step(group: Group, mask: Array) -> None:
        value = np.broadcast_to(machine.value(group, i.operands[1], "s32"), (group.size,))
        warps = np.where(mask, value, np.int32(neutral)).reshape(-1, WARP)
        found = function.reduce(warps, axis=1, dtype=np.int32).view(np.uint32)
        machine.set(group, mask, i.operands[0], np.repeat(found, WARP), "b32")

    return step


def _active(machine: Machine, i: Instruction) -> Step | None:
    if i.opcode != "activemask.b32" or len(i.operands) != 1:
        return None

    def step(group: Group, mask: Array) -> None:
        bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        found = (mask.reshape(-1, WARP) * bits).sum(axis=1, dtype=np.uint32)
        machine.set(group, mask, i.operands[0], np.repeat(found, WARP), "b32")

    return step


def _pack(machine: Machine, i: Instruction) -> Step | None:
    """`mov` between one register and several narrower ones."""
    if len(i.parts) != 2 or i.parts[1] not in ("b32", "b64") or len(i.operands) != 2:
        return None
    kind = i.parts[1]
    parts = [_vector(o, o.count(",") + 1) for o in i.operands]
    to, source = (p if o[:1] == "{" else None for o, p in zip(i.operands, parts, strict=True))
    several = to or source
    if several is None or (to and source) or 8 * TYPES[kind].itemsize % (8 * len(several)):
        return None
    bits = 8 * TYPES[kind].itemsize // len(several)
    narrow = f"b{bits}"

    def step(group: Group, mask: Array) -> None:
        if to:
            whole = machine.value(group, i.operands[1], kind).astype(np.uint64)
            for n, name in enumerate(to):
                part = (whole >> np.uint64(n * bits)).astype(TYPES[narrow])
                machine.set(group, mask, name, part, narrow)
            return
        whole = np.zeros(group.size, np.uint64)
        for n, name in enumerate(source or ()):
            whole |= machine.value(group, name, narrow).astype(np.uint64) << np.uint64(n * bits)
        machine.set(group, mask, i.operands[0], whole.astype(TYPES[kind]), kind)

    return step if narrow in TYPES else None


_STEPS: dict[str, Callable[[Machine, Instruction], Step | None]] = {
    "bra": _branch,
    "ret": _end,
    "exit": _end,
    "trap": _trap,
    "fence": _nothing,
    "membar": _nothing,
    "nanosleep": _nothing,
    "bar": _barrier,
    "barrier": _barrier,
    "ld": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "cvta": _to_space,
    "shfl": _shuffle,
    "vote": _vote,
    "redux": _reduce,
    "activemask": _active,
    "mov": _pack,
}
