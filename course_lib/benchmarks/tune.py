"""`course tune`: the best configuration of the ladder's last step for a shape, on this card.

Two rounds. First every configuration that fits runs a few times, with cuBLAS in
between; then the best few are timed again, in turns, and the best of them is kept in the
file that the kernels read (`matmul_ladder.tuned`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.benchmarks import bench, card, suites
from course_lib.benchmarks.bench import Case, Contender, Log
from course_lib.benchmarks.records import Row
from course_lib.kernels import matmul_ladder
from course_lib.kernels.matmul_ladder import tuned

# Rows and columns per warpgroup, and the slots that fit beside their epilogue.
TILES = (
    dict(tile_m=64, tile_n=256, max_concurrent_steps=4, epi_tile_n=64),
    dict(tile_m=64, tile_n=256, max_concurrent_steps=3, epi_tile_n=64),
    dict(tile_m=128, tile_n=192, max_concurrent_steps=3, epi_tile_n=32),
    dict(tile_m=128, tile_n=128, max_concurrent_steps=4, epi_tile_n=32),
    dict(tile_m=64, tile_n=128, max_concurrent_steps=6, epi_tile_n=64),
)
WIDTHS = (4, 8, 16, 32)
_FINALISTS = 4
_AT_A_TIME = 8


def space() -> list[dict[str, Any]]:
    """All configurations of the last step that are tried, as settings."""
    axes = itertools.product(TILES, (0, 1), WIDTHS, (1, 2))
    return [
        dict(**tile, grid_minor_dim=minor, grid_tile_width=width, cluster_m=cluster)
        for tile, minor, width, cluster in axes
    ]


@dataclasses.dataclass(frozen=True)
class Tried:
    """One configuration and what it reached, as a ratio to cuBLAS."""

    settings: dict[str, Any]
    ratio: float


def tune(
    sizes: Sequence[str] = (),
    *,
    limit: int | None = None,
    anyway: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Tried]:
    """Sweeps, says what it finds, and keeps the best configuration of each shape.

    Args:
      sizes: MxNxK[:dtype]; without any, those of `course bench matmul`.
      limit: how many configurations to try per shape, drawn at random; None tries all.
      anyway: tune on a busy or slowed card, too.
      say: is told what happens.

    Raises:
      CourseError: there is no GPU; or it is busy or slowed and `anyway` is False.
    """
    device = card.need_gpu()
    bench.look_at(bench.settled_state(), Log(say), anyway=anyway)
    found = {}
    for case in suites.matmul(sizes or suites.MATMUL_SIZES, steps=()):
        best = _tune_case(case, limit, say)
        if best is None:
            say(f"{case.name}: no configuration runs on {device.name}.")
            continue
        shape, dtype = case.name.split(" ")
        m, n, k = map(int, shape.split("x"))
        file = tuned.keep(m, n, k, dtype, best.settings, device=device.name)
        say(f"{case.name}: {best.ratio:.3f} of cuBLAS with {_words(best.settings)}; kept in {file}")
        found[case.name] = best
    return found


def _tune_case(case: Case, limit: int | None, say: Callable[[str], None]) -> Tried | None:
    settings = space()
    if limit is not None:
        settings = random.sample(settings, min(limit, len(settings)))
    log = Log(say=lambda _: None)
    finalists = _sweep(case, [_contender(s) for s in settings], log)[:_FINALISTS]
    if not finalists:
        return None
    finals = _with(case, [_contender(t.settings) for t in finalists])
    return max(_tried(bench.measure_case(finals, log), case), key=lambda t: t.ratio, default=None)


def _sweep(case: Case, contenders: Sequence[Contender], log: Log) -> list[Tried]:
    """Times each a few times, some at a time; the fastest come first."""
    found: list[Tried] = []
    _show(0, len(contenders), found)
    for start in range(0, len(contenders), _AT_A_TIME):
        some = _with(case, contenders[start : start + _AT_A_TIME])
        found += _tried(bench.measure_case(some, log, rounds=1, launches=5), case)
        found.sort(key=lambda t: t.ratio, reverse=True)
        _show(min(start + _AT_A_TIME, len(contenders)), len(contenders), found)
    return found


def _tried(rows: Sequence[Row], case: Case) -> list[Tried]:
    return [Tried(dict(row.config), row.ratio) for row in rows if row.name != case.baseline.name]


def _show(done: int, all_of_them: int, found: Sequence[Tried]) -> None:
    bar = "#" * round(30 * done / all_of_them)
    best = f"best {found[0].ratio:.3f} of cuBLAS" if found else "none fits yet" if done else ""
    end = "\n" if done == all_of_them else "\r"
    text = ", ".join(filter(None, (f"{done} of {all_of_them}", best)))
    print(f"[{bar:30}] {text}", end=end, file=sys.stderr, flush=True)


def _with(case: Case, contenders: Sequence[Contender]) -> Case:
    return dataclasses.replace(case, contenders=tuple(contenders))


def _contender(settings: dict[str, Any]) -> Contender:
    module = matmul_ladder.step(matmul_ladder.LAST).module
    function = functools.partial(module.matmul, config=module.Config(**settings))
    return Contender(_words(settings), function, settings)


def _words(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())
