"""PTX and SASS as lists of instructions, each with the Python line it comes from.

Knows the two texts' syntax only as far as it takes to tell instructions from
directives, labels and comments. Source: PTX ISA, chapter 4 ("Syntax"), and the
output of `nvdisasm -c -g`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from course_lib.compiler.source import title
from course_lib.diagnostics import Location, locate

# What a reader looks for first, by the start of the instruction's name.
_KINDS = {
    "tensor core": (
        "wgmma", "tcgen05", "mma",
        "HGMMA", "QGMMA", "IGMMA", "BGMMA", "WARPGROUP", "HMMA", "IMMA", "QMMA",
        "UTC", "LDTM", "STTM",
    ),
    "TMA": (
        "cp.async.bulk", "cp.reduce.async.bulk", "prefetch.tensormap", "tensormap",
        "UTMA", "UBLKCP", "UBLKRED", "UBLKPF",
    ),
    "barrier": (
        "mbarrier", "bar", "barrier", "fence", "membar", "griddepcontrol", "clusterlaunchcontrol",
        "SYNCS", "NANOSLEEP.SYNCS", "BAR", "UCGABAR", "FENCE", "MEMBAR", "UGETNEXTWORKID",
    ),
}  # fmt: skip
KINDS = tuple(_KINDS)

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_LABEL = re.compile(r"^[\w$]+\s*:\s*(?!:)")
_SASS_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*$")
_SASS_FILE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_SASS_TEXT = re.compile(r"^\s*(\.L\w+:|/\*[0-9a-f]{4,}\*/|\.text\.)")
_SASS_PREDICATE = re.compile(r"^@!?U?P\w+\s+")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    Attributes:
      text: the instruction as the listing has it, on one line.
      opcode: its name with all modifiers ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16").
      language: "ptx" or "sass".
      line: its line in the listing, from 1.
      where: the Python line that it comes from, None where the compiler does not say.
      kind: "tensor core", "TMA", "barrier", or "".
    """

    text: str
    opcode: str
    language: str
    line: int
    where: Location | None = None
    kind: str = ""

    def __str__(self) -> str:
        return self.text


def matches(pattern: str, opcode: str) -> bool:
    """Whether an instruction's name contains `pattern`, as whole dotted parts.

    "wgmma.mma_async" is in "wgmma.mma_async.sync.aligned.m64n8k16"; "st" is not in
    "stmatrix". A `*` stands for any characters.
    """
    body = ".*".join(re.escape(part) for part in pattern.split("*"))
    return re.search(rf"(?:^|(?<=\.)){body}(?=$|\.|::)", opcode) is not None


def kind_of(opcode: str) -> str:
    """What sort of instruction it is: one of `KINDS`, or ""."""
    for kind, names in _KINDS.items():
        if any(_is_named(opcode, name) for name in names):
            return kind
    return ""


def _is_named(opcode: str, name: str) -> bool:
    """SASS names (upper case) are prefixes; PTX names end where a modifier begins."""
    following = opcode[len(name) : len(name) + 1]
    return opcode.startswith(name) and (name.isupper() or following in ("", ".", ":"))


def parse_ptx(text: str) -> list[Instruction]:
    """The instructions of a PTX text, in order."""
    files = dict(_PTX_FILE.findall(text))
    found: list[Instruction] = []
    where: Location | None = None
    for line, statement in _statements(text):
        if loc := _LOC.match(statement):
            where = _location(files.get(loc[1], ""), int(loc[2]))
        elif not statement.startswith("."):
            opcode = _PREDICATE.sub("", statement).split(None, 1)[0].rstrip(";")
            found.append(Instruction(statement, opcode, "ptx", line, where, kind_of(opcode)))
    return found


def with_titles(text: str) -> str:
    """A PTX text whose files are named as the reader knows them, the same at every run."""

    def named(match: re.Match[str]) -> str:
        return match[0].replace(match[2], title(locate(match[2], 0)))

    return _PTX_FILE.sub(named, text)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of the functions' bodies, each with the line that it starts on.

    Instructions end with a semicolon and may go over several lines; `.loc` ends
    with its line. A body is between braces that stand at the start of a line.
    """
    pending, started, inside = "", 0, False
    for number, raw in enumerate(text.splitlines(), 1):
        if raw in ("{", "}"):
            inside = raw == "{"
        line = raw.split("//", 1)[0].strip()
        if not inside or not line:
            continue
        if not pending:
            started = number
            if line.startswith(".loc"):
                yield number, line
                continue
        *statements, pending = _without_frame(f"{pending} {line}").split(";")
        for statement in statements:
            if body := " ".join(_without_frame(statement).split()):
                yield started, f"{body};"
            started = number
        pending = _without_frame(pending)


def _without_frame(text: str) -> str:
    """Drops labels and the braces of blocks in front of a statement."""
    while True:
        shorter = _LABEL.sub("", text.lstrip("{} \t"))
        if shorter == text:
            return text
        text = shorter


def parse_sass(text: str) -> tuple[str, list[Instruction]]:
    """A readable listing of `nvdisasm`'s text, and the instructions in it, in order.

    Lines that name files and sections are left out of the listing.
    """
    lines: list[str] = []
    found: list[Instruction] = []
    where: Location | None = None
    for raw in text.splitlines():
        if file := _SASS_FILE.match(raw):
            where = _location(file[1], int(file[2]))
        elif _SASS_TEXT.match(raw):
            lines.append(raw.rstrip())
            if instruction := _SASS_LINE.match(raw):
                body = instruction[2].strip(" {}")
                opcode = _SASS_PREDICATE.sub("", body).split(None, 1)[0]
                kind = kind_of(opcode)
                found.append(Instruction(body + ";", opcode, "sass", len(lines), where, kind))
    return "\n".join(lines), found


def _location(file: str, line: int) -> Location | None:
    return locate(file, line) if file and line else None
