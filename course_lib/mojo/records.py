"""What the chapters' Mojo programs gave on the machine that recorded them.

A record holds a program's listings for each architecture and what it printed on
a GPU, with the device and the date. It answers where there is no Mojo, and
where there is no GPU. `python -m course_lib.mojo.record` makes the records.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "recorded"


@dataclasses.dataclass(frozen=True)
class Record:
    """One program's record.

    Attributes:
      name: where the program stands ("20_threads/vector-add").
      compiled: for each architecture what `compiling` stores.
      output: what the program printed; None where it was only compiled.
      device: the GPU that it ran on.
      date: the day, as "2026-11-30".
    """

    name: str
    compiled: Mapping[str, Any]
    output: str | None = None
    device: str = ""
    date: str = ""


def digest(source: str) -> str:
    """The name of a program's record: its text decides, not where it stands."""
    return hashlib.sha256(_normal(source).encode()).hexdigest()[:20]


def load(source: str, *, folder: Path = FOLDER) -> Record | None:
    """The record of a program, None where there is none."""
    file = folder / f"{digest(source)}.json.gz"
    if not file.exists():
        return None
    return Record(**json.loads(gzip.decompress(file.read_bytes())))


def store(source: str, record: Record, *, folder: Path = FOLDER) -> None:
    """Writes a program's record."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(record), ensure_ascii=False, indent=1)
    (folder / f"{digest(source)}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _normal(source: str) -> str:
    """The program without what an editor may change at its ends."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines()) + "\n"
