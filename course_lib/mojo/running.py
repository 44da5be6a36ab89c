"""Runs Mojo programs on the GPU or the CPU of this machine, in a process that can be stopped.

For a GPU a program is built once for the card that is here. Where there is no
Mojo, a program that was built elsewhere runs all the same:
`$COURSE_MOJO_PREBUILT` is a folder of such programs, with the runtime libraries
that they need in `lib`.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from course_lib import runtime
from course_lib.compiler import cache
from course_lib.mojo import compiling, records, toolchain
from course_lib.mojo.errors import (
    MojoMissing,
    MojoRunError,
    MojoTimeout,
)

_MAX_CHARACTERS = 100_000
# PTX ISA, "Target directives": "a" is the set of features that only that architecture has.
_SPECIFIC = ((9, 0), (10, 0), (10, 3), (12, 0))
_OLDEST = (7, 5)
CPU = "CPU"
_INTERPRET_S = 300.0  # with its compilation
_MAX_PROGRAMS = 500
# What Mojo writes last where it is the program that it refuses, and not the program that fails.
_REFUSED = ("failed to parse the provided Mojo", "failed to run the pass manager")


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
    program = on_this_gpu(source)
    if program is None:
        return _recorded(source)
    found = runtime.device()
    assert found is not None
    return Output(execute([program], timeout_s=timeout_s), found.name)


def run_on_cpu(
    source: str,
    *,
    modules: Mapping[str, str] = compiling.NO_MODULES,
    arguments: Sequence[str] = (),
    timeout_s: float = 60.0,
) -> Output:
    """Runs a program on the CPU of this machine; without Mojo, its record.

    Args:
      source: the program's text, with a `main`.
      modules: the text of each module that it imports from beside itself, by name.
      arguments: what the program is called with.
      timeout_s: when to stop it, in seconds.

    Raises:
      MojoCompileError: it does not compile.
      MojoRunError: it failed, or did not end in time; the message shows what it printed.
      MojoMissing: there is neither Mojo nor a record.
    """
    if not toolchain.is_installed():
        record = _recorded(source)
        if record is None:
            toolchain.find()  # raises
        assert record is not None
        return record
    if not compiling.has_linker():
        return _interpret(source, modules, arguments)
    program = _built(source, compiling.CPU, modules, ())
    return Output(execute([program, *arguments], timeout_s=timeout_s), CPU)


def _interpret(source: str, modules: Mapping[str, str], arguments: Sequence[str]) -> Output:
    """Compiles and runs at once, on a machine without a linker: slower where it is run again."""
    mojo = toolchain.find()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        compiling.write_modules(folder, {**modules, "program": source})
        file = folder / compiling.PROGRAM
        command: list[str | Path] = [mojo.program, "run", "--disable-warnings", file, *arguments]
        try:
            said = execute(command, timeout_s=_INTERPRET_S, environment=mojo.environment)
        except MojoRunError as error:
            said = str(error).replace(f"{folder}{os.sep}", "")
            if any(words in said for words in _REFUSED):
                raise compiling.refusal(said, source, modules) from None
            raise type(error)(said) from None
    return Output(said, CPU)


def _built(source: str, arch: str, modules: Mapping[str, str], defines: Sequence[str]) -> Path:
    """The program's executable, built earlier or now."""
    name = compiling.program_key(source, arch, modules=modules, defines=defines)
    target = cache.folder().parent / "mojo-programs" / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _prune(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            built = Path(scratch) / name
            compiling.build(source, built, arch=arch, modules=modules, defines=defines)
            built.replace(target)
    return target


def _prune(where: Path) -> None:
    """Keeps the newest programs only."""
    programs = sorted(where.glob("mojo-*"), key=lambda file: file.stat().st_mtime)
    for file in programs[:-_MAX_PROGRAMS]:
        file.unlink(missing_ok=True)


def _recorded(source: str) -> Output | None:
    record = records.load(source)
    if record is None or record.output is None:
        return None
    return Output(record.output, record.device, record.date)


def on_this_gpu(
    source: str,
    *,
    modules: Mapping[str, str] = compiling.NO_MODULES,
    defines: Sequence[str] = (),
) -> Path | None:
    """The program's executable for the GPU of this machine: prebuilt, built earlier, or built now.

    None where there is no GPU for Mojo, or no Mojo to build it with. For `modules` and
    `defines` see `compiling.program_key`.
    """
    arch = arch_here()
    if arch is None:
        return None
    name = compiling.program_key(source, arch, modules=modules, defines=defines)
    prebuilt = prebuilt_folder()
    if prebuilt is not None and (prebuilt / name).exists():
        return prebuilt / name
    try:
        return _built(source, arch, modules, defines)
    except MojoMissing:
        return None


def prebuilt_folder() -> Path | None:
    """The folder of programs that were built elsewhere, None if none is named."""
    chosen = os.environ.get("COURSE_MOJO_PREBUILT")
    return Path(chosen).resolve() if chosen else None


def execute(
    command: Sequence[str | Path],
    *,
    timeout_s: float,
    libraries: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Runs a built program, or Mojo itself; what it printed.

    Args:
      command: the executable and its arguments.
      timeout_s: when to stop it, in seconds.
      libraries: the prebuilt folder whose `lib` holds Mojo's runtime; by default the named one.
      environment: variables for it; by default this process's, with those libraries.

    Raises:
      MojoTimeout: it did not end in time.
      MojoRunError: it failed.
    """
    program, *arguments = command
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as written:
        process = subprocess.Popen(
            [str(Path(program).resolve()), *map(str, arguments)],
            cwd=scratch,
            env=environment or _environment(libraries or prebuilt_folder()),
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
            raise MojoTimeout(
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
