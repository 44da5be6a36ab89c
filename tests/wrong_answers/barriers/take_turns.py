"""Wrong answers to barriers.take_turns."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _run(x, first, second):
    """The notebook's frame; the bodies get (x_gmem, y_gmem, item_smem, halved, added)."""

    def kernel(x_gmem, y_gmem, item_smem, halved, added):
        refs = (x_gmem, y_gmem, item_smem, halved, added)
        thread = jax.lax.axis_index("thread")
        pl.when(thread == 0)(lambda: first(*refs))
        pl.when(thread == 1)(lambda: second(*refs))

    return plgpu.kernel(
        kernel,
        out_type=x,
        scratch_types=dict(
            item_smem=plgpu.SMEM(x.shape, x.dtype), halved=plgpu.Barrier(), added=plgpu.Barrier()
        ),
        num_threads=2,
        thread_name="thread",
    )(x)


def _halves(rounds):
    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(halved)
            plgpu.barrier_wait(added)

        y_gmem[...] = item_smem[...]

    return first


def _adds(rounds):
    def second(x_gmem, y_gmem, item_smem, halved, added):
        @pl.loop(0, rounds)
        def _(i):
            plgpu.barrier_wait(halved)
            item_smem[...] = item_smem[...] + 1
            plgpu.barrier_arrive(added)

    return second


def one_direction(x, *, rounds):
    """Thread 0 does not wait for the answer."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(halved)

        y_gmem[...] = item_smem[...]

    def second(x_gmem, y_gmem, item_smem, halved, added):
        @pl.loop(0, rounds)
        def _(i):
            plgpu.barrier_wait(halved)
            item_smem[...] = item_smem[...] + 1

    return _run(x, first, second)


def one_barrier(x, *, rounds):
    """The same barrier in both directions: each takes its own arrival for the other's."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(halved)
            plgpu.barrier_wait(halved)

        y_gmem[...] = item_smem[...]

    def second(x_gmem, y_gmem, item_smem, halved, added):
        @pl.loop(0, rounds)
        def _(i):
            plgpu.barrier_wait(halved)
            item_smem[...] = item_smem[...] + 1
            plgpu.barrier_arrive(halved)

    return _run(x, first, second)


def both_wait_first(x, *, rounds):
    """Nobody begins."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            plgpu.barrier_wait(added)
            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(halved)

        y_gmem[...] = item_smem[...]

    return _run(x, first, _adds(rounds))


def last_answer_not_awaited(x, *, rounds):
    """Waits for the answer at the start of the next round, so not for the last one."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            @pl.when(i > 0)
            def _():
                plgpu.barrier_wait(added)

            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(halved)

        y_gmem[...] = item_smem[...]

    return _run(x, first, _adds(rounds))


def one_round_less(x, *, rounds):
    """Thread 1 loops once too few: the first waits for ever."""
    return _run(x, _halves(rounds), _adds(rounds - 1) if rounds > 1 else lambda *refs: None)


def adds_before_it_halves(x, *, rounds):
    """x -> (x + 1) / 2: right about turns, wrong about their order."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            item_smem[...] = item_smem[...] + 1
            plgpu.barrier_arrive(halved)
            plgpu.barrier_wait(added)

        y_gmem[...] = item_smem[...]

    def second(x_gmem, y_gmem, item_smem, halved, added):
        @pl.loop(0, rounds)
        def _(i):
            plgpu.barrier_wait(halved)
            item_smem[...] = item_smem[...] / 2
            plgpu.barrier_arrive(added)

    return _run(x, first, second)


def the_other_writes(x, *, rounds):
    """Thread 1 writes the result, and thread 0 too."""

    def second(x_gmem, y_gmem, item_smem, halved, added):
        _adds(rounds)(x_gmem, y_gmem, item_smem, halved, added)
        y_gmem[...] = item_smem[...]

    return _run(x, _halves(rounds), second)


def alone(x, *, rounds):
    """Thread 0 does both."""

    def first(x_gmem, y_gmem, item_smem, halved, added):
        item_smem[...] = x_gmem[...]

        @pl.loop(0, rounds)
        def _(i):
            item_smem[...] = item_smem[...] / 2 + 1

        y_gmem[...] = item_smem[...]

    return _run(x, first, lambda *refs: None)


WRONG = {
    "one direction": Wrong(one_direction, "barrier-overrun", ("can complete phase 2",)),
    "one barrier": Wrong(
        one_barrier, "barrier-skipped-phase", ("halved has completed", "take_turns.py")
    ),
    "both wait first": Wrong(
        both_wait_first, "deadlock", ("2 threads wait for ever", "take_turns.py")
    ),
    "the last answer is not awaited": Wrong(last_answer_not_awaited, "race", ("Two threads",)),
    "one round less": Wrong(one_round_less, "deadlock", ("thread 0 waits for completion 3",)),
    "adds before it halves": Wrong(adds_before_it_halves, "value", ("[0]",)),
    "the other writes": Wrong(the_other_writes, "race", ("y_gmem",)),
    "alone": Wrong(alone, "means", ("never uses", "plgpu.barrier_arrive")),
}
