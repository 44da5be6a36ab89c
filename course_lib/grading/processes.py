"""A pool of processes that grade: one student's crash, hang or hunger is nobody else's.

    with Pool(jobs=2) as pool:
        for record in pool.run(tasks): ...

Each worker has a session of its own, so that it can be ended with everything it started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from course_lib.grading.records import StudentRecord, from_data
from course_lib.grading.tasks import Task, failed

TASK_TIMEOUT_S = 1_800.0
WORKER = "course_lib.grading.worker"
_TRIES = 2
_ROOT = Path(__file__).resolve().parents[2]


class Crashed(Exception):  # noqa: N818 - caught here, told to the instructor
    """A worker ended, or did not answer; the message says which."""


class GradingProcess:
    """One worker, started at its first task and again after a crash."""

    def __init__(self, folder: Path, *, timeout_s: float = TASK_TIMEOUT_S, module: str = WORKER):
        self._folder, self._timeout_s, self._module = folder, timeout_s, module
        self._process: subprocess.Popen[str] | None = None
        self._number = 0

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
        file = self._folder / f"{threading.get_ident()}-{self._number}.task"
        file.write_text(json.dumps(dataclasses.asdict(task)), encoding="utf-8")
        result = file.with_suffix(".result")
        try:
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
            self._errors = tempfile.TemporaryFile("w+", dir=self._folder)  # noqa: SIM115
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                cwd=_ROOT,
                start_new_session=True,
                env={**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")},
            )
        return self._process

    def _last_words(self) -> str:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return f" ({lines[-1][:200]})" if lines else ""

    def stop(self) -> None:
        """Ends it and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Pool:
    """Several workers that share a list of tasks."""

    def __init__(self, *, jobs: int, timeout_s: float = TASK_TIMEOUT_S, module: str = WORKER):
        self._jobs, self._timeout_s, self._module = jobs, timeout_s, module
        self._stopping = threading.Event()

    def __enter__(self) -> Pool:
        self._folder = tempfile.TemporaryDirectory(prefix="course-grading-")
        self._workers = [
            GradingProcess(Path(self._folder.name), timeout_s=self._timeout_s, module=self._module)
            for _ in range(self._jobs)
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.stop()
        self._folder.cleanup()

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
