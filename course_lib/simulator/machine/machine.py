"""The machine: runs programs of IR, keeps what every part of it needs, and reports."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from course_lib.diagnostics import OptionError
from course_lib.simulator import ir
from course_lib.simulator.machine import dataflow, races
from course_lib.simulator.machine.access import ACCESS
from course_lib.simulator.machine.advice import advise
from course_lib.simulator.machine.arch import ARCHS, Arch
from course_lib.simulator.machine.barriers import Barrier, Semaphore
from course_lib.simulator.machine.blas import one_thread
from course_lib.simulator.machine.cancel import CANCEL
from course_lib.simulator.machine.clockwork import Clockwork, Detailed
from course_lib.simulator.machine.control import CONTROL
from course_lib.simulator.machine.faults import (
    Deadlock,
    Fault,
    KernelFault,
    OutOfBounds,
    StepLimit,
    Unsupported,
)
from course_lib.simulator.machine.findings import Recorder, region, verb
from course_lib.simulator.machine.inline import INLINE
from course_lib.simulator.machine.launch import Launch
from course_lib.simulator.machine.memory import Buffer, View
from course_lib.simulator.machine.plan import Compiler, Maker, fault_op
from course_lib.simulator.machine.registers import REGISTERS, Registers
from course_lib.simulator.machine.remote import REMOTE, block_at
from course_lib.simulator.machine.shapes import VALUES
from course_lib.simulator.machine.sync import SYNC
from course_lib.simulator.machine.tcgen05 import TCGEN05
from course_lib.simulator.machine.threads import semaphores
from course_lib.simulator.machine.timing import Timing
from course_lib.simulator.machine.tma import TMA
from course_lib.simulator.machine.warps import WARP, Join
from course_lib.simulator.machine.wgmma import WGMMA

MAKERS: dict[str, Maker] = {
    **CONTROL, **ACCESS, **SYNC, **TMA, **WGMMA, **TCGEN05, **CANCEL, **REMOTE,
    **REGISTERS, **INLINE, **WARP,
}  # fmt: skip

Fallback = Callable[[ir.Op, Sequence[Any]], list[Any] | None]


_MOST_PRINTED = 500  # lines of pl.debug_print that are kept
_WILD = 64  # times what an SM has: nothing to allocate just to say that it is too much


class Stopped(Exception):  # noqa: N818
    """A kernel could not go on; the finding says why."""


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Python's collector off: the machine lets go of its memory by itself, and is faster so."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _with_sms(arch: Arch, sms: int | None, schedule: str | int) -> Arch:
    """The architecture with another number of SMs; complains about what does not go together."""
    if sms is None:
        return arch
    if isinstance(sms, bool) or not isinstance(sms, int) or not 1 <= sms <= arch.sms:
        raise OptionError(f"sms={sms!r}: give a whole number from 1 to {arch.sms}")
    if schedule != "in_order":
        raise OptionError(
            f"sms={sms} and schedule={schedule!r}: on a number of SMs the clock says who is next, "
            "so leave schedule at 'in_order'"
        )
    return dataclasses.replace(arch, sms=sms)


class Machine:
    """One simulation of one program.

    Attributes:
      fallback: runs an op that numpy has no function for; None where nothing can.
      max_steps: operations that all kernels together may run.
      sample: the clusters to run, by their places in the grid; None for all. Of a sample only
        the time is kept: no data moves, and nothing is checked.
      sms: a GPU with so many SMs, a block on each, on which threads take turns by their clocks;
        None for turns without clocks.
    """

    def __init__(
        self, program: ir.Program, *, arch: str = "sm_90a", schedule: str | int = "in_order",
        max_steps: int = 20_000_000, fallback: Fallback | None = None,
        timeline: bool | str = False, clockwork: Clockwork | None = None,
        sample: Sequence[tuple[int, ...]] | None = None, sms: int | None = None,
    ) -> None:  # fmt: skip
        if arch not in ARCHS:
            raise OptionError(f"arch={arch!r}: choose one of {', '.join(ARCHS)}")
        if not isinstance(max_steps, int) or max_steps < 1:
            raise OptionError(f"max_steps={max_steps!r}: give a whole number from 1 on")
        self.program = program
        self.arch = _with_sms(ARCHS[arch], sms, schedule)
        self.timing = Timing(schedule)
        self.max_steps = max_steps
        self.steps = 0
        self.recorder = Recorder(program)
        timed = timeline or sms is not None
        if timeline not in (False, True, "detailed"):
            raise OptionError(f"timeline={timeline!r}: choose True, False or 'detailed'")
        kind = Detailed if timeline == "detailed" else Clockwork
        self.clockwork = kind(self.arch, self.recorder) if timed else clockwork
        self.sample = sample
        self.timing_only = sample is not None
        self.by_clock = self.timing_only or sms is not None
        how = dict(preempt=self.timing.preempts, timed=isinstance(self.clockwork, Detailed))
        key = tuple(how.values())
        if key not in program.compiled:
            program.compiled[key] = Compiler(program, MAKERS, VALUES, **how)
        self.compiler: Compiler = program.compiled[key]
        self.fallback: Fallback = fallback or (lambda op, args: None)
        self.devices: list[Any] = []
        self.changed = False
        self.peak_smem = self.peak_tmem = self.peak_accumulator = self.peak_threads = 0
        self.kernels = 0
        self.printed: list[str] = []
        self.launch: Launch | None = None

    def say(self, text: str) -> None:
        """Keeps a line that a kernel prints; after so many one more line says that they stop."""
        if len(self.printed) < _MOST_PRINTED:
            self.printed.append(text)
        elif len(self.printed) == _MOST_PRINTED:
            self.printed.append(f"... and more: the first {_MOST_PRINTED} lines are kept.")

    def run_kernel(
        self, op: ir.Op, args: Sequence[Sequence[Any]], coords: Sequence[dict[str, int]]
    ) -> list[list[Any]]:
        """Launches a kernel on every device. Raises Stopped where it cannot go on."""
        self.kernels += 1
        self._check_lanes(op)
        launch = self.launch = Launch(self, op)
        try:
            with np.errstate(all="ignore"), _no_collections(), one_thread():
                return launch.run(args, coords)
        except Deadlock:
            self._report_deadlock(launch)
        except Fault as fault:
            self._report_fault(fault, op)
        except RecursionError:
            raise
        except MemoryError as error:
            self.recorder.add(
                "over-capacity", "The kernel's arrays need more memory than this machine has.",
                op=fault_op(error) or op, fix="Simulate smaller arrays.",
            )  # fmt: skip
        except Exception as error:  # a mistake of ours: it must not look like the learner's
            self._report_internal(error)
        finally:
            self.timing.pending.clear()
        raise Stopped

    def _check_lanes(self, op: ir.Op) -> None:
        """A block has at most 1,024 lanes."""
        lanes = 128 * op.params["num_threads"]
        if lanes > 1024:
            self.recorder.add(
                "over-capacity",
                f"{op.params['num_threads']} Pallas threads are {lanes:,} lanes; a block has at "
                "most 1,024.",
                op=op, fix="Use at most 8 Pallas threads (num_threads).",
            )  # fmt: skip

    def idle_turn(self) -> None:
        """All threads that are left poll: count it, so that polling for ever ends."""
        self.steps += 1000
        if self.steps > self.max_steps:
            raise StepLimit(f"more than {self.max_steps:,} operations, polling")

    def steal(self, device: Any) -> tuple[int, ...] | None:
        """Takes a cluster that has not been launched (cluster launch control)."""
        assert self.launch is not None
        return self.launch.steal(device)

    # Memory of other blocks and devices.

    def elsewhere(self, view: View, thread: Any) -> View:
        """A view of a ref of another block of the cluster, or of another device."""
        if view.cluster is not None:
            place = thread
            for axis, i in view.cluster.items():
                place = block_at(place, axis, int(i)).threads[0]
            return thread.block.cluster.peer_view(view, place.block)
        device = self.device_at(view.device, thread)
        buffer = self._on_device(view.buffer, thread, device)
        out = View(buffer, buffer.data, view.lo, view.hi)
        out.cells, out.take, out.steps, out.pad = view.cells, view.take, view.steps, view.pad
        out.data = out.alike(buffer.data)
        return out

    def _on_device(self, buffer: Buffer, thread: Any, device: Any) -> Buffer:
        mine = thread.block.cluster.device
        for here, there in zip(mine.args, device.args, strict=True):
            if here is buffer:
                return there
        for uid, thing in mine.globals().items():
            if thing is buffer:
                return device.globals().get(uid, buffer)
        raise Unsupported("a remote ref to memory that is not a kernel's input or output")

    def device_at(self, where: Any, thread: Any) -> Any:
        """The device that a device id names, seen from a thread's own."""
        mine = thread.block.cluster.device
        coords = dict(mine.coords)
        kind, parts = where
        if kind == "axes":
            for axes, i in parts:
                if len(axes) == 1:
                    coords[axes[0]] = int(i)
                else:
                    self._spread(coords, axes, int(i))
        elif len(parts) == 1:
            return self.devices[int(parts[0])]
        else:
            coords = dict(zip(coords, (int(p) for p in parts), strict=True))
        return next(d for d in self.devices if d.coords == coords)

    def _spread(self, coords: dict[str, int], axes: Sequence[str], index: int) -> None:
        for axis in reversed(axes):
            size = 1 + max(d.coords[axis] for d in self.devices)
            coords[axis] = index % size
            index //= size

    def remote_semaphores(
        self, semaphore: Semaphore, things: Any, where: Any, thread: Any
    ) -> list[Semaphore]:
        """The same semaphore on another device (or on all of them)."""
        mine = thread.block.cluster.device
        devices = self.devices if where[0] == "all" else [self.device_at(where, thread)]
        index = next(i for i, s in np.ndenumerate(things.array) if s is semaphore)
        out = []
        for device in devices:
            theirs = self._things_on(things, mine, device)
            out.append(theirs.array[index])
        return out

    def _things_on(self, things: Any, mine: Any, device: Any) -> Any:
        for here, there in zip(mine.args, device.args, strict=True):
            if here is things:
                return there
        for uid, thing in mine.globals().items():
            if thing is things:
                if uid not in device.globals():
                    device.globals()[uid] = semaphores(things.type, things.name)
                return device.globals()[uid]
        if things.where is not None:
            return device.scoped_semaphores(things.where, things.type, things.name)
        raise Unsupported("a signal to a semaphore that the other device does not have")

    # Reports.

    def report_race(
        self, r: races.Record, thread: Any, view: View, op: ir.Op, write: bool, kind: str
    ) -> None:
        rule = races.rule_of_race(r, thread, view, write, kind)
        if (
            r.kind == races.STORE
            and r.thread is not thread
            and r.thread.block is thread.block
            and thread.waited_for_nothing
        ):
            rule = "wait-from-another-thread"
        here, there = str(view), region(view, r)
        advice = advise(rule, r, thread, view, op, write=write)
        self.recorder.add(
            rule,
            advice.what,
            [(verb(r.kind, r.write, there), r.thread, r.op), (verb(kind, write, here), thread, op)],
            fix=advice.fix,
        )

    def report_fence(
        self, r: races.Record, thread: Any, view: View, op: ir.Op, write: bool, kind: str
    ) -> None:
        rule = "missing-commit-smem" if r.write else "missing-commit-smem-after-read"
        here, there = str(view), region(view, r)
        did = "wrote" if r.write else "read"
        self.recorder.add(
            rule,
            f"A thread {did} {there} without plgpu.commit_smem() before "
            f"{'a copy overwrites it' if write else 'an asynchronous unit reads it'}.",
            [(verb(r.kind, r.write, there), r.thread, r.op), (verb(kind, write, here), thread, op)],
        )

    def report_unwritten(
        self, thread: Any, view: View, op: ir.Op, what: str, *, fix: str = ""
    ) -> None:
        self.recorder.add(
            "uninitialized-read",
            f"{view} is read, and nobody has written all of it.",
            [(f"{what} {view}", thread, op)],
            fix=fix,
        )

    def report_overrun(self, barrier: Barrier, late: Sequence[Any]) -> None:
        accesses: list[Any] = [
            (f"waits for phase {w.phase} of {barrier.name}", t, w.op) for t, w in late[:1]
        ]
        who, op = barrier.arrived[-1] if barrier.arrived else ("a copy", barrier.last_op)
        accesses.append((f"arrives on {barrier.name}, which completes it again", who, op))
        self.recorder.add(
            "barrier-overrun",
            f"{barrier.name} can complete phase {barrier.phases + 1} before anybody has waited "
            f"for phase {barrier.phases}.",
            accesses, key=barrier.where[:2] if barrier.where else None,
            fix=_one_per_copy(barrier.before, barrier.arrived)
            or _one_per_thread(barrier.before, barrier.arrived),
        )  # fmt: skip

    def report_underflow(self, barrier: Barrier, who: Any, op: ir.Op) -> None:
        """An arrival too many, while the phase still waits for the bytes of its copies."""
        arrivals = [*barrier.arrived[-1:], (who, op)]
        self.recorder.add(
            "barrier-overrun",
            f"{barrier.name} counts {barrier.needed} arrival{'s' * (barrier.needed != 1)} per "
            "phase, and gets more before the phase completes.",
            [(f"arrives on {barrier.name}", w, o) for w, o in arrivals],
            key=barrier.where[:2] if barrier.where else None,
            fix=_one_per_copy(barrier.arrived, arrivals[-1:]),
        )

    def report_skipped(self, barrier: Barrier, thread: Any, op: ir.Op) -> None:
        self.recorder.add(
            "barrier-skipped-phase",
            f"{barrier.name} has completed {barrier.phases} times before this first wait.",
            [(f"waits for {barrier.name}", thread, op)],
        )

    def is_outer(self, op: ir.Op) -> bool:
        """Whether a scope ends where the kernel ends."""
        assert self.launch is not None
        return op.uid in dataflow.outer_scopes(self.program, self.launch.op)

    def end_barrier(self, barrier: Barrier, scope: Any) -> None:
        """Checks a barrier whose scope ends."""
        most = max((w.phase for w in barrier.waits.values()), default=0)
        last = barrier.last_op
        if barrier.last_load is not None and barrier.last_load[0] > most:
            self.recorder.add(
                "unfinished-copy",
                f"Nobody waited for the last copy that completes {barrier.name}.",
                [("starts the copy", barrier.block or "a thread", barrier.last_load[1])],
            )
        elif barrier.phases > most:
            self.recorder.add(
                "barrier-unwaited-at-exit" if scope.outer else "barrier-unwaited",
                f"{barrier.name} completed {_times(barrier.phases)} and was waited for "
                f"{_times(most)} before its scope ended.",
                [(f"completes {barrier.name}", _who_did(barrier, last), last)],
                key=barrier.where[:2],
            )  # fmt: skip
        for thread, wait in barrier.waits.items():
            if wait.phase < most:
                self.recorder.add(
                    "barrier-unwaited-at-exit" if scope.outer else "barrier-skipped-phase",
                    f"{barrier.name} completed {_times(barrier.phases)}, and a thread that waits "
                    f"on it waited for {wait.phase} of them.",
                    [(f"waits for {barrier.name} the last time", thread, wait.op)],
                )
        if barrier.pending != barrier.needed and barrier.owed <= 0:
            got = barrier.needed - barrier.pending
            self.recorder.add(
                "barrier-arrivals-pending",
                f"{barrier.name} ends in the middle of a phase: {got} of {barrier.needed} arrivals "
                "came.",
                [(f"arrives on {barrier.name}", w, o) for w, o in barrier.arrived[-1:]],
            )
        barrier.block.cluster.components.give_back(barrier.component, barrier.base + barrier.phases)

    def report_ended(self, thread: Any, view: View, op: ir.Op, write: bool, kind: str) -> None:
        """A block uses memory of another one that has left its scope."""
        home, _ = view.buffer.home
        self.recorder.add(
            "cluster-memory-ended",
            f"{view.buffer.name} of {home} is used after {home} has left its scope.",
            [(verb(kind, write, f"{view.buffer.name} of {home}"), thread, op)],
        )

    def report_left(self, block: Any, buffer: Any, record: Any) -> None:
        """Memory ends while another block may still use it."""
        done = "writes" if record.write else "reads"
        self.recorder.add(
            "cluster-memory-ended",
            f"{block} leaves the scope of {buffer.name} while another block may still use it.",
            [(f"{done} {buffer.name} of {block}", record.thread, record.op)],
        )

    def report_device_left(self, device: Any, buffer: Any, record: Any) -> None:
        """A kernel has ended on a device while another one may still use its memory."""
        place = str(View(buffer, buffer.data, record.group.lo, record.group.hi))
        self.recorder.add(
            "data-race",
            f"The kernel can end on device {device.index} while another device still "
            f"{'writes' if record.write else 'reads'} its {place}.",
            [(verb(record.kind, record.write, place), record.thread, record.op)],
            why="What comes next on that device reads the output, or is given the memory. A kernel "
            "waits for its own accesses, not for those of other devices.",
            fix="Let the other device call pl.semaphore_signal(..., device_id=...) when its access "
            "is done (after a copy: plgpu.wait_smem_to_gmem(0)), and this one pl.semaphore_wait "
            "before it ends.",
        )  # fmt: skip

    def report_store(self, thread: Any, store: Any, rule: str) -> None:
        what = "ends with a copy that is in no group" if rule == "uncommitted-copy" else (
            "ends while a copy may still read its shared memory"
        )  # fmt: skip
        self.recorder.add(
            rule,
            f"A thread {what}: {store.src} to {store.dst}.",
            [(verb(races.STORE, False, str(store.src)), thread, store.op)],
        )

    def report_accumulator(self, thread: Any, view: View, op: ir.Op, mma: ir.Op) -> None:
        self.recorder.add(
            "accumulator-read-early",
            f"{view} is read while a wgmma may still add to it.",
            [(f"starts a wgmma into {view}", thread, mma), (f"reads {view}", thread, op)],
        )

    def report_metadata(self, thread: Any, view: View, op: ir.Op) -> None:
        self.recorder.add(
            "illegal-mma",
            f"{view} names two positions of a group that are not in rising order.",
            [("starts the sparse MMA", thread, op)],
            why="Each pair of positions says where two of every four elements of A belong; the "
            "tensor core asks for rising ones, and what it does with others is undefined.",
            fix="Sort the two positions of each group (and their values), and make them differ.",
        )

    def report_mismatch(self, one: Any, two: Any) -> None:
        self.recorder.add(
            "collective-mismatch",
            "Two blocks issue different copies where all must issue the same one.",
            [(f"starts a collective copy from {v}", t, o) for _, t, o, v in (one, two)],
            key="source",
        )

    def report_late_cancel(self, seen: Any, seen_op: ir.Op, thread: Any, op: ir.Op) -> None:
        self.recorder.add(
            "cancel-after-failure",
            f"{thread} asks for a cluster although {seen} has seen that none is left.",
            [("sees the request fail", seen, seen_op), ("cancels a cluster", thread, op)],
            key="cancel",
        )

    def report_cancel(self, first: Any, first_op: ir.Op, thread: Any, op: ir.Op) -> None:
        self.recorder.add(
            "cancel-not-collective",
            f"{first} and {thread} each cancel a cluster, where one should do it for all.",
            [("cancels a cluster", first, first_op), ("cancels a cluster", thread, op)],
            key="cancel",
        )

    def report_not_collective(self, thread: Any, op: ir.Op, names: Sequence[str]) -> None:
        """A thread allocates for itself; `names` are what its scope holds."""
        name = thread.block.cluster.device.kernel.thread_name
        loop = "try_cancel_barrier" in names  # of JAX's dynamic_scheduling_loop
        self.recorder.add(
            "not-collective",
            f"{'dynamic_scheduling_loop' if loop else 'run_scoped'} allocates without the thread "
            f"axis {name!r}{'' if loop else ' in collective_axes'}.",
            [("allocates", thread, op)],
            fix=f"Pass it to the loop: dynamic_scheduling_loop(..., thread_axis={name!r})."
            if loop else "",
        )  # fmt: skip

    def report_scope(self, block: Any, scope: Any) -> None:
        self.recorder.add(
            "not-collective",
            f"{scope.entered} of {scope.users} threads made a collective allocation.",
            [("allocates", scope.first or block or "a thread", scope.op)],
            fix="Let every thread of the block call this run_scoped, also where only some of them "
            "use what it allocates.",
        )

    def refuse_wild(self, types: Sequence[ir.RefType]) -> None:
        """Ends a kernel that asks for so much that even this machine might not have it."""
        bits = sum(
            math.prod(t.shape) * ir.dtype_bits(ir.numpy_dtype(t.dtype))
            for t in types if t.space in ("smem", "tmem") and t.barrier is None
        )  # fmt: skip
        if bits // 8 > _WILD * self.arch.smem_bytes:
            raise KernelFault(
                "over-capacity",
                f"A block asks for {bits // 8:,} bytes of memory on its SM; an SM of "
                f"{self.arch.name} has {self.arch.smem_bytes:,} bytes of shared memory for one "
                "block",
            )

    def check_capacity(self, block: Any, scope: Any) -> None:
        """The memory that a block holds, against what an SM has."""
        self.peak_smem = max(self.peak_smem, block.smem_bytes)
        self.peak_tmem = max(self.peak_tmem, block.tmem_columns)
        arch = self.arch
        if scope.nbytes and block.smem_bytes > arch.smem_bytes:
            self.recorder.add(
                "over-capacity",
                f"A block asks for {block.smem_bytes:,} bytes of shared memory; an SM of "
                f"{arch.name} has {arch.smem_bytes:,} for one block.",
                [(f"allocates {_names(scope.things)}", block or "a thread", scope.op)],
            )
        if scope.columns and not arch.tmem_columns:
            self.recorder.add(
                "wrong-architecture",
                f"{arch.name} has no tensor memory; Blackwell (sm_100a) has.",
                [(f"allocates {_names(scope.things)}", block or "a thread", scope.op)],
            )
        elif scope.columns and block.tmem_columns > arch.tmem_columns:
            self.recorder.add(
                "over-capacity",
                f"A block asks for {block.tmem_columns} columns of tensor memory; an SM of "
                f"{arch.name} has {arch.tmem_columns}.",
                [(f"allocates {_names(scope.things)}", block or "a thread", scope.op)],
            )

    def end_of_kernel(self, launch: Launch) -> None:
        """Checks what must be true when a kernel has ended."""
        for device in launch.devices:
            races.check_device_left(device, device.args)
            for thing in device.globals().values():
                for semaphore in getattr(thing, "array", np.empty(0)).flat:
                    if isinstance(semaphore, Semaphore) and semaphore.value:
                        self.recorder.add(
                            "semaphore-left-nonzero",
                            f"{semaphore.name} is {semaphore.value} at the end of the kernel.",
                            op=launch.op,
                            key=semaphore.name,
                        )

    # What stops a kernel.

    def _report_fault(self, fault: Fault, kernel: ir.Op) -> None:
        op = fault_op(fault)
        why = fix = ""
        if isinstance(fault, OutOfBounds):
            what = f"An access goes out of bounds: {fault}."
            why = fault.why
        elif isinstance(fault, Unsupported):
            what = f"The simulator does not model {fault}."
            fix = fault.fix
        elif isinstance(fault, StepLimit):
            what = f"The kernel did not come to an end: it ran {fault}."
        else:
            what = f"{fault}."
            why, fix = getattr(fault, "why", ""), getattr(fault, "fix", "")
        self.recorder.add(fault.rule, what, op=op or kernel, key=str(fault), why=why, fix=fix)

    def _report_internal(self, error: Exception) -> None:
        op = fault_op(error)
        name = op.name if op else "?"
        self.recorder.add(
            "unsupported",
            f"The simulator failed in {name}: {type(error).__name__}: {error}",
            op=op, key=str(error),
        )  # fmt: skip

    def _report_deadlock(self, launch: Launch) -> None:
        waiting = [
            t for t in launch.live
            if t.waiting is not None and not isinstance(t.waiting.thing, Join)
        ]  # fmt: skip
        accesses, lacks = [], []
        for thread in waiting:
            thing, op = thread.waiting.thing, thread.waiting.op
            accesses.append((_waits_for(thing, thread), thread, op))
            lacks.append(_lacks(thing, thread))
        distinct = _distinct(accesses)
        shown = distinct[:3]
        lines = "the same line" if len(distinct) == 1 else f"{len(distinct)} places"
        rest = (
            f", at {lines}" if len(distinct) < len(accesses) or len(shown) < len(distinct) else ""
        )
        semaphores_only = all(isinstance(t.waiting.thing, Semaphore) for t in waiting)
        rule = "deadlock"
        if any(getattr(t.waiting.thing, "leader_only", False) for t in waiting):
            rule = "leader-tracked-wait"
        self.recorder.add(
            rule,
            f"The kernel is stuck: {_threads_wait(len(waiting))} for ever{rest}. "
            f"{_distinct_text(lacks)}",
            shown,
            fix=_SIGNALS if waiting and semaphores_only else "",
        )


