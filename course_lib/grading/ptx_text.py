"""Reads a kernel's PTX, text of unknown origin, into plain data: strictly, and within bounds.

What is not understood is refused (`Refused`), never guessed. Syntax: PTX ISA, chapters 4
("Syntax") and 5 ("State Spaces, Types, and Variables"). What the instructions do is the business
of `ptx_machine`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

SHARED, LOCAL = 1 << 44, 1 << 45  # where these memories begin among generic addresses
MOST_BYTES = 1 << 20
MOST_INSTRUCTIONS = 20_000
MOST_REGISTERS = 20_000
MOST_SHARED = 227 << 10  # CUDA guide, "Technical Specifications": bytes per block of sm_90
MOST_LOCAL = 64 << 10  # of 512 KB that a lane may have; these kernels need none

WIDTHS = {"pred": 0, "b8": 1, "b16": 2, "b32": 4, "b64": 8}
_NAME = r"[A-Za-z_$%][\w$]*"
_ENTRY = re.compile(rf"\.(?:visible|weak)\s+\.entry\s+({_NAME})\s*\(([^)]*)\)([^{{;]*)\{{")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.([bsuf]\d+)"
    rf"(?:\s+\.ptr(?:\s+\.\w+)?(?:\s+\.align\s+\d+)?)?\s+({_NAME})(?:\[(\d+)\])?"
)
_VARIABLE = re.compile(
    rf"\.(shared|local)\s+(?:\.align\s+(\d+)\s+)?\.([bsuf]\d+)\s+({_NAME})(?:\[(\d+)\])?"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.+)")
_REGISTER = re.compile(rf"({_NAME})(?:<(\d+)>)?")
_LABEL = re.compile(rf"({_NAME})\s*:(?!:)\s*")
_GUARD = re.compile(rf"@(!?)({_NAME})\s+")
_OPCODE = re.compile(r"[a-z][a-z0-9_]*(?:(?:\.|::)[A-Za-z0-9_]+)*")
_IGNORED = re.compile(r"\s*\.(version|target|address_size|file|loc|pragma)\b.*")
_HEADER = re.compile(r"(?:\s*\.(?:maxntid|reqntid|minnctapersm|maxnreg)\s+[\d,\s]+)*\s*")


class Refused(Exception):  # noqa: N818
    """This is no PTX that can be looked at; the message says why, for the student."""


class Unknown(Exception):  # noqa: N818
    """The model of the GPU has no such thing; the message says which."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
      opcode: its name with all modifiers, "ld.global.v4.b32".
      operands: what follows, at the commas that stand outside of brackets.
      guard: the predicate register that it depends on, "" for none.
      negated: whether it is for lanes where the predicate does not hold.
    """

    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    negated: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The name at its dots: ("ld", "global", "v4", "b32")."""
        return tuple(self.opcode.split("."))


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable in shared or local memory: where it begins, and its size in bytes."""

    space: str
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel.

    Attributes:
      name: its name in the listing.
      params: for each parameter its name and its size in bytes, in order.
      registers: the width of each register in bytes; 0 of a predicate.
      variables: the variables in shared and local memory, by name.
      instructions: what it does.
      labels: the number of the instruction behind each label.
    """

    name: str
    params: tuple[tuple[str, int], ...]
    registers: Mapping[str, int]
    variables: Mapping[str, Variable]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]

    def size_of(self, space: str) -> int:
        """The bytes of "shared" or "local" memory that a block or a lane has."""
        return max(
            (v.offset + v.size for v in self.variables.values() if v.space == space), default=0
        )


def read(text: str) -> Kernel:
    """The one kernel of a PTX text.

    Raises:
      Refused: it is not the text of one kernel without functions beside it, or too long.
    """
    if len(text) > MOST_BYTES:
        raise Refused("The PTX of a kernel is longer than any of the exercise can be.")
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    entries = list(_ENTRY.finditer(plain))
    if len(entries) != 1:
        raise Refused("A PTX file without its one kernel.")
    entry = entries[0]
    if not _HEADER.fullmatch(entry[3]):
        raise Refused("A kernel with directives that the grader does not know.")
    body, rest = _body(plain[entry.end() :])
    reading = _Reading()
    for statement in _statements(_without_ignored(plain[: entry.start()] + "\n" + rest)):
        reading.outside(statement)
    for statement in _statements(_without_ignored(body)):
        reading.inside(statement)
    return reading.kernel(entry[1], tuple(_params(entry[2])))


def _body(text: str) -> tuple[str, str]:
    """What stands before the brace that closes a function's body, and what stands behind it."""
    depth = 1
    for found in re.finditer(r"[{}]", text):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return text[: found.start()], text[found.end() :]
    raise Refused("A kernel's text has no end.")


