"""The parent's side of a worker: start it, call it, notice when it hangs or dies."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any

import psutil

from course_lib.workers import pickling

_POLL_S = 0.05
_STDERR_TAIL_BYTES = 16_384
# A process that waits for ever still burns a little time in its allocator's and XLA's threads.
_IDLE_CPU_SHARE = 0.05
_live: weakref.WeakSet[Worker] = weakref.WeakSet()


class WorkerError(Exception):
    """A call to a worker gave no result."""


class WorkerTimeout(WorkerError):  # noqa: N818
    """The call took longer than its `timeout_s`; the worker was killed."""


class WorkerIdle(WorkerError):  # noqa: N818
    """The call used no processor time for `idle_timeout_s`: it waits for ever. Killed."""


class WorkerDied(WorkerError):  # noqa: N818
    """The process ended during the call.

    Attributes:
      returncode: the exit status; negative is the signal that ended it.
      stderr: the last lines that it wrote there.
    """

    def __init__(self, message: str, returncode: int | None, stderr: str):
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class RemoteError(WorkerError):
    """The function raised.

    Attributes:
      type_name: the exception's class ("ValueError"), without its module.
      message: its text.
      frames: `(file, line, function)`, outermost first, as the child saw them.
      traceback: the child's formatted traceback, for whoever wants to read on.
      exception: the exception itself where it could travel, else None.
    """

    def __init__(
        self,
        type_name: str,
        message: str,
        frames: Sequence[tuple[str, int, str]],
        traceback: str,
        exception: BaseException | None = None,
    ):
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.frames = tuple(frames)
        self.traceback = traceback
        self.exception = exception


class Worker:
    """One child process with a Python of its own, started at its first call.

    Args:
      name: what it is for; shown by process listings.
      env: variables to set in the child (None as a value removes one).
      path: folders put before the parent's `sys.path` in the child.
      memory_bytes: the most address space the child may take, or None.

    A worker serves one call at a time; calls from other threads wait their turn.
    """

    def __init__(
        self,
        name: str,
        *,
        env: Mapping[str, str | None] | None = None,
        path: Sequence[str] = (),
        memory_bytes: int | None = None,
    ):
        self.name = name
        self._env = dict(env or {})
        self._path = list(path)
        self._memory_bytes = memory_bytes
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._stderr: IO[bytes] | None = None
        _live.add(self)

    @property
    def pid(self) -> int | None:
        """The child's process id, or None while there is no child."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self, warm: Callable[[], Any] | None = None) -> None:
        """Starts the child; `warm` (if given) runs there without being waited for."""
        with self._lock:
            if self.pid is None:
                self._spawn()
                if warm is not None and self._connection is not None:
                    self._connection.send_bytes(pickling.dumps(("warm", warm, (), {})))

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout_s: float,
        idle_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Calls `function(*args, **kwargs)` in the child and returns its result.

        Args:
          timeout_s: seconds after which the child is killed.
          idle_timeout_s: seconds without processor time after which it is killed, or None.

        Raises:
          RemoteError: the function raised.
          WorkerTimeout, WorkerIdle, WorkerDied: there is no result; the next call starts anew.
        """
        message = pickling.dumps(("call", function, args, kwargs))
        with self._lock:
            if self.pid is None:
                self._spawn()
            try:
                return self._exchange(message, timeout_s, idle_timeout_s)
            except (WorkerError, EOFError, OSError) as error:
                if isinstance(error, RemoteError):
                    raise
                raise self._died(error) from None
            except BaseException:  # Ctrl-C too: whatever the child does, nobody waits for it
                self.close()
                raise

    def kill(self) -> None:
        """Ends the child while another thread waits for its answer, which it then does not get."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def close(self) -> None:
        """Ends the child, if there is one."""
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(psutil.Error):
                    for child in psutil.Process(self._process.pid).children(recursive=True):
                        child.kill()
                self._process.kill()
                self._process.wait()
            for stream in (self._connection, self._stderr):
                if stream is not None:
                    stream.close()
            self._process = self._connection = self._stderr = None

    def _spawn(self) -> None:
        self.close()
        child_in, parent_out = os.pipe()
        parent_in, child_out = os.pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        env = {**os.environ, **{k: v for k, v in self._env.items() if v is not None}}
        for gone in (k for k, v in self._env.items() if v is None):
            env.pop(gone, None)
        numbers = map(str, (child_in, child_out, self._memory_bytes or 0))
        env["PYTHONPATH"] = os.pathsep.join(self._import_path())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "course_lib.workers.child", *numbers],
            pass_fds=(child_in, child_out),
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            env=env,
            start_new_session=True,  # Ctrl-C reaches the notebook only; it then decides
        )
        os.close(child_in)
        os.close(child_out)
        self._connection = _TwoPipes(parent_in, parent_out)

    def _import_path(self) -> list[str]:
        return [*self._path, *(p or os.getcwd() for p in sys.path)]

    def _exchange(self, message: bytes, timeout_s: float, idle_timeout_s: float | None) -> Any:
        assert self._connection is not None
        assert self._process is not None
        self._connection.send_bytes(message)
        process = psutil.Process(self._process.pid)
        started = last_busy = time.monotonic()
        cpu = _cpu_seconds(process)
        while not self._connection.poll(_POLL_S):
            now = time.monotonic()
            if self._process.poll() is not None:
                raise EOFError
            if now - started > timeout_s:
                raise WorkerTimeout(f"no answer within {timeout_s:g} s")
            used = _cpu_seconds(process)
            if used - cpu > _IDLE_CPU_SHARE * (now - last_busy) + 0.01:
                cpu, last_busy = used, now
            elif idle_timeout_s is not None and now - last_busy > idle_timeout_s:
                raise WorkerIdle(f"nothing moved for {idle_timeout_s:g} s")
        kind, *payload = pickling.loads(self._connection.recv_bytes())
        if kind == "error":
            raise RemoteError(*payload)
        return payload[0]

    def _died(self, error: Exception) -> WorkerError:
        """Cleans up after a call without result, and says what became of the child."""
        assert self._process is not None
        assert self._stderr is not None
        if isinstance(error, WorkerError):
            self.close()
            return error
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
        stderr = self._stderr.read().decode(errors="replace")
        self.close()
        return WorkerDied(f"the process ended with status {code}", code, stderr)


class _TwoPipes(Connection):
    """A duplex connection made of two one-way pipes, so that it can be inherited by number."""

    def __init__(self, read_fd: int, write_fd: int):
        super().__init__(read_fd, writable=False)
        self._out = Connection(write_fd, readable=False)

    def send_bytes(self, buf: Any, offset: int = 0, size: int | None = None) -> None:
        self._out.send_bytes(buf, offset, size)

    def close(self) -> None:
        self._out.close()
        super().close()


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


@atexit.register
def _close_all() -> None:
    for worker in list(_live):
        worker.close()
