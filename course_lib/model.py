"""The CPU model of the GPU: runs a function that holds kernels where no GPU is.

The kernels run in a child process that can be killed, so one that deadlocks,
loops for ever or takes all memory ends in a finding and the notebook lives on.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil

from course_lib.diagnostics import Finding, Severity
from course_lib.workers import Worker

if TYPE_CHECKING:  # this module stays light: JAX is imported by the first run
    from course_lib.tracing import Trace

DEFAULT_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of running a function.

    Attributes:
      value: its result, a pytree of numpy arrays; None if it has none.
      findings: what was found, errors first.
      trace: what its jaxpr holds; None if it could not be traced.
    """

    value: Any = None
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the kernel wrong."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.errors


@dataclasses.dataclass(frozen=True)
class Report:
    """What `simulate` answers: the value, and what is wrong with the kernel, in words.

    Attributes:
      value: the result as numpy arrays, None if the kernel did not come to an end.
      findings: errors first, then notes.
    """

    value: Any
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        if not self.findings:
            return "No findings."
        return "\n\n".join(map(str, self.findings))


def simulate(
    function: Callable[..., Any], *args: Any, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Report:
    """Runs `function(*args)` on the CPU model, never on a GPU, and reports what is wrong.

    Args:
      function: a function of arrays that calls kernels.
      *args: arrays.
      timeout_s: seconds after which it is stopped.

    Returns:
      a `Report`; what the kernels do wrong is in its findings and is not raised.
    """
    outcome = execute(function, args, timeout_s=timeout_s)
    return Report(outcome.value, outcome.findings)


def execute(
    function: Callable[..., Any], args: tuple[Any, ...], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Outcome:
    """Runs `function(*args)` on the CPU model and never raises for what the function does.

    Args:
      function: a function of arrays that calls kernels.
      args: its arguments, a tuple of arrays.
      timeout_s: seconds after which it is stopped.
    """
    from course_lib import interpreter

    return interpreter.execute(worker(), function, args, timeout_s=timeout_s)


_worker: Worker | None = None


def worker() -> Worker:
    """The process that the CPU model runs in; started at the first use."""
    global _worker
    if _worker is None:
        _worker = Worker(
            "model",
            env={"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
            memory_bytes=_memory_limit(),
        )
    return _worker


def warm_up() -> None:
    """Starts the process and its imports without waiting, so that a first run need not."""
    worker().start(warm=_import_interpreter)


def _import_interpreter() -> None:
    from course_lib.interpreter import child

    child.warm()


def _memory_limit() -> int | None:
    """Three quarters of the machine's memory, at least 8 GiB of address space, as JAX maps much."""
    if os.name != "posix":
        return None
    return max(8 << 30, psutil.virtual_memory().total * 3 // 4)
