"""Where a kernel runs: what it needs against what the device has.

A kernel runs natively where the GPU in this machine has every feature that the
kernel uses, else on the CPU model. Features belong to instructions, not to
product names, so a card without wgmma still runs the kernels that use none.

Sources: PTX ISA, "Target ISA Notes" of cp.async.bulk.tensor (and its .tile::gather4),
wgmma.mma_async, tcgen05.mma, clusterlaunchcontrol.try_cancel and mbarrier; CUDA C++
Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from course_lib import model, tracing
from course_lib.diagnostics import CourseError, Finding, Severity, clinic
from course_lib.diagnostics.locations import innermost_own
from course_lib.model import Outcome
from course_lib.simulator import errors
from course_lib.workers import RemoteError, Worker, WorkerError, WorkerTimeout

# CUDA 12 needs at least this driver (CUDA Compatibility, "minor version compatibility").
_OLDEST_DRIVER = 525
# Mosaic GPU's barriers are mbarriers, which exist from compute capability 8.0 on (PTX ISA).
_OLDEST_CAPABILITY = (8, 0)

_WORDS = {
    "tma": "the copy engine (TMA: compute capability 9.0 and up)",
    "tma gather": "the copy engine's gather (compute capability 10.0 and up)",
    "wgmma": "Hopper's tensor-core instruction wgmma (compute capability 9.x only)",
    "tcgen05": "Blackwell's tensor-core instruction tcgen05 (compute capability 10.x and 11.x)",
    "clusters": "block clusters (compute capability 9.0 and up)",
    "cluster launch control": "cluster launch control (compute capability 10.0 and up)",
}


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What a function's kernels need of a device.

    Attributes:
      features: names out of "tma", "tma gather", "wgmma", "tcgen05", "clusters",
        "cluster launch control".
      smem_bytes: the most shared memory that a block asks for, in bytes.
      devices: on how many devices they run together.
    """

    features: frozenset[str]
    smem_bytes: int = 0
    devices: int = 1

    def __repr__(self) -> str:
        lines = [f"needs {_WORDS[f]}" for f in _WORDS if f in self.features]
        lines += [f"needs {self.devices} GPUs of one host"] if self.devices > 1 else []
        lines += [f"needs {self.smem_bytes:,} bytes of SMEM per block"] if self.smem_bytes else []
        return "\n".join(lines) or "runs on any GPU that Mosaic GPU supports"


@dataclasses.dataclass(frozen=True)
class Device:
    """The GPU that kernels can run on, by its own account.

    Attributes:
      name: what it calls itself; shown, never decided upon.
      capability: its compute capability, (major, minor).
      count: how many such devices JAX sees.
    """

    name: str
    capability: tuple[int, int]
    count: int = 1

    @property
    def features(self) -> frozenset[str]:
        """What it has, by the names that `Requirements` uses."""
        major = self.capability[0]
        has = {
            "tma": major >= 9,
            "clusters": major >= 9,
            "wgmma": major == 9,
            "tcgen05": major in (10, 11),
            "cluster launch control": major >= 10,
            "tma gather": major >= 10,
        }
        return frozenset(name for name, there in has.items() if there)

    @property
    def smem_bytes(self) -> int:
        """The most shared memory that one block can have, in bytes (Programming Guide)."""
        kib = {(8, 0): 163, (8, 7): 163, (8, 6): 99, (8, 9): 99}.get(self.capability)
        if kib is None:
            kib = 99 if self.capability[0] >= 12 else 227
        return kib * 1024


def requirements(function: Callable[..., Any], *args: Any) -> Requirements:
    """What the kernels in `function(*args)` need of a device; nothing runs.

    Args:
      function: a function of arrays that calls kernels.
      *args: arrays or `jax.ShapeDtypeStruct`s.

    Raises:
      CourseError: there is no kernel in it.
    """
    return _requirements(_traced(function, args))


def _traced(
    function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float = model.DEFAULT_TIMEOUT_S
) -> tracing.Trace:
    _check_function(function)
    traced = model.trace(function, args, timeout_s=timeout_s)
    _check_kernels(function, traced)
    return traced


def _check_function(function: Any) -> None:
    if not callable(function):
        raise CourseError(
            f"The first argument is a {type(function).__name__}; it must be a kernel or a function"
            " that calls one, and its arguments come after it: run(kernel, x)."
        )


def _check_kernels(function: Callable[..., Any], traced: tracing.Trace) -> None:
    if not traced.kernels:
        raise CourseError(
            f"There is no kernel in {_name(function)}: it calls neither plgpu.kernel nor pl.kernel."
            " Plain JAX needs no `run`: call it."
        )


def _requirements(traced: tracing.Trace) -> Requirements:
    return Requirements(tracing.features(traced), traced.smem_bytes, traced.devices)


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    # plgpu.kernel returns a function called "wrapper"
    return name if name and name not in ("wrapper", "<lambda>") else "this function"


