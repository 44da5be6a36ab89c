"""The CPU model of the GPU, at a safe distance: the simulator in a process that can be killed.

The simulator notices deadlocks and endless kernels by itself. What it cannot
notice (a Python loop of the learner's that never ends, an allocation larger than
the machine, a crash) ends with the process, in a finding, and the notebook lives on.

Meanwhile a second process lowers the same kernels for CUDA, which needs no GPU. What
cannot be lowered, because of layouts for instance, is a finding of the same report.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil

from course_lib.diagnostics import CourseError, Finding, Severity
from course_lib.diagnostics.locations import innermost_own, registered_cells
from course_lib.workers import RemoteError, Worker, WorkerDied, WorkerTimeout

if TYPE_CHECKING:  # this module stays light: JAX is imported by the first run
    from course_lib.compiler.lowering import Lowered
    from course_lib.simulator import Report
    from course_lib.tracing import Trace

DEFAULT_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of running a function.

    Attributes:
      value: its result, a pytree of numpy arrays; None if it has none.
      findings: what was found, in the order it was met.
      trace: what its jaxpr holds; None if it could not be traced.
      remarks: what could not be looked at, a sentence each.
      printed: what the kernels printed with `pl.debug_print`, a line each.
    """

    value: Any = None
    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
    remarks: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make the kernel wrong."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.errors


