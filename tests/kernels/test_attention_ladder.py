"""Every step of attention is right, free of findings, and made of the instructions it is about."""

import dataclasses
import functools
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import model
from course_lib.compiler import compile_for, expectations
from course_lib.kernels import attention_ladder
from course_lib.kernels.attention_ladder import shapes
from course_lib.simulator import simulate

LAST = attention_ladder.LAST
NUMBERS = [step.number for step in attention_ladder.STEPS]
CAUSAL = [step.number for step in attention_ladder.STEPS if step.takes_causal]
MODES = [(n, False) for n in NUMBERS] + [(n, True) for n in CAUSAL]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}


def operands(
    q_len: int = 256,
    kv_len: int = 256,
    *,
    batch: int = 1,
    heads: int = 2,
    kv_heads: int = 2,
    head_dim: int = 64,
    dtype: Any = "float16",
) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng().standard_normal
    q = draw((batch, q_len, heads, head_dim))
    k, v = (draw((batch, kv_len, kv_heads, head_dim)) for _ in range(2))
    return tuple(jnp.asarray(x, dtype) for x in (q, k, v))  # type: ignore[return-value]


def truth(q: Any, k: Any, v: Any, *, causal: bool = False) -> tuple[Any, Any]:
    """The attention and its lse, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", p / total, v), (top + np.log(total))[..., 0]


def relative_error(value: Any, want: Any) -> float:
    return float(np.linalg.norm(np.asarray(value, np.float64) - want) / np.linalg.norm(want))


def on_few_sms(number: int, *, options: Any = None, **settings: Any) -> Any:
    """A step that has two SMs at most, so that a block has several tiles."""
    module = attention_ladder.step(number).module
    names = {field.name for field in dataclasses.fields(module.Config)}
    if "num_sms" in names:
        settings = {"num_sms": 2, **settings}
    config = module.Config(**settings)
    return functools.partial(module.attention, config=config, **(options or {}))


@pytest.mark.two_jax
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("number", "causal"), MODES)
def test_a_step_is_right_and_nothing_is_found(number, causal, dtype, head_dim):
    arrays = operands(384, 256, batch=2, heads=2, kv_heads=1, head_dim=head_dim, dtype=dtype)
    function = on_few_sms(number, options={"causal": True} if causal else None)
    outcome = model.execute(function, arrays)
    assert outcome.findings == ()
    assert np.asarray(outcome.value).dtype == arrays[0].dtype
    assert relative_error(outcome.value, truth(*arrays, causal=causal)[0]) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "schedules",
    [("adversarial", 1), pytest.param(range(20), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
@pytest.mark.parametrize(("number", "causal"), MODES)
def test_a_step_is_right_in_any_order(number, causal, schedules):
    arrays = operands(384, 384)
    function = on_few_sms(number, options={"causal": True} if causal else None)
    want = truth(*arrays, causal=causal)[0]
    for schedule in schedules:
        report = simulate(function, *arrays, schedule=schedule)
        assert report.findings == (), schedule
        assert relative_error(report.value, want) < TOLERANCE["float16"], schedule


@pytest.mark.parametrize(("number", "causal"), MODES)
def test_one_tile_of_keys_is_enough(number, causal):
    arrays = operands(128, 128)
    function = on_few_sms(number, options={"causal": True} if causal else None)
    outcome = model.execute(function, arrays)
    assert outcome.findings == ()
    assert relative_error(outcome.value, truth(*arrays, causal=causal)[0]) < TOLERANCE["float16"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", CAUSAL)
def test_the_log_of_the_sum(number, causal):
    arrays = operands(256, 256)
    function = on_few_sms(number, options=dict(causal=causal, return_lse=True))
    outcome = model.execute(function, arrays)
    assert outcome.findings == ()
    out, lse = outcome.value
    want, want_lse = truth(*arrays, causal=causal)
    assert relative_error(out, want) < TOLERANCE["float16"]
    np.testing.assert_allclose(lse, want_lse, atol=2e-3)


@pytest.mark.parametrize(("q_len", "kv_len"), [(128, 512), (512, 128), (384, 256)])
@pytest.mark.parametrize("number", CAUSAL)
def test_causal_with_more_keys_than_queries_or_fewer(number, q_len, kv_len):
    arrays = operands(q_len, kv_len)
    outcome = model.execute(on_few_sms(number, options={"causal": True}), arrays)
    assert outcome.findings == ()
    assert relative_error(outcome.value, truth(*arrays, causal=True)[0]) < TOLERANCE["float16"]


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (0, dict(block_q=128, block_kv=64)),
        (1, dict(block_kv=64)),
        (2, dict(compute_wgs=1, max_concurrent_steps=3)),
        (3, dict(compute_wgs=3, block_kv=64, max_concurrent_steps=4)),
        (4, dict(compute_wgs=3)),
        (4, dict(wait_ahead=True)),
        (6, dict(wait_ahead=True, block_kv=64)),
        (7, dict(wait_ahead=True, block_kv=64)),
        (7, dict(wait_ahead=True, turns=False)),
        (7, dict(compute_wgs=3, turns=False, max_concurrent_steps=3)),
        (LAST, dict(turns=False)),
        (LAST, dict(compute_wgs=3, block_kv=64, turns=False)),
        (5, dict(block_kv=64)),
        (5, dict(compute_wgs=3)),
        (LAST, dict(compute_wgs=3, block_kv=64, max_concurrent_steps=4)),
        (LAST, dict(compute_wgs=3)),
        (LAST, dict(compute_wgs=1, max_concurrent_steps=3, num_sms=1)),
        (LAST, dict(block_q=128, block_kv=64)),
    ],
)
def test_other_configurations(number, settings):
    arrays = operands(384, 384)
    for causal in (False, True)[: 1 + attention_ladder.step(number).takes_causal]:
        options = {"causal": True} if causal else None
        outcome = model.execute(on_few_sms(number, options=options, **settings), arrays)
        assert outcome.findings == ()
        want = truth(*arrays, causal=causal)[0]
        assert relative_error(outcome.value, want) < TOLERANCE["float16"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("compute_wgs", [2, 3])
@pytest.mark.parametrize("q_len", [64, 128, 192, 320])
def test_the_last_step_takes_tiles_that_stick_out(q_len, compute_wgs, causal):
    arrays = operands(q_len, 384)
    options = dict(causal=causal, return_lse=True)
    function = on_few_sms(LAST, options=options, compute_wgs=compute_wgs)
    outcome = model.execute(function, arrays)
    assert outcome.findings == ()
    want, want_lse = truth(*arrays, causal=causal)
    assert relative_error(outcome.value[0], want) < TOLERANCE["float16"]
    np.testing.assert_allclose(outcome.value[1], want_lse, atol=2e-3)


def rising(length: int = 512) -> tuple[Any, Any, Any]:
    """Operands whose scores get larger and larger in the order in which the last steps take them.

    The largest ones of a tile of keys are up to 2**40 times those of the tile before, and not for
    all rows: the first half of the queries are small.
    """
    q, k, v = operands(256, length)
    sizes = np.linspace(3, 0.1, length)[None, :, None, None]  # the last keys come first
    small = np.where(np.arange(256) < 128, 0.1, 6.0)[None, :, None, None]
    return tuple(jnp.asarray(x, "float16") for x in (q * small, k * sizes, v))  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", CAUSAL)
def test_maxima_that_rise_all_the_time(number, causal, dtype):
    arrays = tuple(x.astype(dtype) for x in rising())
    function = on_few_sms(number, options=dict(causal=causal, return_lse=True), block_kv=64)
    outcome = model.execute(function, arrays)
    assert outcome.findings == ()
    want, want_lse = truth(*arrays, causal=causal)
    assert relative_error(outcome.value[0], want) < TOLERANCE[dtype]
    np.testing.assert_allclose(outcome.value[1], want_lse, atol=2e-3, rtol=1e-4)


def test_without_the_look_at_the_sums_they_overflow():
    """The twin of the test above: what the last step would give if it never did a tile again."""
    arrays = rising()
    module = variant(LAST, ("LIMIT = 2.0**8", "LIMIT = math.inf"))
    config = module.Config(block_kv=64, num_sms=2)
    function = functools.partial(module.attention, config=config)
    value = np.asarray(model.execute(function, arrays).value, np.float64)
    assert not relative_error(value, truth(*arrays)[0]) < TOLERANCE["float16"]  # or it is NaN


@pytest.mark.parametrize("number", NUMBERS)
def test_large_scores_do_not_overflow(number):
    q, k, v = operands(128, 256)
    arrays = (q * 30, k * 30, v)
    outcome = model.execute(on_few_sms(number), arrays)
    assert outcome.findings == ()
    assert relative_error(outcome.value, truth(*arrays)[0]) < TOLERANCE["float16"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(q_len=100), r"q_len=100 must be a multiple of (64|128|192)"),
        (dict(kv_len=100), "kv_len=100 must be a multiple of 128"),
        (dict(heads=3), "heads=3 must be a multiple of 2"),
        (dict(head_dim=96), "head_dim=96 must be 64 or 128"),
        (dict(dtype="float32"), "must be float16 or bfloat16"),
    ],
)
def test_operands_that_do_not_fit(number, change, words):
    with pytest.raises(ValueError, match=words):
        attention_ladder.step(number).module.attention(*operands(**change))


def test_operands_that_do_not_fit_each_other():
    q, k, v = operands()
    last = attention_ladder.step(LAST)
    with pytest.raises(ValueError, match=r"both must be \(1, 256, 2, 64\)"):
        last.attention(q, k, v[:, :128])
    with pytest.raises(ValueError, match="v is bfloat16"):
        last.attention(q, k, v.astype("bfloat16"))
    with pytest.raises(ValueError, match="have 3, 4 and 4 dimensions"):
        last.attention(q[0], k, v)


def test_what_a_step_does_not_take():
    for number in NUMBERS[: CAUSAL[0]]:
        with pytest.raises(ValueError, match=f"steps 5 to {LAST} do"):
            attention_ladder.step(number).attention(*operands(), causal=True)
    module = attention_ladder.step(2).module
    config = module.Config(compute_wgs=4)
    with pytest.raises(ValueError, match="compute_wgs=4 must be 1, 2 or 3"):
        module.attention(*operands(512), config=config)
    with pytest.raises(ValueError, match=f"the ladder goes from 0 to {LAST}"):
        attention_ladder.step(LAST + 1)


# What the compiler makes of each step for 4 sequences of 4096 and 16 heads, not causal.
# wgmma: of 64 rows and 16 of the inner dimension each, D/16 for the scores, keys/16 for P V.
def expected(number: int, head_dim: int) -> dict[str, int | str]:
    scores = head_dim // 16
    pv = attention_ladder.step(number).config(head_dim).block_kv // 16
    products = scores + pv if number < 3 else 2 * (scores + pv)  # the first and last are apart
    return {
        "wgmma.mma_async": products,
        f"HGMMA*64x{head_dim}x16": f">={pv}",
        "setmaxnreg": 2 if number > 1 else 0,
        "UTMASTG": 3 if number == 0 else ">=1",
        "UTMALDG": ">=3",
        "spill_bytes": 0,
        "registers": "<=168",
    }


def compiled(
    number: int, head_dim: int, *, causal: bool, dtype: Any = "bfloat16", **settings: Any
) -> Any:
    step = attention_ladder.step(number)
    arrays = (jax.ShapeDtypeStruct((4, 4096, 16, head_dim), dtype),) * 3
    config = step.module.Config(**settings) if settings else None
    function = functools.partial(step.attention, causal=causal, config=config)
    return compile_for(function, *arrays, arch="sm_90a")


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("number", NUMBERS)
def test_what_the_compiler_makes_of_a_step(number, head_dim):
    code = compiled(number, head_dim, causal=False)
    assert expectations(code, expected(number, head_dim)) == []


# The records are in float16: as many products, of that dtype, with float32 sums.
@pytest.mark.parametrize(
    ("number", "head_dim", "causal"),
    [(n, 128, False) for n in NUMBERS] + [(n, 64, True) for n in CAUSAL],
)
def test_float16_compiles_to_the_same_products(number, head_dim, causal):
    code = compiled(number, head_dim, causal=causal, dtype="float16")
    want = compiled(number, head_dim, causal=causal)
    names = ("wgmma.mma_async", "HGMMA", "MUFU.EX2", "setmaxnreg", "UTMALDG", "UTMASTG")
    assert expectations(code, {name: want.count(name) for name in names}) == []
    products = want.count("wgmma.mma_async*.f32.bf16.bf16")
    assert products == want.count("wgmma.mma_async")
    assert expectations(code, {"wgmma.mma_async*.f32.f16.f16": products, "spill_bytes": 0}) == []


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("number", CAUSAL)
def test_what_the_compiler_makes_of_a_causal_step(number, head_dim):
    code = compiled(number, head_dim, causal=True)
    assert expectations(code, {"spill_bytes": 0, "wgmma.mma_async": ">=24"}) == []


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("number", "causal"), [mode for mode in MODES if mode[0] > 0])
def test_wgmmas_are_waited_for_in_groups(number, causal, head_dim):
    """Where ptxas cannot follow the accumulators it waits after each wgmma, at half the speed."""
    sass = compiled(number, head_dim, causal=causal).sass.splitlines()
    products = [line for line in sass if "HGMMA" in line]
    assert sum("gsb0" in line for line in products) <= len(products) // 4


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_all_of_the_softmax_is_beside_p_v(number):
    """With wait_ahead, the powers of two are between the waits for the scores and for P V."""
    sass = compiled(number, 128, causal=False, wait_ahead=True).sass.splitlines()
    waits = [i for i, line in enumerate(sass) if "WARPGROUP.DEPBAR.LE gsb0" in line]
    for_scores = next(i for i in waits if sass[i].rstrip(" ;").endswith("0x1"))
    for_pv = next(i for i in waits if i > for_scores)
    assert sum("MUFU.EX2" in line for line in sass[for_scores:for_pv]) >= 64


def loop_of_the_softmax(sass: str) -> str:
    """The instructions between the wait for a step's scores and the branch to a slower path."""
    after = sass[sass.index("WARPGROUP.DEPBAR.LE gsb0, 0x1") :]
    return after[: after.index("VOTE")] if "VOTE" in after else after


