"""A finding: one thing a tool saw in a kernel, with its rule and its place."""

from __future__ import annotations

import dataclasses
import enum
import textwrap
from typing import Any

from course_lib.diagnostics.locations import Location

_WIDTH = 88
_MAX_LINES = 12


class Severity(enum.StrEnum):
    """How sure a rule is: an `error` may go wrong on hardware, a `note` need not be fixed."""

    ERROR = "error"
    NOTE = "note"


@dataclasses.dataclass(frozen=True)
class Access:
    """One of the accesses that a finding is about.

    Attributes:
      what: what was done, in a verb phrase ("writes a_smem[0:64, 0:64]").
      who: the Pallas thread or the asynchronous unit that did it ("thread 1 of block (0, 2)").
      where: the learner's own line, or None where the program has none.
    """

    what: str
    who: str = ""
    where: Location | None = None

    def __str__(self) -> str:
        head = f"{self.who} {self.what}".strip()
        return f"{head} ({self.where})" if self.where else head


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong with (or worth knowing about) a kernel.

    Attributes:
      rule: the rule's stable id, in kebab case ("data-race").
      severity: `Severity.ERROR` or `Severity.NOTE`.
      what: what happened, one sentence.
      accesses: the accesses involved, first to last.
      why: why the hardware allows it to go wrong, one or two sentences.
      fix: the call that is missing or what to change, one sentence.
      where: the line to look at first; defaults to that of the last access.
    """

    rule: str
    severity: Severity
    what: str
    accesses: tuple[Access, ...] = ()
    why: str = ""
    fix: str = ""
    where: Location | None = None

    @property
    def location(self) -> Location | None:
        """The line to look at first, or None where the program has none."""
        if self.where is not None:
            return self.where
        places = [a.where for a in self.accesses if a.where is not None]
        return places[-1] if places else None

    def __str__(self) -> str:
        """At most 12 lines of plain text, the same at every run."""
        paragraphs = [f"{self.severity.value} [{self.rule}] {self.what}"]
        if not self.accesses and self.where is not None:
            paragraphs.append(f"  at {self.where}")
        paragraphs += [f"  - {a}" for a in self.accesses]
        paragraphs += [f"  Why: {self.why}"] if self.why else []
        paragraphs += [f"  Fix: {self.fix}"] if self.fix else []
        lines = [
            line
            for p in paragraphs
            for line in textwrap.wrap(p, _WIDTH, subsequent_indent="    ", break_long_words=False)
        ]
        if len(lines) > _MAX_LINES:
            lines = [*lines[: _MAX_LINES - 1], "    ..."]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON data (locations as `{"file", "line", "text"}`)."""

        def place(loc: Location | None) -> dict[str, Any] | None:
            return loc.to_dict() if loc else None

        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "what": self.what,
            "accesses": [
                {"what": a.what, "who": a.who, "where": place(a.where)} for a in self.accesses
            ],
            "why": self.why,
            "fix": self.fix,
            "where": place(self.location),
        }
