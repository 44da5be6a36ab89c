"""The kernels of chapter 12: right, free of findings in any order, and fit for CUDA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.compiler import compile_for, expectations
from course_lib.kernels import attention_ladder
from course_lib.kernels import flash_attention as k
from course_lib.simulator import replay, trace_kernels

Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float16) -> Array:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def online(q: Any, key: Any, v: Any) -> Any:
    return k.attend(q, key, v, k.online_update(q.shape[-1] ** -0.5))


def causal(q: Any, key: Any, v: Any, **options: Any) -> Any:
    config = options.get("config", k.Config())
    tiles = functools.partial(k.seen_tiles, keys=key.shape[0], config=config)
    return k.attend_causal(q, key, v, tiles=tiles, mask=k.causal_mask, **options)


def begin(wg: Any, turn: Any) -> None:
    pl.when(wg == 1)(lambda: plgpu.barrier_arrive(turn.at[0]))


def products(wg: Any, turn: Any, issue: Callable[[], None]) -> None:
    plgpu.barrier_wait(turn.at[wg])
    issue()
    plgpu.barrier_arrive(turn.at[1 - wg])


def end(wg: Any, turn: Any) -> None:
    pl.when(wg == 0)(lambda: plgpu.barrier_wait(turn.at[0]))


def in_turns(q: Any, key: Any, v: Any) -> Any:
    return k.attend_in_turns(q, key, v, begin=begin, products=products, end=end)


def head(queries: int, keys: int, head_dim: int) -> tuple[Array, ...]:
    return normal(queries, head_dim), normal(keys, head_dim), normal(keys, head_dim)


def heads(count: int, keys: int, head_dim: int) -> tuple[Array, ...]:
    return tuple(normal(count, n, head_dim) for n in (128, keys, keys))


def parts(queries: int, head_dim: int) -> tuple[Array, ...]:
    return normal(2, queries, head_dim, dtype=np.float32), normal(2, queries, dtype=np.float32)


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], tuple[Array, ...]]]] = {
    "online": (online, k.attention_reference, lambda: head(128, 384, 64)),
    "online, wide": (online, k.attention_reference, lambda: head(64, 256, 128)),
    "causal": (causal, k.causal_reference, lambda: head(384, 384, 64)),
    "causal, few keys": (causal, k.causal_reference, lambda: head(512, 256, 128)),
    "causal, more keys": (causal, k.causal_reference, lambda: head(128, 384, 64)),
    "in turns": (in_turns, k.turns_reference, lambda: heads(3, 256, 64)),
    "in turns, one tile": (in_turns, k.turns_reference, lambda: heads(2, 128, 64)),
    "in turns, wide": (in_turns, k.turns_reference, lambda: heads(1, 256, 128)),
    **{
        f"merge, {offset}": (
            functools.partial(k.merge, offset=offset),
            functools.partial(k.merge_reference, offset=offset),
            lambda: parts(64, 128),
        )
        for offset in (0, 200, -200)
    },
    **{
        name: (
            functools.partial(getattr(k, name), head_dim=64),
            functools.partial(k.weights_reference, head_dim=64),
            lambda: (normal(64, 256, dtype=np.float32),),
        )
        for name in ("weights", "weights_with_exp")
    },
}


def assert_close(got: Any, want: Any) -> None:
    got, want = (x if isinstance(x, tuple | list) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert np.shape(g) == w.shape
        assert np.asarray(g).dtype == w.dtype
        np.testing.assert_allclose(
            np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=1e-2, atol=2e-3
        )


@pytest.mark.two_jax
@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_right_and_nothing_is_found(name):
    function, reference, draw = CALLS[name]
    args = draw()
    outcome = model.execute(function, args)
    assert outcome.findings == ()
    assert_close(outcome.value, reference(*args))


@pytest.mark.parametrize("schedule", ["adversarial", 1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_is_right_in_any_order(name, schedule):
    function, reference, draw = CALLS[name]
    args = draw()
    report = replay(trace_kernels(function, *args), list(args), schedule=schedule)
    assert report.findings == ()
    want = reference(*args)
    assert_close(tuple(report.value), want if isinstance(want, tuple) else (want,))


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_compiles_for_hopper_and_does_not_spill(name):
    function, _, draw = CALLS[name]
    code = compile_for(function, *draw(), arch="sm_90a")
    assert expectations(code, {"spill_bytes": 0, "registers": "<=255"}) == []


def test_folding_leaves_one_plain_instruction_per_weight():
    tile = jax.ShapeDtypeStruct((64, 128), jnp.float32)

    def plain(function: Callable[..., Any]) -> int:
        code = compile_for(functools.partial(function, head_dim=64), tile, arch="sm_90a")
        return sum(code.count(name) for name in ("FADD", "FMUL", "FFMA"))

    assert plain(k.weights) <= 64 + 8
    assert plain(k.weights_with_exp) >= 3 * 64


def test_a_floor_keeps_rows_that_see_nothing_of_their_first_tile():
    args = head(128, 384, 64)

    def all_tiles(lowest: float) -> Any:
        options = dict(tiles=lambda row: 3, mask=k.causal_mask, lowest=lowest)
        return model.execute(functools.partial(k.attend_causal, **options), args).value[0]

    assert_close(all_tiles(k.LOWEST), k.causal_reference(*args)[0])
    assert np.isnan(np.asarray(all_tiles(-np.inf), np.float32)).all()


def test_the_masked_score_has_to_be_minus_infinity():
    """A fused multiply-add does not round the product; the maximum was rounded: so not 0."""
    masked, factor = np.float32(-1e30), np.float32(np.log2(np.e) / np.sqrt(128))
    fused = np.float64(masked) * np.float64(factor) - np.float64(masked * factor)
    assert abs(fused) > 1e18
    assert masked * factor - masked * factor == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: online(*head(100, 128, 64)), "q_len=100 must be a multiple of 64"),
        (lambda: causal(*head(64, 100, 64)), "kv_len=100 must be a multiple of 128"),
        (lambda: in_turns(*(x[:, :64] for x in heads(1, 128, 64))), "q_len=64 must be a multiple"),
        (lambda: k.merge(*parts(60, 64)), "queries=60 must be a multiple of 64"),
    ],
)
def test_shapes_that_do_not_fit(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_changed_step_is_the_step_with_other_words():
    q, key, v = (x[None, :, None] for x in head(128, 256, 64))
    same = k.changed(2, ("block_q: int = 64", "block_q: int = 64  # as it was"))
    assert model.execute(same, (q, key, v)).findings == ()
    broken = k.changed(2, ("num_arrivals=wgs, num_barriers=slots", "num_barriers=slots"))
    assert model.execute(broken, (q, key, v)).findings[0].rule == "barrier-overrun"
    with pytest.raises(ValueError, match="attention2 has no 'something else'"):
        k.changed(2, ("something else", ""))


HARD: dict[str, Array] = {  # what the keys of four tiles of 128 are multiplied with
    "growing": np.repeat([400.0, 40.0, 4.0, 0.4], 128),
    "shrinking": np.repeat([0.4, 4.0, 40.0, 400.0], 128),
    "one huge key, met last": np.where(np.arange(512) == 0, 400.0, 1.0),
    "one huge key, met first": np.where(np.arange(512) == 511, 400.0, 1.0),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", HARD)
def test_the_fast_path_of_the_last_step_is_left_where_it_has_to_be(name, causal):
    """Tiles are taken from the last one to the first; causal, early rows see nothing of most."""
    q, key, v = head(512, 512, 64)
    key = (key * HARD[name][:, None]).astype(np.float16)
    step = functools.partial(attention_ladder.step(8).attention, causal=causal, return_lse=True)
    outcome = model.execute(step, tuple(x[None, :, None] for x in (q, key, v)))
    assert outcome.findings == ()
    out, lse = outcome.value
    want = k.exact(q, key, v, causal=causal)
    error = np.linalg.norm(np.asarray(out, np.float64)[0, :, 0] - want) / np.linalg.norm(want)
    assert error < 2e-3
    s = q.astype(np.float64) @ key.astype(np.float64).T / 8
    s = np.where(np.tri(512) > 0, s, -np.inf) if causal else s
    np.testing.assert_allclose(
        np.asarray(lse)[0, 0], np.logaddexp.reduce(s, axis=1), rtol=1e-5, atol=2e-3
    )
