"""Runs a command as a user without rights, also where the tests run as root (as on CI).

    command([sys.executable, "-m", "pytest", ...])    a command line, for subprocess
    environment(folder)                               the variables to run it with

Such a user cannot reach a Python below /root, or a checkout that only its owner may open. In a
mount namespace of the command's own, these folders are covered with others that everybody may open.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.setup_env import ROOT

UID = 60_999


def command(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` as somebody who is not root."""
    if os.getuid() != 0:
        return list(argv)
    lines = ["set -e", "stage=$(mktemp -d)", "mount -t tmpfs tmpfs $stage", *_opening()]
    drop = f"setpriv --reuid={UID} --regid={UID} --clear-groups --inh-caps=-all --"
    script = "; ".join([*lines, f'exec {drop} "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *argv]


def environment(home: Path) -> dict[str, str]:
    """The variables of such a command; `home` is a folder that everybody may write to."""
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "CI", "LANG", "JAX_PLATFORMS")}
    own = {"HOME": str(home), "USER": "nobody", "PYTHONDONTWRITEBYTECODE": "1"}
    return kept | own


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that everybody reaches: pytest's are its owner's, and closed again now and then."""
    folder = Path(tempfile.mkdtemp(prefix="course-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opening() -> Iterator[str]:
    """Shell commands that make this Python and this checkout open to everybody."""
    done: set[Path] = set()
    for wanted in map(Path, (sys.prefix, sys.base_prefix, str(ROOT), os.path.realpath(sys.prefix))):
        parts = [*reversed(wanted.parents), wanted]
        for folder, inner in zip(parts, [*parts[1:], None], strict=True):
            if folder in done or stat.S_IMODE(folder.stat().st_mode) & 0o005 == 0o005:
                continue
            done.add(folder)
            children = sorted(folder.iterdir()) if folder == wanted else []
            yield from _covered(folder, {*children, *([inner] if inner else [])}, len(done))


def _covered(folder: Path, children: set[Path], number: int) -> Iterator[str]:
    """Commands that put a folder in another's place in which only these children are."""
    old = f"$stage/{number}"
    yield f"mkdir {old}"
    yield f"mount --bind {shlex.quote(str(folder))} {old}"
    yield f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}"
    for child in sorted(children):
        new, source = shlex.quote(str(child)), f"{old}/{shlex.quote(child.name)}"
        if child.is_symlink():
            yield f"cp -P {source} {new}"
        else:
            yield f"{'mkdir' if child.is_dir() else 'touch'} {new}"
            yield f"mount --rbind {source} {new}"
