"""The words of a verdict: the first line, the sentences, the next step, and not too much of it."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from course_lib.diagnostics import Access, Finding, Location, Severity
from course_lib.exercises import FAULTS, Verdict
from course_lib.exercises.verdict import (
    _RULE_FAULTS,
    MAX_LINES,
    describe_finding,
    describe_means,
    describe_no_kernel,
    describe_not_from_kernel,
    fault_of,
    in_words,
    most_important,
)
from course_lib.simulator.rules import RULES
from tests.exercises import practice


def finding(rule: str = "data-race", what: str = "Two blocks touch the same GMEM.", **kwargs):
    return Finding(rule, Severity.ERROR, what, **kwargs)


def test_a_right_verdict_is_one_line():
    assert str(Verdict("a.b", passed=3)) == "a.b: correct on 3 shapes."
    assert str(Verdict("a.b", passed=1)) == "a.b: correct on 1 shape."


def test_a_right_verdict_says_what_is_remarked():
    assert str(Verdict("a.b", lines=("One.", "Two."), passed=3)).splitlines() == [
        "a.b: correct on 3 shapes, with a note.",
        "  One.",
        "  Two.",
    ]


def test_a_wrong_verdict_says_what_where_and_what_next():
    verdict = Verdict("a.b", "value", ("One.", "Two."), 7, "float32[4]", 1)
    assert str(verdict).splitlines() == [
        "a.b: wrong values, with float32[4] (1 shape right before).",
        "  One.",
        "  Two.",
        '  Stuck? hint("a.b"). Same data again: check(..., seed=7).',
    ]


def test_a_case_without_data_has_no_seed():
    verdict = Verdict("a.b", "value", ("One.",), 7, "m=4", drawn=False)
    assert str(verdict).splitlines()[-1] == '  Stuck? hint("a.b").'


def test_the_gpu_is_named_only_for_what_went_wrong_there():
    assert " on the GPU," in str(Verdict("a.b", "value", case="x", where="the GPU"))
    assert "GPU" not in str(Verdict("a.b", "value", case="x"))
    assert "GPU" not in str(Verdict("a.b", passed=2))


@pytest.mark.parametrize("fault", [f for f in FAULTS if f != "not-done"])
def test_no_verdict_is_longer_than_it_should_be(fault):
    lines = ("A sentence that goes on and on. " * 8,) * 6
    text = str(Verdict("chapter.exercise", fault, lines, 1, "float32[64, 128]"))
    assert len(text.splitlines()) == MAX_LINES
    assert max(map(len, text.splitlines())) <= 88
    assert text.splitlines()[-2].strip() == "..."
    assert "Stuck?" in text.splitlines()[-1]


def test_a_long_verdict_still_says_what_to_do():
    places = [f"- the thread {'works ' * 20}(cell [{i}], line 1)" for i in range(3)]
    lines = ("What is wrong.", *places, "Do this.", "In JAX's words: " + "no " * 40)
    text = str(Verdict("a.b", "race", lines)).splitlines()
    assert "Do this." in text[-2]
    assert "..." in [line.strip() for line in text]
    assert "cell [0]" in " ".join(text)
    assert "JAX" not in " ".join(text)


def test_a_short_verdict_is_whole():
    assert "..." not in str(Verdict("a.b", "race", ("One.", "Two.")))


def test_a_rule_without_a_fault_of_its_own_goes_by_its_title():
    assert fault_of(finding("illegal-mma")) == "illegal-mma"
    title = "an MMA that the tensor core does not have: shape, dtype or layout"
    assert str(Verdict("a.b", "illegal-mma")).startswith(f"a.b: {title}.")
    assert str(Verdict("a.b", "some-new-rule")).startswith("a.b: some new rule.")


def test_every_rule_that_is_given_a_fault_exists():
    assert set(_RULE_FAULTS) <= set(RULES)
    assert set(_RULE_FAULTS.values()) <= set(FAULTS)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("data-race", "race"),
        ("missing-commit-smem", "race"),
        ("read-before-arrival", "race"),
        ("uninitialized-read", "nan"),
        ("step-limit", "timeout"),
        ("over-capacity", "too-much-smem"),
        ("unfinished-copy", "race"),
        ("barrier-overrun", "barrier"),
        ("deadlock", "deadlock"),
        ("out-of-bounds", "out-of-bounds"),
        ("exception", "exception"),
    ],
)
def test_every_rule_of_the_model_is_a_fault(rule, fault):
    assert fault_of(finding(rule)) == fault
    assert fault in FAULTS


def test_what_stopped_the_kernel_is_reported_first():
    race, error = finding(), finding("exception", "ValueError: no")
    assert most_important([race, error]) is error
    assert most_important([race, finding("missing-commit-smem")]) is race


def test_a_finding_names_its_line():
    where = Location("cell.py", 3, cell="stage")
    lines = describe_finding(finding("exception", "ValueError: no.", where=where, fix="Do this."))
    assert lines == ("ValueError: no (cell stage, line 3).", "Do this.")


def test_a_finding_names_two_accesses_at_most():
    accesses = tuple(Access(f"writes SMEM[{i}]", f"thread {i}") for i in range(3))
    lines = describe_finding(finding(accesses=accesses))
    assert lines[1:] == ("- thread 0 writes SMEM[0]", "- thread 1 writes SMEM[1]")


def test_a_long_explanation_is_cut_and_keeps_its_line():
    where = Location("cell.py", 3, cell="stage")
    (line,) = describe_finding(finding("exception", "word " * 200, where=where))
    assert len(line) < 300
    assert line.endswith(" ... (cell stage, line 3).")


def test_required_and_forbidden_primitives_are_named_as_they_are_written():
    exercise = dataclasses.replace(
        practice.DOUBLE, requires={"copy_gmem_to_smem": 2, "run_scoped": 1}, forbids=("swap",)
    )
    assert describe_means(exercise, Counter(copy_gmem_to_smem=1, swap=1)) == (
        "The kernel uses `plgpu.copy_gmem_to_smem` once, it should at least twice.",
        "The kernel never uses `pl.run_scoped`, which is asked for.",
        "The kernel uses a store to a ref (`ref[...] = value`), which is not allowed here.",
    )
    assert describe_means(exercise, Counter(copy_gmem_to_smem=2, run_scoped=1)) == ()


@pytest.mark.parametrize(
    ("primitive", "words"),
    [
        ("barrier_wait", "`plgpu.barrier_wait`"),
        ("run_scoped", "`pl.run_scoped`"),
        ("wgmma_ref", "`plgpu.wgmma`"),
        ("get", "a load from a ref (`ref[...]`)"),
        ("exp", "`jax.lax.exp`"),
        ("no_such_thing", "`no_such_thing`"),
    ],
)
def test_a_primitive_reads_as_the_call_that_makes_it(primitive, words):
    assert in_words(primitive) == words


def test_what_does_the_work_instead_of_a_kernel_is_named():
    (line,) = describe_no_kernel(Counter(reshape=3, dot_general=1))
    assert "`dot_general` (`@`, `jnp.dot`)" in line
    assert "reshape" not in line


def test_a_relabelling_is_named_where_nothing_else_is_there():
    assert "`reshape`" in describe_no_kernel(Counter(reshape=1))[0]
    assert "nothing is computed" in describe_no_kernel(Counter())[0]
    assert "Outside of the kernel" not in describe_not_from_kernel(Counter())[0]
