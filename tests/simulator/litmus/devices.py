"""Several devices: memory and semaphores of others."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
from jax import lax

from course_lib.simulator import devices
from tests.simulator.litmus.pair import Pair

REGULAR = plgpu.SemaphoreType.REGULAR
N = 3


def _on_devices(shard, x):
    spec = jax.sharding.PartitionSpec("x")
    return jax.shard_map(shard, mesh=devices(N), in_specs=spec, out_specs=spec, check_vma=False)(x)


def _following():
    return lax.rem(lax.axis_index("x") + 1, N)


def _pass_on(x, *, wait):
    """Each device stores into the next one's output, and says so."""

    def body(x_ref, o_ref, came):
        plgpu.remote_ref(o_ref, _following())[...] = x_ref[...]
        pl.semaphore_signal(came, device_id=_following())
        if wait:
            pl.semaphore_wait(came)

    return _on_devices(lambda x: plgpu.kernel(body, out_type=x, scratch_types=[REGULAR])(x), x)


def _fetch(x, *, answer):
    """Each device reads from the next one, which may end only then."""

    def body(x_ref, o_ref, twice_ref, there, read):
        me = lax.axis_index("x")
        before = lax.rem(me + N - 1, N)
        twice_ref[...] = x_ref[...] * 2
        pl.semaphore_signal(there, device_id=before)
        pl.semaphore_wait(there)
        o_ref[...] = plgpu.remote_ref(twice_ref, _following())[...]
        if answer:
            pl.semaphore_signal(read, device_id=_following())
            pl.semaphore_wait(read)

    return _on_devices(
        lambda x: plgpu.kernel(body, out_type=(x, x), scratch_types=[REGULAR, REGULAR])(x)[0], x
    )  # fmt: skip


def _around(x, *, places):
    """A sum around the ring, through one place that is used again, or a place for each step."""

    def body(x_ref, o_ref, sums, came):
        total = x_ref[...]
        for step in range(N - 1):
            place = step % places
            plgpu.remote_ref(sums, _following())[place] = total
            pl.semaphore_signal(came, device_id=_following())
            pl.semaphore_wait(came)
            total = x_ref[...] + sums[place]
        o_ref[...] = total

    def shard(x):
        sums = jax.ShapeDtypeStruct((places, *x.shape), x.dtype)
        return plgpu.kernel(body, out_type=(x, sums), scratch_types=[REGULAR])(x)[0]

    return _on_devices(shard, x)


def _to_the_right_one(x, *, following):
    """Each device signals the next one, or device 0, and waits for a signal."""

    def body(x_ref, o_ref, sem):
        pl.semaphore_signal(sem, device_id=_following() if following else 0)
        pl.semaphore_wait(sem)
        o_ref[...] = x_ref[...]

    return _on_devices(lambda x: plgpu.kernel(body, out_type=x, scratch_types=[REGULAR])(x), x)


P = functools.partial
ROWS = (((N, 128), "float32"),)


def _shifted(x, steps):
    return x[[(i + steps) % N for i in range(N)]]


PAIRS = [
    Pair("data-race", P(_pass_on, wait=False), P(_pass_on, wait=True), ROWS,
         ("can end on device", "still writes its o_ref", "pl.semaphore_wait"),
         name="devices, ends before it is written", reference=lambda x: _shifted(x, -1)),
    Pair("data-race", P(_fetch, answer=False), P(_fetch, answer=True), ROWS,
         ("can end on device", "still reads its twice_ref"),
         name="devices, ends while it is read", reference=lambda x: 2 * _shifted(x, 1)),
    Pair("data-race", P(_around, places=1), P(_around, places=N - 1), ROWS,
         ("semaphore_signal",), name="devices, a place used again",
         reference=lambda x: x.sum(0, keepdims=True).repeat(N, 0)),
    Pair("deadlock", P(_to_the_right_one, following=False), P(_to_the_right_one, following=True),
         ROWS, ("2 threads wait", "device 1", "the right device_id"), name="devices",
         reference=lambda x: x),
]  # fmt: skip
