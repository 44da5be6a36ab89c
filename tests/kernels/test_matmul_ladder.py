"""Every step of the ladder is right, free of findings, and made of the instructions it is about."""

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
from course_lib.kernels import matmul_ladder
from course_lib.kernels.matmul_ladder import shapes, tuned
from course_lib.simulator import replay, trace_kernels

LAST = matmul_ladder.LAST
NUMBERS = [step.number for step in matmul_ladder.STEPS]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}


def normal(*shape: int, dtype: Any = "float16") -> Any:
    return jnp.asarray(np.random.default_rng().standard_normal(shape), dtype)


def relative_error(value: Any, a: Any, b: Any) -> float:
    truth = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    return float(np.linalg.norm(np.asarray(value, np.float64) - truth) / np.linalg.norm(truth))


def on_few_sms(number: int, **settings: Any) -> Any:
    """A step that has four SMs at most, so that a block has several tiles."""
    module = matmul_ladder.step(number).module
    names = {field.name for field in dataclasses.fields(module.Config)}
    if "num_sms" in names:
        settings = {"num_sms": 4, **settings}
    return functools.partial(module.matmul, config=module.Config(**settings))


@pytest.mark.two_jax
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_multiplies_and_nothing_is_found(number, dtype):
    a, b = normal(512, 320, dtype=dtype), normal(320, 768, dtype=dtype)
    outcome = model.execute(on_few_sms(number), (a, b))
    assert outcome.findings == ()
    assert np.asarray(outcome.value).dtype == a.dtype
    assert relative_error(outcome.value, a, b) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    "schedules",
    [("adversarial", 1), pytest.param(range(20), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_step_is_right_in_any_order(number, schedules):
    a, b = normal(512, 320), normal(320, 512)
    program = trace_kernels(on_few_sms(number), a, b)
    for schedule in schedules:
        report = replay(program, [np.asarray(a), np.asarray(b)], schedule=schedule)
        assert report.findings == (), schedule
        assert relative_error(report.value[0], a, b) < TOLERANCE["float16"], schedule


@pytest.mark.parametrize("number", NUMBERS)
def test_one_slot_of_k_is_enough(number):
    a, b = normal(256, 64), normal(64, 256)
    outcome = model.execute(on_few_sms(number), (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (1, dict(tile_n=64, max_concurrent_steps=2)),
        (3, dict(tile_n=128)),
        (6, dict(tile_n=128, epi_tile_n=32)),
        (7, dict(grid_minor_dim=1, grid_tile_width=2)),
        (8, dict(cluster_m=1)),
        (9, dict(tile_m=64, tile_n=256)),
        (10, dict(cluster_m=2)),
        (12, dict(cluster_m=2)),
        (12, dict(tile_m=128, tile_n=192, max_concurrent_steps=3, epi_tile_n=32)),
    ],
)
def test_other_configurations(number, settings):
    a, b = normal(512, 192), normal(192, 768)
    outcome = model.execute(on_few_sms(number, **settings), (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]


@pytest.mark.parametrize("cluster_m", [1, 2])
@pytest.mark.parametrize(("m", "k", "n"), [(200, 128, 320), (72, 64, 64), (8, 192, 128)])
@pytest.mark.parametrize("number", [n for n in NUMBERS if n >= 10])
def test_later_steps_take_tiles_that_stick_out(number, m, k, n, cluster_m):
    a, b = normal(m, k), normal(k, n)
    outcome = model.execute(on_few_sms(number, cluster_m=cluster_m), (a, b))
    assert outcome.findings == ()
    assert relative_error(outcome.value, a, b) < TOLERANCE["float16"]


@pytest.mark.parametrize("number", NUMBERS[10:])
def test_no_piece_of_the_result_begins_outside_of_it(number):
    """On an H200 the pieces beyond a result of 64 columns were written over the first one."""
    square = (jax.ShapeDtypeStruct((64, 64), jnp.float16),) * 2
    code = compile_for(matmul_ladder.step(number).module.matmul, *square, arch="sm_90a")
    assert expectations(code, {"UTMASTG": 1, "HGMMA*64x64x16": 4}) == []


@pytest.mark.parametrize("number", NUMBERS[:10])
@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((512, 320), (256, 512), "a has 320 columns and b has 256 rows"),
        ((100, 320), (320, 512), r"m=100 must be a multiple of (128|256)"),
        ((512, 320), (320, 100), r"n=100 must be a multiple of (128|256)"),
        ((512, 300), (300, 512), "k=300 must be a multiple of 64"),
    ],
)
def test_shapes_that_do_not_fit(number, a, b, words):
    with pytest.raises(ValueError, match=words):
        matmul_ladder.step(number).matmul(normal(*a), normal(*b))


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((100, 320), (320, 512), "m=100 must be a multiple of 8"),
        ((512, 320), (320, 100), "n=100 must be a multiple of 64"),
        ((512, 300), (300, 512), "k=300 must be a multiple of 64"),
    ],
)
@pytest.mark.parametrize("number", NUMBERS[10:])
def test_shapes_that_do_not_fit_the_later_steps(number, a, b, words):
    with pytest.raises(ValueError, match=words):
        matmul_ladder.step(number).matmul(normal(*a), normal(*b))


