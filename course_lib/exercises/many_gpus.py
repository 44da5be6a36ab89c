"""The exercises of chapter 13: semaphores between blocks and devices, and what they order."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import many_gpus as kernels

Array = kernels.Array


def _total(x: Array) -> Array:
    return np.exp(x.astype(np.float64)).sum(0).astype(x.dtype)


def _pass_left(x: Array, *, devices: int) -> Array:
    return np.roll(x * 2, -(x.shape[0] // devices), axis=0)


def _neighbours(x: Array, *, devices: int) -> Array:
    rows = x.shape[0] // devices
    wide = x.astype(np.float64)
    return (np.roll(wide, rows, axis=0) + np.roll(wide, -rows, axis=0)).astype(x.dtype)


def _gather(x: Array, *, devices: int) -> Array:
    return kernels.all_gather_reference(x, devices=devices).reshape(-1, x.shape[1])


def _fetch(x: Array, *, devices: int) -> Array:
    return kernels.fetch_reference(x, devices=devices)


def _cases(*sizes: tuple[int, int]) -> tuple[Case, ...]:
    """For (devices, rows a device)."""
    return tuple(Case((Spec((d * rows, 128)),), {"devices": d}) for d, rows in sizes)


register(
    Exercise(
        id="many_gpus.total",
        function="total",
        title="Wait for all blocks",
        statement=(
            "Return the sum of exp(x[b]) over b. Block b puts exp(x[b]) into parts_gmem[b]; the "
            "last block waits until all have done so, adds the parts, and writes y_gmem. At the "
            "end the semaphore is at 0 again."
        ),
        signature="total(x: float32[blocks, n]) -> float32[n], n a multiple of 128",
        lines=10,
        reference=_total,
        cases=(Case((Spec((4, 128)),)), Case((Spec((7, 256)),)), Case((Spec((1, 128)),))),
        hints=(
            "A semaphore of the scratch belongs to one block. Which one do all blocks share? And "
            "how many signals does the last block wait for?",
            "done = pl.get_global(plgpu.SemaphoreType.REGULAR). Every block signals once, after "
            "its store; the last waits for value=blocks, which also takes them off.",
            "done = pl.get_global(plgpu.SemaphoreType.REGULAR)\n"
            "parts_gmem[block] = jnp.exp(x_gmem[block])\n"
            "pl.semaphore_signal(done)\n"
            "@pl.when(block == blocks - 1)\n"
            "def last():\n"
            "    pl.semaphore_wait(done, value=blocks)\n"
            "    ... add parts_gmem[b] for b in range(blocks), and store to y_gmem",
        ),
        requires={"get_global": 1, "semaphore_signal": 1, "semaphore_wait": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="many_gpus.pass_left",
        function="pass_left",
        title="Hand it to the device before",
        statement=(
            "Each device writes 2 * x into y_gmem of the device before it (device 0: of the last "
            "one), and ends when its own y_gmem is complete. For any number of devices."
        ),
        signature="pass_left(x: float32[devices * m, 128], *, devices: int) -> the same shape",
        lines=4,
        reference=_pass_left,
        cases=_cases((2, 64), (4, 8), (3, 16)),
        hints=(
            "It is rotate, in the other direction. Which number has the device before? Mind "
            "device 0: there is no device -1.",
            "before = jax.lax.rem(me + devices - 1, devices). Store through "
            "plgpu.remote_ref(y_gmem, before), then signal that device, then wait.",
            "before = jax.lax.rem(me + devices - 1, devices)\n"
            "plgpu.remote_ref(y_gmem, before)[...] = x_gmem[...] * 2\n"
            "pl.semaphore_signal(done, device_id=before)\n"
            "... and wait for the signal of the device behind you",
        ),
        requires={"semaphore_signal": 1, "semaphore_wait": 1},
    )
)

register(
    Exercise(
        id="many_gpus.neighbours",
        function="neighbours",
        title="Two messages",
        statement=(
            "Return x of the device before plus x of the device after, in a circle. Each device "
            "sends its x to both: inbox_gmem[0] is for what comes from before, inbox_gmem[1] for "
            "what comes from after."
        ),
        signature="neighbours(x: float32[devices * m, 128], *, devices: int) -> the same shape",
        lines=6,
        reference=_neighbours,
        cases=_cases((4, 8), (2, 16), (3, 8)),
        hints=(
            "To the device after you, you are the one before: so your x goes into its inbox[0]. "
            "How many signals does everybody get?",
            "Two stores, each followed by a signal to the device that it went to. Then one wait "
            "with value=2, and the sum.",
            "for place, step in ((0, 1), (1, devices - 1)):\n"
            "    other = jax.lax.rem(me + step, devices)\n"
            "    plgpu.remote_ref(inbox_gmem, other)[place] = x_gmem[...]\n"
            "    pl.semaphore_signal(done, device_id=other)\n"
            "pl.semaphore_wait(done, value=2)\n"
            "... and y_gmem is the sum of the two",
        ),
        requires={"semaphore_signal": 2, "semaphore_wait": 1},
        rtol=1e-5,
        atol=1e-5,
    )
)

register(
    Exercise(
        id="many_gpus.gather",
        function="gather",
        title="A ring all-gather",
        statement=(
            "Every device ends up with the shards of all: y_gmem[d] is the x of device d. Each "
            "device talks to the next one only, and in each step hands on the shard that it got "
            "in the step before. done has a semaphore for each step."
        ),
        signature=(
            "gather(x: float32[devices * m, 128], *, devices: int) -> float32[devices * devices * "
            "m, 128]"
        ),
        lines=6,
        reference=_gather,
        cases=_cases((2, 16), (4, 8), (3, 8), (8, 8)),
        hints=(
            "In step 0 you have your own shard. In step s you have that of the device s places "
            "back. Which shard do you send in step s, and when may you?",
            "In step s send shard = rem(me + devices - s, devices), signal the next device's "
            "done.at[s], and wait for your own done.at[s]. There are devices - 1 steps.",
            "y_gmem[me] = x_gmem[...]\n"
            "for s in range(devices - 1):\n"
            "    shard = jax.lax.rem(me + devices - s, devices)\n"
            "    plgpu.remote_ref(y_gmem, after)[shard] = y_gmem[shard]\n"
            "    pl.semaphore_signal(done.at[s], device_id=after)\n"
            "    ... wait for the same step of the device before",
        ),
        requires={"semaphore_signal": 1, "semaphore_wait": 1},
    )
)

register(
    Exercise(
        id="many_gpus.fetch",
        function="fetch",
        title="Read from the next device",
        statement=(
            "Each device computes 2 * x into twice_gmem. Then it reads twice_gmem of the next "
            "device and writes that to y_gmem. Nobody reads too early, and nobody ends while "
            "somebody still reads from it."
        ),
        signature="fetch(x: float32[devices * m, 128], *, devices: int) -> the same shape",
        lines=7,
        reference=_fetch,
        cases=_cases((2, 16), (4, 8), (3, 8)),
        hints=(
            "Two messages, in opposite directions. Who has to know that your twice_gmem is "
            "there? And who has to know that you have read theirs?",
            "The device before reads from you: signal `there` to it, and `read` to the one after, "
            "from whom you read. Wait for `there` before reading, for `read` before ending.",
            "twice_gmem[...] = x_gmem[...] * 2\n"
            "pl.semaphore_signal(there, device_id=before)\n"
            "pl.semaphore_wait(there)\n"
            "y_gmem[...] = plgpu.remote_ref(twice_gmem, after)[...]\n"
            "pl.semaphore_signal(read, device_id=after)\n"
            "... and one more wait",
        ),
        requires={"semaphore_signal": 2, "semaphore_wait": 2},
    )
)
