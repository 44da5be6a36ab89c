"""Wrong answers to barriers.queue."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong


def _run(x, slots, producer, consumer):
    """The notebook's frame; the bodies get (x_gmem, y_gmem, items_smem, produced, consumed)."""

    def one_batch(x_gmem, y_gmem, items_smem, produced, consumed):
        refs = (x_gmem, y_gmem, items_smem, produced, consumed)
        thread = jax.lax.axis_index("thread")
        pl.when(thread == 0)(lambda: producer(*refs))
        pl.when(thread == 1)(lambda: consumer(*refs))

    def kernel(x_gmem, y_gmem):
        for batch in range(x.shape[0]):
            pl.run_scoped(
                functools.partial(one_batch, x_gmem.at[batch], y_gmem.at[batch]),
                items_smem=plgpu.SMEM((slots, x.shape[2]), x.dtype),
                produced=plgpu.Barrier(num_barriers=slots),
                consumed=plgpu.Barrier(num_barriers=slots),
                collective_axes="thread",
            )

    return plgpu.kernel(kernel, out_type=x, num_threads=2, thread_name="thread")(x)


def _produce(steps, slots, *, wait="i >= slots", last="used"):
    """A producer: when it waits for a free slot, and for which slots it waits in the end."""

    def producer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            if wait == "always":
                plgpu.barrier_wait(consumed.at[slot])
            elif wait == "i >= slots":
                pl.when(i >= slots)(lambda: plgpu.barrier_wait(consumed.at[slot]))
            elif wait == "i > 0":
                pl.when(i > 0)(lambda: plgpu.barrier_wait(consumed.at[slot]))
            items_smem[slot] = x_gmem[i] * 2
            plgpu.barrier_arrive(produced.at[slot])

        for slot in range({"none": 0, "all": slots, "used": min(slots, steps)}[last]):
            plgpu.barrier_wait(consumed.at[slot])

    return producer


def _consume(steps, slots):
    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            plgpu.barrier_wait(produced.at[slot])
            y_gmem[i] = items_smem[slot] + 1
            plgpu.barrier_arrive(consumed.at[slot])

    return consumer


def as_the_page_has_it(x, *, slots):
    """The reference page's own queue: the last completions of consumed are nobody's."""
    steps = x.shape[1]
    return _run(x, slots, _produce(steps, slots, last="none"), _consume(steps, slots))


def waits_for_every_slot(x, *, slots):
    """Waits for slots that were never used, where there are fewer rows."""
    steps = x.shape[1]
    return _run(x, slots, _produce(steps, slots, last="all"), _consume(steps, slots))


def no_back_pressure(x, *, slots):
    """The producer never waits, and the consumer does not tell."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            plgpu.barrier_wait(produced.at[slot])
            y_gmem[i] = items_smem[slot] + 1

    return _run(x, slots, _produce(steps, slots, wait="never", last="none"), consumer)


def waits_from_the_first_step(x, *, slots):
    """The slots are free in the first round; nobody says so."""
    steps = x.shape[1]
    return _run(x, slots, _produce(steps, slots, wait="always"), _consume(steps, slots))


def waits_from_the_second_step(x, *, slots):
    """i > 0, as if there were one slot."""
    steps = x.shape[1]
    return _run(x, slots, _produce(steps, slots, wait="i > 0"), _consume(steps, slots))


def tells_before_it_has_read(x, *, slots):
    """The consumer frees the slot and then reads it."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            plgpu.barrier_wait(produced.at[slot])
            plgpu.barrier_arrive(consumed.at[slot])
            y_gmem[i] = items_smem[slot] + 1

    return _run(x, slots, _produce(steps, slots), consumer)


def barriers_mixed_up(x, *, slots):
    """The consumer waits for consumed and arrives on produced."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        _consume(steps, slots)(x_gmem, y_gmem, items_smem, consumed, produced)

    return _run(x, slots, _produce(steps, slots), consumer)


def without_at(x, *, slots):
    """Waits for an array of barriers."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            plgpu.barrier_wait(produced)
            y_gmem[i] = items_smem[jax.lax.rem(i, slots)] + 1
            plgpu.barrier_arrive(consumed)

    return _run(x, slots, _produce(steps, slots), consumer)


def always_slot_0(x, *, slots):
    """The consumer reads slot 0 all the time."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            plgpu.barrier_wait(produced.at[slot])
            y_gmem[i] = items_smem[0] + 1
            plgpu.barrier_arrive(consumed.at[slot])

    return _run(x, slots, _produce(steps, slots), consumer)


def forgets_to_add(x, *, slots):
    """Twice the row, and no more."""
    steps = x.shape[1]

    def consumer(x_gmem, y_gmem, items_smem, produced, consumed):
        @pl.loop(0, steps)
        def _(i):
            slot = jax.lax.rem(i, slots)
            plgpu.barrier_wait(produced.at[slot])
            y_gmem[i] = items_smem[slot]
            plgpu.barrier_arrive(consumed.at[slot])

    return _run(x, slots, _produce(steps, slots), consumer)


WRONG = {
    "as the page has it": Wrong(
        as_the_page_has_it, "barrier-unwaited", ("consumed[0] completed 3 times", "2 times")
    ),
    "waits for every slot": Wrong(
        waits_for_every_slot, "deadlock", ("completion 1 of consumed[2]", "1 shape right before")
    ),
    "no back-pressure": Wrong(
        no_back_pressure, "barrier-overrun", ("produced[0] can complete phase 2",)
    ),
    "waits from the first step": Wrong(
        waits_from_the_first_step,
        "deadlock",
        ("2 threads wait for ever", "completion 1 of consumed[0]"),
    ),
    "waits from the second step": Wrong(
        waits_from_the_second_step, "deadlock", ("completion 1 of consumed[1]",)
    ),
    "tells before it has read": Wrong(
        tells_before_it_has_read, "data-race", ("thread 1 reads items_smem",)
    ),
    "barriers mixed up": Wrong(barriers_mixed_up, "deadlock", ("wait for ever",)),
    "without .at": Wrong(without_at, "out-of-bounds", ("produced.at[i]",)),
    "always slot 0": Wrong(always_slot_0, "race", ("items_smem[0",)),
    "forgets to add": Wrong(forgets_to_add, "value", ("off by the same amount",)),
}
