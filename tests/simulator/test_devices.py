"""Kernels on several devices, and what JAX can put around them."""

from __future__ import annotations

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as Spec

from course_lib.simulator import devices, simulate

F32 = jnp.float32
SCHEDULES = ["in_order", "adversarial", 0, 1, 2]
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
N = 4


def rotate(x):
    """Each device hands its shard to the next one; a kernel of four devices."""

    def body(x_ref, y_ref, sem):
        following = lax.rem(lax.axis_index("x") + 1, N)
        plgpu.remote_ref(y_ref, following)[...] = x_ref[...] * 2
        pl.semaphore_signal(sem, device_id=following)
        pl.semaphore_wait(sem)

    return plgpu.kernel(body, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)


def on_devices(f):
    return jax.shard_map(
        f, mesh=devices(N), in_specs=Spec("x"), out_specs=Spec("x"), check_vma=False
    )


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


def rotated(x: np.ndarray, times: int = 1) -> np.ndarray:
    return np.roll(x, times, axis=0) * 2**times


AROUND = {
    "jit": (jax.jit(rotate), rotated),
    "arithmetic": (lambda x: jnp.sin(rotate(x + 1)) - 1, lambda x: np.sin(rotated(x + 1)) - 1),
    "scan": (lambda x: lax.scan(lambda c, _: (rotate(c), c), x, length=3)[0],
             lambda x: rotated(x, 3)),
    "fori_loop": (lambda x: lax.fori_loop(0, 2, lambda i, c: rotate(c) + i, x),
                  lambda x: rotated(rotated(x)) + 1),
    "while_loop": (lambda x: lax.while_loop(lambda c: c[0] < 2,
                                            lambda c: (c[0] + 1, rotate(c[1])), (0, x))[1],
                   lambda x: rotated(x, 2)),
    "cond": (lambda x: lax.cond(lax.psum(1, "x") > 3, rotate, lambda v: v, x), rotated),
    "switch": (lambda x: lax.switch(jnp.int32(1), [lambda v: v, rotate], x), rotated),
    "vmap": (lambda x: jax.vmap(rotate, in_axes=1, out_axes=1)(x.reshape(1, 2, 64)).reshape(1, 128),
             rotated),
    "remat": (jax.checkpoint(rotate), rotated),
    "ppermute": (lambda x: lax.ppermute(rotate(x), "x", [(i, (i - 1) % N) for i in range(N)]),
                 lambda x: x * 2),
    "psum": (lambda x: rotate(x) + lax.psum(x, "x"), lambda x: rotated(x) + x.sum(0)),
    "pmax": (lambda x: rotate(x) + lax.pmax(x, "x"), lambda x: rotated(x) + x.max(0)),
    "all_gather": (lambda x: rotate(x) + lax.all_gather(x, "x")[2], lambda x: rotated(x) + x[2]),
    "psum_scatter": (lambda x: rotate(x) + jnp.tile(lax.psum_scatter(x[0], "x", tiled=True), N),
                     lambda x: rotated(x) + np.tile(x.sum(0).reshape(N, -1), (1, N))),
    "all_to_all": (lambda x: rotate(x) + lax.all_to_all(
                       x.reshape(N, 32), "x", 0, 0, tiled=True).reshape(1, 128),
                   lambda x: rotated(x) + x.reshape(N, N, 32).swapaxes(0, 1).reshape(N, 128)),
    "axis_index in a loop": (lambda x: rotate(lax.fori_loop(
                                 0, 3, lambda i, c: c + lax.axis_index("x"), x)),
                             lambda x: rotated(x + 3 * np.arange(N)[:, None])),
}  # fmt: skip


@schedules
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_a_kernel_of_many_devices(name: str, schedule) -> None:
    f, reference = AROUND[name]
    x = normal(N, 128)
    report = simulate(on_devices(f), x, schedule=schedule)
    assert not report.findings, report
    np.testing.assert_allclose(report.value, reference(x), rtol=1e-5, atol=1e-5)


@schedules
def test_refs_of_the_host_on_each_device(schedule) -> None:
    """A pl.run_state around a kernel: every device has a ref of its own."""

    def f(x):
        def start(ref):
            def body():
                ref[...] = ref[...] + lax.axis_index("x")

            plgpu.kernel(body)()
            plgpu.kernel(body)()

        return pl.run_state(start)(x)

    x = normal(N, 128)
    report = simulate(on_devices(f), x, schedule=schedule)
    assert not report.findings, report
    np.testing.assert_allclose(report.value, x + 2 * np.arange(N)[:, None], rtol=1e-6)


