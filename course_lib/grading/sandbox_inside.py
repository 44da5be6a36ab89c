"""Runs in the sandbox: unpacks the inputs, runs the command, sends the files back.

    python sandbox_inside.py RESULTS_FD FOLDER WALL_S WALLED PROCESSES KEEP... -- COMMAND...

It ends with all that it started as soon as its input does: whoever wrote it is dead.

Everything in here is as trustworthy as the student's own code, which can do to it what
it likes: it only saves work. The limits that hold are those of the walls and of
`sandbox.Sandbox.run`, which stops the whole thing a little later than this file does.
The standard library only: it runs by itself, and not as a part of the course.

Files travel as records of (name, size, content); nothing that was a link comes back.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

HEAD = struct.Struct("<IQ")  # bytes of the name, bytes of the content
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # the system call's number, by machine
_JOIN_SESSION_KEYRING = 1  # keyctl(2)
END = HEAD.pack(0, 0)  # of the inputs: a record without a name


def write_record(out: BinaryIO, name: str, content: bytes) -> None:
    """Writes one file."""
    encoded = name.encode()
    out.write(HEAD.pack(len(encoded), len(content)) + encoded + content)


def read_records(source: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """The files of a stream that `write_record` wrote, which is trusted not to lie.

    Raises:
      EOFError: the stream ends before its end was written.
    """
    while head := source.read(HEAD.size):
        if head == END:
            return
        name, size = HEAD.unpack(head)
        yield source.read(name).decode(), source.read(size)
    raise EOFError("the inputs are cut off")


def main(arguments: list[str]) -> None:
    """Does what the module says."""
    fd, folder, wall_s, walled, processes, *rest = arguments
    split = rest.index("--")
    keep, command = rest[:split], rest[split + 1 :]
    os.chdir(folder)
    for name, content in read_records(sys.stdin.buffer):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)
    if int(processes):
        limit_processes(int(processes))
    leave_the_keyring()
    status = run(command, float(wall_s), walled == "walled")
    if walled == "walled":
        end_everything_else()
    with open(int(fd), "wb") as out:
        write_record(out, "", str(status).encode())
        for name in kept(keep):
            found = read(name)
            if found is not None:
                write_record(out, name, found)


def limit_processes(most: int) -> None:
    """Sets how many processes there may be in this user namespace, by which Linux counts them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def leave_the_keyring() -> None:
    """Joins a session keyring of its own: in the grader's may be tickets, and it is inherited."""
    if number := _KEYCTL.get(os.uname().machine):
        ctypes.CDLL(None).syscall(number, _JOIN_SESSION_KEYRING, None)


def run(command: list[str], wall_s: float, walled: bool) -> int:
    """The command's exit status; 124 if it took too long."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    watch = threading.Thread(target=end_with_the_grader, args=(process, walled), daemon=True)
    watch.start()
    try:
        return process.wait(wall_s)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def end_with_the_grader(process: subprocess.Popen[bytes], walled: bool) -> None:
    """Waits for the end of the input, which stays open as long as the grader lives."""
    while os.read(0, 1):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if walled:
        end_everything_else()
    os._exit(125)


def end_everything_else() -> None:
    """Ends what the command left behind: all processes of this pid namespace but its first."""
    with open("/proc/1/comm") as file:
        if file.read().strip() != "bwrap" or os.getuid() == 0:
            return  # this is no namespace of ours
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def kept(patterns: list[str]) -> Iterator[str]:
    """The files of the folder that are asked for, in order."""
    for folder, folders, files in os.walk("."):
        folders.sort()
        for file in sorted(files):
            name = os.path.relpath(os.path.join(folder, file), ".")
            if any(fnmatch.fnmatchcase(name, p) for p in patterns):
                yield name


def read(name: str) -> bytes | None:
    """A regular file's content; None for a link, a pipe, or what cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else None


if __name__ == "__main__":
    main(sys.argv[1:])
