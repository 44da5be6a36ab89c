"""Barriers step by step: what each thread did, and which phase each barrier is in.

A barrier counts arrivals. When `num_arrivals` of them have come, the phase that is under way is
complete and the next begins. All that a waiter can see of this is a parity: the hardware's test
(PTX ISA, `mbarrier.try_wait.parity`) asks whether the phase of a given parity is over, and answers
by the parity of the phase that is under way. Each thread that waits counts its own waits, and
asks for the parity of the next one.

    run = Run("eager", order="0")        # thread 0 goes first, as far as it can
    run.sentence(len(run.events))        # how it ended

Phases count from 1 here, as in the simulator's findings; the first one's parity is 0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from course_lib.diagnostics import CourseError
from course_lib.layouts.tiling import listed

__all__ = ["ORDERS", "PROGRAMS", "Event", "Program", "Run"]

# What an actor does: the kind, the barrier (an index, -1 for none) and the item (-1 for none).
type Op = tuple[str, int, int]

KINDS = ("access", "arrive", "wait", "blocked")
"""What a cell of an actor's row shows; an access reads, writes or starts a copy."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A few threads and what they do, loops unrolled.

    Attributes:
      barriers: name and `num_arrivals` of each.
      actors: a name for each thread, and what it does in order. The copy engine is one of them:
        its "land" can only come after a thread's "issue".
      slots: how many slots the items go through; item i is in slot i % slots.
    """

    barriers: tuple[tuple[str, int], ...]
    actors: tuple[tuple[str, tuple[Op, ...]], ...]
    slots: int = 1


def _write(i: int) -> Op:
    return ("write", -1, i)


def _read(i: int) -> Op:
    return ("read", -1, i)


def _arrive(barrier: int) -> Op:
    return ("arrive", barrier, -1)


def _wait(barrier: int) -> Op:
    return ("wait", barrier, -1)


def _threads(*bodies: Iterable[Op]) -> tuple[tuple[str, tuple[Op, ...]], ...]:
    return tuple((f"thread {i}", tuple(body)) for i, body in enumerate(bodies))


def _copies() -> Program:
    issue = tuple(("issue", 0, i) for i in range(2))
    land = tuple(("land", 0, i) for i in range(2))
    thread = ("thread 0", (*issue, _wait(0), _read(0), _read(1)))
    return Program((("loaded", 2),), (thread, ("TMA", land)), slots=2)


def _queue_producer(items: int) -> Iterator[Op]:
    for i in range(items):
        if i:
            yield _wait(1)
        yield from (_write(i), _arrive(0))
    yield _wait(1)


def _queue_consumer(items: int) -> Iterator[Op]:
    for i in range(items):
        yield from (_wait(0), _read(i), _arrive(1))


PROGRAMS = {
    "hand-over": Program((("ready", 1),), _threads((_write(0), _arrive(0)), (_wait(0), _read(0)))),
    "arrivals": Program(
        (("ready", 2),),
        _threads((_write(0), _arrive(0)), (_write(1), _arrive(0)), (_wait(0), _read(0), _read(1))),
        slots=2,
    ),
    "copies": _copies(),
    "eager": Program(
        (("ready", 1),),
        _threads(
            (op for i in range(3) for op in (_write(i), _arrive(0))),
            (op for i in range(3) for op in (_wait(0), _read(i))),
        ),
    ),
    "queue": Program((("produced", 1), ("consumed", 1)), _threads(
        _queue_producer(3), _queue_consumer(3),
    )),
    "skipped": Program(
        (("go", 1), ("back", 1)),
        _threads(
            (op for _ in range(2) for op in (_arrive(0), _wait(1))),
            (op for _ in range(2) for op in (_wait(0), _arrive(1))),
            (_wait(0), ("go", -1, -1)),
        ),
    ),
}  # fmt: skip
"""The programs that can be shown."""

ORDERS = ("turns", "0", "1", "2")
"""Who goes next: the threads in turn, or one of them first, as far as it can."""


@dataclasses.dataclass(frozen=True)
class Event:
    """One step of one actor, and the state after it.

    Attributes:
      actor: its index.
      op: what it did.
      phase: of an arrival or a wait, the phase it belongs to; else 0.
      completions, arrivals: of each barrier, how often it completed, and the arrivals since.
      blocked: the actors whose next step is a wait that the barrier does not let pass.
      late: for each barrier the first actor that has missed a phase by now, else -1.
      found: of a read, the item that was in the slot; else -1.
    """

    actor: int
    op: Op
    phase: int
    completions: tuple[int, ...]
    arrivals: tuple[int, ...]
    blocked: tuple[int, ...]
    late: tuple[int, ...]
    found: int = -1


class Run:
    """A program from its first step to where nobody can go on.

    Args:
      program: a name in `PROGRAMS`.
      order: one of `ORDERS`: who goes next wherever several could.
      picks: the actors that go first, one digit each, whatever the order says; a digit whose
        actor cannot go is left out.

    Raises:
      CourseError: there is no such program or order.
    """

    def __init__(self, program: str, *, order: str = "turns", picks: str = "") -> None:
        if program not in PROGRAMS:
            raise CourseError(f"program = {program!r} is none of {listed(map(repr, PROGRAMS))}.")
        if order not in ORDERS:
            raise CourseError(f"order = {order!r} is none of {listed(map(repr, ORDERS))}.")
        self.program = PROGRAMS[program]
        self._at = [0] * len(self.program.actors)
        self._completions = [0] * len(self.program.barriers)
        self._arrivals = [0] * len(self.program.barriers)
        self._waits = [[0] * len(self.program.barriers) for _ in self.program.actors]
        self._in_flight = 0
        self._held = [-1] * self.program.slots
        self.events: list[Event] = []
        for digit in picks:
            if digit.isdigit() and self._can_go(int(digit)):
                self._go(int(digit))
        self._go_on(order)

    # -- the machine --

    def _go_on(self, order: str) -> None:
        count = len(self._at)
        last = self.events[-1].actor if self.events else count - 1
        while True:
            first = (last + 1) % count if order == "turns" else min(int(order), count - 1)
            able = [a for k in range(count) if self._can_go(a := (first + k) % count)]
            if not able:
                return
            last = able[0]
            self._go(last)

    def _next(self, actor: int) -> Op | None:
        ops = self.program.actors[actor][1]
        return ops[self._at[actor]] if self._at[actor] < len(ops) else None

    def _can_go(self, actor: int) -> bool:
        op = self._next(actor) if actor < len(self._at) else None
        if op is None:
            return False
        if op[0] == "land":
            return self._in_flight > 0
        return op[0] != "wait" or self._passes(actor, op[1])

    def _passes(self, actor: int, barrier: int) -> bool:
        """The hardware's test: is the phase under way of another parity than the one asked for?"""
        return (self._completions[barrier] - self._waits[actor][barrier]) % 2 == 1

    def _go(self, actor: int) -> None:
        op = self._next(actor)
        assert op is not None
        self._at[actor] += 1
        kind, barrier, item = op
        phase = 0
        if kind == "wait":
            self._waits[actor][barrier] += 1
            phase = self._waits[actor][barrier]
        elif kind in ("arrive", "land"):
            phase = self._completions[barrier] + 1
            self._arrive(barrier)
        self._in_flight += {"issue": 1, "land": -1}.get(kind, 0)
        slot = item % self.program.slots
        if kind in ("write", "land"):
            self._held[slot] = item
        found = self._held[slot] if kind == "read" else -1
        self.events.append(self._event(actor, op, phase, found))

    def _arrive(self, barrier: int) -> None:
        self._arrivals[barrier] += 1
        if self._arrivals[barrier] == self.program.barriers[barrier][1]:
            self._arrivals[barrier] = 0
            self._completions[barrier] += 1

    def _event(self, actor: int, op: Op, phase: int, found: int) -> Event:
        actors = range(len(self._at))
        blocked = tuple(
            a for a in actors if (n := self._next(a)) and n[0] == "wait" and not self._can_go(a)
        )
        late = tuple(self._late(b) for b in range(len(self._completions)))
        done, arrivals = tuple(self._completions), tuple(self._arrivals)
        return Event(actor, op, phase, done, arrivals, blocked, late, found)

    def _late(self, barrier: int) -> int:
        """The first actor that waits on a barrier and has two completions to catch up with."""
        for actor, (_, ops) in enumerate(self.program.actors):
            behind = self._completions[barrier] - self._waits[actor][barrier]
            if behind > 1 and any(kind == "wait" and b == barrier for kind, b, _ in ops):
                return actor
        return -1

    # -- what is shown --

    def actor_cells(self, step: int) -> npt.NDArray[np.int16]:
        """Per actor and event the index in `KINDS` of what it did, -1 for nothing."""
        cells = np.full((len(self._at), max(1, len(self.events))), -1, np.int16)
        for column, event in enumerate(self.events[:step]):
            cells[list(event.blocked), column] = KINDS.index("blocked")
            cells[event.actor, column] = _KIND_OF[event.op[0]]
        return cells

    def barrier_cells(self, step: int) -> npt.NDArray[np.int16]:
        """Per barrier and event the parity of the phase under way after it; 2 if one was missed."""
        cells = np.full((len(self._completions), max(1, len(self.events))), -1, np.int16)
        for column, event in enumerate(self.events[:step]):
            for barrier, done in enumerate(event.completions):
                cells[barrier, column] = 2 if event.late[barrier] >= 0 else done % 2
        return cells

    def sentence(self, step: int) -> str:
        """What happened in a step, and after the last one how it ended."""
        if not step:
            return "Nothing has happened yet. Every barrier is in phase 1."
        said = f"Step {step} of {len(self.events)}: {self.describe(step - 1)}"
        return said if step < len(self.events) else f"{said} {self.ending}"

    def describe(self, index: int) -> str:
        """Event `index` in a sentence or two."""
        event = self.events[index]
        kind, barrier, item = event.op
        who = self.program.actors[event.actor][0]
        if kind in _WORDS:
            lost = kind == "read" and event.found != item
            rest = f"; item {item} is lost" if lost else ""
            return f"{who} {_WORDS[kind].format(event.found if kind == 'read' else item)}{rest}."
        name, needed = self.program.barriers[barrier]
        if kind == "wait":
            return f"{who} waits for phase {event.phase} of {name}, and it is over."
        what = f"copy {item} lands and arrives" if kind == "land" else f"{who} arrives"
        if event.completions[barrier] < event.phase:
            of = f"{event.arrivals[barrier]} of {needed}"
            return f"{what} on {name}: arrival {of} of phase {event.phase}."
        said = f"{what} on {name}: phase {event.phase} is complete."
        if event.late[barrier] < 0:
            return said
        behind = _capital(self.program.actors[event.late[barrier]][0])
        return f"{said} {behind} has not waited for phase {event.phase - 1} yet."

    @functools.cached_property
    def ending(self) -> str:
        """How it ended: who is stuck and why, or what nobody waited for."""
        stuck = [a for a in range(len(self._at)) if self._next(a)]
        if stuck:
            return " ".join(self._stuck(a) for a in stuck)
        for barrier, (name, _) in enumerate(self.program.barriers):
            for actor, (who, ops) in enumerate(self.program.actors):
                done, waits = self._completions[barrier], self._waits[actor][barrier]
                if any(k == "wait" and b == barrier for k, b, _ in ops) and waits < done:
                    return f"Done, but {who} waited for {waits} of the {done} phases of {name}."
        return "Done: every completion was waited for."

    def _stuck(self, actor: int) -> str:
        op = self._next(actor)
        assert op is not None
        who, name = _capital(self.program.actors[actor][0]), self.program.barriers[op[1]][0]
        asked, now = self._waits[actor][op[1]] + 1, self._completions[op[1]] + 1
        said = f"{who} is stuck: it waits for phase {asked} of {name}"
        if asked == now:
            return f"{said}, and nobody is left who could complete it."
        parity = (asked - 1) % 2
        return f"{said} (parity {parity}), and phase {now} is under way, of parity {parity} too."


_KIND_OF = {"write": 0, "read": 0, "go": 0, "issue": 0, "arrive": 1, "land": 1, "wait": 2}
_WORDS = {
    "write": "writes item {}",
    "read": "reads item {}",
    "issue": "starts the copy of item {}",
    "go": "goes on",
}


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
