"""How long kernels take on the GPU, by CUPTI's own clock, in turns.

CUPTI times each kernel on the device: launches, Python and the queue are not in
the numbers. Contenders take turns in one run, in an order drawn anew for each
round, so that a card that grows warm or slow does so for all of them. Inputs
rotate: one launch finds none of the next one's bytes in the L2 cache.

This is the only file of the benchmarks that uses private names of JAX: the
extension under `jax.experimental.mosaic.gpu.profiler`, whose public `measure`
launches on the same inputs again and again.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from course_lib.diagnostics import CourseError

type Clock = Callable[[Sequence[Callable[[], Any]]], list[float]]
"""Calls each of some functions once and returns microseconds, one for each."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """The kernel times of one contender.

    Attributes:
      times_us: microseconds, one per launch of the function, all its kernels added up.
    """

    times_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """The median in microseconds."""
        return statistics.median(self.times_us)

    @property
    def quartiles_us(self) -> tuple[float, float]:
        """The first and the third quartile, in microseconds."""
        low, _, high = statistics.quantiles(self.times_us, n=4)
        return low, high

    @property
    def spread(self) -> float:
        """How far apart the quartiles are, as a part of the median."""
        low, high = self.quartiles_us
        return (high - low) / self.median_us


def cupti_times_us(launches: Sequence[Callable[[], Any]]) -> list[float]:
    """Calls each function once and returns the time of its kernels in microseconds.

    Args:
      launches: functions that launch the same kernels each (a CUPTI record names no caller).

    Raises:
      CourseError: CUPTI recorded nothing, or not the same number of kernels for each.
    """
    extension = _extension()
    extension._cupti_init()
    try:
        result = None
        for launch in launches:  # no result is kept: many large ones would fill the memory
            result = launch()
        jax.block_until_ready(result)
    finally:
        records = extension._cupti_get_timings(True)
    kernels, rest = divmod(len(records), len(launches))
    if not kernels or rest:
        raise CourseError(
            f"CUPTI recorded {len(records)} kernels in {len(launches)} launches. Another profiler"
            " may be attached to this process, or the driver keeps CUPTI from ordinary users"
            " (NVreg_RestrictProfilingToAdminUsers)."
        )
    times_ms = [time_ms for _, time_ms in records]
    return [sum(times_ms[i * kernels : (i + 1) * kernels]) * 1e3 for i in range(len(launches))]


def _extension() -> Any:
    from jax._src.lib import mosaic_gpu

    extension = getattr(mosaic_gpu, "_mosaic_gpu_ext", None)
    if extension is None:
        raise CourseError("This JAX has no CUDA plugin, so CUPTI cannot be asked for times.")
    return extension


def interleave(
    contenders: Mapping[str, Callable[..., Any]],
    inputs: Sequence[tuple[Any, ...]],
    *,
    rounds: int = 5,
    launches: int = 8,
    clocks: Mapping[str, Clock] | None = None,
    own_inputs: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Timing]:
    """Times functions against each other.

    Args:
      contenders: compiled functions, by name.
      inputs: sets of arguments; launch i of a turn takes set i modulo their number.
      rounds: how many turns each contender has.
      launches: how often it is launched in a turn, after one launch that is not counted.
      clocks: what times a contender, by name; `cupti_times_us` where there is none.
      own_inputs: sets of arguments that a contender gets instead of `inputs`, by name.
      say: is told about each round.

    Returns:
      each contender's times, rounds * launches of them.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}")
        order = list(contenders)
        random.shuffle(order)
        for name in order:
            f = contenders[name]
            sets = (own_inputs or {}).get(name, inputs)
            jax.block_until_ready(f(*sets[-1]))
            calls = [_call(f, sets[i % len(sets)]) for i in range(launches)]
            times[name] += (clocks or {}).get(name, cupti_times_us)(calls)
    return {name: Timing(tuple(found)) for name, found in times.items()}


def _call(f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: f(*args)
