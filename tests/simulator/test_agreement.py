"""The simulator's values against JAX's own, operation by operation and kernel by kernel."""

from __future__ import annotations

import functools

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from course_lib.simulator import simulate
from tests.simulator.test_simulator import LAYOUT, add_one, matmul

SHAPE = (16, 32)


def in_kernel(f, *args):
    """`f` of whole arrays, computed inside a kernel."""
    out = jax.eval_shape(f, *args)

    def body(*refs):
        *ins, o_ref = refs
        value = f(*(r[...] for r in ins))
        o_ref[...] = jnp.broadcast_to(value, o_ref.shape)

    shape = out.shape or (1,)
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(shape, out.dtype))(*args)


FLOATS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rem": lambda x, y: lax.rem(x, y),
    "max": jnp.maximum,
    "min": jnp.minimum,
    "pow": lambda x, y: jnp.abs(x) ** y,
    "atan2": jnp.arctan2,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: jnp.abs(x),
    "sign": lambda x, y: jnp.sign(x),
    "exp": lambda x, y: jnp.exp(x),
    "exp2": lambda x, y: jnp.exp2(x),
    "expm1": lambda x, y: jnp.expm1(x),
    "log": lambda x, y: jnp.log(jnp.abs(x)),
    "log1p": lambda x, y: jnp.log1p(jnp.abs(x)),
    "tanh": lambda x, y: jnp.tanh(x),
    "logistic": lambda x, y: jax.nn.sigmoid(x),
    "sqrt": lambda x, y: jnp.sqrt(jnp.abs(x)),
    "rsqrt": lambda x, y: lax.rsqrt(jnp.abs(x)),
    "cbrt": lambda x, y: jnp.cbrt(x),
    "sin": lambda x, y: jnp.sin(x),
    "cos": lambda x, y: jnp.cos(x),
    "erf": lambda x, y: lax.erf(x),
    "floor": lambda x, y: jnp.floor(x),
    "ceil": lambda x, y: jnp.ceil(x),
    "round": lambda x, y: jnp.round(x * 2),
    "round_away": lambda x, y: lax.round(jnp.round(x * 4) / 2),
    "square": lambda x, y: jnp.square(x),
    "power3": lambda x, y: lax.integer_pow(x, 3),
    "power-2": lambda x, y: lax.integer_pow(x, -2),
    "where": lambda x, y: jnp.where(x > y, x, y * 2),
    "clip": lambda x, y: jnp.clip(x, -0.5, 0.5),
    "compare": lambda x, y: ((x < y) | (x == y)) & ~(x >= 1),
    "to_int": lambda x, y: (x * 100).astype(jnp.int32),
    "to_int8": lambda x, y: (x * 100).astype(jnp.int8),
    "to_f16": lambda x, y: x.astype(jnp.float16),
    "to_bf16": lambda x, y: x.astype(jnp.bfloat16),
    "to_f8": lambda x, y: x.astype(jnp.float8_e4m3fn).astype(jnp.float32),
    "bits": lambda x, y: lax.bitcast_convert_type(x.astype(jnp.float32), jnp.int32),
    "sum": lambda x, y: jnp.sum(x, axis=0),
    "sum_all": lambda x, y: jnp.sum(x),
    "mean": lambda x, y: jnp.mean(x, axis=1),
    "prod": lambda x, y: jnp.prod(x[:4], axis=0),
    "amax": lambda x, y: jnp.max(x, axis=1),
    "amin": lambda x, y: jnp.min(x, axis=0),
    "argmax": lambda x, y: jnp.argmax(x, axis=1).astype(jnp.int32),
    "argmin": lambda x, y: jnp.argmin(x, axis=0).astype(jnp.int32),
    "softmax": lambda x, y: jax.nn.softmax(x, axis=1),
    "relu": lambda x, y: jax.nn.relu(x),
    "gelu": lambda x, y: jax.nn.gelu(x),
    "transpose": lambda x, y: x.T,
    "reshape": lambda x, y: x.reshape(32, 16),
    "concat": lambda x, y: jnp.concatenate([x, y], axis=0),
    "stack": lambda x, y: jnp.stack([x, y], axis=1),
    "slice": lambda x, y: x[2:9, ::3],
    "dynamic_slice": lambda x, y: lax.dynamic_slice(x, (jnp.int32(14), 1), (4, 8)),
    "update": lambda x, y: lax.dynamic_update_slice(x, y[:4, :4], (3, 30)),
    "pad": lambda x, y: jnp.pad(x, ((1, 2), (0, 3))),
    "flip": lambda x, y: jnp.flip(x, 1),
    "cumsum": lambda x, y: jnp.cumsum(x, axis=0),
    "cummax": lambda x, y: lax.cummax(x, axis=1),
    "iota": lambda x, y: x + lax.broadcasted_iota(jnp.int32, x.shape, 1).astype(x.dtype),
    "dot": lambda x, y: jnp.dot(x, y.T),
    "einsum": lambda x, y: jnp.einsum("ij,kj->ik", x, y),
    "sort": lambda x, y: jnp.sort(x, axis=1),
    "fori": lambda x, y: lax.fori_loop(0, 5, lambda i, c: c * 0.5 + i, x),
    "while": lambda x, y: lax.while_loop(lambda c: jnp.sum(c) > -1e3, lambda c: c - 1, x),
    "scan": lambda x, y: lax.scan(lambda c, r: (c + r, c * 2), jnp.zeros(32, x.dtype), x)[1],
    "cond": lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y),
    "switch": lambda x, y: lax.switch(
        jnp.abs(x[0, 0] * 10).astype(jnp.int32) % 3, [lambda: x, lambda: y, lambda: x + y]
    ),
}

