"""Turns what the machine notices into findings: the rule's words, the learner's lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.diagnostics import Access, Finding, Location
from course_lib.simulator import ir
from course_lib.simulator.machine import races
from course_lib.simulator.machine.memory import View
from course_lib.simulator.rules import RULES

_MOST = 20  # findings kept of one run


class Recorder:
    """The findings of one simulation; the same thing at the same lines is told once."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.found: list[Finding] = []
        self._seen: set[Any] = set()

    def line(self, op: ir.Op | None) -> Location | None:
        """The learner's line of an op."""
        if op is None or op.where < 0:
            return None
        place = self.program.places[op.where]
        return Location(place.file, place.line, place.function, place.cell, place.within)

    def add(
        self, rule: str, what: str, accesses: Sequence[tuple[str, Any, ir.Op | None]] = (),
        *, op: ir.Op | None = None, key: Any = None, why: str = "", fix: str = "",
    ) -> None:  # fmt: skip
        """Adds a finding. An access is (what was done, who did it, the op)."""
        wheres = tuple(o.where if o else -1 for _, _, o in accesses)
        mark = (rule, wheres, op.where if op else -1, key)
        if mark in self._seen or len(self.found) >= _MOST:
            return
        self._seen.add(mark)
        entry = RULES[rule]
        self.found.append(
            Finding(
                rule=rule,
                severity=entry.severity,
                what=what,
                accesses=tuple(
                    Access(done, str(who) or "the block", self.line(o)) for done, who, o in accesses
                ),
                why=why or entry.why,
                fix=fix or entry.fix,
                where=self.line(op),
            )
        )


_VERBS = {
    (races.GENERIC, False): "reads {}",
    (races.GENERIC, True): "writes {}",
    (races.ATOMIC, True): "updates {} atomically",
    (races.LOAD, True): "starts a copy into {}",
    (races.LOAD, False): "starts a copy from {}",
    (races.STORE, True): "starts a copy into {}",
    (races.STORE, False): "starts a copy from {}",
    (races.WGMMA, False): "starts a wgmma that reads {}",
    (races.TCGEN05, False): "starts a tcgen05 operation that reads {}",
    (races.TCGEN05, True): "starts a tcgen05 operation that writes {}",
    (races.TMEM_LOAD, False): "loads from {}",
    (races.TMEM_STORE, True): "stores into {}",
    (races.REMOTE, True): "starts a store into {}",
    (races.UPDATE, True): "starts an update of {}",
    (races.CANCEL, True): "starts a cluster cancel into {}",
}


def verb(kind: str, write: bool, text: str) -> str:
    """What an access does, in words."""
    return _VERBS.get((kind, write), "touches {}").format(text)


def region(view: View, record: Any) -> str:
    """A record's region, in the words of the buffer that `view` is of."""
    old = View(view.buffer, view.data, record.group.lo, record.group.hi)
    return str(old)
