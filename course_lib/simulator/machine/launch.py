"""Runs a kernel: launches clusters, and gives every thread its turn until all have ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import dataflow, races
from course_lib.simulator.machine.barriers import hand_over
from course_lib.simulator.machine.faults import Deadlock, Enough
from course_lib.simulator.machine.memory import Buffer, fill_value
from course_lib.simulator.machine.sync import POLL, Things
from course_lib.simulator.machine.threads import Cluster, Device, Kernel, Thread, semaphores

_RESIDENT_AT_RANDOM = 4  # clusters that run side by side in a random schedule


class Launch:
    """One kernel launch, on one device or on all devices of a mesh at once."""

    def __init__(self, machine: Any, op: ir.Op) -> None:
        self.machine = machine
        self.kernel = Kernel.of(op)
        self.op = op
        self.devices: list[Device] = []
        self.live: list[Thread] = []
        self._waves: list[Iterator[tuple[Device, tuple[int, ...]]]] = []
        self._clusters = 0
        self._open: dict[int, list[int]] = {}  # cluster index -> threads left per block

    def run(
        self, args: Sequence[Sequence[Any]], coords: Sequence[dict[str, int]]
    ) -> list[list[Any]]:
        """The outputs of the kernel on each device, given its inputs on each device."""
        block = self.machine.program.blocks[self.op.params["blocks"][0]]
        for index, (values, where) in enumerate(zip(args, coords, strict=True)):
            device = Device(self.machine, self.kernel, index, where, len(coords))
            device.mirrors = not self.machine.timing_only and dataflow.uses_mma(
                self.machine.program, self.op
            )
            device.args = self._global_memory(block, values)
            self.devices.append(device)
        self.machine.devices = self.devices
        self.machine.peak_threads = max(self.machine.peak_threads, self.kernel.num_threads)
        self._plan = self.machine.compiler.plan(self.op.params["blocks"][0])
        self._loop()
        if self.machine.timing_only:
            return []
        self.machine.end_of_kernel(self)
        for device in self.devices:
            self._note_unwritten(device)
        return [self._outputs(d, block) for d in self.devices]

    # Global memory.

    def _global_memory(self, block: ir.Block, values: Sequence[Any]) -> list[Any]:
        """The refs of a kernel's params: inputs, outputs, then scratch (one per block)."""
        written = dataflow.written_params(self.machine.program, self.op.params["blocks"][0])
        names = self.op.params["names"]
        out: list[Any] = []
        aliases = {o: i for i, o in self.op.params["aliases"]}
        n_in, n_out = len(values), self.op.params["outputs"]
        for i, slot in enumerate(block.params[: n_in + n_out]):
            type_ = block.types[slot]
            assert isinstance(type_, ir.RefType)
            name = names[i] if i < len(names) and names[i] else f"ref {i}"
            if i >= n_in and i - n_in in aliases:
                out.append(out[aliases[i - n_in]])
                continue
            out.append(self._buffer(type_, name, values[i] if i < n_in else None, i in written))
        for alias_out, alias_in in aliases.items():
            if n_in + alias_out in written and isinstance(out[alias_in], Buffer):
                _watch(out[alias_in])
        return out

    def _buffer(self, type_: ir.RefType, name: str, value: Any, written: bool) -> Any:
        if isinstance(value, Buffer | Things):
            return self._passed(value, name, written)
        if type_.dtype == "semaphore":
            return semaphores(type_, name)
        if self.machine.timing_only:
            dtype = ir.numpy_dtype(type_.dtype)
            buffer = Buffer(np.zeros(type_.shape, dtype), "gmem", name, written=True)
            buffer.watched = False
            return buffer
        if value is None:
            dtype = ir.numpy_dtype(type_.dtype)
            data = np.full(type_.shape, fill_value(dtype), dtype)
        else:
            data = np.array(value) if written else np.asarray(value)
        buffer = Buffer(data, "gmem", name, written=value is not None)
        buffer.watched = False
        if written:
            _watch(buffer)
        return buffer

    def _passed(self, value: Any, name: str, written: bool) -> Any:
        """A ref of the host program, handed to the kernel as it is."""
        if isinstance(value, Buffer):
            value.space, value.name = "gmem", name
            value.watched, value.log = False, None
            value.mirror = None  # another kernel may have written it since
            if written:
                _watch(value)
        return value

    def _note_unwritten(self, device: Device) -> None:
        """Says which outputs the kernel did not write to the end."""
        n_out = self.op.params["outputs"]
        for buffer in device.args[len(device.args) - n_out :] if n_out else []:
            mask = buffer.unwritten if isinstance(buffer, Buffer) else None
            if mask is not None and mask.any():
                first = ", ".join(str(i) for i in np.argwhere(mask)[0])
                self.machine.recorder.add(
                    "unwritten-output",
                    f"Nobody writes {np.count_nonzero(mask)} of the {mask.size} elements of"
                    f" {buffer.name}; the first is [{first}].",
                    op=self.op, key=buffer.name,
                )  # fmt: skip

    def _outputs(self, device: Device, block: ir.Block) -> list[Any]:
        n_out = self.op.params["outputs"]
        count = len(device.args)
        return [b.data for b in device.args[count - n_out : count]] if n_out else []

    # Clusters and threads.

    def _next_cluster(self) -> bool:
        """Launches one more cluster on each device that has room and clusters left."""
        if not self._waves:
            self._waves = [
                iter([(d, c) for c in self.machine.sample or np.ndindex(*self.kernel.grid)])
                for d in self.devices
            ]
        room = max(1, self.machine.arch.sms // max(1, self.kernel.blocks_per_cluster))
        started = False
        for device, wave in zip(self.devices, self._waves, strict=True):
            resident = sum(1 for c in self._open if self._device_of[c] is device)
            if resident >= room:
                continue
            for _, coords in wave:
                self._start(device, coords)
                started = True
                break
        return started

    def steal(self, device: Device) -> tuple[int, ...] | None:
        """The flat index of a cluster that will not be launched now; None if none is left."""
        if not self._waves:
            return None
        for _, coords in self._waves[device.index]:
            return (int(np.ravel_multi_index(coords, self.kernel.grid)),)
        return None

    _device_of: dict[int, Device]

    def _start(self, device: Device, coords: tuple[int, ...]) -> None:
        if not hasattr(self, "_device_of"):
            self._device_of = {}
        cluster = Cluster(device, coords, self._clusters)
        self._device_of[self._clusters] = device
        self._open[self._clusters] = [len(b.threads) for b in cluster.blocks]
        self._clusters += 1
        if self.machine.clockwork is not None:
            self.machine.clockwork.start(cluster)
        extra = self._plan.params[len(device.args) :]
        block = self.machine.program.blocks[self.op.params["blocks"][0]]
        types = [block.types[s] for s in extra]
        for b in cluster.blocks:
            for thread in b.threads:
                thread.generator = self._body(thread, device, types, block.names[-len(extra) :])
                self.live.append(thread)

    def _body(
        self, thread: Thread, device: Device, types: Sequence[Any], names: Sequence[str]
    ) -> Any:
        """A thread's coroutine: the kernel's block, with scratch of its own if it has any."""
        args = list(device.args)
        scope = None
        if types:
            axes = (self.kernel.thread_name,) if self.kernel.thread_name else ()
            scope = thread.block.enter_scope(thread, self.op, types, list(names), axes)
            args += scope.things
        if self._plan.waits:
            yield from self._plan.generate(thread, args)
        else:
            self._plan.run(thread, args)
        if scope is not None:
            thread.block.leave_scope(thread, scope)

    # Turns.

    def _loop(self) -> None:
        timing, machine = self.machine.timing, self.machine
        filled = machine.by_clock and not machine.timing_only  # every SM has a block from the start
        first = _RESIDENT_AT_RANDOM if timing.preempts else machine.arch.sms if filled else 1
        for _ in range(first):
            self._next_cluster()
        while self.live:
            thread = self._choose()
            if filled and thread and self._free_before(_when(thread)) and self._next_cluster():
                continue  # what happens on that SM may come first
            if thread is not None:
                self._turn(thread)
                timing.maybe_fire()
            elif timing.fire() or self._next_cluster():
                self.machine.changed = True
            elif any(t.polling for t in self.live):
                self.machine.idle_turn()
                for t in self.live:
                    t.polling = False
            else:
                raise Deadlock("every thread that is left waits")
            if not self.live or (timing.preempts and len(self._open) < first):
                self._next_cluster()
        while timing.fire():
            pass

    def _free_before(self, when: float) -> bool:
        """Whether an SM is free by then, which is when its next block starts."""
        free = [self.machine.clockwork.free_at(d.index) for d in self.devices]
        return min(free) <= when

    def _choose(self) -> Thread | None:
        timing = self.machine.timing
        if self.machine.by_clock:
            return self._earliest()
        if not timing.preempts:
            for t in self.live:
                if not t.polling and (t.waiting is None or t.waiting.ready()):
                    return t
            return None
        ready = [t for t in self.live if not t.polling and (t.waiting is None or t.waiting.ready())]
        return timing.choose(ready) if ready else None

    def _earliest(self) -> Thread | None:
        """The thread whose clock is behind all others'."""
        ready = [t for t in self.live if not t.polling and (t.waiting is None or t.waiting.ready())]
        return min(ready, key=_when, default=None)

    def _turn(self, thread: Thread) -> None:
        """Runs a thread until it waits, may be interrupted, or ends."""
        thread.waiting = None
        try:
            while True:
                request = next(thread.generator)
                if request is None:
                    return
                if request is POLL:
                    thread.polling = True
                    return
                if self.machine.by_clock or not request.ready():
                    thread.waiting = request
                    for t in self.live if self.machine.changed else ():
                        t.polling = False
                    self.machine.changed = False
                    return
        except StopIteration:
            self._end(thread)
        except Enough:
            self._abandon(thread.block.cluster)

    def _abandon(self, cluster: Cluster) -> None:
        """Of this cluster no more needs to be seen."""
        self.live = [t for t in self.live if t.block.cluster is not cluster]
        del self._open[cluster.index]

    def _end(self, thread: Thread) -> None:
        thread.finish()
        self.live.remove(thread)
        if thread.warp is not None:
            return
        cluster = thread.block.cluster
        hand_over(cluster.device.ending, thread)
        left = self._open[cluster.index]
        left[thread.block.index] -= 1
        if left[thread.block.index] == 0:
            thread.block.end()
        if not any(left):
            del self._open[cluster.index]
            if self.machine.clockwork is not None:
                self.machine.clockwork.finish(cluster)
        for t in self.live:
            t.polling = False


def _when(thread: Thread) -> float:
    """When a thread goes on: its own time, or that of what it waited for."""
    thing = thread.waiting.thing if thread.waiting is not None else None
    return max(thread.time, getattr(thing, "when_done", 0.0))


def _watch(buffer: Buffer) -> None:
    buffer.watched = True
    buffer.log = races.Log()