def test_two_axes_of_devices() -> None:
    mesh = jax.sharding.AbstractMesh(
        (2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )

    def swap(x):
        def body(x_ref, y_ref, sem):
            there = {"a": lax.axis_index("a"), "b": 1 - lax.axis_index("b")}
            plgpu.remote_ref(y_ref, there)[...] = x_ref[...]
            pl.semaphore_signal(sem, device_id=there)
            pl.semaphore_wait(sem)

        y = plgpu.kernel(body, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)
        return lax.psum(y, "a")

    f = jax.shard_map(
        swap, mesh=mesh, in_specs=Spec(("a", "b")), out_specs=Spec("b"), check_vma=False
    )
    x = normal(4, 128)
    report = simulate(f, x)
    assert not report.findings, report
    np.testing.assert_allclose(report.value, (x[:2] + x[2:])[::-1], rtol=1e-5)


def test_devices_that_take_different_ways_say_so() -> None:
    f = on_devices(lambda x: lax.cond(lax.axis_index("x") > 1, rotate, lambda v: v, x))
    report = simulate(f, normal(N, 128))
    assert [e.rule for e in report.errors] == ["unsupported"]
    assert "different ways on different devices" in report.errors[0].what
    assert report.value is None


def passed_on(*, wait: bool = True, signal_first: bool = False, to: int | None = None):
    """Each device stores into the next one's output, and the three ways to get that wrong."""

    def f(x):
        def body(x_ref, y_ref, sem):
            following = lax.rem(lax.axis_index("x") + 1, N)
            target = following if to is None else lax.axis_index("x")
            if signal_first:
                pl.semaphore_signal(sem, device_id=target)
            plgpu.remote_ref(y_ref, following)[...] = x_ref[...]
            if not signal_first:
                pl.semaphore_signal(sem, device_id=target)
            if wait:
                pl.semaphore_wait(sem)

        return plgpu.kernel(body, out_type=x, scratch_types=[plgpu.SemaphoreType.REGULAR])(x)

    return on_devices(f)


@schedules
@pytest.mark.parametrize("wrong", [{"wait": False}, {"signal_first": True}, {"to": 0}])
def test_a_device_may_not_end_before_others_have_written_to_it(wrong, schedule) -> None:
    x = normal(N, 128)
    report = simulate(passed_on(**wrong), x, schedule=schedule)
    assert {e.rule for e in report.errors} == {"data-race"}
    assert "can end on device" in report.errors[0].what
    assert "still writes its y_ref" in report.errors[0].what
    assert not simulate(passed_on(), x, schedule=schedule).findings


@schedules
@pytest.mark.parametrize("right", [False, True])
def test_a_device_may_not_end_while_others_read_from_it(right, schedule) -> None:
    def f(x):
        def body(x_ref, y_ref, twice_ref, there, read):
            me = lax.axis_index("x")
            following, before = lax.rem(me + 1, N), lax.rem(me + N - 1, N)
            twice_ref[...] = x_ref[...] * 2
            pl.semaphore_signal(there, device_id=before)
            pl.semaphore_wait(there)
            y_ref[...] = plgpu.remote_ref(twice_ref, following)[...]
            if right:
                pl.semaphore_signal(read, device_id=following)
                pl.semaphore_wait(read)

        semaphore = plgpu.SemaphoreType.REGULAR
        return plgpu.kernel(body, out_type=(x, x), scratch_types=[semaphore, semaphore])(x)[0]

    report = simulate(on_devices(f), normal(N, 128), schedule=schedule)
    assert [e.rule for e in report.errors] == ([] if right else ["data-race"])
    assert right or "still reads its twice_ref" in report.errors[0].what


@schedules
@pytest.mark.parametrize("places", [1, 3])
def test_a_place_that_is_used_again_needs_a_signal_back(places, schedule) -> None:
    """A sum around the ring; a fast device signals twice before the next one has read once."""

    def f(x):
        def body(x_ref, y_ref, sums, arrived):
            following = lax.rem(lax.axis_index("x") + 1, N)
            total = x_ref[...]
            for step in range(3):
                place = step % places
                plgpu.remote_ref(sums, following)[place] = total
                pl.semaphore_signal(arrived, device_id=following)
                pl.semaphore_wait(arrived)
                total = total + sums[place]
            y_ref[...] = total

        sums = jax.ShapeDtypeStruct((places, *x.shape), x.dtype)
        semaphore = plgpu.SemaphoreType.REGULAR
        return plgpu.kernel(body, out_type=(x, sums), scratch_types=[semaphore])(x)[0]

    report = simulate(on_devices(f), normal(N, 128), schedule=schedule)
    assert {e.rule for e in report.errors} == ({"data-race"} if places == 1 else set())


@schedules
@pytest.mark.parametrize("value", [1, 2])
def test_a_count_does_not_say_who_signalled(value, schedule) -> None:
    def f(x):
        def body(x_ref, y_ref, inbox, done):
            for place, step in ((0, 1), (1, N - 1)):
                other = lax.rem(lax.axis_index("x") + step, N)
                plgpu.remote_ref(inbox, other)[place] = x_ref[...]
                pl.semaphore_signal(done, device_id=other)
            pl.semaphore_wait(done, value=value)
            y_ref[...] = inbox[0] + inbox[1]

        inbox = jax.ShapeDtypeStruct((2, *x.shape), x.dtype)
        semaphore = plgpu.SemaphoreType.REGULAR
        return plgpu.kernel(body, out_type=(x, inbox), scratch_types=[semaphore])(x)[0]

    report = simulate(on_devices(f), normal(N, 128), schedule=schedule)
    assert ("data-race" in {e.rule for e in report.errors}) is (value == 1)
    assert value == 1 or not report.findings
