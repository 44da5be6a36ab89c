"""Where the Mojo compiler is, and how it gets there.

`make mojo` (part of `make test`) puts the wheels of `requirements-mojo.lock`
into a folder of their own, `.mojo/` in the checkout: 250 MB to download, 660 MB
on disk. They are an optional extra under a licence of Modular's, so nothing
else of the course needs them.
"""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from course_lib import setup_env, wheels
from course_lib.mojo.errors import MojoMissing

COMMAND = "make mojo"
_CHECKOUT = Path(__file__).resolve().parents[2]
_LOCK = _CHECKOUT / "requirements-mojo.lock"
# Mojo would send what it crashed on, and how it is used, to its maker.
SILENT = {"MODULAR_CRASH_REPORTING_ENABLED": "false", "MODULAR_TELEMETRY_ENABLED": "false"}


@dataclasses.dataclass(frozen=True)
class Mojo:
    """A Mojo compiler.

    Attributes:
      program: the `mojo` executable.
      root: the folder that holds its `bin` and `lib`.
      version: "1.2.0": part of every cache key.
    """

    program: Path
    root: Path
    version: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it runs with: this process's, without crash reports and telemetry."""
        return (
            os.environ
            | SILENT
            | {
                "MODULAR_MAX_PACKAGE_ROOT": str(self.root),
                "MODULAR_MOJO_MAX_PACKAGE_ROOT": str(self.root),
                "MODULAR_MOJO_MAX_DRIVER_PATH": str(self.program),
                "MODULAR_MOJO_MAX_IMPORT_PATH": str(self.root / "lib" / "mojo"),
            }
        )


def folder() -> Path:
    """The compiler's own folder: `$COURSE_MOJO`, else `.mojo` in the checkout."""
    return Path(os.environ.get("COURSE_MOJO") or _CHECKOUT / ".mojo")


def find() -> Mojo:
    """The compiler to use.

    Raises:
      MojoMissing: it is not installed, or there is none for this system.
    """
    root = folder() / "modular"
    program = root / "bin" / "mojo"
    if program.exists():
        return Mojo(program=program, root=root, version=_version())
    if not setup_env.mojo_has_wheels():
        raise MojoMissing(
            "There is no Mojo for this system. Cells that were recorded show what they gave "
            "on the machine that recorded them."
        )
    raise MojoMissing(
        f"Mojo is not installed. Run `{COMMAND}` in the course's folder (about 250 MB to "
        "download); everything but chapters 20 to 22 works without it."
    )


def is_installed() -> bool:
    """Whether there is a compiler."""
    return (folder() / "modular" / "bin" / "mojo").exists()


def locked_version() -> str:
    """The version of Mojo that the course is written for."""
    found = re.search(r"^mojo==(\S+)", _LOCK.read_text(), re.MULTILINE)
    assert found is not None
    return found.group(1)


def _version() -> str:
    [info] = folder().glob("mojo-*.dist-info")
    return info.name.removeprefix("mojo-").removesuffix(".dist-info")


def install() -> None:
    """Brings the folder up to date with the lock; does nothing if it already is."""
    wheels.install(folder(), _LOCK)