@pytest.mark.parametrize("number", NUMBERS)
def test_dtypes_that_do_not_fit(number):
    step = matmul_ladder.step(number)
    with pytest.raises(ValueError, match="must be float16 or bfloat16"):
        step.matmul(normal(512, 64, dtype="float32"), normal(64, 512, dtype="float32"))
    with pytest.raises(ValueError, match="a is float16 and b is bfloat16"):
        step.matmul(normal(512, 64), normal(64, 512, dtype="bfloat16"))


@pytest.mark.parametrize("number", [n for n in NUMBERS if n >= 5])
def test_an_epilogue_that_does_not_fit_its_tile(number):
    module = matmul_ladder.step(number).module
    config = module.Config(epi_tile_n=96)
    with pytest.raises(ValueError, match=r"tile_n=\d+ must be a multiple of 96"):
        module.matmul(normal(512, 64), normal(64, 512), config=config)


# What the compiler makes of each step at 8192^3. wgmma: of 64 rows and 16 of K each.
EXPECTED: dict[int, dict[str, int | str]] = {
    0: {"wgmma.mma_async": 8, "UTMALDG": 2, "UTMASTG": 1},
    1: {"wgmma.mma_async": 8, "UTMALDG": ">=4", "UTMASTG": 1},
    2: {"wgmma.mma_async": 8, "UTMALDG": ">=4", "UTMASTG": 1},
    3: {"wgmma.mma_async": 4, "HGMMA*64x256x16": 4, "UTMASTG": 1, "setmaxnreg": 0},
    4: {"wgmma.mma_async": 4, "HGMMA*64x256x16": 4, "setmaxnreg": 2, "UTMASTG": 1},
    5: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
    6: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
    7: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
    8: {"wgmma.mma_async": 4, "cp.async.bulk.tensor*multicast::cluster": ">=2", "UTMASTG": 4},
    9: {"wgmma.mma_async": 8, "setmaxnreg": 2, "UTMASTG": 2},
    10: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
    11: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
    12: {"wgmma.mma_async": 4, "setmaxnreg": 2, "UTMASTG": 4},
}


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "bf16"), ("float16", "f16")])
@pytest.mark.parametrize("number", NUMBERS)
def test_what_the_compiler_makes_of_a_step(number, dtype, name):
    square = (jax.ShapeDtypeStruct((8192, 8192), dtype),) * 2
    code = compile_for(matmul_ladder.step(number).module.matmul, *square, arch="sm_90a")
    none_lost = {"spill_bytes": 0, "registers": "<=168", "tcgen05": 0}
    assert expectations(code, {**EXPECTED[number], **none_lost}) == []
    # The operands' dtype, and float32 for the sums (PTX ISA, wgmma.mma_async).
    products = EXPECTED[number]["wgmma.mma_async"]
    assert expectations(code, {f"wgmma.mma_async*.f32.{name}.{name}": products}) == []


def test_every_step_shows_what_it_changes():
    for step in matmul_ladder.STEPS[1:]:
        changes = matmul_ladder.diff(step.number)
        assert changes.startswith(f"--- matmul{step.follows}\n+++ {step.name}\n")
        added = [line for line in changes.splitlines() if line.startswith("+")]
        assert len(added) < len(step.source.splitlines())
    assert matmul_ladder.diff(10, since=7).startswith("--- matmul7\n+++ matmul10\n")


def test_a_step_that_there_is_not():
    with pytest.raises(ValueError, match=f"the ladder goes from 0 to {LAST}"):
        matmul_ladder.step(LAST + 1)


