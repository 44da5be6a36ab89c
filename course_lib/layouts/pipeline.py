"""When a software pipeline loads and computes: slots of shared memory, TMA and tensor cores.

Step `k` of a loop along K loads into slot `k % stages` of shared memory, then computes on it.
In this model

- loads are issued in order, `issue` apart (how fast memory delivers a tile), each into a free slot;
- a load arrives `latency` after it was issued;
- the MMA of a step takes `mma`, and begins when its load has arrived and the MMA before is done;
- its end frees the slot.

Times are whole numbers of any one unit. A real kernel adds the waits on barriers, and other
blocks on the same SM.

    Pipeline(steps=12, stages=3).needed          # the depth from which on deeper does not help
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.layouts.tiling import Array

__all__ = ["MAX_STEPS", "Pipeline"]

MAX_STEPS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline of `steps` steps over `stages` slots.

    Attributes:
      steps: steps along K, 1 to `MAX_STEPS`.
      stages: slots, `max_concurrent_steps` of `plgpu.emit_pipeline`.
      latency: from the issue of a load to its arrival.
      issue: between the issues of two loads, at least.
      mma: how long the computation of a step takes.

    Raises:
      CourseError: a number that does not fit.
    """

    steps: int = 12
    stages: int = 3
    latency: int = 8
    issue: int = 2
    mma: int = 4

    def __post_init__(self) -> None:
        for name in ("steps", "stages", "latency", "issue", "mma"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_STEPS:
                raise CourseError(f"{name} = {value} does not fit: take 1 to {MAX_STEPS}.")

    @functools.cached_property
    def times(self) -> Array:
        """When a step's load is issued and has arrived, its MMA begins and ends: `[steps, 4]`."""
        times = np.zeros((self.steps, 4), np.int64)
        for k in range(self.steps):
            free = times[k - self.stages, 3] if k >= self.stages else 0
            issued = max(free, times[k - 1, 0] + self.issue) if k else 0
            arrived = issued + self.latency
            begins = max(arrived, times[k - 1, 3]) if k else arrived
            times[k] = issued, arrived, begins, begins + self.mma
        return times

    @property
    def total(self) -> int:
        """When the last MMA ends."""
        return int(self.times[-1, 3])

    @property
    def waits(self) -> int:
        """How long the tensor cores wait between the first MMA and the last."""
        return self.total - int(self.times[0, 2]) - self.steps * self.mma

    @property
    def needed(self) -> int:
        """The fewest stages with which it is as fast as with any number."""
        best = dataclasses.replace(self, stages=self.steps).total
        return next(
            s for s in range(1, self.steps + 1) if dataclasses.replace(self, stages=s).total == best
        )

    def summary(self, *, work: str = "MMA") -> str:
        """What limits it, in a sentence or two; `work` names what a step does with its load."""
        who, does, each = "the tensor cores", "wait", "MMA"
        if work != "MMA":
            who, does, each = f"the {work}", "waits", work
        head = (
            f"{self.steps} steps with {self.stages} stage{'' if self.stages == 1 else 's'} take "
            f"{self.total}; {who} {does} {self.waits} of it between the first {each} and "
            "the last."
        )
        if self.stages < self.needed:
            return f"{head} Too shallow: {self.needed} stages would hide the latency of the loads."
        if self.issue > self.mma:
            return f"{head} Memory cannot deliver faster: more stages do not help."
        more = f"; {self.needed} would do" if self.stages > self.needed else ""
        are = "are" if work == "MMA" else "is"
        return f"{head} Deep enough: {who} {are} the limit{more}."
