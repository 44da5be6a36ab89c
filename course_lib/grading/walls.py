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
import glob
import os
import re
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

WORK = "/sandbox/work"  # the command's folder, inside
COURSE = "/sandbox/course"  # where the course is, inside
TOOLCHAIN = f"{COURSE}/.toolchain"  # where its compiler is, inside
_INSIDE = Path(__file__).with_name("sandbox_inside.py")
_ROOT = Path(__file__).resolve().parents[2]
# Of the course's own folders none is seen, wherever the environment lies.
_HIDDEN = ("course_lib", "solutions", "tests", "notebooks", "workspace", ".git")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
_MOST_LINKS = 40  # as many as Linux follows
_FIRST_UID, _UIDS = 61184, 4000  # unused by Debian's and systemd's conventions


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a command may use.

    Attributes:
      cpu_s: processor time of each process, in seconds.
      wall_s: time by the clock, in seconds.
      memory_bytes: memory of all processes together, and address space of each.
      any_address: whether the address space has no limit: a card's driver reserves terabytes
        of it, and fills none of them.
      processes: processes and threads together.
      file_bytes: the largest file.
      disk_bytes: all files in the working folder together, and once more in /tmp.
      output_bytes: what is kept of stdout and of stderr, each; 64 times as much ends it.
    """

    cpu_s: int = 120
    wall_s: float = 300.0
    memory_bytes: int = 6 << 30
    any_address: bool = False
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
      devices: device files of the host that can be used inside.
      named: paths that have to lead inside where they lead here, besides this Python's.
    """

    course: str
    stage: str
    extra: tuple[tuple[str, str], ...] = ()
    devices: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


def command(
    argv: Sequence[str], *, limits: Limits, rooms: Rooms, keep: Sequence[str], results_fd: int,
    env: dict[str, str],
) -> list[str]:  # fmt: skip
    """The whole command line that runs `argv` behind the walls."""
    mounts, binds = _reachable(_binds(rooms), rooms.stage, rooms.named)
    inside = [sys.executable, "-I", f"{COURSE}/sandbox_inside.py", str(results_fd), WORK]
    inside += [str(limits.wall_s), "walled", str(_processes_inside(limits)), *keep, "--", *argv]
    # /tmp comes first: the Python environment may lie below it.
    walls = ["bwrap", *_namespaces(), *_scratch(limits), *binds]
    walls += _folders(limits, rooms.devices)
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
    yield from _pythons()
    yield str(_INSIDE), f"{COURSE}/sandbox_inside.py"
    if rooms.course:
        yield f"{rooms.course}/course_lib", f"{COURSE}/course_lib"
    yield from rooms.extra


def _pythons() -> Iterator[tuple[str, str]]:
    """The folders of this Python, and its executable where that lies elsewhere."""
    seen = ["/usr"]
    real = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix)}
    for path in (*sorted(real), os.path.realpath(sys.executable)):
        if not any(_below(path, s) for s in seen) and path != "/":
            seen.append(path)
            yield path, path


