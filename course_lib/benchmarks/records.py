"""Dated records of what was measured, one JSON file a run: `benchmarks/records/`.

A record says what was measured, on which card in which state, with which software,
on which inputs and how, so that a number in a chapter can be traced to its run.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib.benchmarks.card import State
from course_lib.setup_env import ROOT

FOLDER = ROOT / "benchmarks" / "records"
SCHEMA = 1
NORMAL = "independent, normal, mean 0, standard deviation 1, drawn anew for each run"


@dataclasses.dataclass(frozen=True)
class Row:
    """One contender at one size.

    Attributes:
      case: what was computed ("8192x8192x8192 bfloat16").
      name: who computed it ("matmul7").
      median_us: the median of its kernel times, in microseconds.
      low_us: their first quartile.
      high_us: their third quartile.
      launches: how many times there are.
      rate: what it did per second, in the suite's unit.
      ratio: its rate over the baseline's, in the same run.
      error: relative error, ||out - reference|| / ||reference||.
      config: the configuration that it ran with.
    """

    case: str
    name: str
    median_us: float
    low_us: float
    high_us: float
    launches: int
    rate: float
    ratio: float
    error: float
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Record:
    """One run of a suite.

    Attributes:
      suite: "matmul", "attention", "copy".
      baseline: the name of the library that ratios are to.
      unit: the unit of `Row.rate` ("TFLOP/s", "GB/s").
      rows: what was measured.
      card: its state "before" and "after", as `card.State` has it, and "under load": for each
        case the SMs' clock, the power and the clock event reasons while the baseline runs.
      software: versions by name.
      date: when, in UTC, as ISO 8601.
      inputs: how the inputs were drawn.
      notes: what a reader should know: a busy or slowed card, contenders left out.
      seconds: what the run took: "compiling" everybody, and "all".
    """

    suite: str
    baseline: str
    unit: str
    rows: tuple[Row, ...]
    card: Mapping[str, Any]
    software: Mapping[str, str]
    date: str
    inputs: str = NORMAL
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def device(self) -> str:
        """The card's name."""
        return str(self.card.get("before", {}).get("name", "an unknown card"))

    def ratios(self, case: str) -> dict[str, float]:
        """Each contender's ratio to the baseline at one size."""
        return {row.name: row.ratio for row in self.rows if row.case == case}


def card_of(
    before: State | None, after: State | None, loads: Mapping[str, State]
) -> dict[str, Any]:
    """The card's part of a record: before and after the run, and clock and power under load."""
    states = {"before": before, "after": after}
    found = {when: dataclasses.asdict(s) for when, s in states.items() if s is not None}
    if loads:
        found["under load"] = {
            case: {"sm_mhz": s.sm_mhz, "power_w": s.power_w, "reasons": s.reasons}
            for case, s in loads.items()
        }
    return found


def software() -> dict[str, str]:
    """The versions that matter to a speed."""
    found = {"python": platform.python_version()}
    for name in ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cublas",
                 "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"):  # fmt: skip
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write(record: Record, folder: Path = FOLDER) -> Path:
    """Writes a record into a new file, named after its date, card and suite."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = re.sub(r"[^0-9T]", "", record.date.split("+")[0])
    card = re.sub(r"[^a-z0-9]+", "-", record.device.lower()).strip("-")
    path = folder / f"{stamp}-{card}-{record.suite}.json"
    data = {"schema": SCHEMA, **dataclasses.asdict(record)}
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def read(path: Path) -> Record:
    """The record in a file.

    Raises:
      ValueError: it has another schema.
    """
    data = json.loads(path.read_text())
    if data.pop("schema", None) != SCHEMA:
        raise ValueError(f"{path.name} is not a record of schema {SCHEMA}")
    rows = tuple(Row(**row) for row in data.pop("rows"))
    return Record(**{**data, "rows": rows, "notes": tuple(data["notes"])})


def all_records(suite: str, folder: Path = FOLDER) -> Iterator[Record]:
    """The records of a suite, newest first."""
    found = [read(path) for path in folder.glob(f"*-{suite}.json")]
    yield from sorted(found, key=lambda record: record.date, reverse=True)


def newest(suite: str, *, device: str | None = None, folder: Path = FOLDER) -> Record | None:
    """The newest record of a suite, of one card if it is named."""
    for record in all_records(suite, folder):
        if device is None or record.device == device:
            return record
    return None
