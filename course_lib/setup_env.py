"""Makes the course's Python environments out of the locks: what `make lab` does first.

Runs under the machine's own Python, before anything is installed: only the
standard library may be imported here, and nothing else of the course.

    python course_lib/setup_env.py lab          # .venv: the course
    python course_lib/setup_env.py test         # .venv: the course and the developers' tools
    python course_lib/setup_env.py oldest-jax   # .venv-jax-oldest: the oldest jax it supports
    python course_lib/setup_env.py mojo         # as lab, and the Mojo compiler of chapters 20 to 22
    python course_lib/setup_env.py grading      # as lab, and what `course grade` uses besides
    python course_lib/setup_env.py lock         # the locks anew, from pyproject.toml

An environment is made of locks (name==version with hashes) and, in a second
step, of this checkout itself: pip refuses a checkout in a file with hashes. A
stamp, written last, tells a finished environment from a half-made one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 12)
_OLDEST_UV = (0, 7)
_STAMP = "course-stamp.json"
# The systems that the packages of requirements-mojo.lock exist for.
_MOJO_SYSTEMS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")}


def _say(sentence: str) -> None:
    """Prints at once: the installers write to the same terminal, past Python's buffer."""
    print(sentence, flush=True)


class SetupError(Exception):
    """The environment cannot be made; the message is a sentence for the person who asked."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """One virtual environment and what belongs in it.

    Attributes:
      folder: the environment's folder.
      locks: the files whose packages it holds; a later one repeats the versions of an earlier one.
    """

    folder: Path
    locks: tuple[Path, ...]

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"


@dataclasses.dataclass(frozen=True)
class Lock:
    """How one lock is made.

    Attributes:
      name: the file's name.
      arguments: what `uv pip compile` is to resolve.
      keeps: the locks with whose versions it must agree.
      except_for: the packages that need not agree.
    """

    name: str
    arguments: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    except_for: tuple[str, ...] = ()


_BUILD = ("pyproject.toml", "--group", "build")
LOCKS = (
    Lock("requirements.lock", _BUILD),
    Lock("requirements-uv.lock", ("--group", "bootstrap")),
    Lock("requirements-cuda12.lock", (*_BUILD, "--extra", "cuda12"), ("requirements.lock",)),
    Lock("requirements-dev.lock", ("--group", "dev"), ("requirements.lock",)),
    Lock(
        "requirements-grading.lock",
        ("--group", "grading"),
        ("requirements.lock", "requirements-dev.lock"),
    ),
    Lock(
        "requirements-jax-oldest.lock",
        (*_BUILD, "--group", "oldest-jax"),
        ("requirements.lock", "requirements-dev.lock"),
        ("jax", "jaxlib"),
    ),
    Lock("requirements-toolchain.lock", ("requirements-toolchain.in", "--no-deps")),
    Lock("requirements-mojo.lock", ("requirements-mojo.in", "--no-deps")),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one of the commands above; returns the exit status."""
    parser = argparse.ArgumentParser(description="Sets up the course's Python environments.")
    parser.add_argument("what", choices=("lab", "test", "mojo", "grading", "oldest-jax", "lock"))
    parser.add_argument("--accel", choices=("auto", "cpu", "cuda12"), default="auto")
    parser.add_argument("--upgrade", action="store_true", help="lock: take the newest versions")
    options = parser.parse_args(arguments)
    # As pip does: behind a proxy of a company or a school, only the machine knows whom to trust.
    os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    try:
        with _one_at_a_time():
            if options.what == "lock":
                lock(upgrade=options.upgrade)
                return 0
            ensure(environment(options.what, accel=options.accel))
            if options.what != "oldest-jax":
                ensure_toolchain()
            if options.what == "mojo" or (options.what == "test" and mojo_has_wheels()):
                ensure_mojo()
    except SetupError as error:
        print(f"Set-up stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Set-up interrupted; the next run finishes it.", file=sys.stderr)
        return 130
    return 0


def environment(what: str, *, accel: str = "auto", root: Path = ROOT) -> Environment:
    """The environment for `what` ("lab", "test", "mojo", "grading", "oldest-jax").

    Args:
      accel: "cpu", "cuda12", or "auto": CUDA where the machine has an NVIDIA GPU,
        or where the environment holds it already.
    """
    if what == "oldest-jax":
        return Environment(root / ".venv-jax-oldest", (root / "requirements-jax-oldest.lock",))
    if accel == "auto":
        has_cuda = "requirements-cuda12.lock" in _read_stamp(root / ".venv").get("locks", {})
        accel = "cuda12" if has_cuda or has_nvidia_gpu() else "cpu"
    runtime = "requirements-cuda12.lock" if accel == "cuda12" else "requirements.lock"
    more = {"test": ("requirements-dev.lock",), "grading": ("requirements-grading.lock",)}
    names = (runtime, *more.get(what, ()))
    return Environment(root / ".venv", tuple(root / name for name in names))