INTS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: lax.div(x, y),
    "rem": lambda x, y: lax.rem(x, y),
    "floordiv": lambda x, y: x // 7,
    "mod": lambda x, y: x % 7,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "not": lambda x, y: ~x,
    "shl": lambda x, y: x << (y & 7),
    "shr": lambda x, y: x >> (y & 7),
    "shrl": lambda x, y: lax.shift_right_logical(x, y & 7),
    "popcount": lambda x, y: lax.population_count(x),
    "clz": lambda x, y: lax.clz(x),
    "neg": lambda x, y: -x,
    "abs": lambda x, y: jnp.abs(x),
    "sign": lambda x, y: jnp.sign(x),
    "to_float": lambda x, y: x.astype(jnp.float32),
    "sum": lambda x, y: jnp.sum(x, axis=0),
    "any": lambda x, y: jnp.any(x > 0, axis=0),
    "all": lambda x, y: jnp.all(x > -100, axis=0),
    "max": jnp.maximum,
    "where": lambda x, y: jnp.where(x > y, x, y),
    "power": lambda x, y: lax.integer_pow(x, 2),
}

TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


# Of n normal numbers the partial sums are about the root of n, and they are what is rounded.
SUMS = {"sum", "sum_all", "cumsum", "dot", "einsum"}


def close(got, want, *, magnitude: float = 1.0) -> None:
    want = np.asarray(want)
    got = np.asarray(got).reshape(want.shape)
    assert got.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    tol = TOLERANCE[want.dtype.name]
    scale = max(magnitude, float(np.max(np.abs(want.astype(np.float64)))))
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=4 * tol, atol=tol * scale
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FLOATS)
def test_float_operations(name: str, dtype: str) -> None:
    rng = np.random.default_rng()
    x, y = (jnp.asarray(rng.standard_normal(SHAPE), dtype) for _ in range(2))
    f = FLOATS[name]
    report = simulate(functools.partial(in_kernel, f), x, y)
    assert not report.findings, report
    close(report.value, jax.jit(f)(x, y), magnitude=x.size**0.5 if name in SUMS else 1.0)


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "uint32"])
@pytest.mark.parametrize("name", INTS)
def test_integer_operations(name: str, dtype: str) -> None:
    rng = np.random.default_rng()
    info = np.iinfo(dtype)
    x, y = (
        jnp.asarray(rng.integers(info.min, info.max, SHAPE, endpoint=True, dtype=dtype))
        for _ in range(2)
    )
    f = INTS[name]
    report = simulate(functools.partial(in_kernel, f), x, y)
    assert not report.findings, report
    close(report.value, jax.jit(f)(x, y))


@pytest.mark.parametrize("name", ["add", "mul", "div", "rem", "mod", "floordiv", "shr", "where"])
def test_scalars(name: str) -> None:
    """Index arithmetic takes another way through the machine."""
    rng = np.random.default_rng()
    x = rng.integers(-1000, 1000, (8, 2), dtype=np.int32)

    def kernel(x):
        def body(x_ref, o_ref):
            for i in range(8):
                o_ref[i] = INTS[name](x_ref[i, 0], x_ref[i, 1])

        return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((8,), jnp.int32))(x)

    report = simulate(kernel, x)
    assert not report.findings, report
    np.testing.assert_array_equal(report.value, INTS[name](jnp.asarray(x[:, 0]), x[:, 1]))


# Whole kernels, against JAX's interpret mode.


def _scratch_round_trip(x):
    def body(x_gmem, o_gmem, smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        plgpu.barrier_wait(barrier)
        smem[...] = smem[...] * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, o_gmem)
        plgpu.wait_smem_to_gmem(0)

    scratch = [plgpu.SMEM((64, 64), x.dtype, transforms=LAYOUT), plgpu.Barrier()]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch)(x)


