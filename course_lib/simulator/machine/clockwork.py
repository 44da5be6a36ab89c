"""Keeps the time of every thread and engine while a kernel runs (`simulate(timeline=True)`)."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import math
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine.arithmetic import Work
from course_lib.simulator.machine.costs import COSTS
from course_lib.simulator.timeline import Span, Timeline

_MOST_SPANS = 50_000


class Engine:
    """When an engine is at work. Threads ask in the order in which they happen to be simulated,
    which is not that of time: an earlier gap that is long enough is taken.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    @property
    def end(self) -> float:
        """When it has done all that was asked for."""
        return self._ends[-1] if self._ends else 0.0

    def take(self, earliest: float, cycles: float) -> float:
        """Takes the first free time of that length; when it starts."""
        starts, ends = self._starts, self._ends
        i = bisect.bisect_right(ends, earliest)  # the first stretch of work that ends later
        start = earliest
        while i < len(starts) and starts[i] < start + cycles:
            start = ends[i]
            i += 1
        if i and ends[i - 1] == start:
            ends[i - 1] = start + cycles
            if i < len(starts) and starts[i] == ends[i - 1]:
                ends[i - 1] = ends.pop(i)
                starts.pop(i)
        else:
            starts.insert(i, start)
            ends.insert(i, start + cycles)
        return start


class Clockwork:
    """Times in cycles: each thread's own (`thread.time`), each block's engines', each barrier's."""

    def __init__(self, arch: Any, recorder: Any) -> None:
        self.costs = COSTS[arch.name]
        self.recorder = recorder
        self.spans: list[Span] = []
        self.end = 0.0
        self._sms = arch.sms
        self._free: dict[int, list[float]] = {}  # per device, when a place for a cluster is free
        self._engines: dict[tuple[Any, str], Engine] = {}
        self._done: dict[Any, list[float]] = {}

    def timeline(self) -> Timeline:
        return Timeline(tuple(self.spans), self.end, self.costs.clock_ghz)

    # Clusters take turns on the SMs.

    def start(self, cluster: Any) -> None:
        places = max(1, self._sms // len(cluster.blocks))
        free = self._free.setdefault(cluster.device.index, [0.0] * places)
        start = heapq.heappop(free) if free else 0.0
        for thread in cluster.threads:
            thread.time = start

    def free_at(self, device: int) -> float:
        """When the next place for a cluster is free; infinity while there is none."""
        return min(self._free.get(device, []), default=math.inf)

    def finish(self, cluster: Any) -> None:
        end = max(t.time for t in cluster.threads)
        heapq.heappush(self._free.setdefault(cluster.device.index, []), end)
        self.end = max(self.end, end)

    # What threads and engines do.

    def span(self, lane: Any, kind: str, start: float, end: float, op: ir.Op | None) -> None:
        if end > start and len(self.spans) < _MOST_SPANS:
            where = self.recorder.line(op)
            self.spans.append(Span(str(lane), kind, start, end, op.name if op else "", str(where)))

    def busy(self, thread: Any, kind: str, cycles: float, op: ir.Op) -> None:
        """A thread works for some cycles."""
        start = thread.time
        thread.time += cycles
        self.span(thread, kind, start, thread.time, op)

    def until(self, thread: Any, kind: str, when: float, op: ir.Op | None) -> None:
        """A thread waits until some time."""
        if when > thread.time:
            self.span(thread, kind, thread.time, when, op)
            thread.time = when

    def engine(self, thread: Any, name: str, cycles: float, extra: float, op: ir.Op) -> float:
        """An engine of the thread's block works; when its result is there."""
        self.busy(thread, "issue", self.costs.issue, op)
        engine = self._engines.setdefault((thread.block, name), Engine())
        start = engine.take(thread.time, cycles)
        lane = f"{name} of {thread.block}" if str(thread.block) else f"the {name}"
        self.span(lane, "in flight", start, start + cycles + extra, op)
        return start + cycles + extra

    def access(self, thread: Any, view: Any, op: ir.Op) -> None:
        """A plain read or write."""
        c = self.costs
        if view.buffer.space == "regs":  # a run_state's: the lanes have it
            return
        if view.buffer.space == "gmem":
            cycles = c.gmem_latency + view.nbytes / c.gmem_bytes_per_cycle
        else:
            cycles = c.smem_latency + view.nbytes / c.smem_bytes_per_cycle
        self.busy(thread, "memory", cycles, op)

    def load(self, thread: Any, src: Any, nbytes: int, barrier: Any, op: ir.Op) -> None:
        c = self.costs
        done = self.engine(thread, "TMA", nbytes / c.gmem_bytes_per_cycle, c.gmem_latency, op)
        barrier.when = max(barrier.when, done)

    def store(self, thread: Any, nbytes: int, op: ir.Op) -> None:
        c = self.costs
        done = self.engine(thread, "TMA", nbytes / c.gmem_bytes_per_cycle, c.smem_latency, op)
        self._done.setdefault((thread, "store"), []).append(done)

    def wait_stores(self, thread: Any, left: int, read_only: bool) -> None:
        times = self._done.get((thread, "store"), [])
        over = times[: len(times) - left] if left else times
        if over:
            extra = 0 if read_only else self.costs.gmem_latency
            self.until(thread, "wait", over[-1] + extra, None)

    def wgmma(self, thread: Any, cycles: float, op: ir.Op, *, smem_bytes: int = 0) -> None:
        done = self.engine(thread, "tensor core", cycles, self.costs.mma_latency, op)
        self._done.setdefault((thread, "wgmma"), []).append(done)

    def wait_wgmma(self, thread: Any, left: int) -> None:
        times = self._done.get((thread, "wgmma"), [])
        over = times[: len(times) - left] if left else times
        if over:
            self.until(thread, "wait", over[-1], None)

    def mma(self, thread: Any, cycles: float, op: ir.Op) -> None:
        thread.mma_time = self.engine(thread, "tensor core", cycles, self.costs.mma_latency, op)

    def commit(self, thread: Any, barrier: Any) -> None:
        barrier.when = max(barrier.when, thread.mma_time)

    # Barriers and semaphores carry the time of what completes them.

    def arrive(self, thread: Any, thing: Any) -> None:
        thing.when = max(thing.when, thread.time + self.costs.barrier_latency)

    def wait(self, thread: Any, when: float, op: ir.Op) -> None:
        self.until(thread, "wait", when, op)


class Detailed(Clockwork):
    """A clockwork in which arithmetic in registers takes its time, and copies come from L2.

    The threads of a block share the SM's ALU and its special function units. Tiles come from the
    L2 cache, as they do in the middle of a long kernel whose blocks read the same ones.
    """

    def __init__(self, arch: Any, recorder: Any) -> None:
        super().__init__(arch, recorder)
        self.costs = dataclasses.replace(
            self.costs,
            gmem_bytes_per_cycle=self.costs.l2_bytes_per_cycle,
            gmem_latency=self.costs.l2_latency,
        )

    def arithmetic(self, thread: Any, work: Work, op: ir.Op) -> None:
        """A thread computes: in turns with the others of its block where they compute, too."""
        c = self.costs
        name, rate = ("special", c.special_per_cycle) if work.special else ("ALU", c.alu_per_cycle)
        cycles = work.elements / rate
        engine = self._engines.setdefault((thread.block, name), Engine())
        start = engine.take(thread.time, cycles)
        thread.time = start + cycles
        self.span(thread, "arithmetic", start, thread.time, op)
