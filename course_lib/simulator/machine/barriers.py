"""Barriers and semaphores, as the hardware keeps them.

A `Barrier` counts arrivals and the bytes that copies still owe. When both are
nought its phase completes: the clocks of all that arrived become what a waiter
learns. Each thread counts the phases that it waited for. A `Semaphore` is a
counter in global memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine.clocks import Clock, Components, at


@dataclasses.dataclass
class Wait:
    """A wait that a thread did: which phase, at what time of the thread, where."""

    phase: int
    time: int
    op: ir.Op


class Barrier:
    """One mbarrier of one block.

    Attributes:
      needed: arrivals per phase.
      pending: arrivals that this phase still waits for.
      owed: bytes of copies that this phase still waits for.
      phases: how many phases have completed.
      waits: by thread, its last wait.
      arrived: who arrived in this phase, with the op (for a deadlock's report).
    """

    __slots__ = (
        "arrived", "base", "before", "block", "collecting", "component", "done", "history",
        "last_load", "last_op", "leader_only", "name", "needed", "orders", "overrun", "owed",
        "pending", "phases", "spec", "waits", "when", "when_done", "where",
    )  # fmt: skip

    def __init__(
        self, spec: ir.BarrierSpec, needed: int, components: Components, name: str, block: Any
    ) -> None:
        self.spec = spec
        self.needed = self.pending = needed
        self.owed = 0
        self.phases = 0
        self.component, self.base = components.take()
        self.orders = spec.orders_tensor_core
        self.collecting = Clock()
        self.done = Clock()
        self.waits: dict[Any, Wait] = {}
        self.arrived: list[tuple[Any, ir.Op]] = []
        self.before: list[tuple[Any, ir.Op]] = []  # who arrived in the phase before
        self.name = name
        self.block = block
        self.last_op: ir.Op | None = None
        self.last_load: tuple[int, ir.Op] | None = None  # the phase of the last copy into memory
        self.history: dict[int, Clock] = {}  # what the phases handed over, once it is overrun
        self.overrun = False  # reported already: be lenient with its waits
        self.leader_only = False  # a leader-tracked copy named it in a following block
        self.when = self.when_done = 0.0  # in cycles, where time is kept
        self.where: Any = None  # which allocation it is, the same in every block

    @property
    def time(self) -> int:
        """The time of this barrier's component when the running phase completes."""
        return self.base + self.phases + 1

    def arrive(self, machine: Any, clock: Clock, who: Any, op: ir.Op, count: int = 1) -> None:
        """`count` arrivals, which hand over what `clock` knows."""
        self.collecting.join(clock, tensor=self.orders)
        if self.pending < count and not self.overrun:  # the phase still waits for bytes
            self.overrun = True
            machine.report_underflow(self, who, op)
        self.pending = max(self.pending - count, 0)
        if machine.clockwork is not None and clock is getattr(who, "clock", None):
            machine.clockwork.arrive(who, self)
        self.arrived.append((who, op))
        self.last_op = op
        self._maybe_complete(machine)

    def expect(self, nbytes: int, op: ir.Op) -> None:
        """A copy announces how many bytes it will bring in this phase."""
        self.owed += nbytes
        self.last_load = (self.phases + 1, op)

    def deliver(self, machine: Any, nbytes: int, clock: Clock | None = None) -> None:
        """Bytes of a copy have come."""
        if clock is not None:
            self.collecting.join(clock, tensor=self.orders)
        self.owed -= nbytes
        self._maybe_complete(machine)

    def _maybe_complete(self, machine: Any) -> None:
        if self.pending > 0 or self.owed != 0:
            return
        self._check_overrun(machine)
        self.collecting.learn(self.component, self.time)
        self.phases += 1
        self.when_done = self.when
        if self.overrun:
            self.history[self.phases - 1] = self.done
        self.done, self.collecting = self.collecting, Clock()
        self.pending = self.needed
        self.before, self.arrived = self.arrived, []
        machine.changed = True

    def _check_overrun(self, machine: Any) -> None:
        """The phase before must have been waited for, in the knowledge of this one's arrivals."""
        if not self.phases:
            return
        late = [
            (t, w) for t, w in self.waits.items()
            if w.phase < self.phases or at(self.collecting.known, t.generic) < w.time
        ]  # fmt: skip
        if (late or not self.waits) and not self.overrun:
            self.overrun = True
            machine.report_overrun(self, late)

    def ready(self, thread: Any) -> bool:
        """Whether the phase that `thread` waits for next has completed."""
        wait = self.waits.get(thread)
        return self.phases > (wait.phase if wait else 0)

    def learn(self, thread: Any, op: ir.Op, machine: Any) -> None:
        """`thread` passes its wait for the next phase and learns what arrived."""
        wait = self.waits.get(thread)
        phase = (wait.phase if wait else 0) + 1
        if wait is None and self.phases > 1 and not self.overrun:
            machine.report_skipped(self, thread, op)
            phase = self.phases
        thread.release()  # only who hears of it from now on knows of this wait
        self.waits[thread] = Wait(phase, thread.clock.known[thread.generic], op)
        thread.clock.join(self.history.get(phase, self.done), tensor=self.orders)
        if machine.clockwork is not None:
            machine.clockwork.wait(thread, self.when_done, op)


class Signal:
    """One signal of a semaphore: how much, by whom, and what that thread knew.

    A signal *implies* another one if its thread knew of it: it is there only if the other is.
    """

    __slots__ = ("amount", "clock", "cluster", "component", "time")

    def __init__(self, thread: Any, amount: int) -> None:
        self.amount = amount
        self.cluster, self.component = thread.block.cluster.index, thread.generic
        self.clock = Clock()
        hand_over(self.clock, thread)
        self.time = thread.clock.known[thread.generic]

    def implies(self, other: Signal) -> bool:
        """Whether this one can only have been given after `other` (or is the same)."""
        return at(self.clock.elsewhere.get(other.cluster, []), other.component) >= other.time


class Semaphore:
    """A counter in global memory. Signals hand over what the signaller knows.

    A wait sees a number, not who made it. So it hands over only what it could not have passed
    without: a signal counts if those that do not imply it are too few.
    """

    __slots__ = ("clock", "name", "signals", "taken", "value", "when")

    def __init__(self, name: str) -> None:
        self.value = 0
        self.clock = Clock()  # what all signals so far handed over
        self.signals: list[Signal] = []  # since the value was last taken down to 0
        self.taken = 0  # of them
        self.name = name
        self.when = 0.0

    def signal(self, machine: Any, thread: Any, amount: int) -> None:
        self.value += amount
        self.signals.append(Signal(thread, amount))
        hand_over(self.clock, thread)
        if machine.clockwork is not None:
            machine.clockwork.arrive(thread, self)
        machine.changed = True

    def wait(self, thread: Any, needed: int, *, decrement: bool) -> None:
        """A thread has seen that the value is at least `needed`."""
        if self.value == needed:  # without any one of them it would not be there
            take_over(thread, self.clock)
        else:
            enough = self.taken + needed
            for signal in self.signals:
                others = (s.amount for s in self.signals if not s.implies(signal))
                if sum(others) < enough:
                    take_over(thread, signal.clock)
        if not decrement:
            return
        self.value -= needed
        self.taken += needed
        if self.value == 0:
            self.signals, self.taken = [], 0


def hand_over(into: Clock, thread: Any) -> None:
    """Adds what a thread knows to a clock that other clusters may read."""
    into.learn_elsewhere(thread.block.cluster.index, thread.clock.known)
    for cluster, row in thread.clock.elsewhere.items():
        into.learn_elsewhere(cluster, row)


def take_over(thread: Any, clock: Clock) -> None:
    """A thread learns what a semaphore's signals handed over."""
    mine = thread.block.cluster.index
    for cluster, row in clock.elsewhere.items():
        if cluster == mine:
            other = Clock()
            other.known = row
            thread.clock.join(other, tensor=False)
        else:
            thread.clock.learn_elsewhere(cluster, row)
