"""Wrong answers to barriers.hand_off."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines: `body(thread, x, y, item, ready)`."""

    def kernel(x_gmem, y_gmem, item_smem, ready):
        body(jax.lax.axis_index("thread"), x_gmem, y_gmem, item_smem, ready)

    return plgpu.kernel(
        kernel,
        out_type=x,
        scratch_types=dict(item_smem=plgpu.SMEM(x.shape, x.dtype), ready=plgpu.Barrier()),
        num_threads=2,
        thread_name="thread",
    )(x)


def no_barrier(x):
    """Counts on thread 0 being first."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            item_smem[...] = jnp.exp(x_gmem[...])

        @pl.when(thread == 1)
        def _():
            y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def arrives_too_early(x):
    """Says that the item is ready, and then makes it."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            plgpu.barrier_arrive(ready)
            item_smem[...] = jnp.exp(x_gmem[...])

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_wait(ready)
            y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def waits_after_the_read(x):
    """Looks first, and waits then."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            item_smem[...] = jnp.exp(x_gmem[...])
            plgpu.barrier_arrive(ready)

        @pl.when(thread == 1)
        def _():
            y_gmem[...] = item_smem[...] + 1
            plgpu.barrier_wait(ready)

    return _run(x, body)


def sides_swapped(x):
    """The producer waits and the consumer arrives: the order is that of the reads."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            item_smem[...] = jnp.exp(x_gmem[...])
            plgpu.barrier_wait(ready)

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_arrive(ready)
            y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def never_arrives(x):
    """Two waits, as if a barrier were a meeting point."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            item_smem[...] = jnp.exp(x_gmem[...])
            plgpu.barrier_wait(ready)

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_wait(ready)
            y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def both_do_everything(x):
    """No pl.when: two producers, two consumers."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        item_smem[...] = jnp.exp(x_gmem[...])
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def python_if(x):
    """`if` on a number that only the running kernel knows."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        if thread == 0:
            item_smem[...] = jnp.exp(x_gmem[...])
            plgpu.barrier_arrive(ready)
        else:
            plgpu.barrier_wait(ready)
            y_gmem[...] = item_smem[...] + 1

    return _run(x, body)


def adds_before(x):
    """exp(x + 1)."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            item_smem[...] = x_gmem[...] + 1
            plgpu.barrier_arrive(ready)

        @pl.when(thread == 1)
        def _():
            plgpu.barrier_wait(ready)
            y_gmem[...] = jnp.exp(item_smem[...])

    return _run(x, body)


def one_thread(x):
    """Everything in thread 0, without the barrier."""

    def body(thread, x_gmem, y_gmem, item_smem, ready):
        @pl.when(thread == 0)
        def _():
            y_gmem[...] = jnp.exp(x_gmem[...]) + 1

    return _run(x, body)


WRONG = {
    "no barrier": Wrong(no_barrier, "data-race", ("Two threads touch item_smem", "hand_off.py")),
    "arrives too early": Wrong(
        arrives_too_early, "data-race", ("thread 0 writes item_smem", "thread 1 reads item_smem")
    ),
    "waits after the read": Wrong(
        waits_after_the_read, "data-race", ("thread 1 reads item_smem", "hand_off.py")
    ),
    "sides swapped": Wrong(sides_swapped, "data-race", ("Two threads touch item_smem",)),
    "never arrives": Wrong(
        never_arrives, "deadlock", ("waits for completion 1 of ready", "0 of 1 arrival")
    ),
    "both do everything": Wrong(both_do_everything, "race", ("item_smem",)),
    "a Python if": Wrong(python_if, "exception", ("TracerBoolConversionError", "hand_off.py")),
    "adds before": Wrong(adds_before, "value", ("[0]",)),
    "one thread": Wrong(one_thread, "means", ("never uses", "plgpu.barrier_arrive")),
}
