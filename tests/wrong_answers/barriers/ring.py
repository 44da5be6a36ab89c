"""Wrong answers to barriers.ring."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong


def _run(x, body):
    """The notebook's frame around the learner's lines."""

    def kernel(x_gmem, y_gmem, token_smem, turn):
        body(jax.lax.axis_index("thread"), x_gmem, y_gmem, token_smem, turn)

    scratch = dict(token_smem=plgpu.SMEM(x.shape, x.dtype), turn=plgpu.Barrier(num_barriers=3))
    options = dict(scratch_types=scratch, num_threads=3, thread_name="thread")
    return plgpu.kernel(kernel, out_type=x, **options)(x)


def _ring(laps, *, waits=lambda thread, lap: (thread > 0) | (lap > 0), last=True, step=1):
    """The ring: who waits in a lap, whether the last turn is waited for, and who is next."""

    def body(thread, x_gmem, y_gmem, token_smem, turn):
        @pl.when(thread == 0)
        def _():
            token_smem[...] = x_gmem[...]

        @pl.loop(0, laps)
        def _(lap):
            pl.when(waits(thread, lap))(lambda: plgpu.barrier_wait(turn.at[thread]))
            token_smem[...] = token_smem[...] + (thread + 1).astype(jnp.float32)
            plgpu.barrier_arrive(turn.at[jax.lax.rem(thread + step, 3)])

        @pl.when(thread == 0)
        def _():
            if last:
                plgpu.barrier_wait(turn.at[0])
            y_gmem[...] = token_smem[...]

    return body


def still_stuck(x, *, laps):
    """A loop around the ring that is stuck."""
    return _run(x, _ring(laps, waits=lambda thread, lap: thread >= 0))


def nobody_waits_in_the_first_lap(x, *, laps):
    """lap > 0 for all of them: in the first lap all three write at once."""
    return _run(x, _ring(laps, waits=lambda thread, lap: lap > 0))


def thread_0_never_waits(x, *, laps):
    """thread > 0 only: right for one lap, and then thread 0 runs away."""
    return _run(x, _ring(laps, waits=lambda thread, lap: thread > 0))


def writes_too_early(x, *, laps):
    """Thread 0 writes the result after its own last turn, before those of the others."""
    return _run(x, _ring(laps, last=False))


def passes_to_itself(x, *, laps):
    """Arrives on its own turn."""
    return _run(x, _ring(laps, step=0))


def past_the_end(x, *, laps):
    """thread + 1 without the remainder: thread 2 calls thread 3."""

    def body(thread, x_gmem, y_gmem, token_smem, turn):
        @pl.when(thread == 0)
        def _():
            token_smem[...] = x_gmem[...]

        @pl.loop(0, laps)
        def _(lap):
            pl.when((thread > 0) | (lap > 0))(lambda: plgpu.barrier_wait(turn.at[thread]))
            token_smem[...] = token_smem[...] + (thread + 1).astype(jnp.float32)
            plgpu.barrier_arrive(turn.at[thread + 1])

        @pl.when(thread == 0)
        def _():
            plgpu.barrier_wait(turn.at[0])
            y_gmem[...] = token_smem[...]

    return _run(x, body)


def adds_its_number(x, *, laps):
    """Adds thread instead of thread + 1."""

    def body(thread, x_gmem, y_gmem, token_smem, turn):
        @pl.when(thread == 0)
        def _():
            token_smem[...] = x_gmem[...]

        @pl.loop(0, laps)
        def _(lap):
            pl.when((thread > 0) | (lap > 0))(lambda: plgpu.barrier_wait(turn.at[thread]))
            token_smem[...] = token_smem[...] + thread.astype(jnp.float32)
            plgpu.barrier_arrive(turn.at[jax.lax.rem(thread + 1, 3)])

        @pl.when(thread == 0)
        def _():
            plgpu.barrier_wait(turn.at[0])
            y_gmem[...] = token_smem[...]

    return _run(x, body)


def arithmetic(x, *, laps):
    """x + 6 * laps from thread 0."""

    def body(thread, x_gmem, y_gmem, token_smem, turn):
        @pl.when(thread == 0)
        def _():
            y_gmem[...] = x_gmem[...] + 6.0 * laps

    return _run(x, body)


WRONG = {
    "still stuck": Wrong(still_stuck, "deadlock", ("3 threads wait for ever", "turn[0]")),
    "nobody waits in the first lap": Wrong(
        nobody_waits_in_the_first_lap, "race", ("token_smem", "ring.py")
    ),
    "thread 0 never waits": Wrong(
        thread_0_never_waits, "barrier-overrun", ("turn[1] can complete", "1 shape right before")
    ),
    "writes too early": Wrong(writes_too_early, "race", ("token_smem",)),
    "passes to itself": Wrong(passes_to_itself, "deadlock", ("thread 1 waits for completion 1",)),
    "past the end": Wrong(past_the_end, "out-of-bounds", ("turn", "ring.py")),
    "adds its number": Wrong(adds_its_number, "value", ("off by the same amount",)),
    "arithmetic": Wrong(arithmetic, "means", ("never uses", "plgpu.barrier_arrive")),
}
