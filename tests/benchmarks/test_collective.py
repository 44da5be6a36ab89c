"""The benchmark of chapter 13: one launch's time out of many devices', and equal results."""

import functools
import re

import jax
import numpy as np
import pytest

from course_lib import simulator
from course_lib.benchmarks import collective, records
from course_lib.diagnostics import CourseError
from course_lib.kernels import many_gpus as kernels


def test_of_each_kernel_the_device_counts_that_came_last():
    found = [("gather", 3.0), ("gather", 1.0), ("dot", 2.0), ("dot", 2.5)]
    assert collective.kernel_time_us(found, 2) == pytest.approx(3000)


def test_a_kernel_that_runs_twice_counts_twice():
    found = [("dot", 2.0), ("dot", 1.0), ("dot", 5.0), ("dot", 1.5)]
    assert collective.kernel_time_us(found, 2) == pytest.approx(2500)


def test_devices_that_run_different_kernels_say_so():
    with pytest.raises(CourseError, match="ran 3 times on 2 devices"):
        collective.kernel_time_us([("dot", 1.0)] * 3, 2)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_all_of_a_case_give_an_array_of_one_shape(devices):
    for case in collective.cases(devices, (1024, 16384)):
        args = [jax.ShapeDtypeStruct(s, d) for s, d in case.shapes]
        specs = case.specs if len(case.specs) > 1 else case.specs[0]
        shapes = {
            jax.eval_shape(
                kernels.on_devices(c.function, devices, in_specs=specs, out_specs=case.out_spec),
                *args,
            ).shape
            for c in case.contenders
        }
        assert len(shapes) == 1, case.name


def test_what_is_counted_is_what_is_computed_and_sent():
    case = collective.matmul(4, 1024)
    assert case.tflop == 2 * 4 * 1024 * 4096 * 4096 / 1e12
    assert case.sent_bytes == 3 * 1024 * 4096 * 2


@pytest.mark.parametrize("ours", [collective.gather, collective.scatter])
def test_a_ring_gives_what_xla_gives(ours):
    """In the model, with fewer rows than are measured."""
    case = ours(2, 1024)
    config = kernels.RingConfig(tile_m=8)
    function = case.contenders[1].function
    small = kernels.on_devices(functools.partial(function.func, config=config), 2)
    theirs = kernels.on_devices(case.contenders[0].function, 2)
    shape = (16, 128) if ours is collective.gather else (4, 8, 128)
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)

    def both(x):
        return small(x), theirs(x)

    report = simulator.simulate(both, x)
    assert report.findings == ()
    one, two = report.value
    np.testing.assert_allclose(np.ravel(one), np.ravel(two), rtol=1e-5, atol=1e-5)


def test_one_gpu_is_too_few():
    with pytest.raises(CourseError):
        collective.run_suite()


def test_the_chapter_says_what_the_record_of_two_gpus_says():
    text = (records.ROOT / "solutions" / "13_many_gpus.md").read_text()
    measured = text[text.index('"id": "measured"') : text.index('"id": "hosts"')].replace("**", "")
    paths = sorted(records.FOLDER.glob("*-nvidia-h200-collective.json"))
    two = [r for r in map(records.read, paths) if r.card.get("devices") == 2][-1]
    for row in two.rows:
        link = f"{row.config['link']:.0%}".replace("%", " %")
        if "tensor_core" in row.config:
            cores = f"{row.config['tensor_core']:.0%}".replace("%", " %")
            ratio = "1" if row.ratio == 1 else f"{row.ratio:.3f}"
            host = f"{row.config['host_us']:.0f}"
            numbers = f"| {row.median_us:.1f} | {cores} | {link} | {ratio} | {host} |"
            assert numbers in measured, row.name
        elif row.ratio != 1:
            assert f"| {row.median_us:.1f} | {link} | {row.ratio:.3f} |" in measured, row.name


def test_what_the_chapter_says_of_the_hosts_clock_is_of_the_configurations_it_names():
    text = (records.ROOT / "solutions" / "13_many_gpus.md").read_text()
    record = max(records.FOLDER.glob("*-nvidia-h200-collective.json"))
    host = {}
    for row in records.read(record).rows:
        if "matmul" in row.case:
            host[row.config["rows"], row.name] = round(row.config["host_us"])
    default = collective.MATMULS["all_gather_matmul"]
    assert default.slots == 3
    assert "The default configuration has three slots" in text
    number = r"(\d+)(?: µs)?"
    few = rf"not\* faster: {number} \({number} with four slots\) against {number},"
    many = rf"they are: {number} \({number} with four slots\) against {number}\."
    for rows, pattern, faster in ((1024, few, False), (4096, many, True)):
        said = re.search(pattern, text)
        assert said is not None, rows
        three, four, xla = map(int, said.groups())
        assert three == host[rows, "all_gather_matmul"]
        assert four == host[rows, "all_gather_matmul, 4 slots"]
        assert xla == host[rows, "all_gather + dot"]
        assert (max(three, four) < xla) is faster


def test_bold_ratios_are_those_of_four_slots():
    text = (records.ROOT / "solutions" / "13_many_gpus.md").read_text()
    measured = text[text.index('"id": "measured"') : text.index('"id": "hosts"')]
    bold = [line for line in measured.splitlines() if re.search(r"\*\*[\d.]+\*\*", line)]
    assert len(bold) == 3
    assert all("with 4 slots" in line for line in bold)


@pytest.mark.parametrize("error_after", [0.0, 0.5])
def test_who_is_wrong_after_the_timing_is_left_out(monkeypatch, error_after):
    """Once right and then not: a race. The errors are of both, before the timing, then after it."""
    found = iter([0.0, 0.0, 0.0, error_after])
    monkeypatch.setattr(collective, "_worst", lambda out, wanted: next(found))
    monkeypatch.setattr(collective, "_launch_us", lambda call, devices: 1.0)
    monkeypatch.setattr(collective, "_host_us", lambda calls: 1.0)
    mesh = jax.sharding.Mesh(jax.devices()[:1], (kernels.AXIS,))
    monkeypatch.setattr(kernels, "mesh_of", lambda devices: mesh)
    spec = collective.PartitionSpec(kernels.AXIS)
    contenders = (
        collective.Contender("XLA", lambda x: x),
        collective.Contender("ours", lambda x: x),
    )
    case = collective.Case("both", 8, (((8, 128), "float32"),), (spec,), spec, contenders, 0, 1)
    log = collective.Log(lambda _: None, progress=lambda *_: None)
    rows = collective.measure_case(case, 1, log, rounds=1, launches=2)
    assert next(found, "none left") == "none left"
    assert [row.name for row in rows] == (["XLA"] if error_after else ["XLA", "ours"])
    assert bool(log.notes) is bool(error_after)
    assert all("after the timing" in note for note in log.notes)
