"""`course tune` keeps what is fastest; `score` says where a kernel stands."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import cli, model
from course_lib.benchmarks import bench, card, records, score, scoring, suites, tune
from course_lib.benchmarks.records import Row
from course_lib.diagnostics import CourseError, KernelError
from course_lib.kernels import matmul_ladder
from course_lib.kernels.matmul_ladder import tuned
from tests.benchmarks.fakes import DEVICE, QUIET

LADDER = {i: 0.5 + 0.05 * i for i in range(len(matmul_ladder.STEPS))}
EVERYONE = len(LADDER)
SIZE = "512x512x512"


def row(name, ratio, config=None):
    return Row("case", name, 10.0, 9.0, 11.0, 40, 1.0, ratio, 0.0, config or {})


@pytest.fixture
def _gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(card.runtime, "device", lambda: DEVICE)
    monkeypatch.setattr(card, "state", lambda: QUIET)
    monkeypatch.setenv("COURSE_TUNED", str(tmp_path / "tuned.json"))


@pytest.mark.usefixtures("_gpu")
def test_the_fastest_configuration_is_kept(monkeypatch, capsys):
    """Here a band of 16 tiles is fastest in the finals, whatever the sweep said."""
    calls = []

    def measure_case(case, log, *, rounds=5, launches=8):
        calls.append((rounds, len(case.contenders)))
        width = lambda c: c.config["grid_tile_width"]  # noqa: E731
        speed = {4: 0.7, 8: 0.9, 16: 0.95 if rounds > 1 else 0.9, 32: 0.9}
        return [row("cuBLAS", 1.0)] + [
            row(c.name, speed[width(c)], c.config) for c in case.contenders
        ]

    monkeypatch.setattr(bench, "measure_case", measure_case)
    said: list[str] = []
    monkeypatch.setattr(tune.random, "sample", lambda all_of_them, n: all_of_them[:n])
    found = tune.tune([SIZE], limit=12, say=said.append)
    [best] = found.values()
    assert best.ratio == 0.95
    assert best.settings["grid_tile_width"] == 16
    assert calls == [(1, 8), (1, 4), (5, 4)]
    assert tuned.best(512, 512, 512, "bfloat16", device=DEVICE.name) == best.settings
    assert "0.950 of cuBLAS" in said[-1]
    bars = [
        line.split("] ")[1] for line in capsys.readouterr().err.replace("\n", "\r").split("\r")[:-1]
    ]
    assert bars == ["0 of 12", "8 of 12, best 0.900 of cuBLAS", "12 of 12, best 0.900 of cuBLAS"]


@pytest.mark.usefixtures("_gpu")
def test_nothing_fits(monkeypatch):
    monkeypatch.setattr(bench, "measure_case", lambda *_, **__: [])
    said: list[str] = []
    assert tune.tune([SIZE], limit=3, say=said.append) == {}
    assert said == ["512x512x512 bfloat16: no configuration runs on Card of the tests."]


def test_the_sweep_holds_configurations_of_the_last_step():
    module = matmul_ladder.step(matmul_ladder.LAST).module
    configs = [module.Config(**settings) for settings in tune.space()]
    assert len(configs) == len(set(configs)) > 50
    assert module.Config() in {dataclasses.replace(c, num_sms=None) for c in configs}


@pytest.mark.parametrize("settings", [*tune.TILES], ids=lambda s: f"{s['tile_m']}x{s['tile_n']}")
@pytest.mark.parametrize("cluster_m", [1, 2])
def test_what_the_sweep_runs_is_clean_on_the_model(settings, cluster_m):
    module = matmul_ladder.step(matmul_ladder.LAST).module
    config = module.Config(**settings, cluster_m=cluster_m, num_sms=4)
    rng = np.random.default_rng()
    a, b = (jnp.asarray(rng.standard_normal(s), "float16") for s in ((512, 192), (192, 768)))
    outcome = model.execute(lambda a, b: module.matmul(a, b, config=config), (a, b))
    assert outcome.findings == ()


@pytest.mark.parametrize(
    ("ratio", "faster", "following"),
    [(0.1, EVERYONE, 0), (0.52, EVERYONE - 1, 1), (0.72, EVERYONE - 5, 5), (2.0, 0, None)],
)
def test_a_place_on_the_ladder(ratio, faster, following):
    found = scoring.Score("4096x4096x4096 float16", "NVIDIA H200", ratio, LADDER)
    assert (found.rank, found.next_step) == (faster + 1, following)
    words = repr(found)
    assert f"{ratio:.1%} of cuBLAS at 4096x4096x4096 float16 on NVIDIA H200" in words
    assert f"rank {faster + 1} of {EVERYONE + 1} on the ladder" in words
    if following is None:
        assert "No step is faster" in words
    else:
        assert f"Next: matmul{following}, {matmul_ladder.step(following).idea}." in words


@pytest.mark.usefixtures("_gpu")
def test_score_takes_the_ladder_from_a_record_of_this_card(monkeypatch, tmp_path):
    case = "512x512x512 bfloat16"
    rows = tuple(dataclasses.replace(row(f"matmul{i}", r), case=case) for i, r in LADDER.items())
    record = records.Record(
        "matmul", "cuBLAS", "TFLOP/s", rows, {"before": {"name": DEVICE.name}}, {}, records.now()
    )
    monkeypatch.setattr(records, "all_records", lambda suite: iter([record]))
    asked = []

    def measure_case(case, log, **_):
        asked.append([c.name for c in case.contenders])
        return [row("cuBLAS", 1.0), row("yours", 0.72)]

    monkeypatch.setattr(bench, "measure_case", measure_case)
    monkeypatch.setattr(scoring.runtime, "execute_native", model.execute)
    found = score(matmul_ladder.step(1).matmul, size=SIZE, small=(128, 128, 128))
    assert (found.ratio, found.next_step) == (0.72, 5)
    assert asked == [["yours"]]


@pytest.mark.usefixtures("_gpu")
def test_score_measures_the_ladder_where_no_record_is(monkeypatch):
    monkeypatch.setattr(records, "all_records", lambda suite: iter([]))
    monkeypatch.setattr(scoring.runtime, "execute_native", model.execute)

    def measure_case(case, log, **_):
        return [row(c.name, 0.3 if c.name == "yours" else 0.9) for c in case.contenders]

    monkeypatch.setattr(bench, "measure_case", measure_case)
    found = score(matmul_ladder.step(0).matmul, size=SIZE, small=(128, 128, 128))
    assert found.ladder == dict.fromkeys(range(EVERYONE), 0.9)
    assert found.rank == EVERYONE + 1


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (
            lambda a, b: matmul_ladder.step(0).matmul(a, b) * 1.1,
            CourseError,
            "does not compute a @ b",
        ),
        (lambda a, b: matmul_ladder.step(0).matmul(a, b)[:64], CourseError, r"returns \(64, 128\)"),
        (lambda a, b: matmul_ladder.step(0).matmul(a[:100], b), KernelError, "multiple of 128"),
    ],
)
def test_a_wrong_kernel_is_not_timed(monkeypatch, wrong, error, words):
    monkeypatch.setattr(bench, "measure_case", lambda *_, **__: pytest.fail("it was timed"))
    monkeypatch.setattr(
        scoring.runtime, "execute_native", lambda *_: pytest.fail("it touched the card")
    )
    with pytest.raises(error, match=words):
        score(wrong, size=SIZE, small=(128, 128, 128))


@pytest.mark.parametrize(
    "command", [["bench", "matmul"], ["bench", "attention"], ["bench", "copy"], ["tune"]]
)
def test_without_a_gpu_the_commands_say_so_in_a_sentence(monkeypatch, capsys, command):
    monkeypatch.setattr(card.runtime, "device", lambda: None)
    assert cli.main(command) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"There is no GPU[^.]*\.\n", said.err)


def test_score_without_a_gpu(monkeypatch):
    monkeypatch.setattr(card.runtime, "device", lambda: None)
    with pytest.raises(CourseError, match="There is no GPU"):
        score(matmul_ladder.matmul)


def test_the_simulators_benchmark_needs_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr(card.runtime, "device", lambda: None)
    from course_lib.benchmarks import simulator

    asked = []
    monkeypatch.setattr(simulator, "report", lambda sizes, repeats: asked.append((sizes, repeats)))
    assert cli.main(["bench", "simulator", "--sizes", "128", "256", "--rounds", "2"]) == 0
    assert cli.main(["bench", "simulator"]) == 0
    assert asked == [([128, 256], 2), ([512, 1024], 5)]


@pytest.mark.usefixtures("_gpu")
def test_course_bench_prints_a_table_and_writes_a_record(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "measure_case", lambda *_, **__: [row("cuBLAS", 1.0)])
    monkeypatch.setattr(records, "write", lambda r, f=tmp_path: tmp_path / r.suite)
    roof = card.Roofline(
        flop_per_s=500e12, bytes_per_s=2e12, sms=100, l2_bytes=1 << 20, clock_hz=1e9
    )
    monkeypatch.setattr(card, "roofline", lambda: roof)
    assert cli.main(["bench", "matmul", "--sizes", SIZE]) == 0
    out = capsys.readouterr().out
    assert "case, Card of the tests" in out
    assert "The roof of Card of the tests: 500 TFLOP/s" in out
    assert "the ridge is at 250 FLOP per byte" in out
    assert f"Recorded in {tmp_path / 'matmul'}" in out
    assert cli.main(["bench", "matmul", "--sizes", SIZE, "--no-record"]) == 0
    assert "Recorded" not in capsys.readouterr().out
    clusters = {"clusters-stream", "clusters-product"}
    assert suites.SUITES.keys() == {"matmul", "attention", "copy", *clusters}


@pytest.mark.usefixtures("_gpu")
def test_course_bench_clusters_measures_both_suites(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench, "measure_case", lambda case, *_, **__: [row(case.name, 1.0)])
    monkeypatch.setattr(bench, "compile_cases", lambda cases, _: [{} for _ in cases])
    monkeypatch.setattr(records, "write", lambda r: tmp_path / r.suite)
    monkeypatch.setattr(card, "roofline", lambda: None)
    assert cli.main(["bench", "clusters"]) == 0
    out = capsys.readouterr().out
    assert "1056 blocks read 1024 tiles" in out
    assert "4096x4096x4096 float16" in out
    for suite in ("clusters-stream", "clusters-product"):
        assert f"Recorded in {tmp_path / suite}" in out
    assert cli.main(["bench", "clusters-product", "--sizes", "1024:float16", "--no-record"]) == 0
    out = capsys.readouterr().out
    assert "1024x1024x1024 float16" in out
    assert "Recorded" not in out
    for command, words in (
        (["clusters", "--sizes", "4096"], "take one of clusters-stream, clusters-product"),
        (["clusters-stream", "--sizes", "4096"], "has one size"),
        (["clusters-product", "--sizes", "4096x4096"], "is no size of a matmul in clusters"),
    ):
        assert cli.main(["bench", *command]) == 1
        assert words in capsys.readouterr().err
