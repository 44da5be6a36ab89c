"""The benchmark of chapter 13: one launch's time out of many devices', and equal results."""

import functools

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
            assert f"| {row.median_us:.1f} | {cores} | {link} | {ratio} |" in measured, row.name
        elif row.ratio != 1:
            assert f"| {row.median_us:.1f} | {link} | {row.ratio:.3f} |" in measured, row.name
