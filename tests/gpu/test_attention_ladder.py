"""On the card, every step of attention is right: both dtypes, both head sizes, causal and not."""

import jax
import jax.numpy as jnp
import pytest

from course_lib import runtime
from course_lib.benchmarks import bench
from course_lib.kernels import attention_ladder

pytestmark = pytest.mark.gpu
MODES = [(s.number, c) for s in attention_ladder.STEPS for c in (False, True)[: 1 + s.takes_causal]]


@pytest.fixture(autouse=True)
def _hopper():
    device = runtime.device()
    if device is None or "wgmma" not in device.features:
        pytest.skip("this card has no wgmma")


def operands(batch, q_len, kv_len, heads, kv_heads, head_dim, dtype):
    keys = jax.random.split(jax.random.key(q_len + heads), 3)
    shapes = [(batch, q_len, heads, head_dim)] + [(batch, kv_len, kv_heads, head_dim)] * 2
    return tuple(jax.random.normal(*x, dtype) for x in zip(keys, shapes, strict=True))


def truth(q, k, v, causal):
    """The attention and its lse, in float32."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, group, axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / q.shape[-1] ** 0.5
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    p = jax.nn.softmax(scores)
    out = jnp.einsum("bhqk,bkhd->bqhd", p, v, precision="highest")
    return out, jax.nn.logsumexp(scores, axis=-1)


def relative_error(out, want):
    return float(jnp.linalg.norm(out.astype(jnp.float32) - want) / jnp.linalg.norm(want))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("number", "causal"), MODES)
def test_a_step_is_right(number, causal, dtype, head_dim):
    arrays = operands(2, 1536, 1024, 8, 4, head_dim, dtype)  # more tiles than SMs
    step = attention_ladder.step(number)
    function = jax.jit(lambda *args: step.attention(*args, causal=causal))
    want, _ = truth(*arrays, causal)
    for _ in range(3):
        assert relative_error(function(*arrays), want) < bench.TOLERANCE[dtype]


@pytest.mark.parametrize("number", [s.number for s in attention_ladder.STEPS if s.takes_causal])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("compute_wgs", [1, 2, 3])
def test_the_log_of_the_sum(number, causal, compute_wgs):
    arrays = operands(1, 768, 768, 4, 4, 64, "float16")
    step = attention_ladder.step(number)
    config = step.module.Config(compute_wgs=compute_wgs)
    function = jax.jit(
        lambda *args: step.attention(*args, causal=causal, return_lse=True, config=config)
    )
    out, lse = function(*arrays)
    want, want_lse = truth(*arrays, causal)
    assert relative_error(out, want) < bench.TOLERANCE["float16"]
    assert float(jnp.abs(lse - want_lse).max()) < 2e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("q_len", [64, 128, 320, 1024])
def test_tiles_that_stick_out(q_len, causal):
    arrays = operands(2, q_len, 1024, 4, 4, 64, "float16")
    step = attention_ladder.step(attention_ladder.LAST)
    config = step.module.Config(compute_wgs=3)
    out = jax.jit(lambda *args: step.attention(*args, causal=causal, config=config))(*arrays)
    assert out.shape == arrays[0].shape
    assert relative_error(out, truth(*arrays, causal)[0]) < bench.TOLERANCE["float16"]
