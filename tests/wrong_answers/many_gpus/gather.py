"""Wrong answers to many_gpus.gather."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels.many_gpus import AXIS, on_devices
from tests.wrong_answers import Wrong


def _gather(x, devices, *, shard=None, steps=None, wait=True, own=True, signal_step=None):
    """The solution, with one part of it replaced."""

    def kernel(x_gmem, y_gmem, done):
        me = jax.lax.axis_index(AXIS)
        after = jax.lax.rem(me + 1, devices)
        if own:
            y_gmem[me] = x_gmem[...]
        for s in range(devices - 1 if steps is None else steps):
            which = (shard or (lambda me, s: jax.lax.rem(me + devices - s, devices)))(me, s)
            source = x_gmem[...] if not own and s == 0 else y_gmem[which]
            plgpu.remote_ref(y_gmem, after)[which] = source
            pl.semaphore_signal(done.at[signal_step(s) if signal_step else s], device_id=after)
            if wait:
                pl.semaphore_wait(done.at[s])
        if not wait:
            for s in range(devices - 1):
                pl.semaphore_wait(done.at[s])

    def one_device(x):
        out = jax.ShapeDtypeStruct((devices, *x.shape), x.dtype)
        semaphores = plgpu.SemaphoreType.REGULAR((devices - 1,))
        y = plgpu.kernel(kernel, out_type=out, scratch_types=[semaphores])(x)
        return y.reshape(-1, x.shape[1])

    return on_devices(one_device, devices)(x)


def waits_at_the_end(x, *, devices):
    """Hands shards on before they are there."""
    return _gather(x, devices, wait=False)


def always_its_own(x, *, devices):
    """Sends its own shard in each step."""
    return _gather(x, devices, shard=lambda me, s: me)


def forgets_its_own(x, *, devices):
    """Sends its shard and does not keep it."""
    return _gather(x, devices, own=False)


def one_step_less(x, *, devices):
    """devices - 2 steps."""
    return _gather(x, devices, steps=devices - 2)


def the_step_after(x, *, devices):
    """Signals the semaphore of the last step every time."""
    return _gather(x, devices, signal_step=lambda s: devices - 2)


WRONG = {
    "waits at the end": Wrong(waits_at_the_end, "race", ("device 1 reads y_gmem[0",)),
    "always its own": Wrong(always_its_own, "nan", ("devices=4", "Nobody writes 2048")),
    "forgets its own": Wrong(forgets_its_own, "nan", ("Nobody writes 2048",)),
    "one step less": Wrong(one_step_less, "nan", ("devices=2", "Nobody writes")),
    "the step after": Wrong(the_step_after, "deadlock", ("done[0] is at 0",)),
}