def ensure(env: Environment, *, root: Path = ROOT, log: Callable[[str], None] = _say) -> None:
    """Makes the environment hold what its locks say; does nothing where it does already.

    Raises:
      SetupError: nothing could be installed, or there is no usable Python.
    """
    if _finished(env, root):
        return
    if not _usable(env, root):
        _create(env, log)
    uv = _uv(env, log)
    names = " and ".join(lock.name for lock in env.locks)
    log(f"Installing the packages of {names} into {env.folder.name} ...")
    requirements = [a for lock in env.locks for a in ("-r", str(lock))]
    _install(uv, env, "--require-hashes", *requirements)
    if not _course_installed(env, root):
        _install(uv, env, "--no-deps", "--no-build-isolation", "-e", str(root))
    _write_stamp(env, root)
    log(f"{env.folder.name} is ready.")


def ensure_toolchain(*, root: Path = ROOT, log: Callable[[str], None] = _say) -> None:
    """Fetches the compiler that shows PTX and SASS without a GPU, where there is one to fetch.

    The chapters work without it, so a download that fails is no reason to stop.
    """
    lock, stamp = root / "requirements-toolchain.lock", root / ".toolchain" / "lock.sha256"
    if sys.platform != "linux" or (stamp.exists() and stamp.read_text() == _digest(lock)):
        return
    log("Fetching the compiler into .toolchain (about 270 MB) ...")
    install = "from course_lib.compiler import toolchain; toolchain.install()"
    command = [str(root / ".venv" / "bin" / "python"), "-c", install]
    if subprocess.run(command, cwd=root).returncode:
        log("That failed: PTX and SASS cannot be shown until it succeeds; all else works.")


def mojo_has_wheels() -> bool:
    """Whether Mojo exists for this system: Linux (x86-64, Arm) and Macs with Apple silicon."""
    return (sys.platform, platform.machine()) in _MOJO_SYSTEMS


def ensure_mojo(*, root: Path = ROOT, log: Callable[[str], None] = _say) -> None:
    """Fetches the Mojo compiler into `.mojo`, a folder of its own.

    Raises:
      SetupError: there is no Mojo for this system, or it could not be fetched.
    """
    if not mojo_has_wheels():
        raise SetupError(
            f"there is no Mojo for {sys.platform} on {platform.machine()}. Chapters 20 to 22 show "
            "recorded results there."
        )
    lock, stamp = root / "requirements-mojo.lock", root / ".mojo" / "lock.sha256"
    if stamp.exists() and stamp.read_text() == _digest(lock):
        return
    log("Fetching Mojo into .mojo (about 250 MB). It is Modular's, not the course's: its packages")
    log("name the MAX Platform Software License (https://www.modular.com/legal/community).")
    install = "from course_lib.mojo import toolchain; toolchain.install()"
    command = [str(root / ".venv" / "bin" / "python"), "-c", install]
    if subprocess.run(command, cwd=root).returncode:
        raise SetupError("Mojo could not be fetched (see above). The next run goes on from here.")


def has_nvidia_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU with a driver that answers (WSL included)."""
    if sys.platform != "linux":
        return False
    smi = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    try:
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=60)
        if listed.returncode == 0 and "GPU 0" in listed.stdout:
            return True
    except (OSError, subprocess.TimeoutExpired):
        pass  # no such program: containers often have the driver's library alone
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or _cuda_device_count() > 0


def _cuda_device_count() -> int:
    """How many devices the driver's library counts; 0 where it is missing or refuses."""
    for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        try:
            cuda = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
            return count.value
    return 0


def lock(*, upgrade: bool = False, root: Path = ROOT) -> None:
    """Writes all locks anew, keeping the versions they have unless `upgrade` is set."""
    uv = _uv(Environment(root / ".venv", ()), _say)
    for one in LOCKS:
        _say(f"Resolving {one.name} ...")
        with tempfile.TemporaryDirectory() as scratch:
            constraints = _constraints(one, root, Path(scratch))
            command = [*uv, "pip", "compile", *one.arguments, *constraints]
            command += ["--universal", "--python-version", "3.12", "--generate-hashes", "--quiet"]
            command += ["--no-emit-index-url", "--no-emit-find-links", "--no-header"]
            command += ["--no-annotate", "--output-file", one.name]
            _run(command + (["--upgrade"] if upgrade else []), f"{one.name} cannot be resolved.")


def _constraints(one: Lock, root: Path, scratch: Path) -> list[str]:
    """The arguments that make a lock keep the versions of others."""
    pins = [pin for name in one.keeps for pin in read_lock(root / name)]
    file = scratch / "constraints.txt"
    file.write_text("\n".join(p for p in pins if p.split("==")[0] not in one.except_for) + "\n")
    return ["--constraint", str(file)]


def read_lock(file: Path) -> list[str]:
    """The requirements of a lock without their hashes: "name==version" and any marker."""
    return [p.strip() for p in re.findall(r"^[\w.-]+==[^\\\n]*", file.read_text(), re.MULTILINE)]


def _finished(env: Environment, root: Path) -> bool:
    stamp = _read_stamp(env.folder)
    wanted = {lock.name: _digest(lock) for lock in env.locks}
    return (
        _project_of(stamp) == (str(root), _digest(root / "pyproject.toml"))
        and wanted.items() <= stamp.get("locks", {}).items()
        and not _superfluous(env, stamp)
        and set(stamp.get("packages", ["?"])) <= set(_packages(env))
        and _python_version(env.python) is not None
    )


