"""Runs in the sandbox: unpacks the inputs, runs the command, sends the files back.

    python sandbox_inside.py RESULTS_FD FOLDER WALL_S WALLED KEEP... -- COMMAND...

Everything in here is as trustworthy as the student's own code, which can do to it what
it likes: it only saves work. The limits that hold are those of the walls and of
`sandbox.Sandbox.run`, which stops the whole thing a little later than this file does.
The standard library only: it runs by itself, and not as a part of the course.

Files travel as records of (name, size, content); nothing that was a link comes back.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO

HEAD = struct.Struct("<IQ")  # bytes of the name, bytes of the content


def write_record(out: BinaryIO, name: str, content: bytes) -> None:
    """Writes one file."""
    encoded = name.encode()
    out.write(HEAD.pack(len(encoded), len(content)) + encoded + content)


def read_records(source: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """The files of a stream that `write_record` wrote, which is trusted not to lie."""
    while head := source.read(HEAD.size):
        name, size = HEAD.unpack(head)
        yield source.read(name).decode(), source.read(size)


def main(arguments: list[str]) -> None:
    """Does what the module says."""
    fd, folder, wall_s, walled, *rest = arguments
    split = rest.index("--")
    keep, command = rest[:split], rest[split + 1 :]
    os.chdir(folder)
    for name, content in read_records(sys.stdin.buffer):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "wb") as file:
            file.write(content)
    status = run(command, float(wall_s))
    if walled == "walled":
        end_everything_else()
    with open(int(fd), "wb") as out:
        write_record(out, "", str(status).encode())
        for name in kept(keep):
            found = read(name)
            if found is not None:
                write_record(out, name, found)


def run(command: list[str], wall_s: float) -> int:
    """The command's exit status; 124 if it took too long."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(wall_s)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


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
