"""Who runs a kernel: Pallas threads in blocks, blocks in clusters, clusters on devices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from course_lib.simulator import ir
from course_lib.simulator.machine import clocks, races
from course_lib.simulator.machine.barriers import Barrier, Semaphore
from course_lib.simulator.machine.clocks import Clock, Components
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.memory import Buffer, Casts, View
from course_lib.simulator.machine.registers import Registers
from course_lib.simulator.machine.sync import Things


@dataclasses.dataclass
class Kernel:
    """A launch: the mesh and the block of ops of one kernel."""

    op: ir.Op
    grid: tuple[int, ...]
    grid_names: tuple[str, ...]
    cluster: tuple[int, ...]
    cluster_names: tuple[str, ...]
    num_threads: int
    thread_name: str | None
    name: str

    @staticmethod
    def of(op: ir.Op) -> Kernel:
        p = op.params
        return Kernel(
            op, tuple(p["grid"]), tuple(p["grid_names"]), tuple(p["cluster"]),
            tuple(p["cluster_names"]), p["num_threads"], p["thread_name"], p["name"],
        )  # fmt: skip

    @property
    def clusters(self) -> int:
        return math.prod(self.grid)

    @property
    def blocks_per_cluster(self) -> int:
        return math.prod(self.cluster)


@dataclasses.dataclass
class Scope:
    """The allocations of one run_scoped in one block."""

    key: tuple[int, int]
    op: ir.Op
    things: list[Any]
    users: int
    entered: int = 0
    left: int = 0
    nbytes: int = 0
    columns: int = 0
    outer: bool = False  # the kernel's own scratch: it ends with the kernel
    first: Any = None  # the thread that entered it first


class Thread:
    """One Pallas thread: a coroutine, what it knows, and the queues it has filled."""

    def __init__(self, block: ThreadBlock, index: int, warp: int | None = None) -> None:
        self.block = block
        self.warp = warp
        self.warps: list[Thread] = []
        self.machine = block.cluster.device.machine
        self.index = index
        new = block.cluster.components.new
        # The components of its clock: its own accesses, then its queues.
        self.generic, self.wgmma = new(), new()
        self.store_read, self.store_write = new(), new()
        self.mma, self.tmem_load, self.tmem_store = new(), new(), new()
        self.clock = Clock()
        self.time = self.mma_time = 0.0  # in cycles, where time is kept
        clocks.put(self.clock.known, self.generic, 1)
        self.generator: Any = None
        self.waiting: Any = None
        self.polling = False
        self.done = False
        # Copies to global memory, in groups.
        self.groups = 0
        self.groups_read = self.groups_written = 0
        self.stores: list[Any] = []
        self.waited_for_nothing = False  # it waited for copies, and has issued none
        # wgmma.
        self.wgmma_issued = self.wgmma_done = 0
        self.wgmma_queue: list[tuple[int, tuple[View, ...], Callable[[], None]]] = []
        self.last_wgmma: dict[int, tuple[int, ir.Op]] = {}
        # tcgen05 and tensor memory.
        self.mma_issued = 0
        self.mma_queue: list[tuple[tuple[View, ...], Callable[[], None]]] = []
        self.tmem_loads = self.tmem_stores = 0
        self.tmem_queue: list[Callable[[], None]] = []
        self.scope_counts: dict[int, int] = {}
        self.axes = block.axes_of(index)

    def now(self) -> int:
        """The time of its own accesses."""
        return self.clock.known[self.generic]

    def release(self) -> None:
        """What it does from here on is not covered by what it has handed over."""
        self.clock.known[self.generic] += 1

    def axis_index(self, axis: str) -> np.int32:
        if axis in self.axes:
            return self.axes[axis]
        raise KernelFault("exception", f"there is no axis named {axis!r} in this kernel")

    def program_id(self, axis: int) -> np.int32:
        return list(self.axes.values())[axis]

    def __str__(self) -> str:
        kernel = self.block.cluster.device.kernel
        parts = [f"warp {self.warp}"] if self.warp is not None else []
        parts += [f"thread {self.index}"] if kernel.num_threads > 1 else []
        parts += [str(self.block)] if str(self.block) else []
        return " of ".join(parts) or "the thread"

    # Copies to global memory.

    def commit_group(self) -> None:
        self.groups += 1

    def wait_stores(self, n: int, read_only: bool) -> None:
        """Waits until at most the `n` youngest groups still run."""
        upto = max(self.groups - n, 0)
        if self.machine.clockwork is not None:
            self.machine.clockwork.wait_stores(self, n, read_only)
        self.waited_for_nothing = self.groups == 0
        for store in self.stores:
            if store.group <= upto:
                store.read() if read_only else store.write()
        for warp in self.warps:  # their lanes wait, too
            warp.wait_stores(n, read_only)
            self.clock.learn(warp.store_read, warp.groups_read)
            self.clock.learn(warp.store_write, warp.groups_written)
        self.groups_read = max(self.groups_read, upto)
        self.clock.learn(self.store_read, upto)
        if not read_only:
            self.groups_written = max(self.groups_written, upto)
            self.clock.learn(self.store_write, upto)
            self.stores = [s for s in self.stores if s.group > upto]

    # wgmma.

    def issue_wgmma(self) -> int:
        """The number of a new wgmma; once it is issued, no other one still runs."""
        self.wgmma_issued += 1
        self.drain_wgmma(1)
        return self.wgmma_issued

    def queue_wgmma(self, seq: int, views: tuple[View, ...], run: Callable[[], None]) -> None:
        if self.machine.timing_only:
            return
        if self.machine.timing.late("wgmma"):
            self.wgmma_queue.append((seq, views, run))
        else:
            run()

    def drain_wgmma(self, n: int) -> None:
        """Waits until at most `n` wgmmas still run."""
        done = self.wgmma_issued - n
        if done > self.wgmma_done:
            if self.machine.clockwork is not None:
                self.machine.clockwork.wait_wgmma(self, n)
            self.wgmma_done = done
            self.clock.learn(self.wgmma, done)
            while self.wgmma_queue and self.wgmma_queue[0][0] <= done:
                self.wgmma_queue.pop(0)[2]()

    # tcgen05 and warps.

    def issue_mma(self) -> int:
        """The number of a new tcgen05 operation."""
        self.mma_issued += 1
        return self.mma_issued

    def land_tmem_stores(self) -> None:
        """The stores to tensor memory that were put off happen now."""
        while self.tmem_queue:
            self.tmem_queue.pop(0)()

    def start_warps(self) -> list[Thread]:
        """The four warps of this thread, the same ones every time."""
        if not self.warps:
            self.warps = [Thread(self.block, self.index, i) for i in range(4)]
        return self.warps

    def reads_later(self, target: View) -> bool:
        """Whether an MMA or a store of this thread has still to read from `target`."""
        buffer = target.buffer
        views = [v for _, vs, _ in self.wgmma_queue for v in vs]
        views += [v for vs, _ in self.mma_queue for v in vs]
        views += [s.src for s in self.stores if s.taken is None and not s.written]
        return any(v.buffer is buffer and _meet(v, target) for v in views)

    def finish(self) -> None:
        """Checks what must be over when a thread ends, and ends it."""
        self.done = True
        self.generator = None
        self.land_tmem_stores()
        if self.warp is not None:
            return  # its thread goes on, and may still wait for what it issued
        for warp in self.warps:
            warp.warp = None
            warp.finish()
        for store in self.stores:
            if store.group > self.groups:
                self.machine.report_store(self, store, "uncommitted-copy")
            elif store.group > self.groups_read:
                self.machine.report_store(self, store, "unfinished-copy")
            store.write()
        self.stores = []
        self.drain_wgmma(0)


def _meet(a: View, b: View) -> bool:
    return all(p < s and r < q for p, q, r, s in zip(a.lo, a.hi, b.lo, b.hi, strict=True))


_LEFT_SCOPES = 4  # how many of the last scopes of a block are kept for a neighbour to come too late


class ThreadBlock:
    """One block: its threads, its shared and tensor memory, its barriers."""

    def __init__(self, cluster: Cluster, coords: tuple[int, ...], index: int) -> None:
        self.cluster = cluster
        self.coords = coords  # within the cluster
        self.index = index
        self.scopes: dict[tuple[int, int], Scope] = {}
        self.left: dict[tuple[int, int], Scope] = {}  # of a block in a cluster
        self.smem_bytes = 0
        self.tmem_columns = 0
        kernel = cluster.device.kernel
        self.registers = Registers(kernel.num_threads)
        self.threads = [Thread(self, i) for i in range(kernel.num_threads)]
        self._ended = 0

    def axes_of(self, thread: int) -> dict[str, np.int32]:
        """The names of all axes of the mesh, grid first, with this thread's index along each."""
        kernel = self.cluster.device.kernel
        names = [*kernel.grid_names, *kernel.cluster_names]
        values = [*self.cluster.coords, *self.coords]
        axes = {n: np.int32(v) for n, v in zip(names, values, strict=True)}
        if kernel.thread_name is not None:
            axes[kernel.thread_name] = np.int32(thread)
        for name, value in self.cluster.device.coords.items():
            axes.setdefault(name, np.int32(value))
        return axes

    def __str__(self) -> str:
        device = self.cluster.device
        kernel = device.kernel
        at = ", ".join(str(c) for c in self.cluster.coords)
        parts = []
        if kernel.blocks_per_cluster > 1:
            parts.append(f"block {self.index}")
            if kernel.clusters > 1:
                parts.append(f"cluster ({at})")
        elif kernel.clusters > 1:
            parts.append(f"block ({at})" if len(self.cluster.coords) > 1 else f"block {at}")
        if device.count > 1:
            parts.append(f"device {device.index}")
        return " of ".join(parts)

    # Scoped allocations.

    def enter_scope(
        self, thread: Thread, op: ir.Op, types: Sequence[Any], names: Sequence[str],
        axes: Sequence[str],
    ) -> Scope:  # fmt: skip
        """The allocations of a run_scoped: the block's if collective, else the thread's own."""
        kernel = self.cluster.device.kernel
        collective = kernel.num_threads > 1 and kernel.thread_name in axes
        private = all(t.space == "regs" for t in types)
        if not types:
            return Scope((op.uid, 0), op, [], 1)
        if kernel.num_threads > 1 and not collective and not private:
            self.cluster.device.machine.report_not_collective(thread, op, names)
        if private or (not collective and kernel.num_threads > 1):
            scope = Scope((-1, 0), op, [], 1)
            self._allocate(scope, types, names)
            return scope
        count = thread.scope_counts.get(op.uid, 0)
        thread.scope_counts[op.uid] = count + 1
        key = (op.uid, count)
        if key not in self.scopes:
            for block in self.cluster.blocks:
                block.scopes[key] = Scope(key, op, [], kernel.num_threads)
                block._allocate(block.scopes[key], types, names)
        scope = self.scopes[key]
        scope.entered += 1
        scope.first = scope.first or thread
        return scope

    def _allocate(self, scope: Scope, types: Sequence[ir.RefType], names: Sequence[str]) -> None:
        machine = self.cluster.device.machine
        machine.refuse_wild(types)
        scope.outer = machine.is_outer(scope.op)
        for position, (type_, name) in enumerate(zip(types, names, strict=True)):
            thing = self._thing(type_, name, (scope.key, position))
            scope.things.append(thing)
            if isinstance(thing, Buffer) and type_.space == "smem":
                scope.nbytes += thing.data.size * ir.dtype_bits(thing.data.dtype) // 8
            elif isinstance(thing, Buffer) and type_.space == "tmem":
                scope.columns += type_.columns or thing.data.shape[-1]
            elif type_.barrier is not None:
                scope.nbytes += 8 * thing.array.size
        self.smem_bytes += scope.nbytes
        self.tmem_columns += scope.columns
        machine.check_capacity(self, scope)

    def _thing(self, type_: ir.RefType, name: str, key: Any) -> Any:
        if type_.barrier is not None:
            return self._barriers(type_, name, key)
        if type_.dtype == "semaphore":
            where = (key, self.cluster.coords, self.index)
            return self.cluster.device.scoped_semaphores(where, type_, name)
        if type_.space == "regs":
            zeros = np.zeros(type_.shape, ir.numpy_dtype(type_.dtype))
            machine = self.cluster.device.machine
            machine.peak_accumulator = max(machine.peak_accumulator, zeros.nbytes)
            return Buffer(zeros, "regs", name, written=True)
        buffer = Buffer.fresh(type_, type_.space, name)
        buffer.home = (self, key)
        buffer.log = races.Log()
        if self.cluster.device.mirrors and type_.space == "smem" and not type_.union:
            dtype = buffer.data.dtype
            if dtype.itemsize < 4 and dtype.kind in "fV":
                buffer.casts = Casts()
        return buffer

    def _barriers(self, type_: ir.RefType, name: str, key: Any) -> Things:
        spec = type_.barrier
        assert spec is not None
        needed = spec.num_arrivals
        if spec.cluster_axes is not None:
            sizes = dict(
                zip(
                    self.cluster.device.kernel.cluster_names,
                    self.cluster.device.kernel.cluster,
                    strict=True,
                )
            )
            rows = [math.prod(sizes.get(a, 1) for a in axes) for axes in spec.cluster_axes]
            needed *= 1 + sum(row - 1 for row in rows)  # each block is in a row of each kind
        array = np.empty(type_.shape, object)
        for index in np.ndindex(*type_.shape):
            label = name + (f"[{', '.join(map(str, index))}]" if index else "")
            barrier = Barrier(spec, needed, self.cluster.components, label, self)
            barrier.where = (*key, index)
            array[index] = barrier
        return Things(array, name, type_)

    def leave_scope(self, thread: Thread, scope: Scope) -> None:
        scope.left += 1
        if scope.left < scope.users:
            return
        alone = len(self.cluster.blocks) == 1
        if not alone:  # kept, to see who comes too late
            races.check_left(self, [t for t in scope.things if isinstance(t, Buffer)])
            self.left[scope.key] = scope
            if len(self.left) > _LEFT_SCOPES:
                self.left.pop(next(iter(self.left)))
        for thing in scope.things:
            if isinstance(thing, Buffer) and alone:
                thing.forget()
            elif isinstance(thing, Buffer):
                thing.end()
            elif isinstance(thing, Things) and thing.type.barrier is not None:
                for barrier in thing.array.flat:
                    self.cluster.device.machine.end_barrier(barrier, scope)
        self.smem_bytes -= scope.nbytes
        self.tmem_columns -= scope.columns
        self.scopes.pop(scope.key, None)

    def end(self) -> None:
        """Checks a block whose threads have all ended."""
        machine = self.cluster.device.machine
        for scope in self.scopes.values():
            if 0 < scope.entered < scope.users:
                machine.report_scope(self, scope)
        self.scopes = {}


