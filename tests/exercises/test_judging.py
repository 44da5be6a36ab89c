"""Every way to be wrong is told from every other, on the real model of the GPU."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax import lax

from course_lib import model, runtime
from course_lib.diagnostics import CourseError, Finding, Severity
from course_lib.exercises import FAULTS, Case, Spec, Verdict, judge, judging, registry
from course_lib.exercises.verdict import MAX_LINES
from course_lib.model import Outcome
from tests.exercises import practice

pytestmark = pytest.mark.two_jax


@pytest.fixture(autouse=True)
def _practice(exercises: None) -> None:
    """Only the practice exercises are registered."""


def on_model(exercise_id, fn, **kwargs) -> Verdict:
    return judge(exercise_id, fn, native=False, **kwargs)


RIGHT = {
    "practice.double": (practice.double, "correct on 2 shapes."),
    "practice.sum_and_difference": (practice.sum_and_difference, "correct on 1 shape."),
    "practice.scale": (practice.scale, "correct on 2 shapes."),
}


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_is_one_stable_line(exercise_id):
    fn, says = RIGHT[exercise_id]
    verdict = on_model(exercise_id, fn)
    assert verdict.ok
    assert str(verdict) == f"{exercise_id}: {says}"


@pytest.mark.parametrize(
    "fn",
    [
        practice.double_by_run,
        jax.jit(practice.double),
        functools.partial(practice.double),
        lambda x: [practice.double(x)],
        lambda x: lax.fori_loop(0, 1, lambda i, y: practice.double(x), x),
    ],
    ids=["run", "jit", "partial", "list", "loop"],
)
def test_a_right_answer_may_be_wrapped(fn):
    assert on_model("practice.double", fn).ok


def test_a_right_answer_with_a_note_is_right_and_the_note_is_said():
    verdict = on_model("practice.double", practice.reuses_smem_without_a_commit)
    assert verdict.ok
    text = str(verdict)
    assert text.startswith("practice.double: correct on 2 shapes, with a note.\n")
    assert "If in doubt, call plgpu.commit_smem()" in " ".join(text.split())
    assert {f.severity for f in verdict.findings} == {Severity.NOTE}


@pytest.mark.parametrize(
    ("fn", "missing"), [(practice.double, True), (practice.double_in_a_scope, False)]
)
def test_the_scope_that_a_kernel_opens_itself_does_not_count(monkeypatch, fn, missing):
    exercise = dataclasses.replace(practice.DOUBLE, requires={"run_scoped": 1})
    monkeypatch.setattr(registry, "_exercises", {exercise.id: exercise})
    said = "The kernel never uses `pl.run_scoped`, which is asked for."
    assert (said in str(on_model(exercise.id, fn))) == missing


# exercise, function, its fault, and what the verdict must say
WRONG = [
    (practice.DOUBLE, practice.forgets_to_double, "value", "The output is x, unchanged."),
    (practice.DOUBLE, practice.reads_the_first_block, "value", "rows 0 to 63 is repeated"),
    (practice.DOUBLE, practice.writes_half, "nan", "Element [32, 0] is nan"),
    (practice.DOUBLE, practice.writes_half, "nan", "Nobody writes 4096 of the 8192 elements"),
    (practice.DOUBLE, practice.reads_unwritten_memory, "nan", "x_smem is read, and nobody"),
    (practice.DOUBLE, practice.takes_the_logarithm, "nan", "are NaN."),
    (practice.DOUBLE, practice.does_not_wait, "race", "plgpu.barrier_wait"),
    (practice.DOUBLE, practice.blocks_share_rows, "race", "Two blocks"),
    (practice.DOUBLE, practice.waits_for_ever, "deadlock", "waits for ever"),
    (
        practice.DOUBLE,
        practice.leaves_the_array,
        "out-of-bounds",
        "elements 64 to 127 of axis 0 of y_gmem",
    ),
    (practice.DOUBLE, practice.without_smem, "means", "never uses `plgpu.copy_gmem_to_smem`"),
    (practice.DOUBLE, practice.without_a_kernel, "means", "no GPU kernel in it"),
    (practice.DOUBLE, practice.kernel_then_jnp, "means", "Outside of the kernel: `mul`"),
    (practice.DOUBLE, practice.returns_its_argument, "means", "not what a kernel wrote"),
    (practice.DOUBLE, practice.returns_float16, "dtype", "float16[64, 128], should be float32"),
    (practice.DOUBLE, practice.returns_rows_flat, "shape", "only the shape differs"),
    (practice.DOUBLE, practice.returns_a_tuple, "outputs", "a tuple of 2 arrays"),
    (practice.DOUBLE, practice.returns_nothing, "outputs", "is a `return` missing?"),
    (practice.DOUBLE, practice.returns_numpy, "outputs", "a NumPy array"),
    (
        practice.DOUBLE,
        practice.returns_a_list_of_numbers,
        "outputs",
        "plain number 1.5 in a list",
    ),
    (practice.DOUBLE, practice.returns_its_kernel, "outputs", "is a call missing?"),
    (practice.DOUBLE, practice.uses_numpy, "exception", "Use jnp"),
    (practice.DOUBLE, practice.raises, "exception", "incompatible shapes"),
    (practice.DOUBLE, practice.not_done, "not-done", "fill in the cell above and run it again."),
    (practice.DOUBLE, practice.not_implemented, "exception", "NotImplementedError: no idea"),
    (practice.DOUBLE, practice.too_many_arguments, "signature", "`too_many_arguments(x, y)`"),
    (practice.DOUBLE, practice.kills_its_process, "crash", "died"),
    (practice.PAIR, practice.sum_and_wrong_difference, "value", "of output 2 of 2"),
    (practice.SCALE, practice.scale_by_three, "value", "by=5 (1 shape right before)"),
    (practice.SCALE, practice.scale_by_adding, "means", "`add` (`+`), which is not allowed"),
    (practice.SCALE, practice.double, "signature", "by"),
]


@pytest.mark.parametrize(
    ("exercise", "fn", "fault", "says"), WRONG, ids=[f"{w[0].name}-{w[1].__name__}" for w in WRONG]
)
def test_a_wrong_answer_is_rejected_and_its_fault_named(exercise, fn, fault, says):
    verdict = on_model(exercise.id, fn)
    text = str(verdict)
    assert verdict.fault == fault
    assert verdict.fault in FAULTS
    assert says in " ".join(text.split())
    assert len(text.splitlines()) <= MAX_LINES
    assert (f'hint("{exercise.id}")' in text) == (fault != "not-done")


@pytest.mark.parametrize(
    "fn", [practice.does_not_wait, practice.blocks_share_rows, practice.raises, practice.uses_numpy]
)
def test_the_learner_s_own_line_is_named(fn):
    first = fn.__code__.co_firstlineno
    own = range(first, first + 12)
    text = " ".join(str(on_model("practice.double", fn)).split())
    assert any(f"practice.py:{line}" in text for line in own)


def test_nan_that_was_computed_is_not_called_unwritten():
    text = str(on_model("practice.double", practice.takes_the_logarithm))
    assert "Nobody writes" not in text


def test_integers_that_nobody_wrote_are_recognised():
    text = str(on_model("practice.sum_and_difference", practice.half_of_the_difference))
    assert "Nobody writes 128 of the 256 elements of d_gmem" in text
    assert "All of those are in elements 128 to 255; the rest is right." in text


def test_a_value_fault_says_how_to_see_the_same_data_again():
    first = on_model("practice.double", practice.forgets_to_double)
    assert f"seed={first.seed}" in str(first)
    again = on_model("practice.double", practice.forgets_to_double, seed=first.seed)
    assert str(again) == str(first)


def test_a_case_of_plain_numbers_is_the_same_again_without_a_seed(exercises):
    registry.register(practice.COUNT)
    wrong = on_model("practice.count", practice.counts_from_one)
    assert wrong.fault == "value"
    assert "seed" not in str(wrong)


def test_every_judgement_draws_fresh_data():
    first, second = (on_model("practice.double", practice.forgets_to_double) for _ in range(2))
    assert str(first) != str(second)


def test_right_answers_and_other_faults_say_nothing_of_a_seed():
    for fn in (practice.double, practice.does_not_wait, practice.not_done):
        assert "seed" not in str(on_model("practice.double", fn))


def test_a_kernel_that_never_ends_is_stopped(monkeypatch):
    on_model("practice.double", practice.not_done)  # the process is warm: only the kernel is timed
    monkeypatch.setattr(judging, "TIMEOUT_S", 3.0)
    verdict = on_model("practice.double", practice.never_ends)
    assert verdict.fault == "timeout"
    assert "3 s" in str(verdict)


def test_other_cases_than_the_exercise_s_own_can_be_judged():
    cases = [Case((Spec((rows, 128)),)) for rows in (64, 128, 256)]
    verdict = on_model("practice.double", practice.double, cases=cases)
    assert str(verdict) == "practice.double: correct on 3 shapes."
    assert on_model("practice.double", practice.reads_the_first_block, cases=cases[:1]).ok


def test_the_reference_cannot_change_what_the_function_is_given(monkeypatch):
    def reference(x):
        x *= 2
        return x

    changing = dataclasses.replace(practice.DOUBLE, reference=reference)
    monkeypatch.setitem(registry._exercises, "practice.double", changing)
    assert on_model("practice.double", practice.double).ok


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (None, 'check needs your function as well: check("practice.double", double).'),
        (np.ones(3), "the function itself, not what it returns"),
        (3, "this is the plain number 3"),
        ("double", "this is a str"),
    ],
)
def test_something_else_than_a_function_is_answered_with_a_sentence(fn, says):
    with pytest.raises(CourseError) as caught:
        judge("practice.double", fn)
    assert says in str(caught.value)


class Gpu:
    """Stands in for the GPU: runs on the model, notes that it ran, and may spoil the result."""

    def __init__(self, monkeypatch, change=lambda outcome: outcome):
        self.runs = 0
        self.change = change
        monkeypatch.setattr(runtime, "can_run_natively", lambda *args: True)
        monkeypatch.setattr(runtime, "execute_native", self.execute)

    def execute(self, fn, args, *, timeout_s):
        self.runs += 1
        return self.change(model.execute(fn, args, timeout_s=timeout_s))


def test_what_is_clean_runs_on_the_gpu_too_and_reads_the_same(monkeypatch):
    gpu = Gpu(monkeypatch)
    verdict = judge("practice.double", practice.double)
    assert gpu.runs == 2
    assert str(verdict) == "practice.double: correct on 2 shapes."


def test_a_gpu_that_lacks_what_the_kernel_needs_is_not_used(monkeypatch):
    gpu = Gpu(monkeypatch)
    monkeypatch.setattr(runtime, "can_run_natively", lambda *args: False)
    assert judge("practice.double", practice.double).ok
    assert gpu.runs == 0


@pytest.mark.parametrize("fn", [practice.does_not_wait, practice.forgets_to_double])
def test_what_is_not_clean_never_reaches_the_gpu(monkeypatch, fn):
    gpu = Gpu(monkeypatch)
    assert not judge("practice.double", fn).ok
    assert gpu.runs == 0


def test_a_wrong_value_on_the_gpu_alone_is_said(monkeypatch):
    Gpu(monkeypatch, lambda outcome: dataclasses.replace(outcome, value=outcome.value + 1))
    verdict = judge("practice.double", practice.double)
    assert verdict.fault == "value"
    assert "wrong values on the GPU, with float32[64, 128]" in str(verdict)
    assert "off by the same amount: 1." in str(verdict)


def test_a_kernel_that_hangs_the_gpu_alone_is_said(monkeypatch):
    hung = Finding("timeout", Severity.ERROR, "The kernel did not come back within 60 s.")
    Gpu(monkeypatch, lambda outcome: Outcome(None, (hung,)))
    verdict = judge("practice.double", practice.double)
    assert verdict.fault == "timeout"
    assert "not finished in time on the GPU" in str(verdict)


def test_insisting_on_a_gpu_that_is_not_there_is_answered_with_a_sentence(monkeypatch):
    monkeypatch.setattr(runtime, "device", lambda: None)
    with pytest.raises(CourseError, match="there is none"):
        judge("practice.double", practice.double, native=True)


@pytest.mark.gpu
@pytest.mark.skipif(runtime.device() is None, reason="there is no GPU that JAX can use here")
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_right_answers_are_right_on_the_real_gpu(exercise_id):
    fn, says = RIGHT[exercise_id]
    assert str(judge(exercise_id, fn, native=True)) == f"{exercise_id}: {says}"


def test_what_could_not_be_looked_at_is_said(monkeypatch):
    remark = "Whether the kernel can be lowered for a GPU was not looked at. Too busy."

    def execute(*args, **options):
        return dataclasses.replace(model.execute(*args, **options), remarks=(remark,))

    monkeypatch.setattr(judging, "execute", execute)
    verdict = on_model("practice.double", practice.double)
    assert verdict.ok
    assert str(verdict).replace("\n    ", " ").count(remark) == 1


def test_an_exercise_about_kernels_need_not_hold_one():
    changes = dict(id="practice.no_kernel", requires={}, needs_kernel=False)
    registry.register(dataclasses.replace(practice.DOUBLE, **changes))
    assert on_model("practice.no_kernel", practice.without_a_kernel).ok
    wrong = on_model("practice.no_kernel", lambda x: practice.without_a_kernel(x) / 2)
    assert wrong.fault == "value"
