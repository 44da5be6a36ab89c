"""A suite leaves out what is wrong or does not run, says why, and makes a record of the rest."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

from course_lib.benchmarks import bench, card, records, table, timing
from course_lib.benchmarks.bench import Case, Contender
from course_lib.diagnostics import CourseError
from tests.benchmarks.fakes import BUSY, DEVICE, QUIET, SLOWED, by_the_clock_on_the_wall


@pytest.fixture(autouse=True)
def _card(monkeypatch):
    monkeypatch.setattr(card.runtime, "device", lambda: DEVICE)
    monkeypatch.setattr(card, "state", lambda: QUIET)
    monkeypatch.setattr(card, "roofline", lambda: None)
    monkeypatch.setattr(timing, "cupti_times_us", by_the_clock_on_the_wall)
    monkeypatch.setattr(bench.time, "sleep", lambda _: None)


def doubling(*contenders: Contender) -> Case:
    return Case(
        name="256x256 float32",
        dtype="float32",
        work=1e-6,
        draw=lambda key: (jax.random.normal(key, (256, 256)),),
        reference=lambda x: 2 * x,
        baseline=Contender("library", lambda x: x + x, kernel=False),
        contenders=contenders,
        bytes_of_inputs=256 * 256 * 4,
    )


def plain(name, function, **more):
    return Contender(name, function, kernel=False, **more)


def measured(*contenders, **options):
    said: list[str] = []
    options = {"progress": lambda stage, detail="": None, **options}
    record = bench.run_suite("test", "TFLOP/s", [doubling(*contenders)], say=said.append, **options)
    return record, said


@pytest.fixture(autouse=True)
def _few_inputs(monkeypatch):
    """The real number follows from the size of the L2 cache: hundreds of these small arrays."""
    draw = lambda case: [case.draw(key) for key in jax.random.split(jax.random.key(7), 3)]  # noqa: E731
    monkeypatch.setattr(bench, "_input_sets", draw)


def test_a_right_contender_gets_a_row():
    record, said = measured(plain("mine", lambda x: x * 2, config={"tile": 3}))
    assert [row.name for row in record.rows] == ["library", "mine"]
    library, mine = record.rows
    assert library.ratio == 1.0
    assert mine.launches == 40
    assert mine.config == {"tile": 3}
    assert mine.error == 0
    assert mine.low_us <= mine.median_us <= mine.high_us
    assert mine.ratio == pytest.approx(library.median_us / mine.median_us, rel=1e-2)
    assert record.notes == ()
    assert said == []


def test_a_wrong_contender_gets_a_sentence_and_no_row():
    record, said = measured(plain("mine", lambda x: x * 2.01))
    assert [row.name for row in record.rows] == ["library"]
    assert said == list(record.notes)
    assert "mine is wrong: its relative error is 5.0e-03" in said[0]


def test_a_record_says_how_the_card_does_under_load(monkeypatch):
    loaded = dataclasses.replace(QUIET, sm_mhz=1500.0, power_w=695.0, reasons=4)
    states = iter([QUIET, loaded, QUIET])
    monkeypatch.setattr(card, "state", lambda: next(states))
    record, _ = measured()
    assert record.card["under load"] == {
        "256x256 float32": {"sm_mhz": 1500.0, "power_w": 695.0, "reasons": 4}
    }
    assert record.card["after"]["sm_mhz"] == 1980.0


def test_nan_is_wrong():
    record, _ = measured(plain("mine", lambda x: x * jnp.nan))
    assert "mine is wrong" in record.notes[0]


@pytest.mark.parametrize(("factor", "error"), [(2.01, 5e-3), (float("nan"), 1e9)])
def test_what_is_wrong_on_purpose_is_measured_with_its_error(factor, error):
    record, said = measured(plain("no softmax", lambda x: x * factor, wrong=True))
    assert [row.name for row in record.rows] == ["library", "no softmax"]
    assert record.rows[1].error == pytest.approx(error, rel=1e-2)
    assert said == []


def test_a_contender_that_becomes_wrong_while_it_is_timed(monkeypatch):
    """A race shows now and then: outputs are compared after the timing, too."""
    errors = itertools.chain([0.0] * 6, itertools.repeat(0.5))  # two contenders on three sets
    monkeypatch.setattr(bench, "_relative_error", lambda out, want: next(errors))
    record, said = measured(plain("mine", lambda x: x * 2))
    assert record.rows == ()
    assert len(said) == 2


def test_a_contender_with_a_truth_of_its_own():
    record, _ = measured(plain("other", lambda x: x + 1, reference=lambda x: x + 1))
    assert [row.name for row in record.rows] == ["library", "other"]


def test_a_contender_that_wants_other_inputs():
    seen = []

    def halved(x):
        seen.append(x)
        return (x / 2,)

    record, _ = measured(plain("other", lambda x: 4 * x, prepare=halved))
    assert [row.name for row in record.rows] == ["library", "other"]
    assert record.rows[1].error == 0
    arrays = [x for x in seen if not isinstance(x, jax.core.Tracer)]
    assert len(arrays) == 3  # each set once, not at each launch


def test_somebody_who_waits_is_told_how_far_it_is():
    told = []
    progress = lambda stage, detail="": told.append((stage, detail))  # noqa: E731
    record, said = measured(plain("mine", lambda x: x * 2), progress=progress)
    assert said == []
    assert record.notes == ()
    assert told[:2] == [("compiling", "1 of 2 functions"), ("compiling", "2 of 2 functions")]
    assert ("256x256 float32", "is mine right?") in told
    assert ("256x256 float32", "round 5 of 5") in told
    assert told[-1] == ("done", "2 rows")


def test_everybody_is_compiled_before_anybody_is_timed(monkeypatch):
    happened = []
    compile_one, interleave = bench._compile, timing.interleave

    def compiles(c, case):
        happened.append("compile")
        return compile_one(c, case)

    def times(*args, **options):
        happened.append("time")
        return interleave(*args, **options)

    monkeypatch.setattr(bench, "_compile", compiles)
    monkeypatch.setattr(timing, "interleave", times)
    cases = [doubling(plain("mine", lambda x: x * 2)) for _ in range(2)]
    record = bench.run_suite("test", "TFLOP/s", cases, rounds=1)
    assert happened == ["compile"] * 4 + ["time"] * 2
    assert 0 <= record.seconds["compiling"] <= record.seconds["all"]


def test_a_contender_with_a_clock_of_its_own_is_called_as_it_is():
    def double(x):
        assert not isinstance(x, jax.core.Tracer)
        return 2 * x

    record, _ = measured(
        plain("mine", double, clock=lambda calls: [5.0 + 0 * len(call()) for call in calls])
    )
    assert [row.median_us for row in record.rows if row.name == "mine"] == [5.0]


def test_a_contender_that_does_not_compile_is_left_out():
    def fails(x):
        raise ValueError("m=256 must be a multiple of 300")

    record, _ = measured(plain("mine", fails))
    assert record.notes == ("256x256 float32: mine is left out: m=256 must be a multiple of 300.",)


def test_a_kernel_that_the_card_cannot_run_is_left_out(monkeypatch):
    from course_lib.kernels import matmul_blackwell

    case = dataclasses.replace(
        doubling(Contender("blackwell", lambda x: matmul_blackwell.matmul(x, x))),
        draw=lambda key: (jax.random.normal(key, (256, 256), "float16"),),
        dtype="float16",
    )
    log = bench.Log(say=lambda _: None)
    assert [row.name for row in bench.measure_case(case, log, rounds=1, launches=2)] == ["library"]
    assert "blackwell is left out: it needs Blackwell's tensor-core instruction" in log.notes[0]


@pytest.mark.parametrize(("state", "words"), [(BUSY, "is busy"), (SLOWED, "is slowed")])
def test_a_card_that_is_not_itself(monkeypatch, state, words):
    monkeypatch.setattr(card, "state", lambda: state)
    with pytest.raises(CourseError, match=rf"{words}.*--anyway"):
        measured()
    record, _ = measured(anyway=True)
    assert words in record.notes[0]


def test_a_card_that_was_busy_with_our_own_work_a_moment_ago(monkeypatch):
    states = iter([BUSY, QUIET, QUIET, QUIET])
    monkeypatch.setattr(card, "state", lambda: next(states))
    record, _ = measured()
    assert record.notes == ()


def test_a_card_that_slows_down_during_the_run(monkeypatch):
    states = iter([QUIET, QUIET, SLOWED])
    monkeypatch.setattr(card, "state", lambda: next(states))
    record, _ = measured()
    assert "After the run" in record.notes[0]


def test_a_size_that_does_not_fit_in_memory(monkeypatch):
    def draw(_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    monkeypatch.setattr(bench, "_input_sets", draw)
    record, said = measured()
    assert record.rows == ()
    assert said == [
        "256x256 float32 does not fit in the card's memory: --sizes takes smaller ones."
    ]


def test_no_nvidia_smi(monkeypatch):
    monkeypatch.setattr(card, "state", lambda: None)
    record, _ = measured()
    assert "nvidia-smi does not answer" in record.notes[0]
    assert record.device == "an unknown card"


def test_a_record_is_read_as_it_was_written(tmp_path):
    record, _ = measured(plain("mine", lambda x: x * 2))
    path = records.write(record, tmp_path)
    assert path.name.endswith("-card-of-the-tests-test.json")
    assert records.read(path) == record
    assert set(record.seconds) == {"compiling", "all"}
    assert records.newest("test", folder=tmp_path) == record
    assert records.newest("test", device="another", folder=tmp_path) is None
    assert records.newest("matmul", folder=tmp_path) is None
    for name in ("jax", "jaxlib", "python"):
        assert record.software[name]
    assert record.card["before"]["sm_mhz"] == 1980.0


def test_the_newest_record_is_taken(tmp_path):
    record, _ = measured()
    for date in ("2026-01-02T03:04:05+00:00", "2027-01-02T03:04:05+00:00"):
        records.write(dataclasses.replace(record, date=date), tmp_path)
    found = records.newest("test", folder=tmp_path)
    assert found is not None
    assert found.date.startswith("2027")


def test_a_file_of_another_schema(tmp_path):
    path = tmp_path / "x-test.json"
    path.write_text('{"schema": 99}')
    with pytest.raises(ValueError, match="is not a record of schema"):
        records.read(path)


def test_a_table_has_a_line_for_each_row():
    record, _ = measured(plain("mine", lambda x: x * 2))
    lines = table.table(record).splitlines()
    assert lines[0] == "256x256 float32, Card of the tests"
    assert "TFLOP/s" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["library", "mine"]
    assert lines[2].endswith("1.000")
    assert table.table(dataclasses.replace(record, rows=())) == "Nothing was measured."


def test_the_committed_records_can_be_read():
    for path in records.FOLDER.glob("*.json"):
        record = records.read(path)
        assert record.rows, path
        assert record.card["before"], path