@functools.cache
def device() -> Device | None:
    """The GPU that JAX can use here, or None."""
    if os.environ.get("COURSE_MODEL_ONLY") == "1":
        return None
    try:
        gpus = jax.devices("gpu")
    except RuntimeError:
        return None
    capability = getattr(gpus[0], "compute_capability", None)
    if capability is None:  # not a CUDA device
        return None
    major, minor = (int(part) for part in str(capability).split(".")[:2])
    return Device(gpus[0].device_kind, (major, minor), len(gpus))


def lacks(needs: Requirements, has: Device | None) -> str:
    """Why a device cannot run a kernel, as the end of a sentence; "" if it can."""
    if has is None:
        return "there is no GPU that JAX can use here"
    if has.capability < _OLDEST_CAPABILITY:
        return f"{has.name} is older than compute capability 8.0, the oldest with mbarriers"
    for feature in _WORDS:
        if feature in needs.features - has.features:
            return f"it needs {_WORDS[feature]}, and {has.name} has {_dotted(has)}"
    if needs.smem_bytes > has.smem_bytes:
        return (
            f"it needs {needs.smem_bytes:,} bytes of SMEM per block, and {has.name} gives a block"
            f" {has.smem_bytes:,}"
        )
    if needs.devices > has.count:
        there = "1 GPU" if has.count == 1 else f"{has.count} GPUs"
        return f"it runs on {needs.devices} GPUs together, and this machine has {there}"
    return ""


def _dotted(has: Device) -> str:
    return "compute capability {}.{}".format(*has.capability)


def can_run_natively(function: Callable[..., Any], *args: Any) -> bool:
    """Whether the GPU in this machine has what the kernels in `function(*args)` need."""
    return device() is not None and not lacks(requirements(function, *args), device())


# Functions whose first run in a process that can be killed came back, with the shapes it had.
_proven: weakref.WeakKeyDictionary[Callable[..., Any], set[Any]] = weakref.WeakKeyDictionary()


def run(function: Callable[..., Any], *args: Any, timeout_s: float = 60.0) -> Any:
    """Runs `function(*args)`: on the GPU if it has what the kernels need, else on the CPU model.

    The first run on a GPU happens in a process of its own, so that a kernel which
    never ends costs a sentence and not the notebook; later ones happen in place.

    Args:
      function: a kernel, or a function of arrays that calls kernels.
      *args: arrays.
      timeout_s: seconds after which it is stopped.

    Returns:
      what `function` returns, as JAX arrays.

    Raises:
      KernelError: something is wrong with a kernel; its `findings` say what, and it is of the
        class of the rule that is broken (`course_lib.simulator.errors`).
      CourseError: there is no kernel in it.
    """
    if "COURSE_WORKER" in os.environ:  # where kernels run already: a function that calls `run`
        return function(*args)
    _check_function(function)
    if device() is None:
        return _run_on_model(function, args, timeout_s)
    shapes = ((np.shape(x), np.asarray(x).dtype) for x in jax.tree.leaves(args))
    key = (jax.tree.structure(args), *shapes)
    if key in _proven.get(function, ()):
        return function(*args)
    try:
        traced = _traced(function, args, timeout_s)
    except CourseError:
        raise
    except Exception:  # the model explains what went wrong, and names the learner's line
        return _run_on_model(function, args, timeout_s)
    if lacks(_requirements(traced), device()):
        return _run_on_model(function, args, timeout_s)
    value = _checked(execute_native(function, args, timeout_s=timeout_s))
    _proven.setdefault(function, set()).add(key)
    return value


