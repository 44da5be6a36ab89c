"""A pool of processes that grade: one student's crash, hang or hunger is nobody else's.

    with Pool(jobs=2) as pool:
        for record in pool.run(tasks): ...

Each worker has a session of its own, so that it can be ended with everything it started. When
this process ends, however it does, the workers' input ends, and they do too. A signal that asks it
to end (SIGTERM, SIGHUP) is as Ctrl-C: the pool is left in order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from course_lib.grading.records import StudentRecord, from_data
from course_lib.grading.tasks import Task, failed

TASK_TIMEOUT_S = 1_800.0
WORKER = "course_lib.grading.worker"
TASKS, SCRATCH = "tasks", "scratch"  # folders of a pool: the owner's only, and everybody's
_TRIES = 2
_PATIENCE_S = 10.0
_PREFIX = "course-grading-"
_LOCK = "lock"
_MAKING_S = 60  # a folder so young may not have its lock yet
_ROOT = Path(__file__).resolve().parents[2]


class Stopped(KeyboardInterrupt):
    """Somebody asked this process to end by a signal."""


class Crashed(Exception):  # noqa: N818 - caught here, told to the instructor
    """A worker ended, or did not answer; the message says which."""


class GradingProcess:
    """One worker, started at its first task and again after a crash."""

    def __init__(self, folder: Path, *, timeout_s: float = TASK_TIMEOUT_S, module: str = WORKER):
        self._folder, self._timeout_s, self._module = folder, timeout_s, module
        self._process: subprocess.Popen[str] | None = None
        self._number = 0
        self._ended = False
        self._starting = threading.Lock()

    def grade(self, task: Task) -> StudentRecord:
        """Grades a task; a second time where the first ended in a crash."""
        why = ""
        for _ in range(_TRIES):
            try:
                return self._once(task)
            except Crashed as crash:
                why = str(crash)
        return failed(task, f"The grader could not grade this: {why}. Grade it by hand.")

    def _once(self, task: Task) -> StudentRecord:
        self._number += 1
        file = self._folder / TASKS / f"{threading.get_ident()}-{self._number}.task"
        result = file.with_suffix(".result")
        try:
            file.write_text(json.dumps(dataclasses.asdict(task)), encoding="utf-8")
            self._ask(file)
            return from_data(json.loads(result.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.stop()
            raise Crashed(f"{type(error).__name__}: {error}") from error
        finally:
            file.unlink(missing_ok=True)
            result.unlink(missing_ok=True)

    def _ask(self, file: Path) -> None:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018
        process.stdin.write(f"{file}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], self._timeout_s)
        if not ready:
            self.stop()
            raise Crashed(f"it took more than {self._timeout_s:.0f} s")
        if process.stdout.readline().strip() != "done":
            said = self._last_words()
            self.stop()
            raise Crashed(f"its process ended{said}")

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            with self._starting:
                if self._ended:
                    raise Crashed("the batch was stopped")
                self._process = self._started()
        return self._process

    def _started(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", dir=self._folder)  # noqa: SIM115
        platforms = os.environ.get("JAX_PLATFORMS", "cpu")
        return subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=_ROOT,
            start_new_session=True,
            env={**os.environ, "JAX_PLATFORMS": platforms, "TMPDIR": str(self._folder / SCRATCH)},
        )

    def _last_words(self) -> str:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return f" ({lines[-1][:200]})" if lines else ""

    def end(self) -> None:
        """Asks it to end, and starts no other."""
        with self._starting:
            self._ended = True
        self._signal(signal.SIGTERM)

    def stop(self, *, patience_s: float = _PATIENCE_S) -> None:
        """Ends it and everything that it started."""
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            process.wait()
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Pool:
    """Several workers that share a list of tasks."""

    def __init__(self, *, jobs: int, timeout_s: float = TASK_TIMEOUT_S, module: str = WORKER):
        self._jobs, self._timeout_s, self._module = jobs, timeout_s, module
        self._stopping = threading.Event()

    def __enter__(self) -> Pool:
        self._exits = contextlib.ExitStack()
        folder = self._exits.enter_context(_folder())
        self._workers = [
            GradingProcess(folder, timeout_s=self._timeout_s, module=self._module)
            for _ in range(self._jobs)
        ]
        self._exits.callback(self._stop)
        self._exits.enter_context(_signals_stop())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exits.close()

    def _stop(self) -> None:
        """Ends all workers at a time; who presses Ctrl-C again does not want to wait for it."""
        self._stopping.set()
        patience_s = _PATIENCE_S
        while True:
            try:
                for worker in self._workers:
                    worker.end()
                for worker in self._workers:
                    worker.stop(patience_s=patience_s)
                return
            except KeyboardInterrupt:
                patience_s = 0.0

    def run(self, tasks: Sequence[Task]) -> Iterator[StudentRecord]:
        """The records of some tasks, as they are done."""
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in tasks:
            waiting.put(task)
        done: queue.SimpleQueue[StudentRecord | BaseException] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(worker, waiting, done), daemon=True)
            for worker in self._workers[: len(tasks)]
        ]
        for thread in threads:
            thread.start()
        for _ in tasks:
            record = done.get()
            if isinstance(record, BaseException):
                raise record
            yield record

    def _work(
        self,
        worker: GradingProcess,
        waiting: queue.SimpleQueue[Task],
        done: queue.SimpleQueue[StudentRecord | BaseException],
    ) -> None:
        while not self._stopping.is_set():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                record = worker.grade(task)
            except BaseException as error:  # the batch has to hear of it
                done.put(error)
                return
            if not self._stopping.is_set():
                done.put(record)


@contextlib.contextmanager
def _signals_stop() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Stopped`, unless they are ignored (as by nohup)."""
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, _raise_stopped)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise Stopped(signal.strsignal(number))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for a pool, which holds all that its workers write, and goes with it.

    A lock tells those of pools that live from what a killed one left: that goes too.
    """
    _remove_what_is_left()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / TASKS).mkdir(mode=0o700)
            for path in (folder, folder / SCRATCH):
                path.mkdir(exist_ok=True)
                path.chmod(0o711)  # a sandbox has to get through to what is shown in it
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_what_is_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            state = folder.stat()
            mine = state.st_uid == os.getuid() and time.time() - state.st_mtime > _MAKING_S
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is in use, or being made
            continue
        if mine:
            shutil.rmtree(folder, ignore_errors=True)