_SIGNALS = (
    "Check that every wait has its signals: the right semaphore, the right device_id, and a "
    "pl.semaphore_signal on every path that leads to the wait."
)


def _one_per_copy(before: Sequence[Any], now: Sequence[Any]) -> str:
    """The fix where copies of one thread arrive too often; "" where something else does."""
    arrivals = [*before, *now]
    if not all(op.name == "copy_gmem_to_smem" for _, op in arrivals):
        return ""
    if len({id(who) for who, _ in arrivals}) > 1 or not before or not now:
        return ""
    return (
        f"Each copy arrives once: allocate the barrier with num_arrivals={len(arrivals)} (as many "
        "as the copies that arrive on it before the wait), or wait between the copies."
    )


def _one_per_thread(before: Sequence[Any], now: Sequence[Any]) -> str:
    """The fix where the next thread's arrival completes a phase too many; "" elsewhere."""
    first, second = ({id(who) for who, _ in arrivals} for arrivals in (before, now))
    if not first or not second or first & second:
        return ""
    return (
        "Different threads arrive. If each of them arrives once before the wait, allocate the "
        "barrier with num_arrivals= their number. If not, add back pressure: a second barrier, on "
        "which the waiting thread arrives after its wait, and for which they wait."
    )


def _who_did(barrier: Barrier, op: ir.Op | None) -> Any:
    """Whose arrival `op` was, of the barrier's last complete phase; else its block."""
    whose = [who for who, one in barrier.before if one is op]
    return (whose or [barrier.block or "a thread"])[-1]