def semaphores(type_: ir.RefType, name: str) -> Things:
    """An array of semaphores, all nought."""
    array = np.empty(type_.shape, object)
    for index in np.ndindex(*type_.shape):
        label = name + (f"[{', '.join(map(str, index))}]" if index else "")
        array[index] = Semaphore(label)
    return Things(array, name, type_)


class Cluster:
    """The blocks that run together: they share barriers and each other's memory."""

    def __init__(self, device: Device, coords: tuple[int, ...], index: int) -> None:
        self.device = device
        self.coords = coords
        self.index = index
        self.components = Components()
        self.blocks: list[ThreadBlock] = []
        shape = device.kernel.cluster
        self.blocks += [ThreadBlock(self, c, i) for i, c in enumerate(np.ndindex(*shape))]
        self.loads: dict[Any, list[Any]] = {}
        self.asked: dict[Any, Any] = {}  # who asked to cancel a cluster, by barrier
        # A block that has run for itself is counted down at its threads' ends.

    @property
    def threads(self) -> Iterable[Thread]:
        return [t for b in self.blocks for t in b.threads]

    def along(self, block: ThreadBlock, axes: Sequence[str]) -> list[ThreadBlock]:
        """The blocks that differ from `block` along the given cluster axes only."""
        names = self.device.kernel.cluster_names
        for axis in axes:
            if axis not in names and axis != self.device.kernel.thread_name:
                have = f"its cluster axes are {', '.join(names)}" if names else "it has no cluster"
                raise KernelFault(
                    "collective-mismatch",
                    f"An operation is collective over {axis!r}, which is no cluster axis of the"
                    f" kernel: {have}",
                )
        fixed = [i for i, n in enumerate(names) if n not in axes]
        return [b for b in self.blocks if all(b.coords[i] == block.coords[i] for i in fixed)]

    def sharers(self, barrier: Barrier, block: ThreadBlock) -> list[Barrier]:
        """The barriers that an arrival counts on: one, or one per block that shares it."""
        rows = barrier.spec.cluster_axes
        if rows is None:
            return [barrier]
        blocks = {b.index: b for axes in rows for b in self.along(block, axes)}
        return [self.peer_barrier(barrier, b) for b in blocks.values()]

    def peer_barrier(self, barrier: Barrier, block: ThreadBlock) -> Barrier:
        """The same barrier in another block of the cluster."""
        key, position, index = barrier.where
        if barrier.block is block:
            return barrier
        if key not in block.scopes:
            raise KernelFault(
                "cluster-memory-ended",
                f"{barrier.name} of {block} is used after {block} has left its scope",
            )
        return block.scopes[key].things[position].array[index]

    def peer_buffer(self, buffer: Buffer, block: ThreadBlock) -> Buffer:
        """The same buffer in another block of the cluster."""
        if buffer.peers is not None:
            union = self.peer_buffer(buffer.peers, block)
            alias = next(k for k, m in buffer.peers.members.items() if m is buffer)  # type: ignore[union-attr]
            return union.member(*alias)
        home, (key, position) = buffer.home
        if home is block:
            return buffer
        scope = block.scopes.get(key) or block.left.get(key)
        return buffer if scope is None else scope.things[position]

    def peer_view(self, view: View, block: ThreadBlock) -> View:
        """The same part of the same buffer in another block."""
        buffer = self.peer_buffer(view.buffer, block)
        if buffer is view.buffer:
            return view
        out = View(buffer, view.data, view.lo, view.hi)
        out.cells, out.take, out.steps, out.pad = view.cells, view.take, view.steps, view.pad
        out.data = out.alike(buffer.data)
        return out

    def collective_load(
        self, thread: Thread, op: ir.Op, src: View, dst: View, barrier: Barrier,
        axes: Sequence[str], partition: Any,
    ) -> None:  # fmt: skip
        from course_lib.simulator.machine import multicast

        blocks = self.along(thread.block, axes)
        multicast.load(self, thread, op, src, dst, barrier, blocks, partition)