def _transposed(x):
    def body(x_gmem, o_gmem, smem, barrier):
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
        plgpu.barrier_wait(barrier)
        o_gmem[...] = smem.T[...]

    out = jax.ShapeDtypeStruct((64, 64), x.dtype)
    scratch = [plgpu.SMEM((64, 64), x.dtype), plgpu.Barrier()]
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(x)


def _slots(x):
    def body(x_gmem, o_gmem, smem, barrier):
        def step(i, total):
            slot = lax.rem(i, 2)
            part = pl.ds(i * 16, 16)
            plgpu.copy_gmem_to_smem(x_gmem.at[part], smem.at[slot], barrier.at[slot])
            plgpu.barrier_wait(barrier.at[slot])
            total += smem[slot]
            plgpu.commit_smem()
            return total

        o_gmem[...] = lax.fori_loop(0, 4, step, jnp.zeros((16, 64), x.dtype))

    out = jax.ShapeDtypeStruct((16, 64), x.dtype)
    scratch = [plgpu.SMEM((2, 16, 64), x.dtype), plgpu.Barrier(num_barriers=2)]
    return plgpu.kernel(body, out_type=out, scratch_types=scratch)(x)


def _producer_consumer(x):
    def body(x_gmem, o_gmem, smem, full, empty):
        @pl.when(lax.axis_index("t") == 0)
        def _():
            def produce(i, _):
                @pl.when(i > 0)
                def _():
                    plgpu.barrier_wait(empty)

                smem[...] = x_gmem[pl.ds(i * 16, 16)]
                plgpu.barrier_arrive(full)

            lax.fori_loop(0, 4, produce, None)
            plgpu.barrier_wait(empty)

        @pl.when(lax.axis_index("t") == 1)
        def _():
            def consume(i, _):
                plgpu.barrier_wait(full)
                o_gmem[pl.ds(i * 16, 16)] = smem[...] + 1
                plgpu.barrier_arrive(empty)

            lax.fori_loop(0, 4, consume, None)

    scratch = [plgpu.SMEM((16, 64), x.dtype), plgpu.Barrier(), plgpu.Barrier()]
    return plgpu.kernel(body, out_type=x, scratch_types=scratch, num_threads=2, thread_name="t")(x)


def _nd_loop(x):
    def body(x_gmem, o_gmem):
        @plgpu.nd_loop((4, 2), collective_axes="g")
        def _(info):
            i, j = info.index
            at = (pl.ds(i * 16, 16), pl.ds(j * 32, 32))
            o_gmem[at] = x_gmem[at] * 3

    return plgpu.kernel(body, out_type=x, grid=(3,), grid_names=("g",))(x)


def _gather_rows(x):
    def body(x_gmem, o_gmem):
        rows = (lax.broadcasted_iota(jnp.int32, (16,), 0) * 5) % 64
        o_gmem[...] = x_gmem[rows]

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((16, 64), x.dtype))(x)


KERNELS = {
    "add_one": (lambda x: add_one(x.reshape(-1)[:256]), "float32"),
    "round trip f16": (_scratch_round_trip, "float16"),
    "transposed": (_transposed, "float32"),
    "slots": (_slots, "float32"),
    "producer and consumer": (_producer_consumer, "float32"),
    "nd_loop": (_nd_loop, "float32"),
    "vmap": (jax.vmap(lambda x: plgpu.kernel(lambda a, o: o.__setitem__(..., a[...] + 1),
                                             out_type=jax.ShapeDtypeStruct((64,), x.dtype))(x)),
             "float32"),
}  # fmt: skip


def interpreted(f, *args):
    with plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams(detect_races=True)):
        return jax.block_until_ready(f(*args))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_agree_with_interpret_mode(name: str) -> None:
    f, dtype = KERNELS[name]
    x = np.random.default_rng().standard_normal((64, 64)).astype(dtype)
    want = interpreted(f, x)
    for schedule in ("in_order", "adversarial", *range(10)):
        report = simulate(f, x, schedule=schedule)
        assert report.ok, report
        np.testing.assert_array_equal(report.value, want)


def test_indexing_with_arrays() -> None:
    x = np.random.default_rng().standard_normal((64, 64)).astype(np.float32)
    report = simulate(_gather_rows, x)
    assert report.ok, report
    np.testing.assert_array_equal(report.value, x[(np.arange(16) * 5) % 64])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmul_agrees_with_interpret_mode(dtype: str) -> None:
    rng = np.random.default_rng()
    a, b = (jnp.asarray(rng.standard_normal((256, 256)), dtype) for _ in range(2))
    want = np.asarray(interpreted(matmul, a, b)).astype(np.float32)
    for schedule in ("in_order", "adversarial", *range(3)):
        report = simulate(matmul, a, b, schedule=schedule)
        assert not report.findings, report
        got = report.value.astype(np.float32)
        np.testing.assert_allclose(got, want, rtol=2 * TOLERANCE[dtype], atol=TOLERANCE[dtype])
