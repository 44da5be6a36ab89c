"""Wrong answers to many_gpus.neighbours."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels.many_gpus import AXIS, on_devices
from tests.wrong_answers import Wrong


def _ask(x, devices, body):
    """The notebook's frame."""

    def kernel(x_gmem, y_gmem, inbox_gmem, done):
        body(jax.lax.axis_index(AXIS), x_gmem, y_gmem, inbox_gmem, done)

    def one_device(x):
        inbox = jax.ShapeDtypeStruct((2, *x.shape), x.dtype)
        semaphore = plgpu.SemaphoreType.REGULAR
        return plgpu.kernel(kernel, out_type=(x, inbox), scratch_types=[semaphore])(x)[0]

    return on_devices(one_device, devices)(x)


def _body(devices, *, value=2, places=(0, 1), signals=(True, True)):
    def body(me, x_gmem, y_gmem, inbox_gmem, done):
        for place, step, signal in zip(places, (1, devices - 1), signals, strict=True):
            other = jax.lax.rem(me + step, devices)
            plgpu.remote_ref(inbox_gmem, other)[place] = x_gmem[...]
            if signal:
                pl.semaphore_signal(done, device_id=other)
        pl.semaphore_wait(done, value=value)
        y_gmem[...] = inbox_gmem[0] + inbox_gmem[1]

    return body


def waits_for_one(x, *, devices):
    """Two messages, and it waits for one."""
    return _ask(x, devices, _body(devices, value=1))


def one_place(x, *, devices):
    """Both go to the same place of the inbox."""
    return _ask(x, devices, _body(devices, places=(0, 0)))


def one_signal(x, *, devices):
    """Signals only one of the two, and waits for two."""
    return _ask(x, devices, _body(devices, signals=(True, False)))


def waits_for_three(x, *, devices):
    """Counts itself as well."""
    return _ask(x, devices, _body(devices, value=3))


WRONG = {
    "waits for one": Wrong(waits_for_one, "race", ("Two devices touch inbox_gmem[1",)),
    "one place": Wrong(one_place, "race", ("device 2 writes inbox_gmem[0",)),
    "one signal": Wrong(one_signal, "deadlock", ("done is at 1", "to reach 2")),
    "waits for three": Wrong(waits_for_three, "deadlock", ("done is at 2", "to reach 3")),
}
