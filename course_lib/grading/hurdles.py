"""What keeps a machine from having a sandbox, and what its owner can do about it, in sentences.

`Sandbox.probe` asks here before it tries (`missing`), and after it tried in vain (`forbidden`).
What the kernel says about itself goes before guesses.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

OLDEST = (0, 8)  # the first bubblewrap with --disable-userns and with sizes for its folders
GET = (
    "Debian and Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; without root: "
    "conda install -c conda-forge bubblewrap."
)
_UNSAFE = "--unsafe-no-sandbox grades without."
_PROC = Path("/proc/sys")
_CONTAINERS = ("/.dockerenv", "/run/.containerenv")
# (what the kernel is asked, the answer that forbids, what to do)
_SWITCHES = (
    (
        "kernel/unprivileged_userns_clone",
        "0",
        "This kernel keeps user namespaces to root: sysctl kernel.unprivileged_userns_clone=1.",
    ),
    (
        "user/max_user_namespaces",
        "0",
        "This kernel allows no user namespace at all: sysctl user.max_user_namespaces=1000.",
    ),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor takes from user namespaces what bwrap needs (as in Ubuntu 24.04): give bwrap a "
        "profile, which docs/instructors.md has, or sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0.",
    ),
)
_CONTAINER = (
    "In a container: start it so that it may make user namespaces and mount /proc (docker run "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined; podman run --security-opt seccomp=unconfined "
    "--security-opt unmask=ALL)."
)
_UNKNOWN = (
    "User namespaces must be allowed to ordinary users: see sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns."
)


def missing(programs: list[str]) -> str:
    """What is missing or too old, and how to get it; "" where everything is there."""
    if programs:
        return f"No sandbox: {' and '.join(programs)} cannot be found. {GET} {_UNSAFE}"
    version = version_of("bwrap")
    if version and version < OLDEST:
        found, oldest = ".".join(map(str, version)), ".".join(map(str, OLDEST))
        return (
            f"No sandbox: {shutil.which('bwrap')} is bubblewrap {found}, and {oldest} or newer is "
            "needed: Debian 12 and Ubuntu 24.04 have one; elsewhere, and without root: conda "
            f"install -c conda-forge bubblewrap. {_UNSAFE}"
        )
    return ""


def version_of(program: str) -> tuple[int, ...]:
    """The version that bwrap says it has, () where it says none."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
    return tuple(int(n) for n in found.groups() if n is not None) if found else ()


def forbidden(said: str) -> str:
    """Why a sandbox did not start, and what to do.

    Args:
      said: what bwrap, or whatever ran before it, printed last.
    """
    guesses = (_CONTAINER, _UNKNOWN) if _in_a_container() else (_UNKNOWN, _CONTAINER)
    do = " ".join(_switches()) or " ".join(guesses)
    return f"No sandbox: bwrap was tried and did not start ({said}). {do} {_UNSAFE}"


def _switches() -> Iterator[str]:
    path = shutil.which("bwrap")
    if path and os.stat(path).st_mode & stat.S_ISUID:
        yield f"{path} is setuid root and then limits nothing: chmod u-s {path}."
    for name, forbids, what in _SWITCHES:
        if _setting(name) == forbids:
            yield what


def _setting(name: str) -> str:
    try:
        return (_PROC / name).read_text().strip()
    except OSError:  # this kernel has no such switch
        return ""


def _in_a_container() -> bool:
    return any(os.path.exists(p) for p in _CONTAINERS)
