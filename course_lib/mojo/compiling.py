"""Mojo programs, compiled for a GPU that need not be there.

`mojo build --emit=asm --target-accelerator=ARCH` writes one PTX file per kernel;
`ptxas -v` then says what each asks of a lane and of a block. Nothing runs.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from course_lib.compiler import cache
from course_lib.compiler import toolchain as cuda
from course_lib.compiler.errors import ToolchainMissing
from course_lib.compiler.listing import Instruction, matches, parse_ptx
from course_lib.mojo import records, toolchain
from course_lib.mojo.errors import MojoCompileError, from_compiler

PROGRAM = "program.mojo"
ANSWER = "answer"  # the module with the learner's program, in what tries it
CPU = "cpu"  # in the place of an architecture
ARCHITECTURES = ("sm_90a", "sm_100a")
_TIMEOUT_S = 300
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)")
_FORMAT = 2
NO_MODULES: Mapping[str, str] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a Mojo program.

    Attributes:
      name: the name of the Mojo function.
      entry: the name that the kernel has in the listing; it encodes the parameters.
      ptx: the listing in PTX.
      registers: registers per lane.
      spill_bytes: bytes that a lane writes to and reads from memory because registers ran out.
      smem_bytes: static shared memory per block, in bytes.
    """

    name: str
    entry: str
    ptx: str
    registers: int
    spill_bytes: int
    smem_bytes: int

    @functools.cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The PTX instructions of the kernel."""
        return tuple(parse_ptx(self.ptx))

    def count(self, pattern: str) -> int:
        """How many instructions have a name that contains `pattern` ("ld.shared", "bar.sync").

        Whole dotted parts; `*` stands for any characters. One in a loop counts once.
        """
        return sum(matches(pattern, i.opcode) for i in self.instructions)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers per lane, {self.spill_bytes} bytes spilled, "
            f"{self.smem_bytes} bytes of SMEM"
        )


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled Mojo program.

    Attributes:
      arch: the architecture ("sm_90a").
      kernels: its kernels, by name.
    """

    arch: str
    kernels: tuple[Kernel, ...]

    def kernel(self, name: str) -> Kernel:
        """The kernel of that name.

        Raises:
          KeyError: there is none; the message names those that there are.
        """
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        names = ", ".join(k.name for k in self.kernels) or "none"
        raise KeyError(f"no kernel {name!r} in the program; it has: {names}")

    def count(self, pattern: str) -> int:
        """How many instructions of all kernels have a name that contains `pattern`."""
        return sum(k.count(pattern) for k in self.kernels)

    @property
    def registers(self) -> int:
        """Registers per lane, of the kernel that needs most."""
        return max((k.registers for k in self.kernels), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes spilled per lane, in all kernels."""
        return sum(k.spill_bytes for k in self.kernels)

    @property
    def smem_bytes(self) -> int:
        """Static shared memory per block in bytes, of the kernel that needs most."""
        return max((k.smem_bytes for k in self.kernels), default=0)


def compile_program(source: str, *, arch: str = "sm_90a") -> Program:
    """Compiles a Mojo program for a GPU architecture; needs no GPU and runs nothing.

    Answers come from the disk where the same program was compiled before.

    Args:
      source: the program's text, with a `main`.
      arch: "sm_90a", "sm_100a", or another of NVIDIA's that Mojo knows ("sm_89").

    Raises:
      MojoCompileError: the program does not compile; it names the line of the program.
      MojoMissing: there is no compiler here, and the answer is not on the disk.
    """
    data = compile_data(source, arch=arch)
    if "refused" in data:
        raise from_compiler(data["refused"], source=source, program=PROGRAM)
    return Program(data["arch"], tuple(Kernel(**k) for k in data["kernels"]))


def compile_data(source: str, *, arch: str) -> dict[str, Any]:
    """What `compile_program` makes its answer of, as plain data for the disk.

    Either the kernels, or what the compiler said when it refused the program.
    """
    key = program_key(source, arch)
    stored = cache.load(key)
    if stored is None:
        stored = cache.dumps(_recorded(source, arch) or _compile(source, arch))
        cache.store(key, stored)
    return json.loads(stored)


def program_key(
    source: str, arch: str, *, modules: Mapping[str, str] = NO_MODULES, defines: Sequence[str] = ()
) -> str:
    """Names a program, its architecture and the compiler that the course is written for.

    Args:
      source, arch: as for `compile_program`.
      modules: the text of each module that it imports from beside itself, by name.
      defines: what it is compiled with (`-D`).
    """
    parts = [str(_FORMAT), toolchain.locked_version(), arch, source, *defines]
    parts += [part for name in sorted(modules) for part in (name, modules[name])]
    return "mojo-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()


def build(
    source: str,
    target: Path,
    *,
    arch: str,
    modules: Mapping[str, str] = NO_MODULES,
    defines: Sequence[str] = (),
) -> None:
    """Builds the program's executable, with its kernels for `arch` inside; none for "cpu".

    It finds Mojo's runtime libraries where this process's Mojo has them. For `modules` and
    `defines` see `program_key`.

    Raises:
      MojoCompileError: the program does not compile, or this machine has no linker (`cc`).
      MojoMissing: there is no compiler here.
    """
    if not has_linker():
        raise MojoCompileError(
            "To build a program that runs, Mojo needs a linker, and this machine has no `cc` "
            "(Debian and Ubuntu: install gcc)."
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_modules(folder, modules)
        flags = [f"-D{d}" for d in defines]
        said = _mojo(source, arch, folder, *flags, "-o", str(target.resolve()))
    if said is not None:
        raise refusal(said, source, modules)


def refusal(said: str, source: str, modules: Mapping[str, str]) -> MojoCompileError:
    """The compiler's words on a program, or on the learner's part of it, the module `answer`."""
    if f"{ANSWER}.mojo:" in said and ANSWER in modules:
        return from_compiler(said, source=modules[ANSWER], program=f"{ANSWER}.mojo")
    return from_compiler(said, source=source, program=PROGRAM)


def write_modules(folder: Path, modules: Mapping[str, str]) -> None:
    """Puts the modules' files into a folder, where a program in it finds them."""
    for name, text in modules.items():
        (folder / f"{name}.mojo").write_text(text, encoding="utf-8")


def _recorded(source: str, arch: str) -> dict[str, Any] | None:
    """The record's listing, where this machine has no Mojo, or no ptxas, to make one."""
    if toolchain.is_installed() and _has_ptxas():
        return None
    record = records.load(source)
    return record.compiled.get(arch) if record is not None else None


def _has_ptxas() -> bool:
    try:
        cuda.find()
    except ToolchainMissing:
        return False
    return True


def _compile(source: str, arch: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        said = _mojo(source, arch, folder, "--emit=asm", "-o", str(folder / "program.s"))
        if said is not None:
            return {"arch": arch, "refused": said}
        listings = sorted(folder.glob("*.ptx"))
        kernels = [_assemble(file, arch) for file in listings]
    return {"arch": arch, "kernels": sorted(kernels, key=lambda k: (k["name"], k["entry"]))}


def has_linker() -> bool:
    """Whether executables can be built here."""
    return shutil.which("cc") is not None


def _mojo(source: str, arch: str, folder: Path, *arguments: str) -> str | None:
    """Compiles in a folder; what the compiler said if it refused the program, else None."""
    mojo = toolchain.find()
    (folder / PROGRAM).write_text(source, encoding="utf-8")
    target = [] if arch == CPU else [f"--target-accelerator={arch}"]
    command = [str(mojo.program), "build", *target, *arguments, PROGRAM]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=mojo.environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise MojoCompileError(
            f"The compiler was stopped after {_TIMEOUT_S} s. A `comptime for` over very many "
            "iterations makes a very long program."
        ) from None
    if not done.returncode:
        return None
    said = done.stderr
    # Neither where the program lay nor where Mojo does is the reader's business.
    for place in (folder.resolve(), folder, mojo.program.parent):
        said = said.replace(f"{place}{os.sep}", "")
    return said


def _assemble(file: Path, arch: str) -> dict[str, Any]:
    ptx = file.read_text()
    entry = _ENTRY.search(ptx)
    assert entry is not None, "a PTX file without a kernel"
    ptxas = cuda.find().ptxas
    command = [ptxas, f"-arch={arch}", "-v", str(file), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        raise MojoCompileError(f"ptxas refused the program's PTX: {done.stderr.strip()}")
    return {
        "name": _function_name(entry.group(1)),
        "entry": entry.group(1),
        "ptx": ptx,
        **_resources(done.stderr),
    }


def _function_name(entry: str) -> str:
    """`add_kernel` of "program_add_kernel_TileTensor_Tr6A6AoA6A6AcB_656ad1ff1c0367cc"."""
    body = entry.removeprefix(PROGRAM.removesuffix(".mojo") + "_")
    body = re.sub(r"_[0-9a-f]{16}$", "", body)
    return re.split(r"_(?=[A-Z])", body)[0]


def _resources(said: str) -> dict[str, int]:
    """What `ptxas -v` says a kernel uses."""

    def number(pattern: str) -> int:
        found = re.search(pattern, said)
        return int(found.group(1)) if found else 0

    return {
        "registers": number(r"Used (\d+) registers"),
        "spill_bytes": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        "smem_bytes": number(r"(\d+) bytes smem"),
    }