def _names(things: Sequence[Any]) -> str:
    """What a scope holds, four of it at most: "x_smem, loaded"."""
    shown = [str(t.name) for t in things[:4]]
    return ", ".join([*shown, "..."] if len(things) > len(shown) else shown)


def _times(count: int) -> str:
    return "1 time" if count == 1 else f"{count} times"


def _threads_wait(count: int) -> str:
    return "1 thread waits" if count == 1 else f"{count} threads wait"


def _waits_for(thing: Any, thread: Any) -> str:
    if isinstance(thing, Semaphore):
        return f"waits for {thing.name} to reach {thread.waiting.amount}"
    if isinstance(thing, Registers):
        return f"waits for {thread.waiting.amount} registers per lane"
    done = thing.waits.get(thread)
    return f"waits for completion {(done.phase if done else 0) + 1} of {thing.name}"


def _lacks(thing: Any, thread: Any) -> str:
    """What has not come, in a sentence."""
    if isinstance(thing, Semaphore):
        return f"{thing.name} is at {thing.value}."
    if isinstance(thing, Registers):
        threads = thread.block.cluster.device.kernel.num_threads
        free = thing.free_for(thread, threads)
        return (
            f"The {threads} threads share {thing.total} registers per lane, and the others leave "
            f"{free}: set_max_registers(..., action='decrease') in one of them gives some up."
        )
    if not isinstance(thing, Barrier):
        return ""
    came = thing.needed - thing.pending
    text = f"{thing.name} completed {_times(thing.phases)}; "
    if thing.owed > 0:
        return text + f"its copies still lack {thing.owed} bytes."
    return text + f"{came} of {thing.needed} arrival{'s' * (thing.needed != 1)} for the next came."


def _distinct(accesses: list[Any]) -> list[Any]:
    """One access per line and thing waited for."""
    seen: dict[Any, Any] = {}
    for what, who, op in accesses:
        seen.setdefault((what, op.where), (what, who, op))
    return list(seen.values())


def _distinct_text(texts: list[str]) -> str:
    return " ".join(list(dict.fromkeys(t for t in texts if t))[:2])
