"""Runs a command of a student's behind walls, and brings back what it wrote.

    box = Sandbox.probe()                     # NoSandbox where there can be none, in words
    out = box.run(["python", "mine.py"], inputs={"mine.py": b"..."}, keep=("*.json",))
    out.rc, out.stdout, out.killed_for, out.files["answer.json"]

Nothing of the host is writable inside, and of its files only a Python and a copy of the
course are seen. The limits of `Limits` hold for whatever it does: time, processor time,
memory of all its processes together, processes, files, output. It ends with its children,
and with the process that started it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from course_lib.diagnostics import CourseError
from course_lib.grading import hurdles, walls
from course_lib.grading.course_copy import copy_of_the_course
from course_lib.grading.sandbox_inside import END, HEAD, write_record
from course_lib.grading.walls import Limits

__all__ = ["Limits", "NoSandbox", "Outcome", "Sandbox"]

_POLL_S = 0.1
_GRACE_S = 10.0  # what the file inside has to end by itself, and to send the results
_MOST_FILES = 10_000
_LONGEST_NAME = 1024
_TOO_MUCH_OUTPUT = 64  # times output_bytes: it is stopped
_PROBE = "import os; print(os.getpid() < 100 and os.getuid() != 0)"


class NoSandbox(CourseError):  # noqa: N818
    """This machine has no sandbox; the message says why, and how to get one."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a command.

    Attributes:
      rc: its exit status; negative: the signal that ended it.
      stdout, stderr: their beginnings, at most `Limits.output_bytes` each.
      timed_out: whether its time was up.
      killed_for: "time", "memory", "output" or "disk" where it was stopped for that, else "".
      files: the files asked for, by their name in the working folder.
      seconds: how long it took.
    """

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False
    killed_for: str = ""
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """A sandbox that works, or (`unsafe`) none: then only time, memory and files are limited."""

    unsafe: bool = False

    @classmethod
    def probe(cls, *, unsafe: bool = False) -> Sandbox:
        """A sandbox, after it has been tried.

        Raises:
          NoSandbox: there can be none here.
        """
        if unsafe:
            return cls(unsafe=True)
        if sentence := hurdles.missing(walls.missing_programs()):
            raise NoSandbox(sentence)
        box = cls()
        tried = box.run(
            ["python", "-I", "-c", _PROBE], limits=Limits(cpu_s=30, wall_s=60), course=""
        )
        if tried.rc != 0 or tried.stdout.strip() != "True":
            said = (tried.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise NoSandbox(hurdles.forbidden(said))
        return box

    def run(
        self,
        argv: Sequence[str],
        *,
        inputs: Mapping[str, bytes] | None = None,
        keep: Sequence[str] = (),
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        course: str = "sealed",
        toolchain: bool = False,
        card: bool = False,
        folders: Sequence[Path] = (),
    ) -> Outcome:
        """Runs a command in an empty folder of its own, and never raises for what it does.

        Args:
          argv: the command; "python" is this environment's Python.
          inputs: files to begin with, by relative name.
          keep: which files come back, as patterns: "*.json", "out/*".
          limits: what it may use.
          env: environment variables, beside the few that there are.
          course: "sealed": a course without references, exercises and hidden cases; "full": as
            the public has it, with its compiler; "": none.
          toolchain: whether the course's compiler is there, as it always is in a "full" one.
          card: whether the machine's cards can be used.
          folders: further folders that are seen inside, where they are here.
        """
        limits = limits or Limits()
        if (toolchain or course == "full") and _compiles_with_own_plugin():
            limits = dataclasses.replace(limits, any_address=True)
        argv = [sys.executable if argv[0] == "python" else argv[0], *argv[1:]]
        bundle = _bundle(inputs or {})
        stages = tempfile.TemporaryDirectory(prefix="sandbox-", dir=walls.open_temporary_folder())
        with stages as stage, _pipe() as (read_fd, fd):
            os.chmod(stage, 0o755)
            rooms = _rooms(course, stage, toolchain=toolchain)
            if folders:
                extra = (*rooms.extra, *((str(f), str(f)) for f in folders))
                rooms = dataclasses.replace(rooms, extra=extra)
            rooms = walls.with_card(rooms) if card else rooms
            line, folder, variables = self._line(argv, limits, rooms, keep, fd, dict(env or {}))
            process = subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                pass_fds=[fd], env=variables, cwd=folder, start_new_session=True,
                preexec_fn=functools.partial(_limit, limits) if self.unsafe else None,
            )  # fmt: skip
            os.close(fd)
            return _Watch(process, read_fd, bundle, limits).outcome()

    def _line(
        self, argv: Sequence[str], limits: Limits, rooms: walls.Rooms, keep: Sequence[str],
        fd: int, env: dict[str, str],
    ) -> tuple[list[str], str, dict[str, str]]:  # fmt: skip
        variables = walls.environment(bool(rooms.course)) | env
        if not self.unsafe:
            line = walls.command(
                argv, limits=limits, rooms=rooms, keep=keep, results_fd=fd, env=variables
            )
            return line, "/", {"PATH": os.environ.get("PATH", os.defpath)}
        folder = os.path.join(rooms.stage, "work")
        os.makedirs(os.path.join(folder, ".tmp", "home"))
        variables |= {"HOME": f"{folder}/.tmp/home", "TMPDIR": f"{folder}/.tmp"}
        if rooms.course:
            variables["PYTHONPATH"] = rooms.course
        for path, inside in rooms.extra:
            if inside == walls.TOOLCHAIN:
                variables["COURSE_TOOLCHAIN"] = path
        inside = str(Path(__file__).with_name("sandbox_inside.py"))
        line = [sys.executable, "-I", inside, str(fd), folder, str(limits.wall_s), "open", "0"]
        return [*line, *keep, "--", *argv], folder, variables


def _rooms(course: str, stage: str, *, toolchain: bool) -> walls.Rooms:
    copy = copy_of_the_course(course) if course else ""
    extra: list[tuple[str, str]] = []
    if course == "full":
        root = Path(__file__).resolve().parents[2]
        # With the lock the course says whether there is Mojo, and which its records are of.
        names = ("benchmarks", "requirements-mojo.lock", ".mojo")
        extra += [(str(root / n), f"{walls.COURSE}/{n}") for n in names if (root / n).exists()]
    if course == "full" or toolchain:
        from course_lib.compiler import toolchain as compiler

        tools = compiler.folder()
        extra += [(str(tools), walls.TOOLCHAIN)] if tools.is_dir() else []
        return walls.with_toolkit(walls.Rooms(copy, stage, tuple(extra)))
    return walls.Rooms(copy, stage, tuple(extra))


@functools.cache
def _compiles_with_own_plugin() -> bool:
    """Whether kernels are compiled by the CUDA plugin of this environment, as beside a card.

    It maps more of CUDA's libraries than there is address space for under most limits.
    """
    from course_lib.compiler import ToolchainMissing
    from course_lib.compiler import toolchain as compiler

    try:
        return not compiler.find().path
    except ToolchainMissing:
        return False


def _bundle(inputs: Mapping[str, bytes]) -> bytes:
    """The inputs as the file inside reads them; names that lead elsewhere are a mistake of ours.

    A stream without its end is one whose sender died: nothing runs then.
    """
    import io

    out = io.BytesIO()
    for name, content in inputs.items():
        if not _plain_name(name):
            raise ValueError(f"{name!r} is no relative name of a file")
        write_record(out, name, content)
    out.write(END)
    return out.getvalue()


def _plain_name(name: str) -> bool:
    parts = name.split("/")
    return 0 < len(name) <= _LONGEST_NAME and not any(p in ("", ".", "..") for p in parts)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd  # both are closed by whoever uses them


def _limit(limits: Limits) -> None:
    """Without walls: what the operating system limits anyway."""
    import resource

    for name, value in (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, None if limits.any_address else limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(name)  # no process may raise its own limit
        known = [v for v in (value, most) if v not in (None, resource.RLIM_INFINITY)]
        limit = min(known) if known else resource.RLIM_INFINITY
        resource.setrlimit(name, (limit, limit))


class _Watch:
    """A running command: feeds it, reads it, measures it, and stops it when it is too much."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int, bundle: bytes, limits: Limits):
        self.process, self.limits = process, limits
        self.stopped = ""
        self._output = [bytearray(), bytearray(), bytearray()]
        most = [limits.output_bytes, limits.output_bytes, 2 * limits.disk_bytes]
        streams: list[IO[Any]] = [process.stdout, process.stderr, open(fd, "rb", buffering=0)]  # type: ignore[list-item]  # noqa: SIM115
        self._threads = [
            threading.Thread(target=self._read, args=(s, o, m), daemon=True)
            for s, o, m in zip(streams, self._output, most, strict=True)
        ]
        self._threads.append(threading.Thread(target=self._feed, args=(bundle,), daemon=True))
        for thread in self._threads:
            thread.start()

    def outcome(self) -> Outcome:
        """Waits for the end."""
        started = time.monotonic()
        try:
            while self.process.poll() is None:
                self.stopped = self.stopped or self._too_much(time.monotonic() - started)
                if self.stopped:
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(_POLL_S)
        finally:
            self._end()
        for thread in self._threads:
            thread.join(_GRACE_S)
        self._close()
        stdout, stderr, results = (bytes(o) for o in self._output)
        status, files = unpack(results, self.limits)
        rc = self.process.returncode if status is None else status
        timed_out = self.stopped == "time" or rc == 124
        return Outcome(
            rc, stdout.decode(errors="replace"), stderr.decode(errors="replace"), timed_out,
            "time" if timed_out else self.stopped, files, time.monotonic() - started,
        )  # fmt: skip

    def _too_much(self, seconds: float) -> str:
        if seconds > self.limits.wall_s + _GRACE_S:
            return "time"
        return "memory" if _memory(self.process.pid) > self.limits.memory_bytes else ""

    def _end(self) -> None:
        """Kills what is left: the group, and whatever the process still has for children."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    child.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _read(self, stream: IO[bytes], into: bytearray, most: int) -> None:
        """Keeps the beginning, reads on so that nobody blocks, and stops what never ends."""
        total = 0
        with stream, contextlib.suppress(OSError, ValueError):
            while chunk := os.read(stream.fileno(), 1 << 16):
                into += chunk[: max(0, most - len(into))]
                total += len(chunk)
                if total > _TOO_MUCH_OUTPUT * most:
                    self.stopped = self.stopped or "output"
                    return

    def _feed(self, bundle: bytes) -> None:
        """Sends the inputs, and leaves the pipe open: its end is how they hear of our death."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(bundle)
            self.process.stdin.flush()

    def _close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()


def _memory(pid: int) -> int:
    """What a process and its descendants have in memory together, in bytes."""
    total = 0
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for process in [first, *first.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def unpack(data: bytes, limits: Limits) -> tuple[int | None, dict[str, bytes]]:
    """The exit status and the files of a stream that anybody may have written.

    Reads as far as it makes sense: names stay below the folder, sizes within the limits.
    """
    status: int | None = None
    files: dict[str, bytes] = {}
    at = 0
    while at + HEAD.size <= len(data) and len(files) < _MOST_FILES:
        name_bytes, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        if (
            name_bytes > _LONGEST_NAME
            or size > limits.file_bytes
            or at + name_bytes + size > len(data)
        ):
            break
        name = data[at : at + name_bytes].decode(errors="replace")
        content = data[at + name_bytes : at + name_bytes + size]
        at += name_bytes + size
        if name == "" and status is None and not files:
            status = _status(content)
        elif _plain_name(name):
            files.setdefault(name, content)
    return status, files


def _status(content: bytes) -> int | None:
    try:
        status = int(content[:8])
    except ValueError:
        return None
    return status if -128 <= status <= 255 else None
