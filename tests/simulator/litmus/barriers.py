"""Barriers, threads and deadlocks."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax

from course_lib.simulator import devices
from tests.simulator.litmus.pair import Pair

F32 = jnp.float32
TILE = ((128,), "float32")
THREADS = {"num_threads": 2, "thread_name": "t"}


def _kernel(body, x, scratch, out=None, **mesh):
    return plgpu.kernel(body, out_type=out or x, scratch_types=scratch, **mesh)(x)


def _handoff(x, *, arrive=True, wait=True):
    """Thread 0 writes shared memory, thread 1 reads it."""

    def body(x_gmem, o_gmem, smem, ready):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            smem[...] = x_gmem[...] + 1
            if arrive:
                plgpu.barrier_arrive(ready)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            if wait:
                plgpu.barrier_wait(ready)
            o_gmem[...] = smem[...]
            if not wait and arrive:
                plgpu.barrier_wait(ready)

    return _kernel(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier()], **THREADS)


def _queue(x, *, back_pressure=True, last_wait=True):
    """Four items through one slot."""

    def body(x_gmem, o_gmem, slot, produced, consumed):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            for i in range(4):
                if i and back_pressure:
                    plgpu.barrier_wait(consumed)
                slot[...] = x_gmem[i]
                plgpu.barrier_arrive(produced)
            if last_wait and back_pressure:
                plgpu.barrier_wait(consumed)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            for i in range(4):
                plgpu.barrier_wait(produced)
                o_gmem[i] = slot[...]
                if back_pressure:
                    plgpu.barrier_arrive(consumed)

    scratch = [plgpu.SMEM((128,), F32), plgpu.Barrier(), plgpu.Barrier()]
    return _kernel(body, x, scratch, **THREADS)


def _scoped_barrier(x, *, wait):
    """A barrier of a scope inside of the kernel: its memory is used again."""

    def body(x_gmem, o_gmem):
        def scope(barrier):
            plgpu.barrier_arrive(barrier)
            if wait:
                plgpu.barrier_wait(barrier)

        pl.run_scoped(scope, plgpu.Barrier())
        o_gmem[...] = x_gmem[...]

    return _kernel(body, x, ())


def _signals(x, *, back):
    """Two completions of a barrier: without an answer they may both come first."""

    def body(x_gmem, o_gmem, ping, pong):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            plgpu.barrier_arrive(ping)
            if back:
                plgpu.barrier_wait(pong)
            plgpu.barrier_arrive(ping)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            plgpu.barrier_wait(ping)
            if back:
                plgpu.barrier_arrive(pong)
            plgpu.barrier_wait(ping)
            o_gmem[...] = x_gmem[...]

    return _kernel(body, x, [plgpu.Barrier(), plgpu.Barrier()], **THREADS)


def _skip(x, *, every, nested=True):
    """Thread 2 must wait for both completions, too."""

    def scope(go, back):
        t = lax.axis_index("t")

        @pl.when(t == 0)
        def _():
            for _i in range(2):
                plgpu.barrier_arrive(go)
                plgpu.barrier_wait(back)

        @pl.when(t == 1)
        def _():
            for _i in range(2):
                plgpu.barrier_wait(go)
                plgpu.barrier_arrive(back)

        @pl.when(t == 2)
        def _():
            for _i in range(2 if every else 1):
                plgpu.barrier_wait(go)
                plgpu.barrier_arrive(back)
            if not every:
                plgpu.barrier_arrive(back)

    def body(x_gmem, o_gmem, *outer):
        def write():
            @pl.when(lax.axis_index("t") == 1)
            def _():
                o_gmem[...] = x_gmem[...]

        if nested:
            pl.run_scoped(scope, *barriers, collective_axes="t")
            write()
        else:
            write()
            scope(*outer)

    barriers = [plgpu.Barrier(), plgpu.Barrier(num_arrivals=2)]
    return _kernel(body, x, () if nested else barriers, num_threads=3, thread_name="t")


def _arrivals(x, *, needed):
    def body(x_gmem, o_gmem, smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        plgpu.barrier_wait(barrier)
        o_gmem[...] = smem[...]

    return _kernel(body, x, [plgpu.SMEM((128,), F32), plgpu.Barrier(num_arrivals=needed)])


def _half_way(x, *, whole):
    def body(x_gmem, o_gmem, barrier):
        plgpu.barrier_arrive(barrier)
        if whole:
            plgpu.barrier_arrive(barrier)
            plgpu.barrier_wait(barrier)
        o_gmem[...] = x_gmem[...]

    return _kernel(body, x, [plgpu.Barrier(num_arrivals=2)])


def _circle(x, *, order):
    def body(x_gmem, o_gmem, a, b):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            if order:
                plgpu.barrier_arrive(b)
            plgpu.barrier_wait(a)
            if not order:
                plgpu.barrier_arrive(b)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            plgpu.barrier_wait(b)
            plgpu.barrier_arrive(a)
            o_gmem[...] = x_gmem[...]

    return _kernel(body, x, [plgpu.Barrier(), plgpu.Barrier()], **THREADS)


def _blocks_race(x, *, own):
    """Every block writes its own row, or all write the first one."""

    def body(x_gmem, o_gmem):
        i = lax.axis_index("g")
        o_gmem[i if own else 0] = x_gmem[i]

    return _kernel(body, x, (), grid=(3,), grid_names=("g",))


def _reads_neighbour(x, *, neighbour):
    def body(x_gmem, o_gmem):
        i = lax.axis_index("g")
        o_gmem[i] = x_gmem[i]
        if neighbour:

            @pl.when(i == 1)
            def _():
                o_gmem[1] = o_gmem[1] + o_gmem[0]

    return _kernel(body, x, (), grid=(2,), grid_names=("g",))


def _scoped(x, *, collective):
    def body(x_gmem, o_gmem):
        def scope(smem, ready):
            @pl.when(lax.axis_index("t") == 0)
            def _():
                smem[...] = x_gmem[...]
                plgpu.barrier_arrive(ready)

            @pl.when(lax.axis_index("t") == 1)
            def _():
                plgpu.barrier_wait(ready)
                o_gmem[...] = smem[...]

        axes = "t" if collective else ()
        pl.run_scoped(scope, plgpu.SMEM((128,), F32), plgpu.Barrier(), collective_axes=axes)

    return _kernel(body, x, (), **THREADS)


def _scoped_by_one(x, *, both):
    def body(x_gmem, o_gmem):
        def scope(smem):
            @pl.when(lax.axis_index("t") == 0)
            def _():
                smem[...] = x_gmem[...]
                o_gmem[...] = smem[...]

        def allocate():
            pl.run_scoped(scope, plgpu.SMEM((128,), F32), collective_axes="t")

        if both:
            allocate()
        else:
            pl.when(lax.axis_index("t") == 0)(allocate)

    return _kernel(body, x, (), **THREADS)


def _polls_for_ever(x, *, ends):
    def body(x_gmem, o_gmem):
        def more(i):
            return i < 5 if ends else i >= 0

        lax.while_loop(more, lambda i: lax.rem(i + 1, 1000), jnp.int32(0))
        o_gmem[...] = x_gmem[...]

    return _kernel(body, x, ())


def _uninitialised(x, *, write):
    def body(x_gmem, o_gmem, smem):
        if write:
            smem[...] = x_gmem[...]
        else:
            smem[:64] = x_gmem[:64]
        o_gmem[...] = smem[...]

    return _kernel(body, x, [plgpu.SMEM((128,), F32)])


def _bounds(x, *, rows):
    def body(x_gmem, o_gmem):
        i = lax.axis_index("g")
        o_gmem[pl.ds(i * rows, 64)] = x_gmem[pl.ds(i * rows, 64)]

    return _kernel(body, x, (), grid=(2,), grid_names=("g",))


def _raises(x, *, shape):
    def body(x_gmem, o_gmem):
        o_gmem[...] = x_gmem[...] + jnp.zeros(shape, F32)

    return _kernel(body, x, ())


def _capacity(x, *, stages):
    def body(x_gmem, o_gmem, smem):
        smem[0, :128] = x_gmem[...]
        o_gmem[...] = smem[0, :128]

    return _kernel(body, x, [plgpu.SMEM((stages, 16 * 1024), F32)])


def _semaphore(x, *, signal, amount=1):
    def body(x_gmem, o_gmem):
        semaphore = pl.get_global(plgpu.SemaphoreType.REGULAR)

        @pl.when(lax.axis_index("g") == 0)
        def _():
            o_gmem[0] = x_gmem[0]
            if signal:
                pl.semaphore_signal(semaphore, amount)

        @pl.when(lax.axis_index("g") == 1)
        def _():
            pl.semaphore_wait(semaphore)
            o_gmem[1] = o_gmem[0]

    return _kernel(body, x, (), grid=(2,), grid_names=("g",))


def _semaphore_race(x, *, first):
    """The signal must come after the write that it announces."""

    def body(x_gmem, o_gmem):
        semaphore = pl.get_global(plgpu.SemaphoreType.REGULAR)

        @pl.when(lax.axis_index("g") == 0)
        def _():
            if not first:
                pl.semaphore_signal(semaphore)
            o_gmem[0] = x_gmem[0]
            if first:
                pl.semaphore_signal(semaphore)

        @pl.when(lax.axis_index("g") == 1)
        def _():
            pl.semaphore_wait(semaphore)
            o_gmem[1] = o_gmem[0]

    return _kernel(body, x, (), grid=(2,), grid_names=("g",))


def _greedy(x, *, give=True, n=232, keep=40):
    """Threads 0 and 1 want more registers, thread 2 gives some up."""

    def body(x_gmem, o_gmem):
        @pl.when(lax.axis_index("t") < 2)
        def _():
            plgpu.set_max_registers(n, action="increase")

        @pl.when(lax.axis_index("t") == 2)
        def _():
            if give:
                plgpu.set_max_registers(keep, action="decrease")
            o_gmem[...] = x_gmem[...]

    return _kernel(body, x, (), num_threads=3, thread_name="t")


def _many_threads(x, *, threads):
    def body(x_gmem, o_gmem):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            o_gmem[...] = x_gmem[...]

    return _kernel(body, x, (), num_threads=threads, thread_name="t")


def _through_global(x, *, meet):
    """Thread 1 reads the global memory that thread 0 has written."""

    def body(x_gmem, o_gmem, ready):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            o_gmem[0] = x_gmem[0] * 2
            if meet:
                plgpu.barrier_arrive(ready)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            if meet:
                plgpu.barrier_wait(ready)
            o_gmem[1] = o_gmem[0]

    return _kernel(body, x, [plgpu.Barrier()], **THREADS)


def _devices(x, *, wait):
    """Two devices write into each other's memory, and read what came."""

    def body(x_ref, o_ref, sem):
        other = 1 - lax.axis_index("x")
        plgpu.remote_ref(o_ref, other)[...] = x_ref[...]
        pl.semaphore_signal(sem, device_id=other)
        if wait:
            pl.semaphore_wait(sem)
        o_ref[...] = o_ref[...] * 2
        if not wait:
            pl.semaphore_wait(sem)

    def shard(x):
        return _kernel(body, x, [plgpu.SemaphoreType.REGULAR])

    spec = jax.sharding.PartitionSpec("x")
    return jax.shard_map(shard, mesh=devices(2), in_specs=spec, out_specs=spec, check_vma=False)(x)


