"""A block of lanes in Python: what it notices, and what it leaves alone."""

import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.mojo.lanes import run_lanes, unset

X = np.arange(64.0)


def reverse(lane, x, y, item):
    item[lane] = x[lane]
    yield
    y[lane] = item[63 - lane]


def reverse_without_barrier(lane, x, y, item):
    item[lane] = x[lane]
    y[lane] = item[63 - lane]


def tree(lane, sums):
    active = 64
    while active > 1:
        active //= 2
        if lane < active:
            sums[lane] += sums[lane + active]
        yield


def tree_without_barriers(lane, sums):
    active = 64
    while active > 1:
        active //= 2
        if lane < active:
            sums[lane] += sums[lane + active]


def test_a_barrier_hands_data_over():
    report = run_lanes(reverse, 64, x=X, y=unset(64), item=unset(64))
    assert (report.ok, report.rule, report.barriers) == (True, "no findings", 1)
    assert repr(report) == "No findings."
    assert np.array_equal(report.arrays["y"], X[::-1])


def test_without_it_a_race_is_found_and_names_both_lines():
    report = run_lanes(reverse_without_barrier, 64, x=X, y=unset(64), item=unset(64))
    [finding] = report.findings
    assert (report.ok, report.rule) == (False, "lane-race")
    assert [a.who for a in finding.accesses] == ["lane 0", "lane 63"]
    first = reverse_without_barrier.__code__.co_firstlineno
    assert [a.where.line - first for a in finding.accesses] == [1, 2]
    assert "63 other elements of item" in str(finding)


def test_a_tree_with_barriers_is_clean_and_leaves_stale_sums():
    report = run_lanes(tree, 64, sums=np.ones(64))
    assert report.ok
    assert report.barriers == 6
    assert report.arrays["sums"][:5].tolist() == [64, 32, 16, 16, 8]


def test_a_tree_without_barriers_is_not():
    assert run_lanes(tree_without_barriers, 64, sums=np.ones(64)).rule == "lane-race"


def test_lanes_that_only_read_do_not_race():
    def read(lane, x, y):
        y[lane] = x[0]

    assert run_lanes(read, 8, x=X, y=unset(8)).ok


def test_two_writes_race_also_if_nobody_reads():
    def write(lane, y):
        y[0] = lane

    assert run_lanes(write, 8, y=unset(8)).rule == "lane-race"


def test_atomic_additions_go_together_but_not_with_plain_ones():
    def atomic(lane, counts):
        counts.atomic_add(lane % 2, 1)

    def mixed(lane, counts):
        if lane:
            counts.atomic_add(0, 1)
        else:
            counts[0] += 1

    report = run_lanes(atomic, 8, counts=np.zeros(2))
    assert report.ok
    assert report.arrays["counts"].tolist() == [4, 4]
    assert run_lanes(mixed, 8, counts=np.zeros(2)).rule == "lane-race"


def test_a_barrier_that_some_lanes_never_come_to():
    def diverging(lane, y):
        if lane < 3:
            yield
        y[lane] = lane

    report = run_lanes(diverging, 8, y=unset(8))
    assert report.rule == "barrier-divergence"
    assert "lane 3 the first of them, never come" in report.findings[0].what


def test_lanes_of_two_dimensions():
    def transpose(lane, x, y):
        row, col = lane
        y[col, row] = x[row, col]

    report = run_lanes(transpose, (2, 3), x=X[:6].reshape(2, 3), y=unset(3, 2))
    assert np.array_equal(report.arrays["y"], X[:6].reshape(2, 3).T)


def test_it_works_on_copies_and_in_an_order_that_is_drawn():
    order = []

    def note(lane, y):
        order.append(lane)
        y[lane] = 1

    mine = unset(512)
    run_lanes(note, 512, y=mine)
    assert np.isnan(mine).all()
    assert order != sorted(order)


@pytest.mark.parametrize("index", [64, -1, (0, 0)])
def test_an_element_that_is_not_there_is_named_with_its_lane(index):
    def beyond(lane, y):
        y[index] = lane

    with pytest.raises(CourseError, match=r"Lane \d writes y\[.*shape \(64,\)"):
        run_lanes(beyond, 2, y=unset(64))
