"""Contenders take turns, on inputs that rotate; medians and quartiles are what they say."""

import pytest

from course_lib.benchmarks import timing
from course_lib.diagnostics import CourseError


def test_contenders_take_turns_on_rotating_inputs():
    seen: list[tuple[str, int]] = []

    def contender(name):
        return lambda x: seen.append((name, x)) or x

    def measure(calls):
        seen.append(("clock", len(calls)))
        return [float(call()) for call in calls]

    times = timing.interleave(
        {"a": contender("a"), "b": contender("b")},
        [(0,), (1,), (2,)],
        rounds=4,
        launches=5,
        clocks={"a": measure, "b": measure},
    )
    assert {name: t.times_us for name, t in times.items()} == {
        "a": (0.0, 1.0, 2.0, 0.0, 1.0) * 4,
        "b": (0.0, 1.0, 2.0, 0.0, 1.0) * 4,
    }
    names = [name for name, _ in seen if name != "clock"]
    turns = [names[i] for i in range(0, len(names), 6)]  # one warm-up and five launches
    assert all(set(turns[i : i + 2]) == {"a", "b"} for i in range(0, 8, 2))
    warm_ups = [seen[i - 1] for i, (name, _) in enumerate(seen) if name == "clock"]
    assert {x for _, x in warm_ups} == {2}, "a warm-up takes the set that comes last"


def test_medians_and_quartiles():
    found = timing.Timing((10.0, 12.0, 11.0, 30.0))
    assert found.median_us == 11.5
    low, high = found.quartiles_us
    assert low < 11.5 < high
    assert found.spread == (high - low) / 11.5


class Extension:
    def __init__(self, records):
        self.records, self.calls = records, []

    def _cupti_init(self):
        self.calls.append("init")

    def _cupti_get_timings(self, finalize):
        self.calls.append("get")
        return self.records


def with_records(monkeypatch, records):
    extension = Extension(records)
    monkeypatch.setattr(timing, "_extension", lambda: extension)
    return extension


def test_the_kernels_of_a_launch_are_added_up(monkeypatch):
    with_records(monkeypatch, [("fill", 0.001), ("mma", 0.1), ("fill", 0.002), ("mma", 0.2)])
    assert timing.cupti_times_us([lambda: 1, lambda: 2]) == pytest.approx([101.0, 202.0])


@pytest.mark.parametrize("records", [[], [("a", 1.0)] * 3])
def test_records_that_fit_no_launch(monkeypatch, records):
    with_records(monkeypatch, records)
    with pytest.raises(CourseError, match=f"recorded {len(records)} kernels in 2 launches"):
        timing.cupti_times_us([lambda: 1, lambda: 2])


def test_cupti_is_let_go_when_a_launch_fails(monkeypatch):
    extension = with_records(monkeypatch, [])

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        timing.cupti_times_us([fail])
    assert extension.calls == ["init", "get"]
