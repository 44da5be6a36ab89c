"""Answers of the compiler on the disk, so that a repeated question costs nothing.

Files are written whole under another name and then renamed, so two notebooks
that compile the same kernel at the same time cannot spoil each other's file. A
folder that cannot be written, or a file that cannot be read, costs time only.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

_SUFFIX = ".json.gz"
_MAX_FILES = 500
_complained: set[Path] = set()


def folder() -> Path:
    """Where the answers are: `$COURSE_CACHE`, else the user's own folder for caches."""
    if chosen := os.environ.get("COURSE_CACHE"):
        return Path(chosen) / "compiled"
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(base or Path.home() / ".cache") / "mosaic-gpu-hands-on" / "compiled"


def load(key: str) -> str | None:
    """The text stored under `key`, None if there is none that can be read."""
    try:
        text = gzip.decompress((folder() / (key + _SUFFIX)).read_bytes()).decode()
        json.loads(text)
    except (OSError, EOFError, ValueError):
        return None
    return text


def store(key: str, text: str) -> None:
    """Stores `text` under `key`; says once if the folder cannot be written."""
    target = folder() / (key + _SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _prune(target.parent)
        handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(gzip.compress(text.encode(), mtime=0))
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as error:
        _complain(target.parent, error)


def _prune(where: Path) -> None:
    """Keeps the newest answers only."""
    files = [(f.stat().st_mtime, f) for f in where.glob("*" + _SUFFIX)]
    for _, file in sorted(files, key=lambda pair: pair[0])[: max(0, len(files) - _MAX_FILES)]:
        with contextlib.suppress(OSError):
            file.unlink()


def _complain(where: Path, error: OSError) -> None:
    if where not in _complained:
        _complained.add(where)
        warnings.warn(
            f"Compiled kernels cannot be kept in {where} ({error.strerror}), so every notebook "
            "compiles its own. Set COURSE_CACHE to a folder that can be written.",
            stacklevel=5,
        )


def dumps(data: Any) -> str:
    """Data as the text that is stored."""
    return json.dumps(data, ensure_ascii=False)
