"""How long a kernel takes on a full grid, by a model: no values, no checks, only time.

    report = simulate(kernel, a, b, values=False)    # jax.ShapeDtypeStructs are enough
    print(report.performance)

Three steps, for each kernel:

1. Clusters of a sample (the first, the last, and some between if these differ) run alone, by
   the cost model of `machine.costs`: copies and MMAs take time, threads wait for each other.
2. The clusters of the first wave run as far as their first copies. How many of the bytes that
   they ask for are the same, says what memory has to deliver only once. L2 has two partitions,
   each of which caches for its own SMs: what blocks of both ask for is fetched into both. So it
   matters not only which tiles a wave shares, but also which of its blocks do.
3. Shared memory serves MMAs, copies and threads through one port: a block takes at least as
   long as that needs. Blocks that share an SM overlap: their stalls and their work on the
   tensor core and on the way from L2 are a closed queueing network (mean value analysis:
   Lazowska et al., Quantitative System Performance, 1984, chapter 6). Bytes that the partition
   has to fetch add their time, and never less than the memory's bandwidth allows. Waves of
   blocks follow each other; the last may be part full.

Not in the model: what a wave leaves in L2 for the next, unequal SMs, power and clocks under load,
arithmetic in registers, bank conflicts, and data: control flow that depends on values that the
kernel reads is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.simulator import ir
from course_lib.simulator.machine.clockwork import Clockwork
from course_lib.simulator.machine.costs import Costs
from course_lib.simulator.machine.dataflow import inputs_of
from course_lib.simulator.machine.faults import Enough
from course_lib.simulator.machine.findings import Recorder
from course_lib.simulator.machine.machine import Machine, Stopped
from course_lib.simulator.machine.occupancy import Occupancy, occupancy

_FIRST_LOADS = 6  # of each cluster of the first wave
_BISECTIONS = 3
# Reads of memory: what comes out of them is data.
_DATA = frozenset(
    {"get", "masked_load", "swap", "masked_swap", "atomic", "wgmma_accumulator_deref",
     "async_load_tmem"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Wave:
    """Blocks that run at the same time.

    Attributes:
      blocks: how many.
      blocks_per_sm: how many of them share an SM.
      time_us: how long it takes.
    """

    blocks: int
    blocks_per_sm: int
    time_us: float


@dataclasses.dataclass(frozen=True)
class Performance:
    """The predicted time of one kernel.

    Attributes:
      kernel: its name.
      time_us: the prediction, with the launch.
      waves: waves of blocks, in order; a persistent kernel has one.
      occupancy: how many blocks share an SM, and why no more.
      flops: the tensor core's operations (a multiply-add is two).
      tflops: those per second.
      peak_fraction: the part of the tensor core's peak at the boost clock.
      l2_hit_fraction: the part of the loaded bytes that another block of the wave fetched.
      shares: the part of the time that "tensor core", "SMEM", "L2" and "HBM" are at work, and
        that a block's threads spend in "issue".
      bottleneck: the one of these that limits, or "latency": nothing is busy, threads wait.
    """

    kernel: str
    time_us: float
    waves: tuple[Wave, ...]
    occupancy: Occupancy
    flops: float
    tflops: float
    peak_fraction: float
    l2_hit_fraction: float
    shares: dict[str, float]
    bottleneck: str

    @property
    def tail_us(self) -> float:
        """How long the last wave takes, if it is not full; else 0."""
        last = self.waves[-1]
        return last.time_us if last.blocks < self.waves[0].blocks else 0.0

    def __str__(self) -> str:
        first = self.waves[0]
        count = len(self.waves)
        tail = f", the last with {self.waves[-1].blocks} of them" if self.tail_us else ""
        busy = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return "\n".join(
            [
                f"{self.kernel}: {self.time_us:.1f} us, {self.tflops:.0f} Tflop/s "
                f"({self.peak_fraction:.0%} of the tensor core's peak)",
                f"  {count} wave{'s' if count > 1 else ''} of {first.blocks} blocks, "
                f"{first.time_us:.1f} us each{tail}",
                f"  {self.occupancy}",
                f"  L2 serves {self.l2_hit_fraction:.0%} of the loads; busy: {busy}",
                f"  limited by: {self.bottleneck}",
            ]
        )


class _Meter(Clockwork):
    """Time of clusters that run alone, and what they ask of the tensor core and of memory."""

    def __init__(
        self, arch: Any, recorder: Any, costs: Costs, *, first_loads: int = 0, places: int = 1
    ) -> None:
        super().__init__(arch, recorder)
        self.costs = costs
        self.first_loads = first_loads
        self.places = places  # clusters that run with one block per SM
        self.times: list[float] = []
        self.tensor = self.bytes = self.issue = self.smem = 0.0
        self.asked: dict[Any, int] = {}  # bytes by region, each once
        self.fetched: dict[Any, int] = {}  # the same by L2 partition and region
        self.total = 0
        self._partitions: dict[Any, int] = {}  # by cluster
        self._loads: dict[Any, int] = {}

    def start(self, cluster: Any) -> None:
        place = len(self._partitions) % self.places  # clusters start in the order of the grid
        self._partitions[cluster] = place * self.costs.l2_partitions // self.places
        for thread in cluster.threads:
            thread.time = 0.0

    def finish(self, cluster: Any) -> None:
        ends = [t.time for t in cluster.threads]
        ends += [e.end for (b, _), e in self._engines.items() if b in cluster.blocks]
        self.times.append(max(ends))

    def span(self, lane: Any, kind: str, start: float, end: float, op: ir.Op | None) -> None:
        if kind == "issue":
            self.issue += end - start

    def engine(self, thread: Any, name: str, cycles: float, extra: float, op: ir.Op) -> float:
        if name == "tensor core":
            self.tensor += cycles
        return super().engine(thread, name, cycles, extra, op)

    def load(self, thread: Any, src: Any, nbytes: int, barrier: Any, op: ir.Op) -> None:
        self.bytes += nbytes
        self.smem += nbytes
        if not self.first_loads:
            super().load(thread, src, nbytes, barrier, op)
            return
        key = (id(src.buffer), src.lo, src.hi)
        cluster = thread.block.cluster
        self.asked[key] = nbytes
        self.fetched[self._partitions[cluster], key] = nbytes
        self.total += nbytes
        self._loads[cluster] = self._loads.get(cluster, 0) + 1
        super().load(thread, src, nbytes, barrier, op)
        if self._loads[cluster] >= self.first_loads * len(cluster.blocks):
            raise Enough

    def store(self, thread: Any, nbytes: int, op: ir.Op) -> None:
        self.smem += nbytes
        super().store(thread, nbytes, op)

    def access(self, thread: Any, view: Any, op: ir.Op) -> None:
        if view.buffer.space == "smem":
            self.smem += view.nbytes
        super().access(thread, view, op)

    def wgmma(self, thread: Any, cycles: float, op: ir.Op, *, smem_bytes: int = 0) -> None:
        self.smem += smem_bytes
        super().wgmma(thread, cycles, op)


def predict(program: ir.Program, *, arch: str, max_steps: int) -> tuple[Performance, ...]:
    """The time of each kernel of a program.

    Args:
      program: of `trace_kernels`.
      arch: "sm_90a" or "sm_100a".
      max_steps: operations that the sample of a kernel may run.

    Raises:
      CourseError: a kernel cannot be timed without values; the sentence says why.
    """
    kernels = [op for op, _ in program.walk() if op.name == "kernel"]
    return tuple(_predict(program, op, arch, max_steps) for op in kernels)


def _predict(program: ir.Program, op: ir.Op, arch: str, max_steps: int) -> Performance:
    refuse_data(program, op)
    grid = tuple(op.params["grid"])
    in_cluster = math.prod(op.params["cluster"])
    clusters = math.prod(grid)
    runs = _sample(program, op, arch, max_steps, clusters)
    machine = runs[0].machine
    fits = occupancy(
        machine.arch, threads=machine.peak_threads, smem_bytes=machine.peak_smem,
        accumulator_bytes=machine.peak_accumulator, tmem_columns=machine.peak_tmem,
    )  # fmt: skip
    sms = machine.arch.sms // in_cluster * in_cluster
    places = max(1, sms * fits.blocks_per_sm // in_cluster)
    look = _first_wave(program, op, arch, max_steps, min(places, clusters), sms // in_cluster)
    load = _mean(runs, clusters, in_cluster, look)
    times = {i: r.meter.times[0] for i, r in runs.items()}
    # One wave ends with its longest block; of many, what one block needs on average counts.
    alone = max(times.values()) if clusters <= places else _mean_of(times, clusters)
    costs = runs[0].meter.costs
    waves = _waves(clusters, places, in_cluster, sms, alone, load, costs)
    return _result(op.params["name"], waves, fits, load, clusters * in_cluster, costs,
                   machine.arch.sms)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Run:
    machine: Machine
    meter: _Meter


def _first_wave(
    program: ir.Program, op: ir.Op, arch: str, max_steps: int, clusters: int, places: int
) -> _Meter:
    """The first copies of the clusters of a wave; `places` of them have SMs of their own."""
    _, meter = _run(
        program, op, arch, max_steps, range(clusters), _FIRST_LOADS, min(places, clusters)
    )
    return meter


def _sample(
    program: ir.Program, op: ir.Op, arch: str, max_steps: int, clusters: int
) -> dict[int, _Run]:
    """Runs of the first cluster and the last; where they differ in work, of those around the
    place where it changes (blocks of a persistent kernel do a tile more or less).
    """

    def run(i: int) -> _Run:
        return _Run(*_run(program, op, arch, max_steps, [i], 0))

    runs = {i: run(i) for i in sorted({0, clusters - 1})}
    low, high = 0, clusters - 1
    for _ in range(_BISECTIONS):
        if _work(runs[low]) == _work(runs[high]) or high - low < 2:
            break
        middle = (low + high) // 2
        runs[middle] = run(middle)
        if _work(runs[middle]) == _work(runs[low]):
            low = middle
        else:
            high = middle
    return runs


def _work(run: _Run) -> tuple[float, float]:
    return run.meter.tensor, run.meter.bytes


def _mean_of(values: dict[int, float], count: int) -> float:
    """The mean over `count` clusters of what is known of some; in between, it is interpolated."""
    known = sorted(values)
    return float(np.interp(np.arange(count), known, [values[i] for i in known]).mean())


def _mean(runs: dict[int, _Run], clusters: int, in_cluster: int, look: _Meter) -> _Load:
    def mean(what: str) -> float:
        found = {i: getattr(r.meter, what) for i, r in runs.items()}
        return _mean_of(found, clusters) / in_cluster

    missed, fetched = (
        sum(once.values()) / look.total if look.total else 1.0
        for once in (look.asked, look.fetched)
    )
    return _Load(mean("tensor"), mean("bytes"), mean("issue"), mean("smem"), missed, fetched)


@dataclasses.dataclass(frozen=True)
class _Load:
    """What one block asks for.

    Attributes:
      tensor, issue: cycles of the tensor core, and of its threads to issue copies and MMAs.
      bytes: what its copies load.
      smem: bytes that MMAs, copies and threads read from shared memory or write there.
      missed: the part of the loaded bytes that memory has to deliver.
      fetched: the part that an L2 partition has to fetch, from memory or from the other.
    """

    tensor: float
    bytes: float
    issue: float
    smem: float
    missed: float
    fetched: float


def _run(
    program: ir.Program, op: ir.Op, arch: str, max_steps: int, numbers: Sequence[int], loads: int,
    places: int = 1,
) -> tuple[Machine, _Meter]:  # fmt: skip
    """Runs clusters by their numbers in the grid, for the time only."""
    grid = tuple(op.params["grid"])
    sample = [tuple(map(int, np.unravel_index(i, grid))) if grid else () for i in numbers]
    machine = Machine(program, arch=arch, max_steps=max_steps, sample=sample)
    costs = Clockwork(machine.arch, machine.recorder).costs
    running = costs.running_ghz or costs.clock_ghz
    costs = dataclasses.replace(
        costs, clock_ghz=running,
        hbm_bytes_per_cycle=costs.gmem_bytes_per_cycle * costs.clock_ghz / running,
        flops_per_cycle=costs.flops_per_cycle * costs.mma_sustained,
        gmem_bytes_per_cycle=costs.l2_bytes_per_cycle, gmem_latency=costs.l2_latency,
        mma_latency=60,
    )  # fmt: skip
    meter = _Meter(machine.arch, machine.recorder, costs, first_loads=loads, places=places)
    machine.clockwork = meter
    block = program.blocks[op.params["blocks"][0]]
    inputs = len(op.inputs)
    shapes = [block.types[s] for s in block.params[:inputs]]
    values = [np.zeros(t.shape, ir.numpy_dtype(t.dtype)) if not _is_semaphore(t) else None
              for t in shapes]  # fmt: skip
    try:
        machine.run_kernel(op, [values], [{}])
    except Stopped:
        raise _cannot(machine.recorder.found[-1]) from None
    return machine, meter


def _is_semaphore(type_: Any) -> bool:
    return str(type_.dtype) == "semaphore"


def _cannot(finding: Any) -> CourseError:
    what = finding.what.rstrip(".")
    hint = (
        " Blocks that wait for each other, or for work that others hand out, cannot be timed from"
        " a sample of them."
        if finding.rule == "deadlock"
        else ""
    )
    return CourseError(f"This kernel cannot be timed without values: {what}.{hint}")


def _waves(
    clusters: int, places: int, in_cluster: int, sms: int, alone: float, load: _Load, costs: Costs
) -> list[tuple[int, int, float]]:
    """`(blocks, blocks per SM, cycles)` of each wave."""
    full, rest = divmod(clusters, places)
    sizes = [places] * full + ([rest] if rest else [])
    out = []
    for size in sizes:
        blocks = size * in_cluster
        per_sm = max(1, -(-blocks // sms))
        out.append((blocks, per_sm, _cycles(alone, per_sm, blocks / sms, load, costs)))
    return out


def _cycles(alone: float, per_sm: int, mean_per_sm: float, load: _Load, costs: Costs) -> float:
    """Cycles until `per_sm` blocks that share an SM are done."""
    l2 = load.bytes / costs.l2_bytes_per_cycle
    together = alone if per_sm == 1 else per_sm / _throughput(alone, [load.tensor, l2], per_sm)
    together = max(together, per_sm * load.smem / _smem_bytes_per_cycle(costs))
    slowed = together + per_sm * load.bytes * load.fetched * costs.miss_cycles_per_byte
    return max(slowed, mean_per_sm * load.bytes * load.missed / _hbm_bytes_per_cycle(costs))


def _hbm_bytes_per_cycle(costs: Costs) -> float:
    """An SM's even share of what the memory really delivers."""
    return costs.hbm_delivered * costs.hbm_bytes_per_cycle