def _course_installed(env: Environment, root: Path) -> bool:
    """Whether this checkout, as its pyproject.toml is now, was installed by an earlier run."""
    stamp = _read_stamp(env.folder)
    there = any(name.startswith("mosaic_gpu_hands_on-") for name in _packages(env))
    return there and _project_of(stamp) == (str(root), _digest(root / "pyproject.toml"))


def _project_of(stamp: dict[str, Any]) -> tuple[Any, Any]:
    return stamp.get("root"), stamp.get("project")


def _usable(env: Environment, root: Path) -> bool:
    """Whether to install into what is there, rather than make the folder anew."""
    stamp = _read_stamp(env.folder)
    moved = stamp.get("root", str(root)) != str(root)
    version = _python_version(env.python)
    return (
        version is not None
        and version >= OLDEST_PYTHON
        and not moved
        and not _superfluous(env, stamp)
    )


def _superfluous(env: Environment, stamp: dict[str, Any]) -> bool:
    """Whether the environment holds CUDA's packages although the CPU's are asked for."""
    return "requirements-cuda12.lock" in stamp.get("locks", {}) and not any(
        lock.name == "requirements-cuda12.lock" for lock in env.locks
    )


def _create(env: Environment, log: Callable[[str], None]) -> None:
    if sys.version_info < OLDEST_PYTHON:
        raise SetupError(f"the course needs Python 3.12 or newer; {sys.executable} is older.")
    if env.folder.exists():
        log(f"{env.folder.name} is unfinished or does not fit; making it anew.")
        shutil.rmtree(env.folder)
    log(f"Making {env.folder.name} with Python {sys.version.split()[0]} ...")
    command = [sys.executable, "-m", "venv", "--without-pip", str(env.folder)]
    _run(command, "Python's venv module does not work (Debian and Ubuntu: install python3-venv).")


def _uv(env: Environment, log: Callable[[str], None]) -> list[str]:
    """The command line of uv: the machine's, else one of our own inside the environment."""
    own = env.folder / "bin" / "uv"
    for candidate in (shutil.which("uv"), str(ROOT / ".venv" / "bin" / "uv"), str(own)):
        if candidate and _uv_version(candidate) >= _OLDEST_UV:
            return [candidate]
    if not env.python.exists():
        _create(env, log)
    log("Fetching uv, the installer, with pip ...")
    pip = _pip_for(env)
    command = [*pip, "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    command += ["-r", str(ROOT / "requirements-uv.lock")]
    _run(command, "pip could not fetch uv. Is there a network? The next run goes on from here.")
    return [str(own)]


def _pip_for(env: Environment) -> list[str]:
    """pip, acting on the environment: the machine's own, else the one that Python carries."""
    machine = [sys.executable, "-m", "pip"]
    if subprocess.run([*machine, "--version"], capture_output=True).returncode == 0:
        return [*machine, "--python", str(env.python)]
    own = [str(env.python), "-m", "ensurepip"]
    if subprocess.run(own, capture_output=True).returncode == 0:
        return [str(env.python), "-m", "pip"]
    raise SetupError("this Python has no pip (Debian and Ubuntu: install python3-pip).")


def _uv_version(uv: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([uv, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return (0,)
    found = re.search(r"(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0,)


def _install(uv: Sequence[str], env: Environment, *arguments: str) -> None:
    command = [*uv, "pip", "install", "--python", str(env.python), *arguments]
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        command.append("--compile-bytecode")  # else each start compiles Jupyter and JAX anew
    _run(command, "the packages could not be installed (see above). Is there a network?")


def _run(command: Sequence[str], sentence: str) -> None:
    if subprocess.run(command, cwd=ROOT).returncode:
        raise SetupError(sentence)


def _python_version(python: Path) -> tuple[int, ...] | None:
    """The interpreter's version, or None where it does not run."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        said = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return tuple(map(int, said.stdout.split())) if said.returncode == 0 else None


def _packages(env: Environment) -> list[str]:
    return sorted(p.name for p in env.folder.glob("lib/python3*/site-packages/*.dist-info"))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "missing"


def _read_stamp(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / _STAMP).read_text())
    except (OSError, ValueError):
        return {}


def _write_stamp(env: Environment, root: Path) -> None:
    """Notes what was installed. Locks installed earlier stay listed: their packages are there."""
    stamp = _read_stamp(env.folder)
    present = {lock.name: _digest(lock) for lock in env.locks}
    stamp = {
        "root": str(root),
        "project": _digest(root / "pyproject.toml"),
        "locks": {**stamp.get("locks", {}), **present},
        "packages": _packages(env),
    }
    (env.folder / _STAMP).write_text(json.dumps(stamp, indent=1))


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Makes a second set-up in the same checkout wait for the first."""
    import fcntl

    cache = ROOT / ".cache"
    cache.mkdir(exist_ok=True)
    with open(cache / "setup.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
