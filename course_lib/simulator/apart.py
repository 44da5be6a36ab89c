"""Replays in a process of their own, which may use only so much memory and time.

For programs that somebody else wrote: a grader's, a bug report's. What travels is plain data
(`ir.dumps`) and numpy arrays; nothing of the program's is code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.diagnostics import Finding, Severity
from course_lib.simulator import ir
from course_lib.simulator.api import MAX_STEPS, replay
from course_lib.simulator.report import Report
from course_lib.workers import RemoteError, Worker, WorkerDied, WorkerTimeout


def replay_apart(
    program: ir.Program | bytes,
    inputs: Sequence[Any],
    *,
    arch: str = "sm_90a",
    schedule: str | int = "in_order",
    max_steps: int = MAX_STEPS,
    timeout_s: float = 60.0,
    memory_bytes: int = 4 << 30,
) -> Report:
    """`replay` in a child process that is stopped when it takes too much.

    Args:
      program: a program, or the bytes that `ir.dumps` made of it.
      inputs: its flat arguments, numpy arrays.
      arch, schedule, max_steps: as in `replay`.
      timeout_s: seconds after which the process is stopped.
      memory_bytes: the most address space that it may take.

    Returns:
      The same report as `replay`'s; where the process was stopped, one that says why.
    """
    data = program if isinstance(program, bytes) else ir.dumps(program)
    options = {"arch": arch, "schedule": schedule, "max_steps": max_steps}
    worker = Worker("replay", memory_bytes=memory_bytes)
    try:
        return worker.call(
            _replay, data, [np.asarray(i) for i in inputs], options, timeout_s=timeout_s
        )
    except WorkerTimeout:
        return _stopped(
            "step-limit", f"The replay was stopped after {timeout_s:g} s.",
            "Give it more time (timeout_s), or smaller arrays.",
        )  # fmt: skip
    except (WorkerDied, RemoteError) as error:
        memory = "MemoryError" in str(getattr(error, "stderr", "")) + str(error)
        memory |= getattr(error, "type_name", "") == "MemoryError"
        what = f"The replay asked for more than {memory_bytes:,} bytes of memory."
        return _stopped(
            "over-capacity" if memory else "exception",
            what if memory else f"The replay ended without a report: {error}",
            "Look at the sizes of the arrays and allocations.",
        )
    finally:
        worker.close()


def _replay(data: bytes, inputs: list[Any], options: dict[str, Any]) -> Report:
    return replay(ir.loads(data), inputs, **options)


def _stopped(rule: str, what: str, fix: str) -> Report:
    return Report(None, (Finding(rule, Severity.ERROR, what, fix=fix),))
