"""What a simulation gives back."""

from __future__ import annotations

import dataclasses
from typing import Any

from course_lib.diagnostics import Finding, Severity
from course_lib.simulator.machine.occupancy import Occupancy
from course_lib.simulator.performance import Performance


@dataclasses.dataclass(frozen=True)
class Resources:
    """What the kernels used.

    Attributes:
      kernels: how many kernels were launched.
      smem_bytes: the most shared memory that one block held at a time.
      tmem_columns: the most columns of tensor memory that one block held at a time.
      steps: how many operations were simulated.
      occupancy: how many such blocks share an SM, and what keeps more of them out.
    """

    kernels: int = 0
    smem_bytes: int = 0
    tmem_columns: int = 0
    steps: int = 0
    occupancy: Occupancy | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """The result of one simulation.

    Attributes:
      value: what the function returned, with numpy arrays; None if it could not finish.
      findings: what was found, in the order it was met.
      timeline: spans per thread and engine, or None.
      resources: memory and steps used.
      remarks: what could not be looked at, a sentence each.
      performance: the predicted time of each kernel, where only that was asked for.
      printed: what the kernels printed with `pl.debug_print`, a line each.
    """

    value: Any
    findings: tuple[Finding, ...] = ()
    timeline: Any = None
    resources: Resources = Resources()
    remarks: tuple[str, ...] = ()
    performance: tuple[Performance, ...] = ()
    printed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def rule(self) -> str:
        """The id of the rule that was broken first, errors before notes; else "no findings"."""
        return next((f.rule for f in (*self.errors, *self.findings)), "no findings")

    def __repr__(self) -> str:
        found = [str(f) for f in self.findings] or ["No findings."]
        if self.performance:
            found = [*map(str, self.findings), *map(str, self.performance)]
        printed = ["\n".join(self.printed)] if self.printed else []
        return "\n\n".join([*printed, *found, *self.remarks])
