"""Sizes are read as they are written, and every case has inputs, a truth and contenders."""

import importlib.util
import sys
import types

import jax
import numpy as np
import pytest

from course_lib import runtime
from course_lib.benchmarks import suites
from course_lib.diagnostics import CourseError
from course_lib.kernels import attention_ladder, matmul_ladder


def test_the_matmuls_of_the_course():
    cases = suites.matmul()
    assert [case.name for case in cases] == [
        "8192x8192x8192 bfloat16",
        "4096x8192x4096 bfloat16",
        "4096x4096x4096 float16",
    ]
    names = [c.name for c in cases[0].contenders]
    assert names[: len(matmul_ladder.STEPS)] == [s.name for s in matmul_ladder.STEPS]
    # JAX's op imports its own test utilities, and those need a package that the course does not
    assert ("JAX's own" in names) is (importlib.util.find_spec("absl") is not None)


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        ((10, 0), ["matmul_blackwell", "matmul_blackwell collective"]),
        ((8, 9), [f"matmul{matmul_ladder.LAST}"]),
    ],
)
def test_other_cards_get_other_contenders(monkeypatch, capability, names):
    monkeypatch.setattr(suites.runtime, "device", lambda: runtime.Device("a card", capability))
    [case] = suites.matmul(["512"])
    assert [c.name for c in case.contenders] == names
    assert suites.matmul(["512"], steps=())[0].contenders == ()


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("512", "512x512x512 bfloat16"),
        ("512x256x128", "512x256x128 bfloat16"),
        ("512x256x128:float16", "512x256x128 float16"),
    ],
)
def test_sizes_of_a_matmul(size, name):
    [case] = suites.matmul([size], steps=[0])
    assert case.name == name
    a, b = case.draw(jax.random.key(3))
    assert f"{a.shape[0]}x{b.shape[1]}x{a.shape[1]} {a.dtype}" == name
    truth = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    np.testing.assert_allclose(case.reference(a, b), truth, rtol=1e-3, atol=1e-2)
    assert case.contenders[0].name == "matmul0"


@pytest.mark.parametrize("size", ["", "512x512", "512x512x512:float32", "large"])
def test_no_size_of_a_matmul(size):
    with pytest.raises(CourseError, match="is no size of a matmul"):
        suites.matmul([size])


@pytest.mark.parametrize("dtype", ["", "float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
def test_sizes_of_an_attention(causal, dtype):
    [case] = suites.attention(["2x128x2x64" + ":causal" * causal + f":{dtype}" * bool(dtype)])
    q, k, v = (np.asarray(x, np.float64) for x in case.draw(jax.random.key(5)))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / 8
    if causal:
        scores = np.where(np.tri(128, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    truth = np.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), v)
    got = case.reference(*case.draw(jax.random.key(5)))
    np.testing.assert_allclose(got, truth, rtol=1e-4, atol=1e-4)
    assert case.work == pytest.approx(4 * 2 * 2 * 128 * 128 * 64 / (2 if causal else 1) / 1e12)
    assert case.dtype == case.draw(jax.random.key(5))[0].dtype.name == (dtype or "float16")
    assert case.name == f"B2 S128 H2 D64{' causal' * causal} {case.dtype}"
    names = [c.name for c in case.contenders if c.name != "JAX's own"]
    assert names == [s.name for s in attention_ladder.STEPS if s.takes_causal or not causal]


def test_the_attentions_of_the_course():
    first, *others = suites.attention()
    names = [c.name for c in first.contenders if c.name != "JAX's own"]
    assert names == [s.name for s in attention_ladder.STEPS]
    for case in others:
        last = [c.name for c in case.contenders if c.name != "JAX's own"]
        assert last == [s.name for s in attention_ladder.STEPS[-3:]]
    assert len(others) + 1 == len(suites.ATTENTION_SIZES)


def test_an_attention_that_does_not_scale_gets_scaled_queries():
    [case] = suites.attention(["1x64x2x64"])
    q, k, v = case.draw(jax.random.key(3))
    scaled, *rest = suites._scaled(q, k, v)
    assert scaled.dtype == q.dtype
    np.testing.assert_array_equal(scaled, q / 8)  # a power of two: nothing is rounded
    assert all(x is y or (x == y).all() for x, y in zip(rest, (k, v), strict=True))


def test_jax_own_attention_knows_float16_only(monkeypatch):
    op = types.SimpleNamespace(TuningConfig=lambda **settings: settings)
    own = "jax.experimental.pallas.ops.gpu.attention_mgpu"
    monkeypatch.setitem(sys.modules, own, op)
    for dtype, there in (("float16", True), ("bfloat16", False)):
        [case] = suites.attention([f"1x64x2x64:{dtype}"])
        assert ("JAX's own" in [c.name for c in case.contenders]) is there


@pytest.mark.parametrize("size", ["4096", "1x2x3x64:bf16", "1x2x3x64:float16:causal"])
def test_no_size_of_an_attention(size):
    with pytest.raises(CourseError, match="batch x sequence x heads x head_dim"):
        suites.attention([size])


def test_sizes_of_a_copy():
    [case] = suites.copy(["1MiB"])
    (x,) = case.draw(jax.random.key(1))
    assert x.nbytes == 1 << 20
    assert case.work == pytest.approx(2 * (1 << 20) / 1e9)
    assert case.baseline.reference is not None
    np.testing.assert_array_equal(case.baseline.reference(x), case.baseline.function(x))
    names = [c.name for c in case.contenders]
    assert {"cuMemcpyDtoD", "copy 4K", "ring_copy 16K x3, 1 unread"} <= set(names)
    assert len(names) == len(set(names)) == 16
    with pytest.raises(CourseError, match="is no size of a copy"):
        suites.copy(["4 gigabytes"])