def test_no_maximum_is_on_the_way_from_the_scores_to_the_probabilities():
    """The last step's powers of two need no maximum, no shuffle; those of the step before do."""
    before = loop_of_the_softmax(compiled(LAST - 1, 128, causal=False).sass)
    last = loop_of_the_softmax(compiled(LAST, 128, causal=False).sass)
    assert last.count("MUFU.EX2") == 32  # 64 rows of 64 keys, 128 lanes
    assert last.count("SHFL") == 0
    assert last.count("FMNMX") <= 4  # of the vote
    first_power = before.index("MUFU.EX2")
    assert before[:first_power].count("FMNMX") >= 32
    assert before[:first_power].count("SHFL") >= 2


def test_every_step_shows_what_it_changes():
    for step in attention_ladder.STEPS[1:]:
        changes = attention_ladder.diff(step.number)
        assert changes.startswith(f"--- attention{step.number - 1}\n+++ {step.name}\n")
    assert attention_ladder.diff(6, since=4).startswith("--- attention4\n+++ attention6\n")


def test_who_runs_in_a_benchmark():
    everyone = [step.number for step, _ in attention_ladder.contenders(128, causal=False)]
    causal = [step.number for step, _ in attention_ladder.contenders(64, causal=True)]
    assert (everyone, causal) == (NUMBERS, CAUSAL)


