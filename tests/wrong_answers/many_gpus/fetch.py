"""Wrong answers to many_gpus.fetch."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels.many_gpus import AXIS, on_devices
from tests.wrong_answers import Wrong


def _fetch(x, devices, *, there=True, read=True, to_before=True, back_to=1):
    """The solution, with one part of it replaced."""

    def kernel(x_gmem, y_gmem, twice_gmem, there_semaphore, read_semaphore):
        me = jax.lax.axis_index(AXIS)
        after, before = (jax.lax.rem(me + s, devices) for s in (1, devices - 1))
        twice_gmem[...] = x_gmem[...] * 2
        pl.semaphore_signal(there_semaphore, device_id=before if to_before else after)
        if there:
            pl.semaphore_wait(there_semaphore)
        y_gmem[...] = plgpu.remote_ref(twice_gmem, after)[...]
        if back_to is not None:
            pl.semaphore_signal(read_semaphore, device_id=jax.lax.rem(me + back_to, devices))
        if not there:
            pl.semaphore_wait(there_semaphore)
        if read:
            pl.semaphore_wait(read_semaphore)

    def one_device(x):
        semaphore = plgpu.SemaphoreType.REGULAR
        scratch = [semaphore, semaphore]
        return plgpu.kernel(kernel, out_type=(x, x), scratch_types=scratch)(x)[0]

    return on_devices(one_device, devices)(x)


def reads_at_once(x, *, devices):
    """Reads before the other device has computed anything."""
    return _fetch(x, devices, there=False)


def ends_at_once(x, *, devices):
    """Nobody waits for the reader."""
    return _fetch(x, devices, read=False)


def tells_the_wrong_one(x, *, devices):
    """Tells the device after that it is there; the one before reads."""
    return _fetch(x, devices, to_before=False)


def thanks_the_wrong_one(x, *, devices):
    """Tells the device before that it has read; it read from the one after."""
    return _fetch(x, devices, back_to=devices - 1)


def no_thanks(x, *, devices):
    """Nobody says that it has read, and everybody waits for that."""
    return _fetch(x, devices, back_to=None)


WRONG = {
    "no thanks": Wrong(no_thanks, "deadlock", ("wait for ever",)),
    "reads at once": Wrong(reads_at_once, "race", ("device 0 reads twice_gmem", "device 1 writes")),
    "ends at once": Wrong(ends_at_once, "race", ("still reads its twice_gmem",)),
    "tells the wrong one": Wrong(tells_the_wrong_one, "race", ("Two devices touch twice_gmem",)),
    "thanks the wrong one": Wrong(
        thanks_the_wrong_one, "race", ("devices=4", "still reads its twice_gmem")
    ),
}
