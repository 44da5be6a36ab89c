"""Wrong answers to many_gpus.pass_left."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels.many_gpus import AXIS, on_devices
from tests.wrong_answers import Wrong


def _pass(x, devices, body):
    """The notebook's frame: `body(me, x_gmem, y_gmem, done)`."""

    def kernel(x_gmem, y_gmem, done):
        body(jax.lax.axis_index(AXIS), x_gmem, y_gmem, done)

    def one_device(x):
        return plgpu.kernel(kernel, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)

    return on_devices(one_device, devices)(x)


def to_the_right(x, *, devices):
    """The other direction."""

    def body(me, x_gmem, y_gmem, done):
        after = jax.lax.rem(me + 1, devices)
        plgpu.remote_ref(y_gmem, after)[...] = x_gmem[...] * 2
        pl.semaphore_signal(done, device_id=after)
        pl.semaphore_wait(done)

    return _pass(x, devices, body)


def signals_itself(x, *, devices):
    """Forgets device_id: it wakes itself."""

    def body(me, x_gmem, y_gmem, done):
        before = jax.lax.rem(me + devices - 1, devices)
        plgpu.remote_ref(y_gmem, before)[...] = x_gmem[...] * 2
        pl.semaphore_signal(done)
        pl.semaphore_wait(done)

    return _pass(x, devices, body)


def signals_too_early(x, *, devices):
    """Signals before it writes."""

    def body(me, x_gmem, y_gmem, done):
        before = jax.lax.rem(me + devices - 1, devices)
        pl.semaphore_signal(done, device_id=before)
        plgpu.remote_ref(y_gmem, before)[...] = x_gmem[...] * 2
        pl.semaphore_wait(done)

    return _pass(x, devices, body)


def signals_the_other(x, *, devices):
    """Writes to the device before, and tells the device after."""

    def body(me, x_gmem, y_gmem, done):
        before, after = (jax.lax.rem(me + step, devices) for step in (devices - 1, 1))
        plgpu.remote_ref(y_gmem, before)[...] = x_gmem[...] * 2
        pl.semaphore_signal(done, device_id=after)
        pl.semaphore_wait(done)

    return _pass(x, devices, body)


def waits_first(x, *, devices):
    """Everybody waits before anybody signals."""

    def body(me, x_gmem, y_gmem, done):
        before = jax.lax.rem(me + devices - 1, devices)
        plgpu.remote_ref(y_gmem, before)[...] = x_gmem[...] * 2
        pl.semaphore_wait(done)
        pl.semaphore_signal(done, device_id=before)

    return _pass(x, devices, body)


WRONG = {
    # on two devices left and right are the same: the second case tells
    "to the right": Wrong(to_the_right, "value", ("devices=4", "moved up by 16 rows")),
    "signals itself": Wrong(signals_itself, "race", ("can end on device 0", "writes its y_gmem")),
    "signals too early": Wrong(
        signals_too_early, "race", ("can end on device 0", "device 1 writes")
    ),
    "signals the other": Wrong(signals_the_other, "race", ("devices=4", "writes its y_gmem")),
    "waits first": Wrong(waits_first, "deadlock", ("2 threads wait for ever", "done is at 0")),
}
