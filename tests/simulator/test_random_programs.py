"""Programs at random: right ones are left in peace whatever the schedule, broken ones are caught.

Each seed draws a shape (how many stages, how deep the rings, who copies how) and fresh data.
A right program is run under 22 schedules. Then one thing after the other is left out of it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from course_lib.simulator import simulate

F16, F32 = jnp.float16, jnp.float32
SCHEDULES = ("in_order", "adversarial", *range(20))
WIDTH = 32


def seeds(quick: int, slow: int) -> Any:
    """Some seeds for every run, more for the slow tests."""
    many = [pytest.param(s, marks=pytest.mark.slow) for s in range(quick, slow)]
    return pytest.mark.parametrize("seed", [*range(quick), *many])


def is_clean(f: Callable[..., Any], args: Any, want: np.ndarray, what: Any) -> None:
    for schedule in SCHEDULES:
        report = simulate(f, *args, schedule=schedule)
        assert not report.findings, f"{what}\n{schedule=}\n{report}"
        np.testing.assert_allclose(report.value, want, rtol=2e-3, atol=2e-3)


def is_caught(f: Callable[..., Any], args: Any, rules: set[str], what: Any, seed: int) -> None:
    for schedule in ("in_order", "adversarial", seed):
        report = simulate(f, *args, schedule=schedule, max_steps=200_000)
        found = {e.rule for e in report.errors}
        assert found & rules, f"{what}\n{schedule=}\nfound {found}\n{report}"


# A chain of threads: each takes tiles from one ring of slots and puts them into the next one.


@dataclasses.dataclass(frozen=True)
class Chain:
    """The shape of a chain.

    Attributes:
      steps: how many tiles go through it.
      slots: the depth of each ring; a thread stands between two rings, and at both ends.
      by_copy: whether the TMA engine fills the first ring.
      store: the slots of the last thread's ring for copies out, 0 for plain stores.
      early: whether a slot is given back before its value is put into the next ring.
      scoped: whether all memory is allocated in a scope inside of the kernel.
    """

    steps: int
    slots: tuple[int, ...]
    by_copy: bool
    store: int
    early: bool
    scoped: bool

    @staticmethod
    def draw(seed: int) -> Chain:
        rng = random.Random(seed)
        rings = rng.randint(1, 3)
        return Chain(
            steps=rng.randint(4, 9),
            slots=tuple(rng.randint(1, 3) for _ in range(rings)),
            by_copy=rng.random() < 0.6,
            store=rng.choice([0, 1, 2, 3]),
            early=rng.random() < 0.5,
            scoped=rng.random() < 0.3,
        )

    def breaks(self) -> dict[tuple[str, int], set[str]]:
        """What can be left out, and the rules one of which must say so."""
        order = {
            "data-race",
            "barrier-overrun",
            "barrier-skipped-phase",
            "store-source-overwritten",
        }
        order |= {"read-before-arrival", "cluster-smem-reuse", "barrier-unwaited"}
        out: dict[tuple[str, int], set[str]] = {}
        for ring, slots in enumerate(self.slots):
            filled_by_copy = ring == 0 and self.by_copy
            if self.steps > slots:
                out["back pressure", ring] = order
            out["wait", ring] = {*order, "unfinished-copy"} | {"barrier-skipped-phase", "deadlock"}
            out["arrivals", ring] = {"deadlock"}
            if not filled_by_copy:
                out["arrive first", ring] = {"data-race"}
        if self.store:
            out["fence", 0] = {"missing-commit-smem"}
            out["last wait", 0] = {"unfinished-copy"}
            if self.steps > self.store:
                out["store wait", 0] = {"store-source-overwritten"}
        return out


def run_chain(x, *, shape: Chain, broken: tuple[str, int] | None = None):
    rings = len(shape.slots)

    def skip(what: str, ring: int) -> bool:
        return broken == (what, ring)

    def put(i, ring, value, queue, full, empty, x_gmem=None):
        """Fills the next slot of a ring, by a copy if there is no value."""
        slot = lax.rem(i, shape.slots[ring])

        @pl.when(i >= shape.slots[ring])
        def _():
            if not skip("back pressure", ring):
                plgpu.barrier_wait(empty.at[slot])

        if value is None:
            plgpu.copy_gmem_to_smem(x_gmem.at[i], queue.at[slot], full.at[slot])
            return
        if skip("arrive first", ring):
            plgpu.barrier_arrive(full.at[slot])
        queue[slot] = value
        if not skip("arrive first", ring):
            plgpu.barrier_arrive(full.at[slot])

    def take(i, ring, queue, full):
        slot = lax.rem(i, shape.slots[ring])
        if not skip("wait", ring):
            plgpu.barrier_wait(full.at[slot])
        value = queue[slot]
        if ring == 0 and shape.by_copy:
            plgpu.commit_smem()
        return value

    def give_back(i, ring, empty):
        @pl.when(i + shape.slots[ring] < shape.steps)
        def _():
            plgpu.barrier_arrive(empty.at[lax.rem(i, shape.slots[ring])])

    def send(i, value, o_gmem, out_smem):
        if not shape.store:
            o_gmem[i] = value
            return
        slot = lax.rem(i, shape.store)
        if not skip("store wait", 0):
            plgpu.wait_smem_to_gmem(shape.store - 1, wait_read_only=True)
        out_smem[slot] = value
        if not skip("fence", 0):
            plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(out_smem.at[slot], o_gmem.at[i])

    def work(x_gmem, o_gmem, out_smem, *parts):
        queues, fulls, empties = (parts[k * rings : (k + 1) * rings] for k in range(3))

        def stage(t: int):
            def step(i, _):
                if t == 0:
                    value = None if shape.by_copy else x_gmem[i]
                    put(i, 0, value, queues[0], fulls[0], empties[0], x_gmem)
                    return
                ring = t - 1
                value = take(i, ring, queues[ring], fulls[ring]) * 2 + t
                if shape.early:
                    give_back(i, ring, empties[ring])
                if t < rings:
                    put(i, t, value, queues[t], fulls[t], empties[t])
                else:
                    send(i, value, o_gmem, out_smem)
                if not shape.early:
                    give_back(i, ring, empties[ring])

            lax.fori_loop(0, shape.steps, step, None)
            if t == rings and not skip("last wait", 0):
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        for t in range(rings + 1):
            pl.when(lax.axis_index("t") == t)(lambda t=t: stage(t))

    arrivals = [2 if skip("arrivals", r) else 1 for r in range(rings)]
    scratch = [
        plgpu.SMEM((max(shape.store, 1), WIDTH), F32),
        *[plgpu.SMEM((n, WIDTH), F32) for n in shape.slots],
        *[plgpu.Barrier(num_barriers=n, num_arrivals=a)
          for n, a in zip(shape.slots, arrivals, strict=True)],
        *[plgpu.Barrier(num_barriers=n) for n in shape.slots],
    ]  # fmt: skip

    def scoped(x_gmem, o_gmem):
        pl.run_scoped(lambda *s: work(x_gmem, o_gmem, *s), *scratch, collective_axes="t")

    return plgpu.kernel(
        scoped if shape.scoped else work,
        out_type=jax.ShapeDtypeStruct((shape.steps, WIDTH), F32),
        num_threads=rings + 1,
        thread_name="t",
        scratch_types=() if shape.scoped else scratch,
    )(x)


def chain_reference(x: np.ndarray, shape: Chain) -> np.ndarray:
    for t in range(1, len(shape.slots) + 1):
        x = x * 2 + t
    return x


@seeds(10, 60)
def test_right_chains(seed: int) -> None:
    shape = Chain.draw(seed)
    x = np.random.default_rng().standard_normal((shape.steps, WIDTH)).astype(np.float32)
    is_clean(lambda x: run_chain(x, shape=shape), (x,), chain_reference(x, shape), shape)


@seeds(6, 60)
def test_broken_chains(seed: int) -> None:
    shape = Chain.draw(seed)
    x = np.random.default_rng().standard_normal((shape.steps, WIDTH)).astype(np.float32)
    for broken, rules in shape.breaks().items():
        f = lambda x, broken=broken: run_chain(x, shape=shape, broken=broken)  # noqa: E731
        is_caught(f, (x,), rules, (shape, broken), seed)


# A matmul whose slots are refilled while older MMAs still run.


@dataclasses.dataclass(frozen=True)
class Matmul:
    """The shape of a pipelined matmul.

    Attributes:
      steps: tiles along K.
      slots: how many of them are in shared memory at a time.
      behind: how many MMAs may still run when a slot is refilled, 0 or 1.
      transposed: whether B comes as (n, k).
      per_operand: whether A and B have a barrier each.
    """

    steps: int
    slots: int
    behind: int
    transposed: bool
    per_operand: bool

    @staticmethod
    def draw(seed: int) -> Matmul:
        rng = random.Random(1000 + seed)
        slots = rng.randint(2, 4)
        return Matmul(
            steps=slots + rng.randint(2, 4),  # every slot is used again
            slots=slots,
            behind=rng.randint(0, 1),
            transposed=rng.random() < 0.5,
            per_operand=rng.random() < 0.5,
        )

    def breaks(self) -> dict[str, set[str]]:
        out = {"barrier wait": {"mma-operand-not-arrived"}, "too many arrivals": {"deadlock"}}
        if self.behind:  # then a new MMA's own wait for the one before it is enough
            return {**out, "one too early": {"mma-operand-overwritten"}}
        early = {"data-race", "barrier-overrun", "mma-operand-not-arrived"}
        return {**out, "no mma wait": {"mma-operand-overwritten"}, "one too early": early}


def run_matmul(a, b, *, shape: Matmul, broken: str = ""):
    layout = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    ready = 1 if shape.per_operand else 2
    ready += broken == "too many arrivals"

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, *loaded):
        def fetch(i):
            slot = lax.rem(i, shape.slots)
            k = pl.ds(i * 64, 64)
            tile = b_gmem.at[:, k] if shape.transposed else b_gmem.at[k]
            plgpu.copy_gmem_to_smem(a_gmem.at[:, k], a_smem.at[slot], loaded[0].at[slot])
            plgpu.copy_gmem_to_smem(tile, b_smem.at[slot], loaded[-1].at[slot])

        def compute(acc):
            def step(i, _):
                slot = lax.rem(i, shape.slots)
                for barrier in loaded if broken != "barrier wait" else ():
                    plgpu.barrier_wait(barrier.at[slot])
                right = b_smem.at[slot].T if shape.transposed else b_smem.at[slot]
                plgpu.wgmma(acc, a_smem.at[slot], right)
                if broken != "no mma wait":
                    plgpu.wgmma_wait(shape.behind)
                done = i - shape.behind + (broken == "one too early")

                @pl.when((done >= 0) & (done + shape.slots < shape.steps))
                def _():
                    fetch(done + shape.slots)

            lax.fori_loop(0, shape.steps, step, None)
            return acc[...]

        for i in range(min(shape.slots, shape.steps)):
            fetch(jnp.int32(i))
        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    operand = plgpu.SMEM((shape.slots, 64, 64), F16, transforms=layout)
    barrier = plgpu.Barrier(num_barriers=shape.slots, num_arrivals=ready)
    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), F32),
        scratch_types=[operand, operand, *[barrier] * (1 + shape.per_operand)],
    )(a, b)


def operands(shape: Matmul) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng()
    k = shape.steps * 64
    a, b = (rng.standard_normal((64, k)).astype(np.float16) for _ in range(2))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    return a, b if shape.transposed else np.ascontiguousarray(b.T), want


@seeds(6, 40)
def test_right_matmuls(seed: int) -> None:
    shape = Matmul.draw(seed)
    a, b, want = operands(shape)
    is_clean(lambda a, b: run_matmul(a, b, shape=shape), (a, b), want, shape)


@seeds(4, 40)
def test_broken_matmuls(seed: int) -> None:
    shape = Matmul.draw(seed)
    a, b, _ = operands(shape)
    for broken, rules in shape.breaks().items():
        f = lambda a, b, broken=broken: run_matmul(a, b, shape=shape, broken=broken)  # noqa: E731
        is_caught(f, (a, b), rules, (shape, broken), seed)


# JAX's own pipelines with random parameters.


@dataclasses.dataclass(frozen=True)
class Emitted:
    """Parameters of emit_pipeline and emit_pipeline_warp_specialized."""

    grid: tuple[int, int]
    steps: int
    delay: int
    warps: int  # compute threads of the specialized form; 0: the plain one

    @staticmethod
    def draw(seed: int) -> Emitted:
        rng = random.Random(2000 + seed)
        steps = rng.randint(1, 4)
        return Emitted(
            grid=(rng.randint(1, 3), rng.randint(2, 4)),
            steps=steps,
            delay=rng.randint(0, min(1, steps - 1)),
            warps=rng.choice([0, 0, 1, 2]),
        )


def run_emitted(x, *, shape: Emitted):
    m, n = shape.grid
    spec = plgpu.BlockSpec((64, 32), lambda i, j: (i, j), delay_release=shape.delay)
    out = plgpu.BlockSpec((64, 32), lambda i, j: (i, j))
    options = {"grid": (m, n), "in_specs": [spec]}
    if shape.warps < 2:  # JAX has no SMEM outputs for several compute threads
        options["out_specs"] = [out]

    def step(_, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2 + 1

    def plain(x_gmem, o_gmem):
        plgpu.emit_pipeline(step, max_concurrent_steps=shape.steps, **options)(x_gmem, o_gmem)

    def specialized(x_gmem, o_gmem):
        def half_step(indices, x_smem):
            i, j = indices
            rows = lax.axis_index("t") * 32
            to = (pl.ds(i * 64 + rows, 32), pl.ds(j * 32, 32))
            o_gmem[to] = x_smem[pl.ds(rows, 32)] * 2 + 1

        plgpu.emit_pipeline_warp_specialized(
            half_step if shape.warps == 2 else step,
            max_concurrent_steps=max(2, shape.steps), memory_registers=40, wg_axis="t",
            num_compute_wgs=shape.warps, **options,
        )(*((x_gmem,) if shape.warps == 2 else (x_gmem, o_gmem)))  # fmt: skip

    if not shape.warps:
        return plgpu.kernel(plain, out_type=x)(x)
    return plgpu.kernel(specialized, out_type=x, num_threads=shape.warps + 1, thread_name="t")(x)


@seeds(8, 40)
def test_emitted_pipelines(seed: int) -> None:
    shape = Emitted.draw(seed)
    m, n = shape.grid
    x = np.random.default_rng().standard_normal((m * 64, n * 32)).astype(np.float32)
    for schedule in SCHEDULES:
        report = simulate(lambda x: run_emitted(x, shape=shape), x, schedule=schedule)
        assert report.ok, f"{shape}\n{schedule=}\n{report}"
        np.testing.assert_allclose(report.value, x * 2 + 1, rtol=1e-6)
