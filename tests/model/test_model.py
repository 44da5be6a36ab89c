"""The CPU model gives right values, finds what is wrong, and always comes back."""

import time

import numpy as np
import pytest

from course_lib.diagnostics import Severity
from course_lib.model import execute, simulate
from tests.model import kernels

pytestmark = pytest.mark.two_jax


@pytest.fixture
def x():
    return np.random.default_rng().standard_normal((128, 128)).astype(np.float32)


RIGHT = {
    "through SMEM": kernels.through_smem(),
    "two blocks": kernels.two_blocks(),
    "two threads": kernels.two_threads(),
    "a wait that ends": kernels.waits(arrives=True),
    "all rows": kernels.rows(first=0, count=128),
    "all the SMEM there is": kernels.much_smem(rows=454),
    "a pipeline": kernels.pipelined(),
    "one buffer twice": kernels.overwritten(),
    "two blocks that copy": kernels.two_blocks_copy(),
}
WRONG = {
    "read-before-arrival": (kernels.through_smem(wait=False), "barrier_wait"),
    "missing-commit-smem": (kernels.through_smem(commit=False), "commit_smem"),
    "unfinished-copy": (kernels.through_smem(drain=False), "wait_smem_to_gmem"),
    "data-race": (kernels.two_threads(synchronised=False), "thread 1"),
    "out-of-bounds": (kernels.rows(first=64, count=128), "has 128 (0 to 127)"),
    "exception": (kernels.raises(), "Incompatible shapes"),
    "deadlock": (kernels.waits(arrives=False), "waits for ever"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_gives_its_value_and_no_finding(name, x):
    outcome = execute(RIGHT[name], (x,))
    assert outcome.findings == ()
    np.testing.assert_array_equal(outcome.value, x + 1)
    assert outcome.trace.kernels == 1


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_kernel_gives_an_error_that_says_what_is_missing(rule, x):
    kernel, says = WRONG[rule]
    outcome = execute(kernel, (x,))
    assert outcome.errors[0].rule == rule
    assert says in str(outcome.errors[0]).replace("\n    ", " ")


@pytest.mark.parametrize("rule", sorted(set(WRONG) - {"deadlock", "unfinished-copy"}))
def test_an_error_names_the_line_in_the_kernel(rule, x):
    finding = execute(WRONG[rule][0], (x,)).errors[0]
    assert finding.location is not None
    assert finding.location.file == kernels.__file__


def test_two_blocks_that_write_the_same_rows_race(x):
    finding = execute(kernels.two_blocks(own_rows=False), (x,)).errors[0]
    assert finding.rule == "data-race"
    assert "Two blocks" in finding.what


def test_two_blocks_that_copy_to_the_same_rows_race(x):
    finding = execute(kernels.two_blocks_copy(own_rows=False), (x,)).errors[0]
    assert finding.rule == "data-race"
    assert "Two blocks" in finding.what


@pytest.mark.parametrize(
    "kernel", [kernels.overwritten(commit=False), kernels.pipelined(commit=False)]
)
def test_a_copy_over_what_was_just_read_without_a_commit_is_noted(kernel, x):
    outcome = execute(kernel, (x,))
    assert outcome.ok  # whether the hardware needs it is not known
    assert [f.rule for f in outcome.findings] == ["missing-commit-smem-after-read"]
    np.testing.assert_array_equal(outcome.value, x + 1)


def test_more_smem_than_a_block_can_have_is_an_error(x):
    outcome = execute(kernels.much_smem(rows=455), (x,))
    assert [f.rule for f in outcome.errors] == ["over-capacity"]
    assert "232,960" in outcome.errors[0].what
    assert "232,448" in outcome.errors[0].what


def test_rows_that_nobody_wrote_are_noted_and_the_value_is_nan_there(x):
    outcome = execute(kernels.rows(first=0, count=64), (x,))
    assert outcome.ok
    assert [f.severity for f in outcome.findings] == [Severity.NOTE]
    assert np.isnan(outcome.value[64:]).all()
    assert "[64, 0]" in outcome.findings[0].what


def test_a_deadlock_ends_within_ten_seconds_and_the_next_kernel_runs(x):
    execute(kernels.two_blocks(), (x,))  # the process is warm, as after a notebook's first cell
    started = time.monotonic()
    assert execute(kernels.waits(arrives=False), (x,)).errors[0].rule == "deadlock"
    assert time.monotonic() - started < 10
    assert execute(kernels.two_blocks(), (x,)).ok


def test_python_code_that_never_ends_is_stopped(x):
    def spins(x):
        while True:
            pass

    assert execute(spins, (x,), timeout_s=1).errors[0].rule == "timeout"


@pytest.mark.parametrize("what", [SystemExit("3"), KeyboardInterrupt()])
def test_a_function_that_asks_to_quit_is_a_finding(what, x):
    def quits(x):
        raise what

    [found] = execute(quits, (x,)).errors
    assert found.rule == "exception"
    assert found.what.startswith(f"The function raised {type(what).__name__}")
    assert "test_model.py" in str(found)


def test_a_process_that_dies_is_a_finding(x):
    import os

    assert execute(lambda x: os._exit(3), (x,)).errors[0].rule == "crash"


def test_simulate_reports_in_words(x):
    assert repr(simulate(kernels.two_blocks(), x)) == "No findings."
    report = simulate(kernels.through_smem(commit=False), x)
    assert "missing-commit-smem" in repr(report)
    assert report.errors


def test_a_timeline_comes_back_from_the_process(x):
    assert simulate(kernels.through_smem(), x).timeline is None
    timeline = simulate(kernels.through_smem(), x, timeline=True).timeline
    assert any("copy" in str(span) for span in timeline.spans)
