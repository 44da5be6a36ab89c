"""Where a kernel of yours stands: `score(my_matmul)`.

It is simulated at a small shape first, then run once in a process that can be killed,
and only then timed, against cuBLAS and in turns with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from course_lib import model, runtime
from course_lib.benchmarks import bench, card, records, suites
from course_lib.benchmarks.bench import Contender, Log
from course_lib.diagnostics import CourseError
from course_lib.kernels import matmul_ladder
from course_lib.simulator import errors

_YOURS = "yours"
_SMALL = (512, 512, 512)


@dataclasses.dataclass(frozen=True)
class Score:
    """A kernel's place on the ladder.

    Attributes:
      case: what was multiplied ("8192x8192x8192 bfloat16").
      device: on which card.
      ratio: its rate over that of cuBLAS, in the same run.
      ladder: the same of each step, by number.
    """

    case: str
    device: str
    ratio: float
    ladder: Mapping[int, float]

    @property
    def rank(self) -> int:
        """Its place among the steps and itself; 1 is the fastest."""
        return 1 + sum(ratio > self.ratio for ratio in self.ladder.values())

    @property
    def next_step(self) -> int | None:
        """The first step that is faster; None if none is."""
        return min((i for i, ratio in self.ladder.items() if ratio > self.ratio), default=None)

    def __repr__(self) -> str:
        lines = [
            f"{self.ratio:.1%} of cuBLAS at {self.case} on {self.device}:"
            f" rank {self.rank} of {len(self.ladder) + 1} on the ladder."
        ]
        if self.next_step is None:
            return f"{lines[0]} No step is faster."
        step = matmul_ladder.step(self.next_step)
        there = self.ladder[step.number]
        lines.append(
            f"Next: {step.name}, {step.idea}. It reaches {there:.1%}, {there / self.ratio:.2f}"
            " times as fast as yours."
        )
        return "\n".join(lines)


def score(
    kernel: Callable[[Any, Any], Any],
    *,
    size: str = "4096x4096x4096:float16",
    small: tuple[int, int, int] = _SMALL,
) -> Score:
    """Times a matmul against cuBLAS and puts it on the ladder.

    Args:
      kernel: a function of a (m, k) and b (k, n) that returns a @ b, (m, n), in their dtype.
      size: MxNxK[:dtype] to time it at.
      small: (m, n, k) to simulate it at first.

    Returns:
      a `Score`; its text says where the kernel stands and what would come next.

    Raises:
      KernelError: something is wrong with it; it was not timed.
      CourseError: there is no GPU, or the kernel is wrong or does not run at this size.
    """
    device = card.need_gpu()
    [case] = suites.matmul([size], steps=())
    _prove(kernel, small, case.dtype)
    log = Log(say=lambda _: None)
    ladder = _known_ladder(case.name, device.name)
    steps = () if ladder else suites.matmul([size])[0].contenders
    mine = Contender(_YOURS, kernel)
    rows = bench.measure_case(dataclasses.replace(case, contenders=(mine, *steps)), log)
    ratios = {row.name: row.ratio for row in rows}
    if _YOURS not in ratios:
        raise CourseError(" ".join(log.notes) or f"The kernel does not run at {case.name}.")
    return Score(case.name, device.name, ratios[_YOURS], ladder or by_step(ratios))


def by_step(ratios: Mapping[str, float]) -> dict[int, float]:
    """The ladder's part of a table of ratios, by the steps' numbers."""
    return {s.number: ratios[s.name] for s in matmul_ladder.STEPS if s.name in ratios}


def _known_ladder(case: str, device: str) -> dict[int, float]:
    """What the newest record of this card says of the steps; nothing if there is none."""
    for record in records.all_records("matmul"):
        if record.device == device and (ladder := by_step(record.ratios(case))):
            return ladder
    return {}


def _prove(kernel: Callable[[Any, Any], Any], small: tuple[int, int, int], dtype: str) -> None:
    """Simulates the kernel at a small shape, then runs it once on the card.

    Raises:
      KernelError: the model found something wrong, or it does not come back from the card.
      CourseError: it is no matmul.
    """
    m, n, k = small
    rng = np.random.default_rng()
    a, b = (jnp.asarray(rng.standard_normal(shape), dtype) for shape in ((m, k), (k, n)))
    for run in (model.execute, functools.partial(runtime.execute_native)):
        outcome = run(kernel, (a, b))
        if outcome.errors:
            raise errors.of(outcome.findings)
        _compare(outcome.value, np.asarray(a, np.float32) @ np.asarray(b, np.float32), dtype)


def _compare(value: Any, want: Any, dtype: str) -> None:
    if np.shape(value) != want.shape:
        raise CourseError(f"The kernel returns {np.shape(value)}; a @ b is {want.shape}.")
    error = np.linalg.norm(np.asarray(value, np.float32) - want) / np.linalg.norm(want)
    if not error <= bench.TOLERANCE[dtype]:
        raise CourseError(
            f"The kernel does not compute a @ b: its relative error is {error:.1e} at {want.shape};"
            f" up to {bench.TOLERANCE[dtype]:.0e} is right."
        )
