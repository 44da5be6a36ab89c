"""What cannot be lowered for CUDA is a finding of the same report, in the learner's lines."""

import inspect
import time

import jax
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib import model
from course_lib.compiler import lowering
from course_lib.diagnostics import KernelError, Severity
from course_lib.model import execute, simulate
from course_lib.runtime import run
from course_lib.simulator import devices
from tests.diagnostics.sick_kernels import SICK, Sick
from tests.model import kernels, layouts
from tests.simulator import test_features

pytestmark = pytest.mark.two_jax


def normal(*shape, dtype=np.float32):
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_adding_two_layouts_is_an_error_that_names_both_and_the_addition():
    x, y = normal(64, 64), normal(64, 64)
    report = simulate(layouts.adds(same_layout=False), x, y)
    [found] = report.findings
    assert found.rule == "layout"
    assert found.severity is Severity.ERROR
    lines = [line_of(layouts.adds, t) for t in ("x = plgpu", "y = plgpu", "= x + y")]
    assert [(a.where.file, a.where.line) for a in found.accesses] == [
        (layouts.__file__, line) for line in lines
    ]
    assert len(str(found).splitlines()) <= 12
    np.testing.assert_allclose(report.value, x + y, rtol=1e-6)  # the model's value is right


def test_adding_in_one_layout_is_clean():
    x, y = normal(64, 64), normal(64, 64)
    assert simulate(layouts.adds(same_layout=True), x, y).findings == ()


def test_values_that_do_not_fill_the_lanes():
    found = execute(layouts.rows(count=64), (normal(4096),)).errors
    assert [f.rule for f in found] == ["layout"]
    assert "multiple of 128" in str(found[0])
    assert found[0].location.file == layouts.__file__
    assert execute(layouts.rows(count=128), (normal(4096),)).findings == ()


@pytest.mark.parametrize(
    ("wrong", "right", "args", "rule"),
    [
        (layouts.allocates(kib=300), layouts.allocates(kib=200), [(4096,)], "over-capacity"),
        (layouts.multiplies(n=20), layouts.multiplies(n=32), [(64, 64), (64, -1)], "illegal-mma"),
    ],
)
def test_what_the_simulator_says_already_is_said_once(wrong, right, args, rule):
    def drawn(n):
        dtype = np.float16 if len(args) == 2 else np.float32
        return [normal(*(n if s == -1 else s for s in shape), dtype=dtype) for shape in args]

    report = simulate(wrong, *drawn(20))
    assert [f.rule for f in report.findings] == [rule]
    assert report.remarks == ()
    assert simulate(right, *drawn(32)).findings == ()


# These JAX refuses while it traces, and the simulation says so; the last four are the compiler's.
_TRACED = {
    "tiling-does-not-divide", "swizzle-unknown", "swizzle-width", "swizzle-none-fits", "tmem-rows",
    "mma-inner-sizes", "mma-mixed-dtypes", "mma-right-operand",
    "copy-shapes", "copy-dtypes", "axis-unknown",
    "captured-array", "python-if", "store-dtype", "store-shape", "slice-outside", "scratch-names",
    "old-keyword", "old-name", "old-pallas-call",
    "arch-lacks-wgmma", "arch-lacks-tcgen05", "arch-lacks-instruction",
    "arch-lacks-gather", "tcgen05-barrier-unordered",
    "single-barrier-indexed", "indices-too-many", "tmem-packed", "tmem-not-collective",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [c for c in SICK if c.entry not in _TRACED], ids=lambda c: c.function.__name__
)
def test_lowering_refuses_what_the_compiler_refuses(case: Sick):
    lowered = lowering.lower(case.function, case.args, case.arch)
    assert lowered.finding is not None
    text = str(lowered.finding).replace("\n    ", " ")
    assert all(words.lower() in text.lower() for words in case.says)
    assert lowered.finding.location is not None
    assert len(text.splitlines()) <= 12


# The simulator or JAX's tracing has words for these, or lowering alone.
_ONCE = {
    "single-barrier-indexed": "exception",
    "indices-too-many": "exception",
    "tmem-packed": "exception",
    "tmem-indexed": "tmem-indexed",
    "tmem-dtype": "illegal-mma",
    "tmem-not-collective": "not-collective",
    "tcgen05-collective-mixed": "not-collective",
    "cluster-store": "lowering",
    "cluster-copy": "lowering",
    "barrier-transformed": "lowering",
}


