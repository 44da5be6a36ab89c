"""Runs Mojo programs on the GPU of this machine, in a process that can be stopped.

A program is built once for the card that is here. Where there is no Mojo, a
program that was built elsewhere runs all the same: `$COURSE_MOJO_PREBUILT` is a
folder of such programs, with the runtime libraries that they need in `lib`.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from course_lib import runtime
from course_lib.compiler import cache
from course_lib.mojo import compiling, records, toolchain
from course_lib.mojo.errors import MojoMissing, MojoRunError

_MAX_CHARACTERS = 100_000
# PTX ISA, "Target directives": "a" is the set of features that only that architecture has.
_SPECIFIC = ((9, 0), (10, 0), (10, 3), (12, 0))
_OLDEST = (7, 5)


@dataclasses.dataclass(frozen=True)
class Output:
    """What a program printed.

    Attributes:
      text: the lines that it wrote.
      device: the GPU that it ran on.
      recorded: the day of the record that this is; "" if it ran here and now.
    """

    text: str
    device: str
    recorded: str = ""

    @property
    def origin(self) -> str:
        """Where and when it ran, in brackets."""
        when = f"record: {self.device}, {self.recorded}" if self.recorded else f"run: {self.device}"
        return f"[{when}]"


def arch_here() -> str | None:
    """The architecture to build for on this machine ("sm_89"), None without a GPU for Mojo."""
    found = runtime.device()
    if found is None or found.capability < _OLDEST:
        return None
    major, minor = found.capability
    return f"sm_{major}{minor}{'a' if (major, minor) in _SPECIFIC else ''}"


def run_program(source: str, *, timeout_s: float = 60.0) -> Output | None:
    """Runs a program on the GPU of this machine; elsewhere, what its record says.

    Args:
      source: the program's text, with a `main`.
      timeout_s: when to stop it, in seconds.

    Returns:
      what it printed; None where there is neither a GPU nor a record.

    Raises:
      MojoCompileError: it does not compile for this machine's GPU.
      MojoRunError: it failed, or did not end in time; the message shows what it printed.
    """
    arch = arch_here()
    program = _program(source, arch) if arch else None
    if program is None:
        record = records.load(source)
        if record is None or record.output is None:
            return None
        return Output(record.output, record.device, record.date)
    found = runtime.device()
    assert found is not None
    return Output(execute(program, timeout_s=timeout_s), found.name)


def _program(source: str, arch: str) -> Path | None:
    """The executable: prebuilt, built earlier, or built now; None where Mojo is missing."""
    name = compiling.program_key(source, arch)
    prebuilt = prebuilt_folder()
    if prebuilt is not None and (prebuilt / name).exists():
        return prebuilt / name
    target = cache.folder().parent / "mojo-programs" / name
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                compiling.build(source, Path(scratch) / name, arch=arch)
                (Path(scratch) / name).replace(target)
        except MojoMissing:
            return None
    return target


def prebuilt_folder() -> Path | None:
    """The folder of programs that were built elsewhere, None if none is named."""
    chosen = os.environ.get("COURSE_MOJO_PREBUILT")
    return Path(chosen).resolve() if chosen else None


def execute(program: Path, *, timeout_s: float, libraries: Path | None = None) -> str:
    """Runs a built program; what it printed.

    Args:
      program: the executable.
      timeout_s: when to stop it, in seconds.
      libraries: the prebuilt folder whose `lib` holds Mojo's runtime; by default the named one.

    Raises:
      MojoRunError: it failed, or did not end in time.
    """
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as written:
        process = subprocess.Popen(
            [str(program.resolve())],
            cwd=scratch,
            env=_environment(libraries or prebuilt_folder()),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that it can be stopped with its children
        )
        try:
            status = process.wait(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said = _read(written)
            raise MojoRunError(
                f"The program was stopped after {timeout_s:g} s. A kernel that waits at a "
                "barrier which some of its threads never reach waits for ever."
                + (f"\nIt had printed:\n{said}" if said else "")
            ) from None
        said = _read(written)
    if status:
        raise MojoRunError(f"The program failed (exit status {status}).\n{said}".rstrip())
    return said


def _read(written: IO[str]) -> str:
    written.seek(0)
    said = written.read(_MAX_CHARACTERS + 1)
    return said if len(said) <= _MAX_CHARACTERS else said[:_MAX_CHARACTERS] + "\n... (cut off)"


def _environment(prebuilt: Path | None) -> dict[str, str]:
    libraries = [str(prebuilt.resolve() / "lib")] if prebuilt is not None else []
    libraries += [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    extra = {"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {}
    return os.environ | toolchain.SILENT | extra
