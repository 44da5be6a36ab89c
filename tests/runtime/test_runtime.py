"""A kernel runs natively exactly where the device has what it uses, and the reason is said."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import runtime
from course_lib.diagnostics import CourseError, KernelError
from course_lib.runtime import Device, Requirements, lacks, requirements, run
from tests.model import kernels

TURING = Device("a Turing card", (7, 5))
ADA = Device("NVIDIA GeForce RTX 4090", (8, 9))
HOPPER = Device("NVIDIA H200", (9, 0))
BLACKWELL = Device("NVIDIA B200", (10, 0))
CONSUMER_BLACKWELL = Device("NVIDIA GeForce RTX 5090", (12, 0))


@pytest.fixture
def x():
    return np.random.default_rng().standard_normal((128, 128)).astype(np.float32)


def test_python_code_that_never_ends_does_not_take_the_notebook_down(x, monkeypatch):
    def spins(x):
        while True:
            pass

    with pytest.raises(KernelError, match="stopped after 1 s") as caught:
        run(spins, x, timeout_s=1)
    assert caught.value.rule == "timeout"
    monkeypatch.setattr(runtime, "device", lambda: HOPPER)  # there it is traced first
    with pytest.raises(CourseError, match="stopped after 1 s"):
        run(spins, x, timeout_s=1)
    monkeypatch.undo()
    np.testing.assert_allclose(run(kernels.two_blocks(), x).shape, x.shape)


def test_requirements_are_read_from_the_kernel(x):
    assert requirements(kernels.two_blocks(), x) == Requirements(frozenset())
    assert requirements(kernels.through_smem(), x) == Requirements(
        frozenset({"tma"}), 128 * 128 * 4
    )


def test_requirements_take_shapes_instead_of_arrays():
    shape = jax.ShapeDtypeStruct((128, 128), jnp.float32)
    assert requirements(kernels.through_smem(), shape).features == {"tma"}


def test_an_elementwise_kernel_runs_on_a_card_without_the_copy_engine():
    assert lacks(Requirements(frozenset()), ADA) == ""
    assert "copy engine" in lacks(Requirements(frozenset({"tma"})), ADA)


@pytest.mark.parametrize(
    ("feature", "has", "has_not"),
    [
        ("tma", [HOPPER, BLACKWELL, CONSUMER_BLACKWELL], [ADA]),
        ("tma gather", [BLACKWELL, CONSUMER_BLACKWELL], [ADA, HOPPER]),
        ("wgmma", [HOPPER], [ADA, BLACKWELL, CONSUMER_BLACKWELL]),
        ("tcgen05", [BLACKWELL], [ADA, HOPPER, CONSUMER_BLACKWELL]),
        ("clusters", [HOPPER, BLACKWELL], [ADA]),
        ("cluster launch control", [BLACKWELL], [ADA, HOPPER]),
    ],
)
def test_features_follow_compute_capability(feature, has, has_not):
    needs = Requirements(frozenset({feature}))
    assert [lacks(needs, d) for d in has] == [""] * len(has)
    assert all(feature.split()[-1] in lacks(needs, d) or "TMA" in lacks(needs, d) for d in has_not)


def test_more_smem_than_a_block_can_have_is_a_reason():
    assert lacks(Requirements(frozenset(), 232448), HOPPER) == ""
    assert "232,449" in lacks(Requirements(frozenset(), 232449), HOPPER)
    assert "101,376" in lacks(Requirements(frozenset(), 102400), ADA)


def test_more_devices_than_there_are_is_a_reason():
    two = Requirements(frozenset({"tma"}), 0, 2)
    assert "2 GPUs together, and this machine has 1 GPU" in lacks(two, HOPPER)
    assert lacks(two, dataclasses.replace(HOPPER, count=2)) == ""
    assert "needs 2 GPUs" in repr(two)


def test_an_old_card_and_no_card_are_sentences():
    assert "older than compute capability 8.0" in lacks(Requirements(frozenset()), TURING)
    assert "no GPU" in lacks(Requirements(frozenset()), None)


def test_where_says_what_was_found_and_why(monkeypatch, capsys, x):
    monkeypatch.setattr(runtime, "device", lambda: None)
    monkeypatch.delenv("COURSE_MODEL_ONLY", raising=False)
    monkeypatch.setattr(runtime, "driver_version", lambda: None)
    monkeypatch.setattr(runtime.platform, "system", lambda: "Linux")
    runtime.where()
    assert "there is no NVIDIA driver" in capsys.readouterr().out
    monkeypatch.setattr(runtime, "driver_version", lambda: 470)
    runtime.where()
    assert "CUDA 12 needs 525 or newer" in capsys.readouterr().out
    monkeypatch.setattr(runtime, "driver_version", lambda: 580)
    monkeypatch.setattr(runtime, "_cuda_plugin", lambda: None)
    runtime.where()
    assert "JAX for the CPU only" in capsys.readouterr().out
    monkeypatch.setattr(runtime, "device", lambda: ADA)
    runtime.where()
    out = capsys.readouterr().out
    assert "RTX 4090" in out
    assert "wgmma" in out
    runtime.where(kernels.two_blocks(), x)
    assert "runs on NVIDIA GeForce RTX 4090" in capsys.readouterr().out
    runtime.where(kernels.through_smem(), x)
    assert "CPU model of the GPU: it needs the copy engine" in capsys.readouterr().out


def test_doctor_answers_in_sentences_without_a_gpu():
    lines = runtime.doctor()
    assert any(jax.__version__ in line for line in lines)
    assert all(line.endswith(".") for line in lines)


def test_run_gives_jax_arrays(x):
    y = run(kernels.two_blocks(), x)
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(y, x + 1)


def test_run_of_a_function_around_a_kernel(x):
    kernel = kernels.two_blocks()
    y = run(jax.jit(lambda a: {"twice": 2 * kernel(a)}), x)
    np.testing.assert_array_equal(y["twice"], 2 * (x + 1))


def test_run_raises_what_is_wrong_and_prints_notes(x, capsys):
    with pytest.raises(KernelError, match="commit_smem") as caught:
        run(kernels.through_smem(commit=False), x)
    assert caught.value.findings[0].rule == "missing-commit-smem"
    assert capsys.readouterr().out == ""
    run(kernels.rows(first=0, count=64), x)
    assert "never" not in capsys.readouterr().err


def test_a_function_without_a_kernel_and_a_wrong_order_of_arguments_are_sentences(x):
    with pytest.raises(CourseError, match="no kernel in sin"):
        run(jnp.sin, x)
    with pytest.raises(CourseError, match="its arguments come after it"):
        run(x, kernels.two_blocks())


class _FakeGpu:
    """Stands in for the process with the GPU: runs the function on the CPU model."""

    def __init__(self):
        self.calls = 0

    def __call__(self, function, args, *, timeout_s):
        self.calls += 1
        return runtime.model.execute(function, args, timeout_s=timeout_s)


def test_the_first_native_run_happens_in_a_process_that_can_be_killed(monkeypatch, x):
    gpu = _FakeGpu()
    monkeypatch.setattr(runtime, "device", lambda: HOPPER)
    monkeypatch.setattr(runtime, "execute_native", gpu)
    inner = kernels.two_blocks()
    in_place = []

    def function(a):
        if not isinstance(a, jax.core.Tracer):
            in_place.append(1)
            return a + 1
        return inner(a)

    run(function, x)
    assert (gpu.calls, len(in_place)) == (1, 0)
    run(function, x)
    assert (gpu.calls, len(in_place)) == (1, 1)


def test_a_kernel_that_the_card_cannot_run_goes_to_the_model(monkeypatch, x):
    gpu = _FakeGpu()
    monkeypatch.setattr(runtime, "device", lambda: ADA)
    monkeypatch.setattr(runtime, "execute_native", gpu)
    run(kernels.through_smem(), x)
    assert gpu.calls == 0
    run(kernels.two_blocks(), x)
    assert gpu.calls == 1


def test_native_execution_stops_a_function_that_never_ends(x):
    def spins(a):
        while True:
            pass

    outcome = runtime.execute_native(spins, (x,), timeout_s=1)
    assert outcome.errors[0].rule == "timeout"
    assert "simulate(" in outcome.errors[0].fix


def test_what_the_compiler_refuses_on_a_gpu_is_said_in_plain_words(monkeypatch, x):
    message = (
        "Mosaic GPU kernel exceeds available shared memory: smem_bytes=300000 > "
        "max_smem_bytes=232448"
    )

    class Refusing:
        def call(self, *args, **kwargs):
            raise runtime.RemoteError("ValueError", message, [], "")

    monkeypatch.setattr(runtime, "_native", Refusing())
    finding = runtime.execute_native(kernels.two_blocks(), (x,)).errors[0]
    assert message in finding.what
    assert finding.why
    assert finding.fix


def test_without_the_operations_at_fault_both_reasons_for_missing_layouts_are_named():
    error = runtime.RemoteError("ValueError", "Failed to infer a possible set of layouts.", [], "")
    finding = runtime._raised(error)
    assert "cannot be turned into each other" in finding.why
    assert "multiple of 128" in finding.why
    assert "compile_for" in finding.fix
