"""When a pipeline loads and computes: against a simulation clock tick by clock tick."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts.pipeline import Pipeline


def by_the_clock(p: Pipeline) -> list[int]:
    """When each step's MMA ends, from a simulation in which only one tick is looked at."""
    free, arriving, ready = p.stages, collections.deque[tuple[int, int]](), collections.deque[int]()
    issued, next_issue, busy_until, running, ends = 0, 0, 0, False, []
    for now in range(10_000):
        if running and now == busy_until:
            running, free = False, free + 1
            ends.append(now)
        while arriving and arriving[0][0] == now:
            ready.append(arriving.popleft()[1])
        if issued < p.steps and free and now >= next_issue:
            arriving.append((now + p.latency, issued))
            issued, next_issue, free = issued + 1, now + p.issue, free - 1
        if ready and not running:
            ready.popleft()
            running, busy_until = True, now + p.mma
        if len(ends) == p.steps:
            return ends
    raise AssertionError("it did not end")


def some_pipelines() -> list[Pipeline]:
    rng = np.random.default_rng()
    made = []
    for _ in range(200):
        steps, stages, latency, issue, mma = rng.integers(1, (20, 8, 20, 8, 8)).tolist()
        made.append(Pipeline(steps=steps, stages=stages, latency=latency, issue=issue, mma=mma))
    return made


def test_it_ends_when_the_clock_says():
    for p in some_pipelines():
        assert p.times[:, 3].tolist() == by_the_clock(p), p


def test_the_needed_depth_is_the_least_that_is_as_fast_as_any():
    for p in some_pipelines():
        totals = [
            Pipeline(steps=p.steps, stages=s, latency=p.latency, issue=p.issue, mma=p.mma).total
            for s in range(1, p.steps + 1)
        ]
        assert totals.index(min(totals)) + 1 == p.needed
        assert totals == sorted(totals, reverse=True)  # deeper is never slower


def test_what_limits_it_is_said():
    assert "Too shallow: 3 stages would hide" in Pipeline(stages=2, issue=1).summary()
    assert "Memory cannot deliver faster" in Pipeline(stages=12, issue=9).summary()
    assert "the tensor cores are the limit; 3 would do." in Pipeline(stages=6, issue=1).summary()
    assert Pipeline(stages=3, issue=1).waits == 0


@pytest.mark.parametrize("name", ["steps", "stages", "latency", "issue", "mma"])
def test_numbers_that_do_not_fit(name):
    with pytest.raises(CourseError, match=f"{name} = 0 does not fit: take 1 to 64"):
        Pipeline(**{name: 0})
