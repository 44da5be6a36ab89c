"""When asynchronous effects happen, and which thread goes first.

"in_order": threads run in order, each as far as it can; what is asynchronous
happens at once. "adversarial": loads land as late as possible, except where an
MMA or a store has still to read what they overwrite, then at once; MMAs and
stores read as late as possible. A seed: everything at random, the same for the
same seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.diagnostics import OptionError
from course_lib.simulator.machine.memory import View

Landing = Callable[[], None]


class Timing:
    """The policy of one simulation."""

    def __init__(self, schedule: str | int) -> None:
        if schedule not in ("in_order", "adversarial") and not isinstance(schedule, int):
            raise OptionError(
                f"schedule={schedule!r}: choose 'in_order', 'adversarial' or an int (a seed)"
            )
        self.schedule = schedule
        self.random = random.Random(schedule) if isinstance(schedule, int) else None
        self.pending: list[Landing] = []
        self.prompt = schedule == "in_order"  # everything happens at once

    @property
    def preempts(self) -> bool:
        """Whether a thread may be interrupted anywhere."""
        return self.random is not None

    def late(self, unit: str) -> bool:
        """Whether an effect is put off as long as the rules allow."""
        if self.random is not None:
            return self.random.random() < 0.6
        return self.schedule == "adversarial"

    def load(self, machine: Any, thread: Any, dst: View, land: Landing) -> None:
        """A load has been issued; `land` makes its data appear."""
        if self.random is None and self.schedule == "adversarial":
            late = not any(t.reads_later(dst) for t in thread.block.cluster.threads)
        else:
            late = self.late("load")
        if late:
            self.pending.append(land)
        else:
            land()

    def store(self, machine: Any, thread: Any, store: Any) -> None:
        """A store has been issued; its two halves happen now or when they are waited for."""
        if self.late("store"):
            return
        store.read()
        if not self.late("store"):
            store.write()

    def fire(self) -> bool:
        """Lets one put-off effect happen. False if there is none."""
        if not self.pending:
            return False
        i = self.random.randrange(len(self.pending)) if self.random else 0
        self.pending.pop(i)()
        return True

    def maybe_fire(self) -> None:
        """At random, something that was put off happens now."""
        if self.random is not None and self.pending and self.random.random() < 0.15:
            self.fire()

    def choose(self, ready: Sequence[Any]) -> Any:
        return self.random.choice(ready) if self.random is not None else ready[0]