def _smem_bytes_per_cycle(costs: Costs) -> float:
    """What MMAs, copies and threads together really get through shared memory's port."""
    return costs.smem_delivered * costs.smem_bytes_per_cycle


def _throughput(alone: float, demands: Sequence[float], customers: int) -> float:
    """Blocks per cycle of a closed network: stations with these demands, and the rest a delay."""
    think = max(0.0, alone - sum(demands))
    queues = [0.0] * len(demands)
    rate = 0.0
    for n in range(1, customers + 1):
        waits = [d * (1 + q) for d, q in zip(demands, queues, strict=True)]
        rate = n / (think + sum(waits))
        queues = [rate * w for w in waits]
    return rate


def _result(
    name: str, waves: list[tuple[int, int, float]], fits: Occupancy, load: _Load, blocks: int,
    costs: Costs, sms: int,
) -> Performance:  # fmt: skip
    cycles = costs.launch_cycles + sum(c for *_, c in waves)
    us = 1 / costs.clock_ghz / 1e3
    flops = load.tensor * blocks * costs.flops_per_cycle
    peak = costs.flops_per_cycle / costs.mma_sustained * sms
    work = blocks / sms
    shares = {
        "tensor core": work * load.tensor / cycles,
        "SMEM": work * load.smem / _smem_bytes_per_cycle(costs) / cycles,
        "L2": work * load.bytes / costs.l2_bytes_per_cycle / cycles,
        "HBM": work * load.bytes * load.missed / _hbm_bytes_per_cycle(costs) / cycles,
        "issue": work * load.issue / cycles,
    }
    most = max(shares, key=lambda k: shares[k])
    return Performance(
        kernel=name,
        time_us=cycles * us,
        waves=tuple(Wave(b, r, c * us) for b, r, c in waves),
        occupancy=fits,
        flops=flops,
        tflops=flops / (cycles * us) / 1e6,
        peak_fraction=flops / cycles / peak,
        l2_hit_fraction=1 - load.missed,
        shares=shares,
        bottleneck=most if shares[most] > 0.6 else "latency",
    )


