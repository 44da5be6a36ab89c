"""The walls of the sandbox: what bubblewrap shows to a student's code, and as whom it runs.

    unshare --mount ... setpriv ... prlimit ... bwrap ... python ...

Root drops to a uid that owns nothing first (`prlimit --nproc` does nothing for uid 0);
anybody else goes the same way by means of a user namespace. Inside there is no network,
no process but its own, a read-only Python, and two folders in memory of limited size. What
unprivileged uids cannot reach, such as a Python below /root, is mounted for this one process
tree where they can.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

WORK = "/sandbox/work"  # the command's folder, inside
COURSE = "/sandbox/course"  # where the course is, inside
_INSIDE = Path(__file__).with_name("sandbox_inside.py")
_ROOT = Path(__file__).resolve().parents[2]
# Of the course's own folders none is seen, wherever the environment lies.
_HIDDEN = ("course_lib", "solutions", "tests", "notebooks", "workspace", ".git")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
_FIRST_UID, _UIDS = 61184, 4000  # unused by Debian's and systemd's conventions


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a command may use.

    Attributes:
      cpu_s: processor time of each process, in seconds.
      wall_s: time by the clock, in seconds.
      memory_bytes: memory of all processes together, and address space of each.
      processes: processes and threads together.
      file_bytes: the largest file.
      disk_bytes: all files in the working folder together, and once more in /tmp.
      output_bytes: what is kept of stdout and of stderr, each; 64 times as much ends it.
    """

    cpu_s: int = 120
    wall_s: float = 300.0
    memory_bytes: int = 6 << 30
    processes: int = 256
    file_bytes: int = 64 << 20
    disk_bytes: int = 256 << 20
    output_bytes: int = 1 << 20


@dataclasses.dataclass(frozen=True)
class Rooms:
    """The folders of the host that are seen inside, read-only.

    Attributes:
      course: a folder that holds a `course_lib`, "" for none.
      extra: further `(host path, path inside)`.
      stage: a folder of ours that everybody can reach: places to mount others at.
    """

    course: str
    stage: str
    extra: tuple[tuple[str, str], ...] = ()


def command(
    argv: Sequence[str], *, limits: Limits, rooms: Rooms, keep: Sequence[str], results_fd: int,
    env: dict[str, str],
) -> list[str]:  # fmt: skip
    """The whole command line that runs `argv` behind the walls."""
    mounts, binds = _reachable(_binds(rooms), rooms.stage)
    inside = [sys.executable, "-I", f"{COURSE}/sandbox_inside.py", str(results_fd), WORK]
    inside += [str(limits.wall_s), "walled", *keep, "--", *argv]
    # /tmp comes first: the Python environment may lie below it.
    walls = ["bwrap", *_namespaces(), *_scratch(limits), *binds, *_folders(limits)]
    walls += [part for name, value in env.items() for part in ("--setenv", name, value)]
    return [*mounts, *_drop(), *_prlimit(limits), *walls, "--chdir", WORK, "--", *inside]


def environment(course: bool) -> dict[str, str]:
    """The environment variables that are there at all."""
    path = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    values = {
        "PATH": os.pathsep.join(path),
        "HOME": "/tmp/home",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return values | ({"PYTHONPATH": COURSE} if course else {})


def _namespaces() -> list[str]:
    return [
        "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--new-session", "--hostname", "sandbox", "--clearenv",
    ]  # fmt: skip


def _binds(rooms: Rooms) -> Iterator[tuple[str, str]]:
    for path in _SYSTEM:
        if os.path.exists(path) and not os.path.islink(path):
            yield path, path
    prefixes = sorted({os.path.realpath(p) for p in (sys.prefix, sys.base_prefix)})
    for prefix in prefixes:
        if not any(_below(prefix, p) for p in ("/usr", *(q for q in prefixes if q != prefix))):
            yield prefix, prefix
    yield str(_INSIDE), f"{COURSE}/sandbox_inside.py"
    if rooms.course:
        yield f"{rooms.course}/course_lib", f"{COURSE}/course_lib"
    yield from rooms.extra


def _reachable(binds: Iterator[tuple[str, str]], stage: str) -> tuple[list[str], list[str]]:
    """The commands that come before, and bubblewrap's options, for what is seen inside."""
    lines: list[str] = []
    options: list[str] = []
    for number, (source, target) in enumerate(binds):
        if os.getuid() == 0 and not everybody_reaches(Path(source)):
            place = f"{stage}/{number}"
            os.makedirs(place, exist_ok=True)
            lines += [source, place]
            source = place
        options += ["--ro-bind", source, target]
    for path in _SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path).lstrip("/"), path]
    for hidden in _HIDDEN:
        place = str(_ROOT / hidden)
        if any(_below(place, t) for t in options[2::3]) and os.path.isdir(place):
            options += ["--tmpfs", place, "--remount-ro", place]
    if not lines:
        return [], options
    script = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done; shift'
    before = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    return [*before, f'{script}; exec "$@"', "sh", *lines, "--"], options


def everybody_reaches(path: Path) -> bool:
    """Whether a uid that owns nothing can read below `path`."""
    real = path.resolve()
    try:
        modes = [p.stat().st_mode for p in (real, *real.parents)]
    except OSError:
        return False
    return all(m & stat.S_IXOTH for m in modes[1:]) and bool(modes[0] & stat.S_IROTH)


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _scratch(limits: Limits) -> list[str]:
    return ["--size", str(limits.disk_bytes), "--tmpfs", "/tmp", "--dir", "/tmp/home"]


def _folders(limits: Limits) -> list[str]:
    size = str(limits.disk_bytes)
    devices = ["--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm"]
    return [
        "--proc", "/proc", *devices, "--remount-ro", "/dev",
        "--size", size, "--tmpfs", WORK, "--remount-ro", "/",
    ]  # fmt: skip


def _drop() -> list[str]:
    """Root becomes a uid of its own for each run, so that runs do not share a process limit."""
    if os.getuid() != 0:
        return []
    uid = _FIRST_UID + int.from_bytes(os.urandom(4)) % _UIDS
    return [
        "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all", "--bounding-set=-all", "--",
    ]  # fmt: skip


def _prlimit(limits: Limits) -> list[str]:
    processes = limits.processes + (0 if os.getuid() == 0 else _own_threads())
    return [
        "prlimit", f"--nproc={processes}", f"--as={limits.memory_bytes}", f"--cpu={limits.cpu_s}",
        f"--fsize={limits.file_bytes}", "--core=0", "--nofile=1024", "--",
    ]  # fmt: skip


def _own_threads() -> int:
    """How many threads this user has already; they count as well."""
    count = 0
    for process in psutil.process_iter():
        try:
            if process.uids().real == os.getuid():
                count += process.num_threads()
        except psutil.Error:
            continue
    return count


def missing_programs() -> list[str]:
    """Which of the programs that the walls are made of this machine lacks."""
    needed = ["bwrap", "prlimit"] + (["setpriv", "unshare", "mount"] if os.getuid() == 0 else [])
    return [p for p in needed if shutil.which(p) is None]
