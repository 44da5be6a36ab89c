"""Hopper's MMA and its operands."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

from tests.simulator.litmus.pair import Pair

F16, F32 = jnp.float16, jnp.float32
LAYOUT = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
SQUARE = ((64, 64), "float16")


def _out(m=64, n=64):
    return jax.ShapeDtypeStruct((m, n), F32)


def _loaded(a, b, *, wait=True, late=False):
    """One MMA of two loaded operands."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, barrier):
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, barrier)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, barrier)
        if wait:
            plgpu.barrier_wait(barrier)

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))
        if late:
            plgpu.barrier_wait(barrier)

    operand = plgpu.SMEM((64, 64), F16, transforms=LAYOUT)
    scratch = [operand, operand, plgpu.Barrier(num_arrivals=2)]
    return plgpu.kernel(body, out_type=_out(), scratch_types=scratch)(a, b)


def _written(a, b, *, commit):
    """An operand that the thread itself wrote."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem):
        a_smem[...] = a_gmem[...]
        b_smem[...] = b_gmem[...]
        if commit:
            plgpu.commit_smem()

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    operand = plgpu.SMEM((64, 64), F16, transforms=LAYOUT)
    return plgpu.kernel(body, out_type=_out(), scratch_types=[operand, operand])(a, b)


def _pipeline(a, b, *, delay):
    """A hand-written pipeline of two slots: `delay` steps between an MMA and the refill."""
    steps, slots = 6, 2

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem, barrier):
        def fetch(step, slot):
            k = pl.ds(step * 64, 64)
            plgpu.copy_gmem_to_smem(a_gmem.at[:, k], a_smem.at[slot], barrier.at[slot])
            plgpu.copy_gmem_to_smem(b_gmem.at[k], b_smem.at[slot], barrier.at[slot])

        for i in range(slots):
            fetch(i, i)

        def compute(acc):
            for i in range(steps):
                plgpu.barrier_wait(barrier.at[i % slots])
                plgpu.wgmma(acc, a_smem.at[i % slots], b_smem.at[i % slots])
                done = i - delay
                if done >= 0 and done + slots < steps:
                    fetch(done + slots, done % slots)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    operand = plgpu.SMEM((slots, 64, 64), F16, transforms=LAYOUT)
    scratch = [operand, operand, plgpu.Barrier(num_arrivals=2, num_barriers=slots)]
    return plgpu.kernel(body, out_type=_out(), scratch_types=scratch)(a, b)


def _emitted(a, b, *, release):
    """emit_pipeline with a delay_release of 1 or too little."""

    def body(a_gmem, b_gmem, o_gmem):
        def compute(acc):
            def step(_, a_smem, b_smem):
                plgpu.wgmma(acc, a_smem, b_smem)

            spec = functools.partial(plgpu.BlockSpec, transforms=LAYOUT, delay_release=release)
            plgpu.emit_pipeline(
                step,
                grid=(6,),
                in_specs=[
                    spec((64, 64), lambda k: (0, k)),
                    spec((64, 64), lambda k: (k, 0)),
                ],
                max_concurrent_steps=2,
            )(a_gmem, b_gmem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    return plgpu.kernel(body, out_type=_out())(a, b)


def _overwritten(a, b, *, wait):
    """The thread itself overwrites an operand."""

    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem):
        a_smem[...] = a_gmem[...]
        b_smem[...] = b_gmem[...]
        plgpu.commit_smem()

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            if wait:
                plgpu.wgmma_wait(0)
            a_smem[...] = jnp.zeros((64, 64), F16)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    operand = plgpu.SMEM((64, 64), F16, transforms=LAYOUT)
    return plgpu.kernel(body, out_type=_out(), scratch_types=[operand, operand])(a, b)


def _shape(a, b, *, n):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem):
        a_smem[...] = a_gmem[...]
        b_smem[...] = b_gmem[:, :n]
        plgpu.commit_smem()

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, n), F32))

    scratch = [plgpu.SMEM((64, 64), F16, transforms=LAYOUT), plgpu.SMEM((64, n), F16)]
    return plgpu.kernel(body, out_type=_out(64, n), scratch_types=scratch)(a, b)


def _accumulator(a, b, *, wait):
    def body(a_gmem, b_gmem, o_gmem, a_smem, b_smem):
        a_smem[...] = a_gmem[...]
        b_smem[...] = b_gmem[...]
        plgpu.commit_smem()

        def compute(acc):
            plgpu.wgmma(acc, a_smem, b_smem)
            value = plgpu.wgmma_accumulator_load(acc, wait_n=0 if wait else None)
            plgpu.wgmma_wait(0)
            return value

        o_gmem[...] = pl.run_scoped(compute, plgpu.ACC((64, 64), F32))

    operand = plgpu.SMEM((64, 64), F16, transforms=LAYOUT)
    return plgpu.kernel(body, out_type=_out(), scratch_types=[operand, operand])(a, b)


def product(a, b):
    return a.astype("float32") @ b.astype("float32")


P = functools.partial
LONG = (((64, 384), "float16"), ((384, 64), "float16"))

PAIRS = [
    Pair("mma-operand-not-arrived", P(_loaded, wait=False, late=True), _loaded, (SQUARE, SQUARE),
         ("barrier_wait",), reference=product, differs=True),
    Pair("missing-commit-smem", P(_written, commit=False), P(_written, commit=True),
         (SQUARE, SQUARE), ("commit_smem",), name="before wgmma"),
    Pair("mma-operand-overwritten", P(_pipeline, delay=0), P(_pipeline, delay=1), LONG,
         ("wgmma_wait",), name="pipeline", reference=product, differs=True),
    Pair("mma-operand-overwritten", P(_emitted, release=0), P(_emitted, release=1), LONG,
         ("delay_release",), name="emit_pipeline", reference=product, differs=True),
    Pair("mma-operand-overwritten", P(_overwritten, wait=False), P(_overwritten, wait=True),
         (SQUARE, SQUARE), ("plgpu.wgmma_wait(n)",), name="own write", reference=product,
         differs=True),
    Pair("illegal-mma", P(_shape, n=12), P(_shape, n=16), (SQUARE, SQUARE), ("64x12x64",)),
]  # fmt: skip
ACCUMULATOR = Pair("accumulator-read-early", P(_accumulator, wait=False),
                   P(_accumulator, wait=True), (SQUARE, SQUARE))  # fmt: skip
if hasattr(plgpu, "wgmma_accumulator_load"):
    PAIRS.append(ACCUMULATOR)
