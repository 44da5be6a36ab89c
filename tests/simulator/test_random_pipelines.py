"""Right pipelines of random shape: no finding, and the right value, whatever the schedule."""

from __future__ import annotations

import random

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from course_lib.simulator import simulate

F32 = jnp.float32


def pipeline(x, *, steps, slots, out_slots, loads, stores, consumers, break_it=None):
    """One thread fills slots, the others empty them; `break_it` leaves one thing out."""
    width = x.shape[-1]

    def produce(i, x_gmem, queue, full, empty):
        slot = lax.rem(i, slots)

        @pl.when(i >= slots)
        def _():
            if break_it != "back pressure":
                plgpu.barrier_wait(empty.at[slot])

        if loads:
            plgpu.copy_gmem_to_smem(x_gmem.at[i], queue.at[slot], full.at[slot])
        else:
            queue[slot] = x_gmem[i]
            plgpu.barrier_arrive(full.at[slot])

    def consume(i, me, o_gmem, queue, out, full, empty):
        slot = lax.rem(i, slots)
        plgpu.barrier_wait(full.at[slot])
        value = queue[slot] * (me + 1)
        plgpu.commit_smem()

        @pl.when(i + slots < steps)
        def _():
            plgpu.barrier_arrive(empty.at[slot])

        if not stores:
            o_gmem[me, i] = value
            return
        to = lax.rem(i, out_slots)
        if break_it != "store wait":
            plgpu.wait_smem_to_gmem(out_slots - 1, wait_read_only=True)
        out[me, to] = value
        if break_it != "fence":
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(out.at[me, to], o_gmem.at[me, i])

    def body(x_gmem, o_gmem, queue, out, full, empty):
        thread = lax.axis_index("t")

        @pl.when(thread == 0)
        def _():
            def step(i, _):
                produce(i, x_gmem, queue, full, empty)

            lax.fori_loop(0, steps, step, None)

        @pl.when(thread > 0)
        def _():
            def step(i, _):
                consume(i, thread - 1, o_gmem, queue, out, full, empty)

            lax.fori_loop(0, steps, step, None)
            plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((consumers, steps, width), F32),
        num_threads=consumers + 1,
        thread_name="t",
        scratch_types=[
            plgpu.SMEM((slots, width), F32),
            plgpu.SMEM((consumers, out_slots, width), F32),
            plgpu.Barrier(num_barriers=slots),
            plgpu.Barrier(num_barriers=slots, num_arrivals=consumers),
        ],
    )(x)


def draw(seed: int) -> dict:
    rng = random.Random(seed)
    return {
        "steps": rng.randint(3, 9),
        "slots": rng.randint(1, 3),
        "out_slots": rng.randint(1, 3),
        "loads": rng.random() < 0.5,
        "stores": rng.random() < 0.5,
        "consumers": rng.randint(1, 3),
    }


@pytest.mark.parametrize("seed", range(12))
def test_right_pipelines(seed: int) -> None:
    shape = draw(seed)
    x = np.random.default_rng().standard_normal((shape["steps"], 32)).astype(np.float32)
    want = np.stack([x * (c + 1) for c in range(shape["consumers"])])
    for schedule in ("in_order", "adversarial", *range(8)):
        report = simulate(lambda x: pipeline(x, **shape), x, schedule=schedule)
        assert not report.findings, (shape, schedule, report)
        np.testing.assert_allclose(report.value, want, rtol=1e-6)


BROKEN = {
    "back pressure": {"barrier-overrun", "data-race", "barrier-skipped-phase"},
    "store wait": {"store-source-overwritten"},
    "fence": {"missing-commit-smem"},
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("seed", range(4))
def test_broken_pipelines(what: str, seed: int) -> None:
    shape = draw(seed) | {"stores": True, "slots": 2, "out_slots": 2, "steps": 8}
    x = np.random.default_rng().standard_normal((8, 32)).astype(np.float32)
    for schedule in ("in_order", "adversarial", seed):
        report = simulate(lambda x: pipeline(x, **shape, break_it=what), x, schedule=schedule)
        assert BROKEN[what] & {f.rule for f in report.findings}, (shape, schedule, report)