P = functools.partial
ROWS = (((3, 128), "float32"),)
TWO = (((2, 128), "float32"),)

PAIRS = [
    Pair("data-race", P(_handoff, wait=False), _handoff, (TILE,), ("smem", "thread 0", "thread 1")),
    Pair("data-race", P(_blocks_race, own=False), P(_blocks_race, own=True), ROWS,
         ("block 0", "block 1"), name="blocks"),
    Pair("data-race", P(_reads_neighbour, neighbour=True), P(_reads_neighbour, neighbour=False),
         TWO, name="blocks read"),
    Pair("data-race", P(_semaphore_race, first=False), P(_semaphore_race, first=True), TWO,
         name="semaphore"),
    Pair("data-race", P(_through_global, meet=False), P(_through_global, meet=True), TWO,
         ("o_gmem", "plgpu.Barrier:"), name="global memory"),
    Pair("data-race", P(_devices, wait=False), P(_devices, wait=True), TWO,
         ("device 0", "device 1", "semaphore_signal"), name="devices",
         reference=lambda x: x[::-1] * 2),
    Pair("barrier-overrun", P(_queue, back_pressure=False), _queue, (((4, 128), "float32"),),
         name="queue"),
    Pair("barrier-overrun", P(_signals, back=False), P(_signals, back=True), (TILE,), ("ping",)),
    Pair("barrier-unwaited", P(_scoped_barrier, wait=False), P(_scoped_barrier, wait=True),
         (TILE,), ("barrier",)),
    Pair("barrier-unwaited-at-exit", P(_queue, last_wait=False), _queue,
         (((4, 128), "float32"),), ("consumed",)),
    Pair("barrier-unwaited-at-exit", P(_skip, every=False, nested=False),
         P(_skip, every=True, nested=False), (TILE,), ("1 of them",), name="by one thread"),
    Pair("barrier-skipped-phase", P(_skip, every=False), P(_skip, every=True), (TILE,), ("go",)),
    Pair("barrier-arrivals-pending", P(_half_way, whole=False), P(_half_way, whole=True), (TILE,),
         ("1 of 2",)),
    Pair("deadlock", P(_handoff, arrive=False), _handoff, (TILE,), ("ready", "thread 1")),
    Pair("deadlock", P(_arrivals, needed=2), P(_arrivals, needed=1), (TILE,),
         ("1 of 2 arrivals",), name="arrivals"),
    Pair("deadlock", P(_circle, order=False), P(_circle, order=True), (TILE,), name="circle"),
    Pair("deadlock", P(_semaphore, signal=False), P(_semaphore, signal=True), TWO,
         ("semaphore",), name="semaphore"),
    Pair("semaphore-left-nonzero", P(_semaphore, signal=True, amount=2),
         P(_semaphore, signal=True), TWO),
    Pair("not-collective", P(_scoped, collective=False), P(_scoped, collective=True), (TILE,),
         ("'t'",)),
    Pair("not-collective", P(_scoped_by_one, both=False), P(_scoped_by_one, both=True), (TILE,),
         ("1 of 2",), name="one thread"),
    Pair("step-limit", P(_polls_for_ever, ends=False), P(_polls_for_ever, ends=True), (TILE,),
         max_steps=20_000),
    Pair("uninitialized-read", P(_uninitialised, write=False), P(_uninitialised, write=True),
         (TILE,), ("smem",)),
    Pair("out-of-bounds", P(_bounds, rows=100), P(_bounds, rows=64), (TILE,), ("x_gmem", "128")),
    Pair("exception", P(_raises, shape=(64,)), P(_raises, shape=(128,)), (TILE,), ("TypeError",)),
    Pair("over-capacity", P(_capacity, stages=4), P(_capacity, stages=3), (TILE,), ("232,448",)),
    Pair("over-capacity", P(_many_threads, threads=9), P(_many_threads, threads=8), (TILE,),
         ("1,152 lanes",), name="lanes", reference=lambda x: x),
    Pair("deadlock", P(_greedy, give=False), _greedy, (TILE,), ("232 registers", "decrease"),
         name="registers", reference=lambda x: x),
    Pair("deadlock", P(_greedy, n=224, keep=64), P(_greedy, n=224, keep=56), (TILE,),
         ("share 504 registers", "decrease"), name="registers of a launch",
         reference=lambda x: x),
    Pair("register-budget", P(_greedy, n=264), _greedy, (TILE,), ("24 to 256",)),
]  # fmt: skip

__all__ = ["PAIRS", "jax"]
