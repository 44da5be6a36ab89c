"""The picture of a ring of GPUs: the same each time, told in words, and true."""

from __future__ import annotations

import pytest

from course_lib.figures import devices, png


def test_draws_the_same_picture_twice() -> None:
    assert png(devices.ring(4, 2)) == png(devices.ring(4, 2))


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_after_the_last_step_everybody_has_everything(count: int) -> None:
    for d in range(count):
        assert sorted(devices.has(d, steps=count - 1, devices=count)) == list(range(count))
        assert devices.has(d, steps=0, devices=count) == [d]


def test_a_device_has_what_the_one_before_had_a_step_earlier() -> None:
    for steps in (1, 2, 3):
        for d in range(4):
            before = devices.has((d - 1) % 4, steps=steps - 1, devices=4)
            assert set(devices.has(d, steps=steps, devices=4)) == {d, *before}


def test_says_who_sends_what() -> None:
    words = str(devices.ring(4, 2).get_label())
    assert "device 0 sends shard 3, 1 sends shard 0" in words
    assert "device 0: [0, 2, 3]" in words


@pytest.mark.parametrize(("count", "steps"), [(1, 1), (9, 1), (4, 0), (4, 4)])
def test_refuses_what_it_cannot_draw(count: int, steps: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        devices.ring(count, steps)
