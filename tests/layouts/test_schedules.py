"""The schedules of `layouts.schedules`: their invariants, and the simulator as a witness."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib.diagnostics import CourseError
from course_lib.layouts.schedules import PATTERNS, WAYS, Schedule, costs, schedule
from course_lib.simulator import simulate


def drawn() -> tuple[int, ...]:
    rng = np.random.default_rng()
    return tuple(map(int, rng.integers(1, 9, size=int(rng.integers(1, 40)))))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sms", [1, 3, 8])
def test_every_tile_is_computed_once_and_no_sm_does_two_things_at_a_time(
    way: str, sms: int
) -> None:
    for start, late, ahead in itertools.product((0, 2), (0, 5), (True, False)):
        tiles = drawn()
        made = schedule(way, tiles, sms=sms, start=start, late=late, ahead=ahead)
        assert [s.tile for s in made.spans] == list(range(len(tiles)))
        assert tuple(s.end - s.start for s in made.spans) == tiles
        assert all(s.claimed <= s.start for s in made.spans)
        for sm in range(sms):
            times = [(s.start, s.end) for s in made.spans if s.sm == sm]
            times += [(begin, end) for m, begin, end in made.begins if m == sm and end > begin]
            times.sort()
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(times))
            assert not times or times[0][0] >= (late if sm == 0 else 0)


def test_a_block_per_tile_is_the_greedy_schedule_and_turns_are_dealt_in_advance() -> None:
    tiles = (3, 1, 1, 1) * 4
    assert schedule("blocks", tiles, sms=4).end == 7
    assert schedule("persistent", tiles, sms=4).ends == (12, 4, 4, 4)
    assert schedule("dynamic", tiles, sms=4, ahead=False).end == 7


def test_blocks_that_take_tiles_over_start_once_for_each_sm() -> None:
    tiles = costs("mixed", 20)
    assert len(schedule("blocks", tiles, sms=4).begins) == 20
    assert len(schedule("persistent", tiles, sms=4).begins) == 4
    assert len(schedule("dynamic", tiles, sms=4).begins) == 4


def test_asking_a_tile_ahead_binds_a_tile_to_a_busy_block() -> None:
    """The last tile goes to the block that asked when it began with the longest."""
    tiles = (1, 1, 9, 1, 1, 1)
    early = schedule("dynamic", tiles, sms=3)
    late = schedule("dynamic", tiles, sms=3, ahead=False)
    assert (early.end, late.end) == (10, 9)
    waiting = next(s for s in early.spans if s.start == 9)
    assert waiting.claimed == 0
    assert all(s.claimed == s.start for s in late.spans)


def test_a_late_sm_keeps_the_tiles_of_its_turn_waiting_and_no_others() -> None:
    tiles = (2,) * 12
    assert schedule("persistent", tiles, sms=4, late=20).end == 26
    assert schedule("dynamic", tiles, sms=4, late=20).end == 8
    assert schedule("dynamic", tiles, sms=4, late=20).ends[0] == 0


def cost_kernel(way: str, sms: int) -> Any:
    """A kernel that reads memory as often as a tile costs, and notes which block did it."""

    def run(table: Any) -> Any:
        tiles = table.shape[0]

        def body(cost_gmem: Any, who_gmem: Any) -> None:
            first = jax.lax.axis_index("block")

            def work(i: Any) -> None:
                @pl.loop(0, 20 * cost_gmem[i])
                def step(s: Any) -> None:
                    who_gmem[i] = first

            if way == "blocks":
                work(first)
            elif way == "persistent":
                plgpu.nd_loop((tiles,), collective_axes="block")(lambda info: work(info.index[0]))
            else:
                loop = plgpu.dynamic_scheduling_loop(grid_names=("block",))
                loop(lambda info: work(info.index[0]))

        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((tiles,), jnp.int32),
            grid=(sms if way == "persistent" else tiles,),
            grid_names=("block",),
        )(table)

    return run


@pytest.mark.two_jax
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("way", WAYS)
def test_the_simulator_deals_the_tiles_out_alike(way: str, pattern: str) -> None:
    table = np.array(costs(pattern, 18), np.int32)
    report = simulate(cost_kernel(way, 4), table, arch="sm_100a", sms=4)
    assert report.findings == ()
    made = schedule(way, table.tolist(), sms=4)
    unit = max(s.end for s in report.timeline.spans) / made.end
    assert _busiest(report.timeline) == pytest.approx(made.end * unit)
    ends = sorted(e for e in made.ends)
    assert sorted(_sm_ends(report, made)) == pytest.approx(
        [e * unit for e in ends], rel=0.08, abs=unit
    )


def _busiest(timeline: Any) -> float:
    return float(max(s.end for s in timeline.spans))


def _sm_ends(report: Any, made: Schedule) -> list[float]:
    """When the last block of each SM is done, by the simulator; SMs by what the model says."""
    last: dict[str, float] = {}
    for s in report.timeline.spans:
        last[s.lane] = max(last.get(s.lane, 0.0), s.end)
    blocks = {sm: [s.block for s in made.spans if s.sm == sm] for sm in range(made.sms)}
    return [max(last.get(f"block {b}", 0.0) for b in own) for own in blocks.values() if own]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"way": "greedy"}, "'greedy' is none of blocks, persistent, dynamic"),
        ({"sms": 0}, "sms = 0 does not fit: give 1 to 8"),
        ({"sms": 9}, "give 1 to 8"),
        ({"start": -1}, "start = -1"),
        ({"late": 41}, "late = 41"),
        ({"tile_costs": ()}, "1 to 48 tiles"),
        ({"tile_costs": (1, 0)}, "1 unit or more"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"way": "blocks", "tile_costs": (1, 2), "sms": 2}
    with pytest.raises(CourseError, match=words):
        schedule(**given | change)


def test_patterns_are_named_and_bounded() -> None:
    for pattern in PATTERNS:
        assert all(1 <= c <= 9 for c in costs(pattern, 48))
        assert costs(pattern, 7) == costs(pattern, 7)
    with pytest.raises(CourseError, match="is none of even"):
        costs("odd", 4)
    with pytest.raises(CourseError, match="give 1 to 48"):
        costs("even", 49)