# Data that decides where the kernel goes.


def refuse_data(program: ir.Program, kernel: ir.Op) -> None:
    """Complains about control flow that depends on what the kernel reads from memory.

    Raises:
      CourseError: there is some; the sentence names its line.
    """
    for op in _decisions(program, kernel.params["blocks"][0], frozenset()):
        line = Recorder(program).line(op)
        where = f" ({line})" if line is not None else ""
        raise CourseError(
            f"This kernel cannot be timed without values: a {op.name} in it depends on data that "
            f"the kernel reads{where}. Run it with values: simulate(kernel, ...)."
        )


def _decisions(program: ir.Program, index: int, tainted_params: frozenset[int]) -> Iterator[ir.Op]:
    block = program.blocks[index]
    tainted = {block.params[i] for i in tainted_params}
    for op in block.ops:
        dirty = [s for s in op.inputs if s in tainted]
        if (op.name == "cond" and op.inputs[0] in tainted) or (
            op.name == "while" and _test_is_tainted(program, op, tainted)
        ):
            yield op
        for which, sub in enumerate(ir.sub_blocks(op)):
            inputs = inputs_of(op, which)
            yield from _decisions(
                program, sub, frozenset(i for i, s in enumerate(inputs) if s in tainted)
            )
        if dirty or op.name in _DATA or any(_returns_data(program, b) for b in ir.sub_blocks(op)):
            tainted |= {s for s in op.outputs if s >= 0}


def _test_is_tainted(program: ir.Program, op: ir.Op, tainted: set[int]) -> bool:
    n = op.params["cond_consts"]
    return any(s in tainted for s in op.inputs[:n])


def _returns_data(program: ir.Program, index: int) -> bool:
    """Whether a block that is called reads memory and gives back values of it."""
    block = program.blocks[index]
    tainted: set[int] = set()
    for op in block.ops:
        if (
            op.name in _DATA
            or any(s in tainted for s in op.inputs)
            or any(_returns_data(program, b) for b in ir.sub_blocks(op))
        ):
            tainted |= {s for s in op.outputs if s >= 0}
    return any(r in tainted for r in block.results)