def _without_ignored(text: str) -> str:
    """The text without the lines that tell a debugger or an assembler something."""
    return "\n".join(line for line in text.split("\n") if not _IGNORED.fullmatch(line))


def _statements(text: str) -> Iterator[str]:
    for part in text.split(";"):
        statement = re.sub(r"\s+", " ", part).strip()
        while statement[:1] in ("{", "}"):  # scopes inside of a body
            statement = statement[1:].strip()
        if statement:
            yield statement


def _params(text: str) -> Iterator[tuple[str, int]]:
    for part in text.split(","):
        if not part.strip():
            continue
        found = _PARAM.fullmatch(part.strip())
        if found is None:
            raise Refused("A kernel with parameters of a kind that the grader does not know.")
        yield found[2], int(found[1][1:]) // 8 * int(found[3] or 1)


class _Reading:
    """A kernel on its way."""

    def __init__(self) -> None:
        self._registers: dict[str, int] = {}
        self._variables: dict[str, Variable] = {}
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}

    def kernel(self, name: str, params: tuple[tuple[str, int], ...]) -> Kernel:
        """What was read."""
        return Kernel(
            name, params, self._registers, self._variables, tuple(self._instructions), self._labels
        )

    def outside(self, statement: str) -> None:
        """A statement beside the kernel: shared memory, and nothing else."""
        if "printf" in statement:
            raise Refused("It prints from its kernel, which the grader's model of a GPU cannot.")
        if not (found := _VARIABLE.fullmatch(statement)):
            what = statement.split("(")[0][:60]
            raise Refused(f"Beside the kernel stands `{what}`, which the grader does not know.")
        self._variable(found)

    def inside(self, statement: str) -> None:
        """A statement of the kernel's body."""
        while label := _LABEL.match(statement):
            if label[1] in self._labels:
                raise Refused(f"The label {label[1]} is there twice.")
            self._labels[label[1]] = len(self._instructions)
            statement = statement[label.end() :].lstrip("{ ")
        if found := _REGISTERS.fullmatch(statement):
            self._declare(found[1], found[2])
        elif found := _VARIABLE.fullmatch(statement):
            self._variable(found)
        elif statement:
            self._instruction(statement)

    def _declare(self, kind: str, names: str) -> None:
        kind = kind if kind in WIDTHS else f"b{kind[1:]}"
        if kind not in WIDTHS:
            raise Refused(f"Registers of the type .{kind}, which the grader does not know.")
        for part in names.split(","):
            found = _REGISTER.fullmatch(part.strip())
            if found is None:
                raise Refused("Registers that cannot be read.")
            count = int(found[2]) if found[2] else 0
            if len(self._registers) + count > MOST_REGISTERS:
                raise Refused("More registers than any of the exercise can need.")
            many = [f"{found[1]}{i}" for i in range(count)] if found[2] else [found[1]]
            for name in many:
                if self._registers.setdefault(name, WIDTHS[kind]) != WIDTHS[kind]:
                    raise Refused(f"The register {name} is there with two types.")

    def _variable(self, found: re.Match[str]) -> None:
        space, align, kind, name, count = found.groups()
        unit = max(int(align or 1), 1)
        if unit > 1024 or len(count or "") > 8:
            raise Refused("Memory that is larger than a block can have.")
        end = max(
            (v.offset + v.size for v in self._variables.values() if v.space == space), default=0
        )
        offset = -(-end // unit) * unit
        size = int(kind[1:]) // 8 * int(count or 1)
        if offset + size > (MOST_SHARED if space == "shared" else MOST_LOCAL):
            raise Refused(f"More {space} memory than there is.")
        if name in self._variables:
            raise Refused(f"The variable {name[:60]} is there twice.")
        self._variables[name] = Variable(space, offset, size)

    def _instruction(self, statement: str) -> None:
        guard, negated = "", False
        if found := _GUARD.match(statement):
            guard, negated = found[2], bool(found[1])
            statement = statement[found.end() :]
        opcode, _, rest = statement.partition(" ")
        if not _OPCODE.fullmatch(opcode):
            raise Refused(f"`{statement[:60]}` is no instruction that the grader knows.")
        if len(self._instructions) >= MOST_INSTRUCTIONS:
            raise Refused("More instructions than any of the exercise can need.")
        operands = tuple(operands_of(rest))
        self._instructions.append(Instruction(opcode, operands, guard, negated))


def operands_of(text: str) -> Sequence[str]:
    """The operands of an instruction: at the commas that stand outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    return [*parts, last] if last or parts else []
