"""Child processes that stay warm, answer calls and can be killed.

Whatever may hang, abort or eat the memory runs in one of these, never in the
notebook's own process: kernels on the CPU model, first runs on a GPU, compilers.

    worker = Worker("model")
    worker.call(function, x, timeout_s=60, idle_timeout_s=4)

Functions and arguments travel by cloudpickle, so those of a notebook do too.
"""

from course_lib.workers.client import (
    RemoteError,
    Worker,
    WorkerDied,
    WorkerError,
    WorkerIdle,
    WorkerTimeout,
)

__all__ = [
    "RemoteError",
    "Worker",
    "WorkerDied",
    "WorkerError",
    "WorkerIdle",
    "WorkerTimeout",
]