def _run_on_model(function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> Any:
    outcome = model.execute(function, args, timeout_s=timeout_s)
    if outcome.trace is not None and not outcome.errors:
        _check_kernels(function, outcome.trace)
    return _checked(outcome)


def _checked(outcome: Outcome) -> Any:
    notes = [f for f in outcome.findings if f.severity is Severity.NOTE]
    for line in outcome.printed:
        print(line)
    if outcome.errors:
        raise errors.of(outcome.findings)
    for said in (*notes, *outcome.remarks):
        print(said)
    return jax.tree.map(jax.numpy.asarray, outcome.value)


_native: Worker | None = None


def execute_native(
    function: Callable[..., Any], args: tuple[Any, ...], *, timeout_s: float = 60.0
) -> Outcome:
    """Runs `function(*args)` on the GPU, in a process that is killed if it does not come back.

    Never raises for what the function does. Ask `can_run_natively` first.
    """
    global _native
    if _native is None:
        _native = Worker("gpu", env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    plain = jax.tree.map(np.asarray, args)
    try:
        value, traced = _native.call(_run_natively, function, plain, timeout_s=timeout_s)
    except WorkerTimeout:
        return Outcome(findings=(_never_ended(timeout_s),))
    except RemoteError as error:
        return Outcome(findings=(_raised(error),))
    except WorkerError as error:
        what = f"The process that ran the kernel on the GPU died: {error}."
        return Outcome(findings=(Finding("crash", Severity.ERROR, what),))
    return Outcome(value, (), traced)


def _raised(error: RemoteError) -> Finding:
    """What JAX or the compiler said, and what the clinic knows about it."""
    known = clinic.consult(error.message, type_name=error.type_name, frames=error.frames)
    return Finding(
        "exception",
        Severity.ERROR,
        f"{error.type_name}: {clinic.shorten(error.message)}",
        why=known.means if known else "",
        fix=known.change if known else "",
        where=innermost_own(error.frames),
    )


def _never_ended(timeout_s: float) -> Finding:
    return Finding(
        "timeout",
        Severity.ERROR,
        f"The kernel did not come back from the GPU within {timeout_s:g} s and was stopped.",
        fix="simulate(kernel, ...) runs it on the model of the GPU and says who waits for what.",
    )


def _run_natively(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    # A kernel that arrives pickled may name none of its operations' module, which registers them.
    importlib.import_module("jax.experimental.pallas.mosaic_gpu")
    arrays = jax.tree.map(jax.numpy.asarray, args)
    value = jax.block_until_ready(function(*arrays))
    return jax.tree.map(np.asarray, value), tracing.trace(function, *arrays)


def where(function: Callable[..., Any] | None = None, *args: Any) -> None:
    """Says in sentences where kernels run in this machine, and why.

    Args:
      function: a kernel to say it of; without one, of kernels in general.
      *args: its arguments.
    """
    if function is None:
        print("\n".join(_found()))
        return
    needs = requirements(function, *args)
    why_not = lacks(needs, device())
    gpu = device()
    if why_not or gpu is None:
        print(f"This kernel runs on the CPU model of the GPU: {why_not}.")
    else:
        print(f"This kernel runs on {gpu.name}, which has what it needs.")


def _found() -> list[str]:
    gpu = device()
    if gpu is None:
        return [
            "Your kernels run on the CPU model of the GPU, which also looks for mistakes.",
            f"Why: {_why_no_gpu()}",
        ]
    missing = [f for f in _WORDS if f not in gpu.features]
    lines = [f"Your kernels run on {gpu.name} ({_dotted(gpu)}){_times(gpu.count)}."]
    lines += [
        f"Kernels that use {_WORDS[f]} run on the CPU model: this GPU does not have it."
        for f in missing
    ]
    return lines


def _times(count: int) -> str:
    return f"; JAX sees {count} of them" if count > 1 else ""


def _why_no_gpu() -> str:
    """The reason why JAX has no GPU to use here, one sentence."""
    if os.environ.get("COURSE_MODEL_ONLY") == "1":
        return "COURSE_MODEL_ONLY=1 asks for the model."
    if platform.system() == "Darwin":
        return "this is a Mac, and CUDA has no driver for it."
    driver = driver_version()
    if driver is None:
        return "there is no NVIDIA driver on this machine."
    if driver < _OLDEST_DRIVER:
        return (
            f"the NVIDIA driver is version {driver}; CUDA 12 needs {_OLDEST_DRIVER} or newer."
            " Update the driver."
        )
    if not _cuda_plugin():
        return (
            "there is an NVIDIA driver, but this environment has JAX for the CPU only."
            " `make lab ACCEL=cuda12` installs JAX for CUDA."
        )
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and "cuda" not in platforms and "gpu" not in platforms:
        return f"JAX_PLATFORMS={platforms} keeps JAX off the GPU."
    return f"JAX could not start its CUDA plugin: {_plugin_error()}"


def _plugin_error() -> str:
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        return str(error).strip().splitlines()[0].rstrip(".") + "."
    return "no reason was given."


def driver_version() -> int | None:
    """The major version of the NVIDIA driver, or None where there is none."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            match = re.search(r"Kernel Module\D*(\d+)\.", file.read())
            if match:
                return int(match[1])
    except OSError:
        pass
    tool = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"(\d+)\.", answer.stdout)
    return int(match[1]) if match else None


def _cuda_plugin() -> str | None:
    """The name of JAX's installed CUDA plugin package, or None."""
    for cuda in ("cuda12", "cuda13"):
        if importlib.util.find_spec(f"jax_{cuda}_plugin") is not None:
            return f"jax-{cuda}-plugin"
    return None


def doctor() -> list[str]:
    """What was found on this machine, a sentence each, and where kernels run."""
    driver = driver_version()
    plugin = _cuda_plugin()
    lines = [
        f"Python {platform.python_version()} on {platform.system()}.",
        f"JAX {jax.__version__} with jaxlib {importlib.metadata.version('jaxlib')}.",
        f"NVIDIA driver: version {driver}." if driver else "NVIDIA driver: none found.",
        f"JAX's CUDA plugin: {plugin} {importlib.metadata.version(plugin)}."
        if plugin
        else "JAX's CUDA plugin: not installed (it is not needed without a GPU).",
    ]
    return [*lines, *_found()]