@pytest.mark.parametrize(
    ("tiles", "most", "blocks"),
    [(2048, 132, 128), (512, 132, 128), (5, 132, 5), (132, 132, 132), (133, 132, 67), (1, 4, 1)],
)
def test_even_blocks_need_no_more_waves(tiles, most, blocks):
    assert shapes.even_blocks(tiles, most) == blocks
    assert -(-tiles // blocks) == -(-tiles // most)


def test_the_readers_own_settings_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TUNED", str(tmp_path / "deep" / "tuned.json"))
    shape = (4096, 8192, 4096, "bfloat16")
    step = matmul_ladder.step(LAST)
    assert tuned.best(*shape, device="a card that nobody has") == {}
    tuned.keep(*shape, {"grid_tile_width": 3}, device="mine")
    tuned.keep(*shape, {"grid_tile_width": 5}, device="yours")
    assert step.config(*shape, device="mine") == step.module.Config(grid_tile_width=3)
    assert step.config(*shape, device="yours") == step.module.Config(grid_tile_width=5)
    assert step.config(4096, 4096, 4096, "bfloat16", device="mine") == step.module.Config()


@pytest.mark.parametrize("text", ["", "{", "[1, 2]"])
def test_a_file_of_settings_that_is_none_counts_as_empty(tmp_path, monkeypatch, text):
    file = tmp_path / "tuned.json"
    file.write_text(text)
    monkeypatch.setenv("COURSE_TUNED", str(file))
    assert tuned.best(8, 8, 8, "float16", device="mine") == {}
    tuned.keep(8, 8, 8, "float16", {"tile_k": 32}, device="mine")
    assert tuned.best(8, 8, 8, "float16", device="mine") == {"tile_k": 32}


def variant(number: int, *changes: tuple[str, str]) -> types.ModuleType:
    """A step's module with a few words of its code changed; each must be there."""
    code = matmul_ladder.step(number).source
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    module = types.ModuleType(f"variant_of_matmul{number}")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(code, matmul_ladder.step(number).module.__file__ or "", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("number", "changes", "rule"),
    [
        pytest.param(
            6,  # with delay_release, the last slot of a tile is never released before the next
            [
                ("(0, ki))", "(0, ki), delay_release=1)"),
                ("(ki, 0))", "(ki, 0), delay_release=1)"),
                ("wgmma_wait(0)", "wgmma_wait(1)"),
            ],
            "mma-operand-overwritten",
            id="persistent with delay_release",
        ),
        pytest.param(
            1,
            [
                ("ki + slots - 1", "ki + slots"),
                ("(ki > 0) & (refill_ki < k_iters)", "refill_ki < k_iters"),
            ],
            "mma-operand-overwritten",
            id="refilling the slot that was just given to wgmma",
        ),
        pytest.param(
            3,
            [("                    plgpu.barrier_wait(consumed.at[refill_slot])\n", "")],
            "mma-operand-overwritten",
            id="not waiting for the other warpgroup",
        ),
        pytest.param(
            5,  # JAX gives the two others 224 each: 512 in all, and the block was launched with 504
            [("memory_registers=40", "memory_registers=64")],
            "deadlock",
            id="more registers than the block was launched with",
        ),
        pytest.param(
            9,
            [("taker * slots + slot", "slot"), ("wg * slots + slot", "slot")],
            "mma-operand-not-arrived",
            id="one barrier for the slots of both warpgroups",
        ),
        pytest.param(
            12,
            [("plgpu.wgmma_wait(0)", "plgpu.wgmma_wait(1)")],
            "mma-operand-overwritten",
            id="releasing a slot that is still read",
        ),
        pytest.param(
            12,
            [("plgpu.wait_smem_to_gmem(1, wait_read_only=True)", "pass")],
            "store-source-overwritten",
            id="a piece over a piece that is still on its way out",
        ),
    ],
)
def test_what_the_steps_avoid_is_found(number, changes, rule):
    module = variant(number, *changes)
    names = {field.name for field in dataclasses.fields(module.Config)}
    config = module.Config(**({"num_sms": 4} if "num_sms" in names else {}))
    a, b = normal(512, 320), normal(320, 768)
    program = trace_kernels(lambda a, b: module.matmul(a, b, config=config), a, b)
    findings = replay(program, [np.asarray(a), np.asarray(b)], schedule="adversarial").findings
    assert rule in {finding.rule for finding in findings}, findings
