"""The kernels of chapter 10: right, free of findings in any order, of the expected instructions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from course_lib import simulator
from course_lib.compiler import CompileError, compile_for, expectations
from course_lib.kernels import tmem_and_tcgen05 as k

Array = np.ndarray[Any, Any]
ARCH = "sm_100a"
F8 = ml_dtypes.float8_e4m3fn


def draw(*shape: int, dtype: Any = np.float32) -> Array:
    """Independent and normal; integers uniform."""
    rng = np.random.default_rng()
    if np.dtype(dtype).kind == "i":
        return rng.integers(-128, 128, shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


def half(*shape: int) -> Array:
    return draw(*shape, dtype=np.float16)


def same(x: Array) -> Array:
    return x


def scaled_reference(a: Array, b: Array, a_scales: Array, b_scales: Array) -> Array:
    return (k.scaled(a, a_scales) @ k.scaled(b, b_scales).T).astype(np.float32)


# name -> kernel, reference, draws, tolerance, what the compiler must make of it
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[Array, ...], float, dict[str, int | str]]
KEEP: dict[str, int | str] = {
    "tmem_columns": 64, "tcgen05.st": 2, "tcgen05.wait::st": 1, "tcgen05.ld": 2, "spill_bytes": 0,
}  # fmt: skip
MMA = {"tcgen05.mma": 4, "tcgen05.commit": 1, "tcgen05.ld": ">=1", "spill_bytes": 0}


def _calls() -> dict[str, Call]:
    f16 = {**MMA, "tcgen05.mma*kind::f16": 4, "UTCHMMA": 4}
    calls: dict[str, Call] = {
        "keep": (k.keep, same, (draw(128, 64),), 0, KEEP),
        "keep packed": (
            *(partial(k.keep, packed=True), same, (half(128, 128),), 0),
            {**KEEP, "tcgen05.st*unpack": 0},
        ),
        "keep unpacked": (
            *(partial(k.keep, packed=False), same, (half(128, 128),), 0),
            {**KEEP, "tmem_columns": 128, "tcgen05.st*unpack::16b": 2},
        ),
        "add one": (
            *(k.add_one, lambda x: x + 1, (draw(128, 128),), 0),
            {"tcgen05.ld": 4, "tcgen05.wait::ld": 0, "tcgen05.wait::st": 1, "spill_bytes": 0},
        ),
        "sum": (
            *(k.sum_in_tmem, k.sum_in_tmem_reference, (draw(4, 128, 64),), 0),
            {"tcgen05.wait::ld": 1, "tcgen05.wait::st": 2, "spill_bytes": 0},
        ),
        "sum of one": (
            *(k.sum_in_tmem, k.sum_in_tmem_reference, (draw(1, 128, 32),), 0),
            {"tcgen05.ld": 2, "tcgen05.st": 2, "tcgen05.wait::st": 1, "spill_bytes": 0},
        ),
        "one commit": (
            *(k.one_commit, k.product_reference, (half(128, 256), half(256, 128)), 1e-3),
            {**f16, "tcgen05.mma": 16, "tcgen05.mma*kind::f16": 16, "UTCHMMA": 16},
        ),
        "hand over": (
            *(k.hand_over, same, (draw(128, 64),), 0),
            {
                "tcgen05.fence::before_thread_sync": 1,
                "tcgen05.fence::after_thread_sync": 1,
                "tcgen05.st": 2,
                "tcgen05.wait::st": 1,
                "tcgen05.ld": 2,
                "spill_bytes": 0,
            },
        ),
        "batched": (
            *(k.batched, lambda a, b: a.astype(np.float32) @ b.astype(np.float32)),
            *((half(3, 128, 64), half(64, 128)), 1e-3),
            {"tcgen05.mma": 12, "tcgen05.commit": 3, "tcgen05.wait::ld": 3, "spill_bytes": 0},
        ),
        "two products": (
            *(k.two_products, k.two_products_reference),
            *((half(128, 64), half(64, 128), half(128, 64)), 1e-2),
            {**MMA, "tcgen05.mma": 12, "tcgen05.commit": 2, "tcgen05.st": ">=1"},
        ),
        "8 bits": (
            *(k.eight_bit_product, k.eight_bit_product_reference),
            *((draw(128, 256), draw(128, 256)), 1e-3),
            {**MMA, "tcgen05.mma": 8, "tcgen05.mma*block_scale": 8, "tcgen05.cp": 4},
        ),
    }
    for m, n, inner in ((128, 128, 64), (128, 256, 64), (64, 64, 64), (64, 128, 64)):
        args = (half(m, inner), half(inner, n))
        two = {"tcgen05.mma": 8, "tcgen05.mma*kind::f16": 8, "UTCHMMA": 8}
        expected = f16 | (two if m == 64 else {}) | {"tmem_columns": n * m // 128}
        calls[f"product {m}x{n}"] = (k.product, k.product_reference, args, 1e-3, expected)
    kinds = [("bfloat16", "bfloat16", "f16"), ("float8_e5m2", "float8_e5m2", "f8f6f4")]
    kinds += [("float8_e4m3fn", "float8_e5m2", "f8f6f4"), ("float8_e4m3fn",) * 2 + ("f8f6f4",)]
    for a_type, b_type, kind in kinds:
        args = (draw(128, 128, dtype=jnp.dtype(a_type)), draw(128, 64, dtype=jnp.dtype(b_type)))
        expected = {f"tcgen05.mma*kind::{kind}": ">=4", "spill_bytes": 0}
        calls[f"{a_type} x {b_type}"] = (k.product, k.product_reference, args, 1e-3, expected)
    calls["int8"] = (
        *(partial(k.product, acc_dtype=jnp.int32), lambda a, b: a.astype(int) @ b.astype(int)),
        *((draw(128, 128, dtype=np.int8), draw(128, 64, dtype=np.int8)), 0),
        {"tcgen05.mma*kind::i8": 4, "UTCIMMA": 4, "spill_bytes": 0},
    )
    calls["float16 accumulator"] = (
        *(partial(k.product, acc_dtype=jnp.float16), k.product_reference),
        *((half(128, 64), half(64, 128)), 3e-2),
        {**f16, "tmem_columns": 128, "tcgen05.ld*pack::16b": 2},
    )
    return calls


CALLS = _calls()
each = pytest.mark.parametrize("name", CALLS)


def agree(value: Any, wanted: Any, tolerance: float) -> None:
    np.testing.assert_allclose(
        np.asarray(value, np.float64), np.asarray(wanted, np.float64), rtol=tolerance,
        atol=10 * tolerance,
    )  # fmt: skip


@pytest.mark.two_jax
@each
def test_equals_its_reference_without_findings(name: str) -> None:
    kernel, reference, args, tolerance, _ = CALLS[name]
    report = simulator.simulate(kernel, *args, arch=ARCH)
    assert report.findings == ()
    wanted = reference(*args)
    assert report.value.shape == wanted.shape
    agree(report.value, wanted, tolerance)


@each
def test_is_clean_in_any_order(name: str) -> None:
    kernel, reference, args, tolerance, _ = CALLS[name]
    wanted = reference(*args)
    for schedule in ("adversarial", *range(20)):
        report = simulator.simulate(kernel, *args, arch=ARCH, schedule=schedule)
        assert report.findings == (), schedule
        agree(report.value, wanted, tolerance)


@each
def test_what_the_compiler_makes_of_it(name: str) -> None:
    kernel, _, args, _, expected = CALLS[name]
    assert expectations(compile_for(kernel, *args, arch=ARCH), expected) == []


# What the chapter says that JAX refuses, and twins that it takes.
SHAPES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], str]] = {
    "N = 384": (k.one_commit, (half(128, 64), half(64, 384)), "only supported N > 256, is 512"),
    "N = 256": (k.one_commit, (half(128, 64), half(64, 256)), ""),
    "M = 64, N = 48": (k.product, (half(64, 64), half(64, 48)), "does not apply to shape"),
    "M = 64, N = 32": (k.product, (half(64, 64), half(64, 32)), ""),
    "M = 64, N = 96": (k.product, (half(64, 64), half(64, 96)), "does not apply to shape"),
    "M = 64, N = 256": (k.product, (half(64, 64), half(64, 256)), ""),
    "K = 32": (k.product, (half(128, 32), half(32, 128)), "K must be a multiple of 64"),
    "K = 32, narrow": (k.product, (half(128, 32), half(32, 32)), ""),
    "float32": (k.product, (draw(128, 32), draw(32, 32)), "Unsupported input element type"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_jax_takes_and_refuses(name: str) -> None:
    kernel, args, refusal = SHAPES[name]
    if refusal:
        with pytest.raises(CompileError, match=refusal):
            compile_for(kernel, *args, arch=ARCH)
    else:
        assert compile_for(kernel, *args, arch=ARCH).count("tcgen05.mma") > 0


@pytest.mark.two_jax
@pytest.mark.parametrize("name", ["one commit", "batched", "two products", "int8", "hand over"])
def test_jax_interprets_it_alike(name: str) -> None:
    """The third witness, which knows neither scales nor sparsity."""
    kernel, reference, args, tolerance, _ = CALLS[name]
    mode = plgpu.InterpretGPUParams(detect_races=True)
    with plgpu.force_gpu_interpret_mode(mode):
        value = kernel(*map(jnp.asarray, args))
    agree(value, reference(*args), tolerance)


def test_a_barrier_that_does_not_order_has_no_fences() -> None:
    """`hand_over` without: wrong, and the compiler has nothing to say about it."""
    wrong = partial(k.hand_over, orders=False)
    x = draw(128, 64)
    report = simulator.simulate(wrong, x, arch=ARCH)
    assert [f.rule for f in report.errors] == ["missing-orders-tensor-core"]
    assert expectations(compile_for(wrong, x, arch=ARCH), {"tcgen05.fence": 0}) == []


@pytest.mark.two_jax
def test_a_sparse_product() -> None:
    values, positions = k.prune(half(128, 256))
    b = half(256, 128)
    args = (values, k.pack_positions(positions), b)
    wanted = k.sparse_product_reference(values, positions, b)
    program = simulator.trace_kernels(k.sparse_product, *args)
    for schedule in ("in_order", "adversarial", *range(20)):
        report = simulator.replay(program, list(args), arch=ARCH, schedule=schedule)
        assert report.findings == (), schedule
        agree(report.value[0], wanted, 1e-3)


def test_what_the_compiler_makes_of_a_sparse_product() -> None:
    values, positions = k.prune(half(128, 256))
    args = (values, k.pack_positions(positions), half(256, 128))
    expected = {"tcgen05.mma.sp": 8, "tcgen05.cp": 2, "tcgen05.commit": 1, "spill_bytes": 0}
    assert expectations(compile_for(k.sparse_product, *args, arch=ARCH), expected) == []


def test_pruning_keeps_the_larger_half_and_says_where() -> None:
    x = np.array([[1, -7, 3, 0, 5, 5, 5, 5]], np.float32)
    values, positions = k.prune(x)
    assert values.tolist() == [[-7, 3, 5, 5]]
    assert positions.tolist() == [[1, 2, 0, 1]]


def test_quantized_blocks_use_the_range_of_their_type() -> None:
    x = draw(128, 64) * np.float32(1000)
    values, scales = k.quantize(x)
    assert (values.dtype, scales.dtype) == (F8, ml_dtypes.float8_e8m0fnu)
    largest = np.abs(values.astype(np.float32)).reshape(128, 2, 32).max(-1)
    assert (largest > 200).all()
    assert (largest <= 448).all()
    np.testing.assert_allclose(k.scaled(values, scales), x, rtol=0.07, atol=20)


def test_jax_and_numpy_quantize_alike() -> None:
    x = draw(128, 128)
    for ours, theirs in zip(k.quantize(x), k.quantize(jnp.asarray(x)), strict=True):
        assert np.array_equal(np.asarray(ours, np.float32), np.asarray(theirs, np.float32))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: k.one_commit(half(128, 96), half(96, 64)), "k=96 must be a multiple of 64"),
        (lambda: k.pack_scales(draw(64, 4)), "multiples of 128 rows and 4 blocks"),
        (lambda: k.pack_positions(np.zeros((128, 32), int)), "multiples of 128 and 64"),
    ],
)
def test_shapes_that_do_not_fit(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_every_kernel_has_a_place_in_these_tests() -> None:
    """All public kernels are run in every order, and compiled; the sparse one has its own."""
    public = {
        name
        for name, value in vars(k).items()
        if inspect.isfunction(value)
        and value.__module__ == k.__name__
        and not name.startswith("_")
        and "plgpu.kernel(" in inspect.getsource(value)
    }
    run = {getattr(call[0], "func", call[0]).__name__ for call in CALLS.values()}
    frames = {"scaled_product"}  # of eight_bit_product
    assert public - frames == (run & public) | {"sparse_product"}
    assert all(call[4]["spill_bytes"] == 0 for call in CALLS.values())
