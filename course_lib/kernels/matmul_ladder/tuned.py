"""The best configuration of the last step for each shape, as `course tune` found it.

The defaults of the step's `Config` are what was best on an H200. For other cards and
shapes `course tune` writes a file, and the last step reads it.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def own_file() -> Path:
    """The reader's file: `$COURSE_TUNED`, else in the user's own folder for caches."""
    if chosen := os.environ.get("COURSE_TUNED"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(base or Path.home() / ".cache") / "mosaic-gpu-hands-on" / "tuned.json"


def key(m: int, n: int, k: int, dtype: Any) -> str:
    """How a shape is written in the files."""
    return f"{m}x{n}x{k} {dtype}"


def best(m: int, n: int, k: int, dtype: Any, *, device: str) -> dict[str, Any]:
    """The settings of the fastest configuration; none for a shape that was not tuned.

    Args:
      m: rows of the result.
      n: columns of it.
      k: how many products each element adds up.
      dtype: of the operands.
      device: the card's name; settings of other cards do not count.
    """
    file = own_file()
    return dict(_read(file, _changed(file)).get(device, {}).get(key(m, n, k, dtype), {}))


def keep(m: int, n: int, k: int, dtype: Any, settings: Mapping[str, Any], *, device: str) -> Path:
    """Writes the best settings of a shape into the reader's file; returns the file."""
    file = own_file()
    data = {name: dict(shapes) for name, shapes in _read(file, _changed(file)).items()}
    data.setdefault(device, {})[key(m, n, k, dtype)] = dict(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.part")
    partial.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(partial, file)
    return file


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=8)
def _read(file: Path, _changed: int) -> dict[str, dict[str, Any]]:
    """What a file holds; nothing if it is not there or is no such file."""
    try:
        data = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