class Device:
    """One GPU: its global memory and the kernel that runs on it."""

    def __init__(
        self, machine: Any, kernel: Kernel, index: int, coords: dict[str, int], count: int
    ) -> None:
        self.machine = machine
        self.kernel = kernel
        self.index = index
        self.coords = coords
        self.count = count
        self.mirrors = False
        self.args: list[Any] = []
        self._globals: dict[int, Any] = {}
        self._scoped: dict[Any, Things] = {}
        self.ending = clocks.Clock()  # what is known here when the kernel has ended

    def scoped_semaphores(self, where: Any, type_: ir.RefType, name: str) -> Things:
        """The semaphores of a block's scope; another device may signal them before it starts."""
        if where not in self._scoped:
            self._scoped[where] = semaphores(type_, name)
            self._scoped[where].where = where
        return self._scoped[where]

    def global_thing(self, op: ir.Op, type_: ir.RefType) -> Any:
        """An allocation that all blocks share (pl.get_global), made at its first use."""
        if op.uid not in self._globals:
            if type_.dtype == "semaphore":
                self._globals[op.uid] = semaphores(type_, "the global semaphore")
            else:
                buffer = Buffer.fresh(type_, "gmem", "the global ref")
                buffer.log = races.Log()
                self._globals[op.uid] = buffer
        return self._globals[op.uid]

    def globals(self) -> dict[int, Any]:
        return self._globals
