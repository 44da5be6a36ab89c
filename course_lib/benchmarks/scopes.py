"""What the Mosaic profiler recorded of a kernel, beside the simulator's timeline for it.

A profiled kernel writes a trace with an event for each begin and each end of a `jax.named_scope`.
`recorded` reads what was kept of `kernels.debugging.product` on an H200, `record_here` makes a
trace of the GPU in this machine, and `of_timeline` finds the same scopes in a timeline of the
simulator.

The events' times are a start in nanoseconds plus a number of cycles of the SM (JAX,
`mosaic.gpu.profiler.ProfilerSpec.dump`): within a block their differences are cycles, whatever unit
a viewer writes beside them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib import runtime
from course_lib.diagnostics import CourseError
from course_lib.figures import style
from course_lib.kernels import debugging

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "traces"
NAMES = ("copy", "arrive", "multiply", "store")
"""The scopes of `debugging.product`, in the order in which a step comes through them."""

_INIT = "Init"  # JAX's own, around a kernel's set-up
_OPERATIONS = {"copy_gmem_to_smem": "copy", "barrier_wait": "arrive", "wgmma_ref": "multiply"}
_COLOURS = dict(zip(NAMES, (style.BLUE, style.GREY, style.ORANGE, style.GREEN), strict=True))


@dataclasses.dataclass(frozen=True)
class Scope:
    """A thread in a named scope, from `start` to `end` in cycles."""

    name: str
    start: float
    end: float

    @property
    def cycles(self) -> float:
        """How long it was."""
        return self.end - self.start


@dataclasses.dataclass(frozen=True)
class Recording:
    """The kept traces of one card.

    Attributes:
      device: its name.
      k: the inner size of the products.
      date: when, as text.
      slots: for each number of slots the scopes of the thread.
      unprofiled_us: for each number of slots the kernel's time in microseconds, not profiled.
    """

    device: str
    k: int
    date: str
    slots: Mapping[int, tuple[Scope, ...]]
    unprofiled_us: Mapping[int, float]


def recorded(path: Path | None = None) -> Recording:
    """The newest kept recording, or that of a file."""
    path = path or max(FOLDER.glob("*-product.json"))
    data = json.loads(path.read_text())
    return Recording(
        device=data["card"]["name"],
        k=data["k"],
        date=data["date"],
        slots={int(n): tuple(of_events(events)) for n, events in data["traces"].items()},
        unprofiled_us={int(n): float(us) for n, us in data["unprofiled_us"].items()},
    )


def of_events(events: Iterable[Sequence[Any]]) -> list[Scope]:
    """The scopes of (name, "B" or "E", cycles), from the first one's start; without JAX's own.

    Raises:
      CourseError: an end without its begin: the trace was cut off, or scopes overlap.
    """
    found: list[Scope] = []
    begun: list[tuple[str, float]] = []
    for name, phase, cycles in events:
        if phase == "B":
            begun.append((name, cycles))
            continue
        if not begun or begun[-1][0] != name:
            raise CourseError(f"The trace ends {name}, which has not begun.")
        found.append(Scope(name, begun.pop()[1], cycles))
    inner = [s for s in sorted(found, key=lambda s: s.start) if s.name != _INIT]
    start = inner[0].start if inner else 0.0
    return [Scope(s.name, s.start - start, s.end - start) for s in inner]


def of_trace(trace: Mapping[str, Any]) -> list[Scope]:
    """The scopes of the first thread in a trace as the profiler writes it."""
    events = trace["traceEvents"]
    if not events:
        return []
    first = events[0]["tid"]
    mine = [e for e in events if e["tid"] == first]
    return of_events((e["name"], e["ph"], (e["ts"] - mine[0]["ts"]) * 1e3) for e in mine)


def of_timeline(timeline: Any) -> list[Scope]:
    """`debugging.product`'s scopes in the simulator's timeline: by what its thread does.

    A span belongs to the scope of its operation; a wait without a name to the one before it; and
    what follows the last multiplication is the store. Neighbours of one name are joined.
    """
    spans = [s for s in timeline.spans if s.lane == "the thread"]
    last = max((i for i, s in enumerate(spans) if s.name == "wgmma_ref"), default=-1)
    found: list[Scope] = []
    for i, span in enumerate(spans):
        before = found[-1].name if found else "store"
        name = _OPERATIONS.get(span.name, before if i <= last + 1 else "store")
        if found and found[-1].name == name:
            found[-1] = Scope(name, found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(Scope(name, span.start, span.end))
    return found


def length(scopes: Sequence[Scope]) -> float:
    """From the first scope's start to the last one's end, in cycles."""
    return max(s.end for s in scopes) - min(s.start for s in scopes)


def totals(scopes: Sequence[Scope]) -> dict[str, float]:
    """The cycles in each scope, all its times together."""
    return {name: sum(s.cycles for s in scopes if s.name == name) for name in NAMES}


def record_here(a: jax.Array, b: jax.Array, *, slots: int) -> list[Scope] | None:
    """Profiles `debugging.product` on this machine's GPU; without one says so and returns None."""
    product = functools.partial(debugging.product, slots=slots)
    if runtime.device() is None or not runtime.can_run_natively(product, a, b):
        print("There is no GPU here that could run it: the profiler records nothing.")
        return None
    runtime.run(product, a, b)  # a kernel's first run is where it can be stopped
    with tempfile.TemporaryDirectory() as folder:
        profiled = jax.jit(functools.partial(product, profile_dir=folder))
        jax.block_until_ready(profiled(a, b))
        jax.effects_barrier()
        (file,) = Path(folder).glob("*.json")
        return of_trace(json.loads(file.read_text()))


def save(path: str | Path, rows: Mapping[str, Sequence[Scope]]) -> None:
    """Writes runs below each other for Perfetto (ui.perfetto.dev): a cycle is drawn as 1 ns."""
    events: list[dict[str, Any]] = []
    for lane, (name, scopes) in enumerate(rows.items()):
        place = {"pid": 0, "tid": lane}
        events.append({"ph": "M", "name": "thread_name", "args": {"name": name}, **place})
        events += [
            {"ph": "X", "name": s.name, "ts": s.start / 1e3, "dur": s.cycles / 1e3, **place}
            for s in scopes
        ]
    Path(path).write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))


def picture(rows: Mapping[str, Sequence[Scope]], *, until: float) -> Figure:
    """The scopes of several runs below each other, from 0 to `until` cycles."""
    figure = Figure(figsize=(style.WIDTH_IN, 0.5 * len(rows) + 0.9))
    axes = figure.add_axes((0.17, 0.12, 0.8, 0.8))
    for y, scopes in enumerate(rows.values()):
        for scope in scopes:
            axes.broken_barh(
                [(scope.start, min(scope.end, until) - scope.start)],
                (y - 0.36, 0.72),
                facecolor=_COLOURS[scope.name],
            )
    axes.set_xlim(0, until)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_xlabel("cycles")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=_COLOURS[n], label=n) for n in NAMES]
    figure.legend(handles=handles, ncols=len(NAMES), loc="upper right", frameon=False, fontsize=9)
    return figure
