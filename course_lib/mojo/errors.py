"""What can go wrong between a Mojo program and its output, in the reader's words."""

from __future__ import annotations

import dataclasses
import re

from course_lib.diagnostics import CourseError, clinic

ENTRIES = clinic.load_entries(__package__)

_MESSAGE = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: (?P<kind>error|note|warning): (?P<text>.*)$",
    re.MULTILINE,
)
_MAX_COLUMNS = 300
# What Mojo's own files say on the way to the reason, without telling anything by itself.
_EMPTY = re.compile(
    r"function instantiation failed|call expansion failed|failed to (run|parse)|"
    r"candidate not viable: (unexpected keyword|missing required) argument"
)


class MojoError(CourseError):
    """Something is wrong with a Mojo program; the message says what and where."""


class MojoMissing(MojoError):  # noqa: N818 - as the compiler's ToolchainMissing
    """There is no Mojo compiler here; the message says how to get one, or that there is none."""


class MojoCompileError(MojoError):
    """A Mojo program does not compile.

    Attributes:
      line: the line of the program, counted from 1; 0 where the compiler names none.
      original: the compiler's own messages.
      entry: the clinic's entry that recognised the message; "" for none.
    """

    def __init__(self, message: str, *, line: int = 0, original: str = "", entry: str = ""):
        super().__init__(message)
        self.line = line
        self.original = original
        self.entry = entry


class MojoRunError(MojoError):
    """A Mojo program failed, or was stopped, while it ran."""


class MojoTimeout(MojoRunError):  # noqa: N818 - as Python's own
    """A Mojo program did not end in time and was stopped."""


@dataclasses.dataclass(frozen=True)
class Message:
    """One message of the compiler.

    Attributes:
      line: the line, counted from 1.
      kind: "error", "note" or "warning".
      text: what it says.
      own: whether the line is in the reader's program.
    """

    line: int
    kind: str
    text: str
    own: bool


def messages(said: str, *, program: str) -> list[Message]:
    """The compiler's messages, in its order.

    Args:
      said: what the compiler wrote.
      program: the name of the reader's file.
    """
    return [
        Message(
            int(m["line"]),
            m["kind"],
            m["text"][:_MAX_COLUMNS],
            m["file"].rsplit("/")[-1] == program,
        )
        for m in _MESSAGE.finditer(said)
    ]


def from_compiler(said: str, *, source: str, program: str) -> MojoCompileError:
    """The compiler's messages as one error in the reader's words.

    Args:
      said: what the compiler wrote.
      source: the program's text.
      program: the name that its file had.
    """
    found = [m for m in messages(said, program=program) if m.kind != "warning"]
    line = _telling_line(found)
    reason = _reason(found) or said.strip()[:_MAX_COLUMNS]
    advice = clinic.consult(said, entries=ENTRIES)
    parts = [_quote(source, line), f"Mojo says: {reason}"]
    if advice is not None:
        parts += [f"That means: {advice.means}", f"Change: {advice.change}"]
    return MojoCompileError(
        "\n".join(p for p in parts if p),
        line=line,
        original=said,
        entry=advice.entry if advice else "",
    )


def _telling_line(found: list[Message]) -> int:
    """The innermost line of the reader's own: a kernel's launch, rather than the `main` around."""
    own = [m for m in found if m.own]
    errors = [m.line for m in own if m.kind == "error" and not _EMPTY.search(m.text)]
    if errors:
        return errors[0]
    return own[-1].line if own else 0


def _reason(found: list[Message]) -> str:
    """The first error that tells something, and the last note that does."""
    errors = [m.text for m in found if m.kind == "error" and not _EMPTY.search(m.text)]
    notes = [m.text for m in found if m.kind == "note" and not _EMPTY.search(m.text)]
    if errors:
        because = next((n for n in notes if "not viable" in n), "")
        return f"{errors[0]} ({because})" if because else errors[0]
    return notes[-1] if notes else ""


def _quote(source: str, line: int) -> str:
    lines = source.splitlines()
    if not 0 < line <= len(lines):
        return "The program does not compile."
    return f"Line {line} does not compile: {lines[line - 1].strip()}"
