"""Folders of packages beside the environment: the compilers that only worker processes see.

A folder is filled from a hashed lock. It is made beside the old one and takes
its place when it is whole, so an interrupted download leaves nothing half done.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_STAMP = "lock.sha256"


def up_to_date(target: Path, lock: Path) -> bool:
    """Whether the folder holds what the lock says."""
    stamp = target / _STAMP
    return stamp.exists() and stamp.read_text() == _digest(lock)


def install(target: Path, lock: Path) -> None:
    """Fills the folder with the packages of the lock; does nothing where it holds them already.

    Raises:
      subprocess.CalledProcessError: the installer failed; it has printed why. The folder is as
        it was.
    """
    if up_to_date(target, lock):
        return
    partial = target.with_name(f"{target.name}.new{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        subprocess.run([*_installer(), "--target", str(partial), "-r", str(lock)], check=True)
        (partial / _STAMP).write_text(_digest(lock))
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _digest(lock: Path) -> str:
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def _installer() -> list[str]:
    """`uv` where it is at hand, as it shares its downloads between folders; else pip."""
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    uv = shutil.which("uv", path=search)
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable, *options]
    return [sys.executable, "-m", "pip", "install", "--quiet", *options]
