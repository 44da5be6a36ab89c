"""What stops a kernel on the machine: raised inside, turned into findings at the edge."""

from __future__ import annotations

from typing import Any


class Fault(Exception):  # noqa: N818  (a fault of the kernel, not of the program)
    """A kernel cannot go on. `rule` names the finding it becomes."""

    rule = "exception"


class OutOfBounds(Fault):
    """An access outside of a buffer: elements `start` to `stop` of an axis of `extent`."""

    rule = "out-of-bounds"

    def __init__(
        self, buffer: Any, axis: int, start: int, stop: int, extent: int, why: str = ""
    ) -> None:
        self.why = why  # what the hardware does, where it is not the usual
        self.buffer, self.axis = buffer, axis
        self.start, self.stop, self.extent = start, stop, extent
        part = f"element {start}" if stop == start + 1 else f"elements {start} to {stop - 1}"
        super().__init__(
            f"{part} of axis {axis} of {buffer.name}, which has {extent} (0 to {extent - 1})"
        )


class Unsupported(Fault):
    """Something that the simulator does not model."""

    rule = "unsupported"

    def __init__(self, what: str, fix: str = "") -> None:
        self.fix = fix  # "": the rule's own
        super().__init__(what)


class StepLimit(Fault):
    """The kernel ran more operations than allowed."""

    rule = "step-limit"


class Enough(Exception):  # noqa: N818
    """A sampled cluster has done what was to be seen of it."""


class Deadlock(Fault):
    """Every thread that is left waits, and nothing is under way that could wake one."""

    rule = "deadlock"


class KernelFault(Fault):
    """Any other rule whose breach leaves nothing sensible to compute.

    `why` and `fix` replace the rule's own words where they say more.
    """

    def __init__(self, rule: str, message: str, *, why: str = "", fix: str = ""):
        self.rule, self.why, self.fix = rule, why, fix
        super().__init__(message)