def _links(shown: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """The links on the way to this Python, and where they lead, of those that are not shown.

    A home may be a link, and a Python too: inside they have the names that they have here.
    """
    links: dict[str, str] = {}
    for path in (sys.executable, sys.prefix, sys.base_prefix, *named):
        at, rest = "/", path.split("/")[1:]
        while rest and len(links) < _MOST_LINKS:
            at = os.path.normpath(os.path.join(at, rest.pop(0)))
            if not os.path.islink(at):
                continue
            if not any(_below(at, s) for s in (*_SYSTEM, *shown)):
                links[at] = os.readlink(at)
            at = os.path.join(os.path.dirname(at), os.readlink(at))
            at, rest = "/", [*os.path.normpath(at).split("/")[1:], *rest]
    return links


def _reachable(
    binds: Iterator[tuple[str, str]], stage: str, named: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The commands that come before, and bubblewrap's options, for what is seen inside."""
    lines: list[str] = []
    options: list[str] = []
    hidden: list[str] = []
    for number, (source, target) in enumerate(binds):
        hidden += _courses_below(source, target)
        if os.getuid() == 0 and not everybody_reaches(Path(source)):
            place = f"{stage}/{number}"
            os.makedirs(place, exist_ok=True)
            lines += [source, place]
            source = place
        options += ["--ro-bind", source, target]
    links = {p: os.readlink(p).lstrip("/") for p in _SYSTEM if os.path.islink(p)}
    links |= _links(options[2::3], named)
    for place, leads_to in links.items():
        options += ["--symlink", leads_to, place]
    for place in hidden:
        options += ["--tmpfs", place, "--remount-ro", place]
    if not lines:
        return [], options
    script = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done; shift'
    before = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    return [*before, f'{script}; exec "$@"', "sh", *lines, "--"], options


def _courses_below(source: str, target: str) -> Iterator[str]:
    """Where the course's own folders are inside, of those that lie in a folder that is shown."""
    for hidden in _HIDDEN:
        place = str(_ROOT / hidden)
        if _below(place, source) and os.path.isdir(place):
            yield target + place.removeprefix(source.rstrip("/"))


def everybody_reaches(path: Path) -> bool:
    """Whether a uid that owns nothing can read below `path`."""
    real = path.resolve()
    try:
        modes = [p.stat().st_mode for p in (real, *real.parents)]
    except OSError:
        return False
    return all(m & stat.S_IXOTH for m in modes[1:]) and bool(modes[0] & stat.S_IROTH)


def open_temporary_folder() -> str | None:
    """Where to make what a uid without rights has to get to; None: where all is made."""
    here = Path(tempfile.gettempdir()).resolve()
    if os.getuid() != 0 or all(p.stat().st_mode & stat.S_IXOTH for p in (here, *here.parents)):
        return None
    return "/tmp"


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _scratch(limits: Limits) -> list[str]:
    return ["--size", str(limits.disk_bytes), "--tmpfs", "/tmp", "--dir", "/tmp/home"]


def _folders(limits: Limits, seen: Sequence[str]) -> list[str]:
    size = str(limits.disk_bytes)
    devices = ["--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm"]
    devices += [part for path in seen for part in ("--dev-bind", path, path)]
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
    wanted = {
        "nproc": _processes_outside(limits),
        "as": None if limits.any_address else limits.memory_bytes,
        "cpu": limits.cpu_s,
        "fsize": limits.file_bytes,
        "core": 0,
        "nofile": 1024,
    }
    return ["prlimit", *(f"--{k}={_allowed(k, v)}" for k, v in wanted.items()), "--"]


def _allowed(name: str, value: int | None) -> str:
    """A limit as `prlimit` takes it, no higher than this user may set it; None is no limit."""
    _, most = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
    known = [v for v in (value, most) if v is not None and v != resource.RLIM_INFINITY]
    return str(min(known)) if known else "unlimited"


def _processes_outside(limits: Limits) -> int | None:
    """The limit on processes that holds outside of the namespace.

    Root's uid for a run is its own. Another user's processes all count: a limit would be that of
    all sandboxes together, so that one student's fork bomb would take another's processes.
    """
    if os.getuid() == 0:
        return limits.processes
    return None if counted_by_namespace() else limits.processes + _own_threads()


def _processes_inside(limits: Limits) -> int:
    """The limit on processes that is set within the namespace, 0 for none."""
    return limits.processes if counted_by_namespace() else 0


def counted_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts by user namespace, as it does from Linux 5.14 on."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)


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


def card_devices() -> tuple[str, ...]:
    """The device files of the cards of this machine (of WSL: `/dev/dxg`)."""
    return tuple(sorted(glob.glob("/dev/nvidia*") + glob.glob("/dev/dxg")))


def with_card(rooms: Rooms) -> Rooms:
    """The rooms, with the machine's cards and what their driver and compiler read."""
    folders = ["/sys/devices/system", "/sys/bus/pci", *sorted(glob.glob("/sys/devices/pci*"))]
    folders += [f for f in _library_path() if not _in_system(f)]
    extra = (*rooms.extra, *((f, f) for f in folders if os.path.isdir(f)))
    return with_toolkit(dataclasses.replace(rooms, extra=extra, devices=card_devices()))


def with_toolkit(rooms: Rooms) -> Rooms:
    """The rooms, with the CUDA toolkit by the name that it has here, where there is one."""
    root = cuda_root()
    if not root or root in rooms.named:
        return rooms
    real = os.path.realpath(root)
    extra = () if _in_system(real) else ((real, real),)
    return dataclasses.replace(rooms, extra=(*rooms.extra, *extra), named=(*rooms.named, root))


def card_environment() -> dict[str, str]:
    """The environment variables with which JAX uses one card, and takes no more than it needs."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    values = {
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "CUDA_VISIBLE_DEVICES": card,
        "CUDA_CACHE_DISABLE": "1",  # what one student compiled is not there for the next
    }
    if libraries := _library_path():
        values["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    if root := cuda_root():
        values["PATH"] = os.pathsep.join([environment(False)["PATH"], f"{root}/bin"])
    return values


def cuda_root() -> str:
    """The folder of the CUDA toolkit, where this machine has one; packages bring their own.

    JAX takes `ptxas` and libdevice from it. Its usual name, /usr/local/cuda, is a link.
    """
    assembler = shutil.which("ptxas")
    named = [os.environ.get(v, "") for v in ("CUDA_ROOT", "CUDA_HOME", "CUDA_PATH")]
    named += [os.path.dirname(os.path.dirname(assembler))] if assembler else []
    places = (p for p in (*named, "/usr/local/cuda") if p)
    return next((p for p in places if os.path.isdir(f"{p}/nvvm/libdevice")), "")


def _in_system(path: str) -> bool:
    return any(_below(path, s) for s in _SYSTEM)


def _library_path() -> list[str]:
    """The folders of LD_LIBRARY_PATH that hold libraries of CUDA or of its driver."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    wanted = ("libcu*.so*", "libnv*.so*", "libnccl*.so*")
    return [f for f in folders if f and any(glob.glob(os.path.join(f, w)) for w in wanted)]


def missing_programs() -> list[str]:
    """Which of the programs that the walls are made of this machine lacks."""
    needed = ["bwrap", "prlimit"] + (["setpriv", "unshare", "mount"] if os.getuid() == 0 else [])
    return [p for p in needed if shutil.which(p) is None]