@pytest.mark.parametrize(
    "case", [c for c in SICK if c.entry in _ONCE], ids=lambda c: c.function.__name__
)
def test_the_front_door_says_it_once_and_how_to_mend_it(case: Sick):
    args = [normal(*a.shape, dtype=a.dtype) for a in case.args]
    report = simulate(case.function, *args)
    assert [f.rule for f in report.errors] == [_ONCE[case.entry]], report
    text = str(report.errors[0]).replace("\n    ", " ")
    assert "Fix: " in text
    assert report.errors[0].location is not None
    if _ONCE[case.entry] in ("exception", "lowering"):
        assert all(words in text for words in case.says), text


def test_one_process_lowers_for_both_architectures():
    x = jax.ShapeDtypeStruct((128, 128), np.float32)
    for _ in range(2):
        for arch in ("sm_90a", "sm_100a"):
            assert lowering.lower(kernels.through_smem(), (x,), arch) == lowering.Lowered()


def test_kernels_on_several_simulated_devices_are_lowered_too():
    x = normal(2, 128)
    report = simulate(lambda x: test_features.exchange(x, mesh=devices(2)), x)
    assert (report.findings, report.remarks) == ((), ())


def test_the_same_kernel_is_lowered_once(monkeypatch):
    calls = []
    monkeypatch.setattr(lowering, "_lower", lambda *a: calls.append(a) or lowering.Lowered())
    f, x = layouts.rows(count=32), jax.ShapeDtypeStruct((96,), np.float32)
    lowering.lower(f, (x,), None)
    lowering.lower(f, (x,), None)
    assert len(calls) == 1


def test_a_function_without_a_kernel_or_that_raises_is_left_to_the_simulation():
    x = jax.ShapeDtypeStruct((96,), np.float32)
    assert lowering.lower(lambda x: x + 1, (x,), None) == lowering.Lowered()
    assert lowering.lower(kernels.raises(), (x,), None) == lowering.Lowered()


def test_run_refuses_it_too(monkeypatch):
    monkeypatch.setenv("COURSE_MODEL_ONLY", "1")
    with pytest.raises(KernelError, match=r"\[layout\]"):
        run(layouts.adds(same_layout=False), normal(64, 64), normal(64, 64))


def test_where_nothing_can_be_lowered_the_report_says_so(monkeypatch):
    class Broken:
        def call(self, *args, **kwargs):
            raise ImportError("jaxlib has no Mosaic GPU extension")

    monkeypatch.setattr(model, "lowering_worker", Broken)
    report = simulate(layouts.rows(count=128), normal(4096))
    assert report.ok
    assert "was not looked at. jaxlib has no Mosaic GPU extension." in repr(report)


def test_it_costs_little():
    f, x = layouts.rows(count=128), normal(4096)
    simulate(f, x)  # both processes are warm
    started = time.monotonic()
    simulate(layouts.adds(same_layout=True), normal(64, 64), normal(64, 64))
    assert time.monotonic() - started < 5  # 0.2 s on an idle machine


def test_a_kernel_of_pl_kernel_is_lowered_in_the_other_process():
    """What it returns is a function inside a function of JAX's, with an operation of its own."""
    mesh = plgpu.Mesh(grid=(2,), grid_names=("block",))

    def add_one(x_gmem, y_gmem):
        part = pl.ds(jax.lax.axis_index("block") * 128, 128)
        y_gmem[part] = x_gmem[part] + 1

    out = jax.ShapeDtypeStruct((256,), np.float32)
    report = simulate(pl.kernel(add_one, out_type=out, mesh=mesh), normal(256))
    assert report.remarks == ()
    assert report.findings == ()


def _sleeps(*_):
    time.sleep(60)


def test_a_search_without_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(model, "_lower_here", _sleeps)
    monkeypatch.setattr(model, "_PATIENCE_S", 0.5)
    began = time.monotonic()
    report = simulate(layouts.allocates(kib=8), normal(4096))
    assert time.monotonic() - began < 50
    assert report.value is not None
    [remark] = report.remarks
    assert "was not looked at. Mosaic was still trying layouts" in remark