def simulate(
    function: Callable[..., Any],
    *args: Any,
    arch: str | None = None,
    schedule: str | int = "in_order",
    max_steps: int | None = None,
    timeline: bool | str = False,
    values: bool = True,
    sms: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Report:
    """Runs `function(*args)` on the model of the GPU, never on a real one, and reports.

    Args:
      function: a kernel, or a function of arrays that calls kernels.
      *args: arrays; without `values`, jax.ShapeDtypeStructs are enough.
      arch: "sm_90a" (Hopper) or "sm_100a" (Blackwell); by default what the kernels need.
      schedule: "in_order", "adversarial" (asynchronous effects land as late, or as early, as
        the rules allow) or an int, the seed of a random schedule.
      max_steps: how many operations may be simulated before it counts as endless.
      timeline: whether to record what every thread and engine does when (`report.timeline`);
        "detailed": arithmetic in registers takes its time, too, and copies come from L2.
      values: False to predict the time only, of grids of any size (`report.performance`):
        nothing is computed, and no mistakes are looked for.
      sms: run it on a GPU with so many SMs, a block on each, that take turns by the clock of the
        timeline: to see which of them does what, and when. With schedule="in_order" only.
      timeout_s: seconds after which the process is stopped, whatever it does.

    Returns:
      a `course_lib.simulator.Report`; what the kernels do wrong is in its findings.

    Raises:
      CourseError: there is no Mosaic GPU kernel in `function`.
    """
    from course_lib.simulator import Report

    options = {
        "arch": arch,
        "schedule": schedule,
        "max_steps": max_steps,
        "timeline": timeline,
        "values": values,
        "sms": sms,
    }
    report, _ = _ask(function, args, options, timeout_s, patience_s=_PATIENCE_S)
    return Report(None, report) if isinstance(report, tuple) else report


def simulate_here(function: Callable[..., Any], *args: Any, **options: Any) -> Report:
    """Like `simulate`, in this process and without a time limit: for commands.

    `options` are those of `course_lib.simulator.simulate`.
    """
    from course_lib import simulator
    from course_lib.compiler import lowering

    report = simulator.simulate(function, *args, **options)
    if any(f.rule == "exception" for f in report.findings):
        return report
    return _merged(report, lowering.lower(function, _shapes(args), options.get("arch")))


def execute(
    function: Callable[..., Any], args: tuple[Any, ...], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Outcome:
    """Runs `function(*args)` on the CPU model and never raises for what the function does.

    Args:
      function: a function of arrays that may call kernels.
      args: its arguments, a tuple of arrays.
      timeout_s: seconds after which it is stopped.
    """
    try:
        options: dict[str, Any] = {"kernels_needed": False}
        report, trace = _ask(
            function, args, options, timeout_s, patience_s=_PATIENCE_FOR_VERDICTS_S
        )
    except CourseError as error:
        return Outcome(findings=(_finding("exception", str(error)),))
    if isinstance(report, tuple):
        return Outcome(findings=report, trace=trace)
    return Outcome(report.value, report.findings, trace, report.remarks, report.printed)


def trace(
    function: Callable[..., Any], args: tuple[Any, ...], *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Trace:
    """What the jaxpr of `function(*args)` holds, traced at the same safe distance.

    Args:
      function: a function of arrays.
      args: its arguments, a tuple of arrays or jax.ShapeDtypeStructs.
      timeout_s: seconds after which it is stopped: Python code runs while JAX traces.

    Raises:
      CourseError: it was stopped, or its process died.
      Exception: whatever `function` raises.
    """
    try:
        return worker().call(_trace_here, function, _shapes(args), _cells(), timeout_s=timeout_s)
    except WorkerTimeout:
        raise CourseError(str(_too_long(timeout_s))) from None
    except WorkerDied as error:
        raise CourseError(str(_died(error))) from None
    except RemoteError as error:
        if error.exception is not None:
            raise error.exception from None
        raise CourseError(str(error)) from None


def _trace_here(
    function: Callable[..., Any], args: tuple[Any, ...], cells: dict[str, tuple[str, list[str]]]
) -> Trace:
    """In the child process."""
    from course_lib import tracing

    _register(cells)
    return tracing.trace(function, *args)


def _ask(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    timeout_s: float,
    *,
    patience_s: float,
) -> tuple[Report | tuple[Finding, ...], Trace | None]:
    """The report and the trace; instead of the report, the findings that say why there is none."""
    lowering = _Lowering(function, args, options.get("arch"), patience_s)
    try:
        report, trace = _ask_simulator(function, args, options, timeout_s)
        if isinstance(report, tuple):  # stopped, or never begun
            lowering.stop()
        elif any(f.rule == "illegal-mma" for f in report.findings):
            lowering.stop()  # no code can be made of it: Mosaic may search a long time in vain
        elif not any(f.rule == "exception" for f in report.findings):
            report = _merged(report, lowering.answer())
    except BaseException:
        lowering.stop()
        raise
    return report, trace


def _ask_simulator(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], timeout_s: float
) -> tuple[Report | tuple[Finding, ...], Trace | None]:
    from course_lib.simulator.hosting import to_numpy

    try:
        return worker().call(
            _simulate_here,
            function,
            to_numpy(args),
            options,
            _cells(),
            timeout_s=timeout_s,
        )
    except WorkerTimeout:
        return (_too_long(timeout_s),), None
    except WorkerDied as error:
        return (_died(error),), None
    except RemoteError as error:
        if isinstance(error.exception, CourseError):
            raise error.exception from None
        if error.type_name in ("KeyboardInterrupt", "SystemExit"):
            return (_quit(error),), None
        return (_cannot_travel(error),), None
    except (TypeError, AttributeError, ValueError) as error:  # what pickling raises
        return (_cannot_travel(error),), None


def _cells() -> dict[str, tuple[str, list[str]]]:
    """The registered notebook cells by file: name and lines, which are in no file on disk."""
    return {file: (name, linecache.getlines(file)) for file, name in registered_cells().items()}


def _simulate_here(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    cells: dict[str, tuple[str, list[str]]],
) -> Any:
    """In the child process: `(report, trace)`."""
    from course_lib.simulator import hosting

    _register(cells)
    return hosting.simulate_and_trace(function, args, **options)


def _register(cells: dict[str, tuple[str, list[str]]]) -> None:
    from course_lib.diagnostics.locations import register_cell

    for file, (name, lines) in cells.items():
        register_cell(file, name)
        # the names of a kernel's arguments are read from here
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)


def _lower_here(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    arch: str | None,
    cells: dict[str, tuple[str, list[str]]],
) -> Lowered:
    """In the other child process."""
    from course_lib.compiler import lowering

    _register(cells)
    return lowering.lower(function, args, arch)


_IMPORTS_TIMEOUT_S = 300.0
_NEVER_S = 86_400.0  # it is stopped by hand
# How long the lowering may take after the simulation is done: a picture of what happens
# should come soon, while `run` and `check` would be wrong without the answer.
_PATIENCE_S = 30.0
_PATIENCE_FOR_VERDICTS_S = 180.0
_STILL_SEARCHING = (
    "Mosaic was still trying layouts after {seconds:g} s, as it does where a kernel does not "
    "say how its arrays lie in registers. compile_for(kernel, ...) waits for the answer"
)


class _Lowering:
    """The kernels of one call on their way to CUDA, while the simulation runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        arch: str | None,
        patience_s: float,
    ):
        self._patience_s = patience_s
        self._answer: Lowered | None = None
        self._why_none = ""
        self._ready = threading.Event()  # its process has started, or never will
        self._thread = threading.Thread(
            target=self._ask, args=(function, _shapes(args), arch, _cells()), daemon=True
        )
        self._thread.start()

    def _ask(self, function: Any, shapes: Any, arch: Any, cells: Any) -> None:
        worker = lowering_worker()
        try:
            # What it imports is not the kernel's fault: on a busy machine it takes its time.
            worker.call(_import_lowering, timeout_s=_IMPORTS_TIMEOUT_S)
            self._ready.set()
            self._answer = worker.call(
                _lower_here, function, shapes, arch, cells, timeout_s=_NEVER_S
            )
        except Exception as error:
            self._why_none = str(error).strip() or type(error).__name__
        finally:
            self._ready.set()

    def answer(self) -> Lowered:
        """Waits until it is known whether they can be lowered."""
        from course_lib.compiler.lowering import Lowered, not_looked_at

        self._ready.wait()
        self._thread.join(self._patience_s)
        if self._thread.is_alive():
            lowering_worker().kill()
            self._thread.join()
            self._why_none = _STILL_SEARCHING.format(seconds=self._patience_s)
        return self._answer or Lowered(remark=not_looked_at(self._why_none))

    def stop(self) -> None:
        """Ends it if it is still under way: nobody waits for the answer any more."""
        if self._thread.is_alive():
            lowering_worker().kill()


def _shapes(args: tuple[Any, ...]) -> Any:
    """The arguments with shapes and dtypes for arrays; whatever else they hold stays."""
    import jax
    import numpy as np

    def shape(x: Any) -> Any:
        array = isinstance(x, jax.Array | np.ndarray)
        return jax.ShapeDtypeStruct(x.shape, x.dtype) if array else x

    return jax.tree.map(shape, args)


# Rules of the simulator about what a kernel is made of, not about what happens when it runs.
_OF_THE_PROGRAM = frozenset(
    {
        "illegal-mma",
        "not-collective",
        "out-of-bounds",
        "over-capacity",
        "tmem-indexed",
        "unaligned-offset",
    }
)


def _merged(report: Report, lowered: Lowered) -> Report:
    """The report with what lowering says, unless the simulation says it already."""
    found = lowered.finding
    remarks = (*report.remarks, lowered.remark) if lowered.remark else report.remarks
    if found is not None:  # what no GPU can run needs no model
        known = (f for f in report.findings if f.rule != "unsupported" or not _at_one(f, found))
        report = dataclasses.replace(report, findings=tuple(known))
    if found is None or any(_same(f, found) for f in report.findings):
        return dataclasses.replace(report, remarks=remarks)
    return dataclasses.replace(report, findings=(*report.findings, found), remarks=remarks)


def _same(simulated: Finding, lowered: Finding) -> bool:
    """Whether two findings are about the same mistake."""
    if simulated.rule not in _OF_THE_PROGRAM:
        return False
    return simulated.rule == lowered.rule or _at_one(simulated, lowered)


def _at_one(one: Finding, other: Finding) -> bool:
    """Whether two findings name the same line."""
    places = [(f.location.file, f.location.line) for f in (one, other) if f.location]
    return len(places) == 2 and places[0] == places[1]


def _finding(rule: str, what: str, fix: str = "") -> Finding:
    return Finding(rule, Severity.ERROR, what, fix=fix)


def _too_long(timeout_s: float) -> Finding:
    return _finding(
        "timeout",
        f"The function was stopped after {timeout_s:g} s.",
        "Does a loop end? If the kernel is only large, give it more time (timeout_s=...) or"
        " smaller arrays.",
    )


def _died(error: WorkerDied) -> Finding:
    memory = "MemoryError" in error.stderr or "bad_alloc" in error.stderr
    what = (
        "The function asked for more memory than this machine has."
        if memory
        else f"The process that ran the function died (status {error.returncode})."
    )
    return _finding("crash", what, "Look at the sizes of the arrays and allocations.")


def _quit(error: RemoteError) -> Finding:
    """Something in the function asked for the end of the process."""
    what = f"{error.type_name}: {error.message}".rstrip(": ")
    where = innermost_own(error.frames)
    return Finding("exception", Severity.ERROR, f"The function raised {what}.", where=where)


def _cannot_travel(error: Exception) -> Finding:
    return _finding(
        "exception",
        f"The function cannot be handed to the process that simulates it: {error}.",
        "Let it use only arrays and values that can be pickled.",
    )


_worker: Worker | None = None
_lowering_worker: Worker | None = None


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


def lowering_worker() -> Worker:
    """The process that lowers kernels for CUDA; started at the first use."""
    global _lowering_worker
    if _lowering_worker is None:
        _lowering_worker = Worker(
            "lowering",
            env={
                "JAX_PLATFORMS": "cpu",
                "CUDA_VISIBLE_DEVICES": "",
                "JAX_TRACEBACK_FILTERING": "off",  # the clinic reads JAX's frames too
            },
            memory_bytes=_memory_limit(),
        )
    return _lowering_worker


def warm_up() -> None:
    """Starts the processes and their imports without waiting, so that a first run need not."""
    worker().start(warm=_import_simulator)
    lowering_worker().start(warm=_import_lowering)


def _import_simulator() -> None:
    from course_lib.simulator import hosting

    hosting.warm()


def _import_lowering() -> None:
    from course_lib.compiler import jax_internals, lowering

    assert lowering, jax_internals


def _memory_limit() -> int | None:
    """Three quarters of the machine's memory, at least 8 GiB of address space, as JAX maps much."""
    if os.name != "posix":
        return None
    return max(8 << 30, psutil.virtual_memory().total * 3 // 4)