@pytest.mark.parametrize(
    ("q_tiles", "sequences", "most", "causal", "blocks"),
    [
        (32, 64, 132, False, 128),
        (32, 64, 132, True, 128),
        (22, 64, 132, True, 132),
        (128, 16, 132, True, 128),
        (256, 16, 132, True, 128),
        (3, 2, 132, True, 6),
    ],
)
def test_blocks_that_are_done_at_the_same_time(q_tiles, sequences, most, causal, blocks):
    assert shapes.even_blocks(q_tiles, sequences, most, causal=causal) == blocks


@pytest.mark.parametrize(
    ("tile_q", "block_kv", "crossed"), [(128, 128, 1), (192, 128, 2), (64, 128, 1), (128, 64, 2)]
)
def test_how_many_tiles_the_diagonal_crosses(tile_q, block_kv, crossed):
    assert shapes.most_crossed(tile_q, block_kv) == crossed
    for row in range(0, 8 * tile_q, tile_q):  # from the tile of the first row to that of the last
        assert (row + tile_q - 1) // block_kv - row // block_kv + 1 <= crossed


def variant(number: int, *changes: tuple[str, str]) -> types.ModuleType:
    """A step's module with a few words of its code changed; each must be there."""
    code = attention_ladder.step(number).source
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    module = types.ModuleType(f"variant_of_attention{number}")
    sys.modules[module.__name__] = module  # dataclasses look it up
    path = attention_ladder.step(number).module.__file__ or ""
    exec(compile(code, path, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("number", "changes", "rule"),
    [
        pytest.param(
            1,
            [("            plgpu.barrier_wait(k_loaded)\n", "")],
            "mma-operand-not-arrived",
            id="scores of keys that are not there yet",
        ),
        pytest.param(
            2,
            [("num_arrivals=wgs, num_barriers=slots", "num_barriers=slots")],
            "barrier-overrun",
            id="a slot given back by each of its two readers alone",
        ),
        pytest.param(
            4,
            [
                ("                        scores(s_acc, slot)\n", ""),
                (
                    "                        # P V, which",
                    " " * 24 + "scores(s_acc, slot)\n" + " " * 24 + "# P V, which",
                ),
            ],
            "accumulator-read-early",
            id="scores issued after P V, and read while they are computed",
        ),
        pytest.param(
            7,
            [("num_arrivals=2, num_barriers=slots", "num_barriers=slots")],
            "barrier-overrun",
            id="a slot that is there when its keys or its values are",
        ),
        pytest.param(
            LAST,
            [
                (
                    "                        scores(s_acc, slot)\n",
                    "                        scores(s_acc, slot)\n"
                    "                        plgpu.barrier_arrive(consumed.at[slot])\n",
                ),
                (
                    "                plgpu.barrier_arrive(consumed.at[slot])\n"
                    "                s = mask",
                    "                s = mask",
                ),
            ],
            "mma-operand-overwritten",
            id="a slot given back while P V still reads its values",
        ),
        pytest.param(
            LAST,
            [("            plgpu.wait_smem_to_gmem(0, wait_read_only=True)", "            pass")],
            "store-source-overwritten",
            id="an output over an output that is still on its way out",
        ),
    ],
)
def test_what_the_steps_avoid_is_found(number, changes, rule):
    module = variant(number, *changes)
    names = {field.name for field in dataclasses.fields(module.Config)}
    config = module.Config(**({"num_sms": 2} if "num_sms" in names else {}))
    arrays = operands(384, 384)
    function = functools.partial(module.attention, config=config)
    findings = simulate(function, *arrays, schedule="adversarial").findings
    assert rule in {finding.rule for finding in findings}, findings
