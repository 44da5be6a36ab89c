"""Where the compiler is: XLA's CUDA plugin, `ptxas` and `nvdisasm`, and how they get there.

`make toolchain` (part of `make lab` and `make test`) puts the wheels of
`requirements-toolchain.lock` into a folder of their own, `.toolchain/` in the
checkout. Only the compiler's worker processes see that folder: in the
notebook's own process the plugin would look for a driver, and beside
`jax[cuda12]` two plugins would claim the same name. Where the environment has a
CUDA plugin of its own, as on a machine with a GPU, that plugin is used, and the
folder lends at most its tools.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from course_lib import wheels
from course_lib.compiler.errors import ToolchainMissing

COMMAND = "make toolchain"
_CHECKOUT = Path(__file__).resolve().parents[2]
_LOCK = _CHECKOUT / "requirements-toolchain.lock"
_FLAVOURS = ("cuda13", "cuda12")
# Where the wheels of either CUDA generation put their programs, below site-packages.
_BIN_FOLDERS = ("nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "nvidia/cuda_nvdisasm/bin")


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """A compiler that fits this Python.

    Attributes:
      path: folders to put on the worker's import path, in front.
      ptxas: the assembler, a file.
      nvdisasm: the disassembler, a file; None where there is none, and then there is no SASS.
      cuda_root: the folder that holds the tools' `bin` and `nvvm`.
      version: names everything that decides what comes out; part of every cache key.
    """

    path: tuple[str, ...]
    ptxas: str
    nvdisasm: str | None
    cuda_root: str
    version: str


def folder() -> Path:
    """The toolchain's own folder: `$COURSE_TOOLCHAIN`, else `.toolchain` in the checkout."""
    return Path(os.environ.get("COURSE_TOOLCHAIN") or _CHECKOUT / ".toolchain")


def has_wheels() -> bool:
    """Whether this system has the toolchain's wheels: they are for Linux only."""
    return sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


def find(*, site: Path | None = None, jaxlib: str | None = None) -> Toolchain:
    """The toolchain to compile with.

    Args:
      site: the environment's site-packages; by default this Python's.
      jaxlib: the version of jaxlib that the plugin must fit; by default the installed one.

    Raises:
      ToolchainMissing: there is none, or it is made for another jaxlib.
    """
    jaxlib = jaxlib or importlib.metadata.version("jaxlib")
    site = site or Path(sysconfig.get_paths()["purelib"])
    own = _plugin_version(site)
    if own == jaxlib:
        return _assemble(jaxlib, path=(), places=(site, folder()))
    version = _plugin_version(folder())
    if version is None:
        raise ToolchainMissing(_missing())
    if version != jaxlib:
        raise ToolchainMissing(
            f"The compiler in {folder()} is made for jaxlib {version}, and this Python has jaxlib "
            f"{jaxlib}: they only work together when they are equal. The course's own environment "
            f"({COMMAND}, then its Python) has a pair that fits."
        )
    return _assemble(jaxlib, path=(str(folder()),), places=(folder(),))


def _missing() -> str:
    if not has_wheels():
        return (
            f"The compiler's packages exist for Linux only, and this is {platform.system()} "
            f"on {platform.machine()}. The course's own kernels show a recorded listing for "
            "the shapes that were recorded; everything else in the course works without it."
        )
    return (
        f"The compiler is not installed. Run `{COMMAND}` in the course's folder (about 270 MB to "
        "download); everything else in the course works without it."
    )


def _plugin_version(site: Path) -> str | None:
    """The version of the CUDA plugin in a folder of packages, None without a whole one."""
    for flavour in _FLAVOURS:
        needed = (f"jax-{flavour}-pjrt", f"jax-{flavour}-plugin")
        found = {
            d.metadata["Name"]: d.version
            for d in importlib.metadata.distributions(path=[str(site)])
            if d.metadata["Name"] in needed
        }
        versions = set(found.values())
        if len(found) == len(needed) and len(versions) == 1:
            return versions.pop()
    return None


def _assemble(jaxlib: str, *, path: tuple[str, ...], places: Iterable[Path]) -> Toolchain:
    folders = [p / b for p in places for b in _BIN_FOLDERS]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            folders.append(Path(os.environ[variable]) / "bin")
    folders.append(Path("/usr/local/cuda/bin"))
    search = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    ptxas = shutil.which("ptxas", path=search)
    if ptxas is None:
        raise ToolchainMissing(f"There is no `ptxas` on this machine. Run `{COMMAND}` to add one.")
    nvdisasm = shutil.which("nvdisasm", path=search)
    tools = [_tool_version(t) for t in (ptxas, nvdisasm) if t]
    return Toolchain(
        path=path,
        ptxas=ptxas,
        nvdisasm=nvdisasm,
        cuda_root=str(Path(ptxas).parent.parent),
        version=" ".join(["jaxlib", jaxlib, *tools]),
    )


def _tool_version(program: str) -> str:
    """Names a program by what it says of itself, so that another build is another cache key."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    last = (said.stdout.strip().splitlines() or [program])[-1]
    return f"{Path(program).name} {last}"


def install() -> None:
    """Brings the folder up to date with the lock; does nothing if it already is.

    The new folder is made beside the old one and takes its place when it is
    whole, so an interrupted download leaves no half toolchain behind.
    """
    if not has_wheels():
        print(_missing())
        return
    if wheels.up_to_date(folder(), _LOCK):
        print(f"The compiler in {folder().name} is up to date.")
    wheels.install(folder(), _LOCK)
