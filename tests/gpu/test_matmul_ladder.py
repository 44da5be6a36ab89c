"""On the card, every step of the ladder is right, and the benchmark measures and records it."""

import functools
import json

import jax
import jax.numpy as jnp
import pytest

from course_lib import cli, runtime
from course_lib.benchmarks import bench, card, records, score, suites, tune
from course_lib.kernels import matmul_ladder
from course_lib.kernels.matmul_ladder import tuned

pytestmark = pytest.mark.gpu
SIZE = "1024x2048x1024"


@pytest.fixture(autouse=True)
def _hopper():
    device = runtime.device()
    if device is None or "wgmma" not in device.features:
        pytest.skip("this card has no wgmma")


def relative_error(out, a, b):
    truth = functools.partial(jnp.dot, preferred_element_type=jnp.float32)(a, b)
    return float(jnp.linalg.norm(out.astype(jnp.float32) - truth) / jnp.linalg.norm(truth))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("number", [step.number for step in matmul_ladder.STEPS])
def test_a_step_is_right(number, dtype):
    left, right = jax.random.split(jax.random.key(number))
    step = jax.jit(matmul_ladder.step(number).matmul)
    a = jax.random.normal(left, (4096, 1024), dtype)
    b = jax.random.normal(right, (1024, 4608), dtype)  # 576 tiles: the last wave is not full
    for _ in range(3):
        assert relative_error(step(a, b), a, b) < bench.TOLERANCE[dtype]


@pytest.mark.parametrize("number", [step.number for step in matmul_ladder.STEPS[10:]])
def test_tiles_that_stick_out(number):
    left, right = jax.random.split(jax.random.key(number))
    for m, n, k in ((8, 64, 64), (3000, 3008, 320)):
        a, b = (
            jax.random.normal(left, (m, k), "float16"),
            jax.random.normal(right, (k, n), "float16"),
        )
        out = jax.jit(matmul_ladder.step(number).matmul)(a, b)
        assert out.shape == (m, n)
        assert relative_error(out, a, b) < bench.TOLERANCE["float16"], (m, n, k)


def test_course_bench(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(records, "write", functools.partial(records.write, folder=tmp_path))
    assert cli.main(["bench", "matmul", "--sizes", SIZE, "--rounds", "3", "--anyway"]) == 0
    print(capsys.readouterr().out)
    [path] = tmp_path.glob("*.json")
    record = records.read(path)
    names = {row.name for row in record.rows}
    assert {"cuBLAS", *(step.name for step in matmul_ladder.STEPS)} <= names
    assert all(row.launches == 24 and row.median_us > 0 for row in record.rows)


def test_tune_keeps_what_the_kernels_read(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_TUNED", str(tmp_path / "tuned.json"))
    found = tune.tune([SIZE], limit=6, anyway=True)
    [best] = found.values()
    device = card.need_gpu().name
    assert tuned.best(1024, 2048, 1024, "bfloat16", device=device) == best.settings
    assert json.loads((tmp_path / "tuned.json").read_text())[device]


def test_score_ranks_a_kernel():
    found = score(matmul_ladder.step(3).matmul, size="2048x2048x2048:float16")
    print(found)
    assert 0.1 < found.ratio < 1.5
    assert len(found.ladder) == len(matmul_ladder.STEPS)


def test_the_ceilings_of_the_card():
    roof = card.roofline()
    assert roof is not None
    assert 500e12 < roof.flop_per_s < 3000e12
    assert 1e12 < roof.bytes_per_s < 10e12
    assert roof.sms > 100
    [case] = suites.matmul([SIZE], steps=())
    state = card.state()
    assert state is not None
    assert state.max_sm_mhz >= state.sm_mhz > 0
    assert case.baseline.name == "cuBLAS"
