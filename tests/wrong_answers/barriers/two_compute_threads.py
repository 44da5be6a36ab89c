"""Wrong answers to barriers.two_compute_threads."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.wrong_answers import Wrong

SLOTS = 3


def _bring_tiles(x_gmem, x_smem, produced, consumed):
    """The memory thread of the notebook."""
    plgpu.set_max_registers(40, action="decrease")

    @pl.loop(0, x_gmem.shape[0] // 64)
    def _(ti):
        slot = jax.lax.rem(ti, SLOTS)
        pl.when(ti >= SLOTS)(lambda: plgpu.barrier_wait(consumed.at[slot]))
        tile = x_gmem.at[pl.ds(ti * 64, 64)]
        plgpu.copy_gmem_to_smem(tile, x_smem.at[slot], produced.at[slot])

    @pl.loop(0, SLOTS)
    def _(slot):
        plgpu.barrier_wait(consumed.at[slot])


def _run(x, compute=None, *, produced=1, consumed=2):
    """The notebook's frame; `compute(thread, y_gmem, x_smem, produced, consumed)`."""
    tiles = x.shape[0] // 64

    def kernel(x_gmem, y_gmem, x_smem, produced, consumed):
        thread = jax.lax.axis_index("thread")
        refs = (y_gmem, x_smem, produced, consumed)
        pl.when(thread < 2)(lambda: (compute or _compute(tiles))(thread, *refs))
        pl.when(thread == 2)(lambda: _bring_tiles(x_gmem, x_smem, produced, consumed))

    scratch = dict(
        x_smem=plgpu.SMEM((SLOTS, 64, 128), x.dtype),
        produced=plgpu.Barrier(num_barriers=SLOTS, num_arrivals=produced),
        consumed=plgpu.Barrier(num_barriers=SLOTS, num_arrivals=consumed),
    )
    out_type = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    options = dict(scratch_types=scratch, num_threads=3, thread_name="thread")
    return plgpu.kernel(kernel, out_type=out_type, **options)(x)


def _compute(tiles, *, rows=lambda thread: pl.ds(thread * 32, 32), registers=232, who=None):
    def compute(thread, y_gmem, x_smem, produced, consumed):
        plgpu.set_max_registers(registers, action="increase")
        mine = rows(thread)

        def step(ti, total):
            slot = jax.lax.rem(ti, SLOTS)
            plgpu.barrier_wait(produced.at[slot])
            total = total + jnp.exp(x_smem[slot, mine])
            plgpu.commit_smem()
            if who is None:
                plgpu.barrier_arrive(consumed.at[slot])
            else:
                pl.when(thread == who)(lambda: plgpu.barrier_arrive(consumed.at[slot]))
            return total

        y_gmem[mine] = jax.lax.fori_loop(0, tiles, step, jnp.zeros((32, 128), jnp.float32))

    return compute


def one_arrival(x):
    """consumed as in the example: the first of the two frees the slot."""
    return _run(x, consumed=1)


def one_of_them_tells(x):
    """Thread 0 frees the slot for both."""
    return _run(x, _compute(x.shape[0] // 64, who=0), consumed=1)


def two_arrivals_of_a_copy(x):
    """Two who wait, so two arrivals, on produced."""
    return _run(x, produced=2)


def three_arrivals(x):
    """Counts the memory thread, too."""
    return _run(x, consumed=3)


def same_rows(x):
    """Both take rows 0 to 31."""
    return _run(x, _compute(x.shape[0] // 64, rows=lambda thread: pl.ds(0, 32)))


def every_other_tile(x):
    """Each takes every second tile, whole, and so waits for half of the completions."""
    tiles = x.shape[0] // 64

    def compute(thread, y_gmem, x_smem, produced, consumed):
        plgpu.set_max_registers(232, action="increase")

        def step(ti, total):
            slot = jax.lax.rem(ti, SLOTS)

            @pl.when(jax.lax.rem(ti, 2) == thread)
            def _():
                plgpu.barrier_wait(produced.at[slot])
                plgpu.barrier_arrive(consumed.at[slot])

            return total

        rows = pl.ds(thread * 32, 32)
        y_gmem[rows] = jax.lax.fori_loop(0, tiles, step, jnp.zeros((32, 128), jnp.float32))

    return _run(x, compute, consumed=1)


def too_many_registers(x):
    """256 for each of the two: with the memory thread's 40 that is more than there is."""
    return _run(x, _compute(x.shape[0] // 64, registers=256))


def forgets_to_wait(x):
    """Reads without looking whether the tile has come."""
    tiles = x.shape[0] // 64

    def compute(thread, y_gmem, x_smem, produced, consumed):
        plgpu.set_max_registers(232, action="increase")
        rows = pl.ds(thread * 32, 32)

        def step(ti, total):
            slot = jax.lax.rem(ti, SLOTS)
            total = total + jnp.exp(x_smem[slot, rows])
            plgpu.commit_smem()
            plgpu.barrier_arrive(consumed.at[slot])
            return total

        y_gmem[rows] = jax.lax.fori_loop(0, tiles, step, jnp.zeros((32, 128), jnp.float32))

    return _run(x, compute)


def keeps_its_registers(x):
    """Right, but for set_max_registers."""
    tiles = x.shape[0] // 64

    def compute(thread, y_gmem, x_smem, produced, consumed):
        rows = pl.ds(thread * 32, 32)

        def step(ti, total):
            slot = jax.lax.rem(ti, SLOTS)
            plgpu.barrier_wait(produced.at[slot])
            total = total + jnp.exp(x_smem[slot, rows])
            plgpu.commit_smem()
            plgpu.barrier_arrive(consumed.at[slot])
            return total

        y_gmem[rows] = jax.lax.fori_loop(0, tiles, step, jnp.zeros((32, 128), jnp.float32))

    return _run(x, compute)


WRONG = {
    "one arrival": Wrong(one_arrival, "barrier-overrun", ("consumed[0] can complete phase 2",)),
    "one of them tells": Wrong(one_of_them_tells, "race", ("x_smem[0", "thread 1 reads")),
    "two arrivals of a copy": Wrong(
        two_arrivals_of_a_copy, "deadlock", ("1 of 2 arrivals", "produced[0]")
    ),
    "three arrivals": Wrong(three_arrivals, "deadlock", ("2 of 3 arrivals", "consumed[0]")),
    "same rows": Wrong(same_rows, "race", ("y_gmem[0:32",)),
    "every other tile": Wrong(
        every_other_tile, "barrier-overrun", ("consumed[1]", "two_compute_threads.py")
    ),
    "too many registers": Wrong(too_many_registers, "deadlock", ("registers", "512")),
    "forgets to wait": Wrong(forgets_to_wait, "read-before-arrival", ("x_smem[0",)),
    "keeps its registers": Wrong(
        keeps_its_registers, "means", ("plgpu.set_max_registers", "at least twice")
    ),
}
