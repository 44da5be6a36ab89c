"""What the packaging tests read: the checkout's files, pyproject.toml and the locks."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.setup_env import ROOT, read_lock

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK_FILES = sorted(ROOT.glob("requirements*.lock"))


def pins(lock: Path) -> dict[str, str]:
    """The versions of a lock, by package name."""
    found = (Requirement(line) for line in read_lock(lock))
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in found}


def group(name: str) -> list[str]:
    """The requirements of a dependency group, those of the groups that it includes among them."""
    found: list[str] = []
    for entry in PYPROJECT["dependency-groups"][name]:
        found += [entry] if isinstance(entry, str) else group(entry["include-group"])
    return found


def tree() -> list[Path]:
    """The files that are or will be committed: tracked ones, and new ones git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive has no git: what git would ignore has a name of this kind
        ignored = re.compile(
            r"(\.(venv|git|cache|toolchain|mojo|hypothesis)|.*_cache$|workspace$|__pycache__$)"
        )
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(ignored.match(part) for part in path.relative_to(ROOT).parts[:-1])
        ]
    return sorted(p for p in paths if p.is_file())
