"""The same tasks on a Dask cluster: a real scheduler and two workers, one of which is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib.diagnostics import CourseError
from course_lib.grading import cluster
from course_lib.grading.intake import Student
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options, Task, task_for
from course_lib.setup_env import ROOT
from tests.grading.classroom import grade_by_name, release

ADDRESS = "tcp://127.0.0.1:{port}"


def slowly(task: Task) -> StudentRecord:
    """Grades by name, says who does it, and takes its time."""
    folder = Path(os.environ["SLOWLY"])
    (folder / f"{task.student}-{os.getpid()}").touch()
    time.sleep(0.4)
    return grade_by_name(task)


def tasks(count: int) -> list[Task]:
    return [task_for(Student(f"s{n} right"), release(), Options()) for n in range(count)]


@contextlib.contextmanager
def running(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SLOWLY": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.slow
def test_a_worker_killed_in_mid_batch_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    address = ADDRESS.format(port=port)
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--no-dashboard"]
    scheduler += ["--port", str(port)]
    worker = ["distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    worker += ["--death-timeout", "60", "--no-dashboard"]
    with (
        running(*scheduler, folder=tmp_path),
        running(*worker, folder=tmp_path) as victim,
        running(*worker, folder=tmp_path),
    ):
        records, started = [], time.monotonic()
        wanted = tasks(16)
        for record in cluster.run(wanted, address, grade=slowly):
            records.append(record)
            if len(records) == 5:
                os.killpg(victim.pid, signal.SIGKILL)
        assert time.monotonic() - started < 120
    assert sorted(r.student for r in records) == sorted(t.student for t in wanted)
    assert not any(r.failed for r in records)
    pids = {p.name.rsplit("-", 1)[1] for p in tmp_path.glob("s*-*")}
    assert len(pids) == 2, "both workers had something to do"


@pytest.mark.slow
def test_nobody_at_the_address_is_said() -> None:
    with pytest.raises(CourseError, match="No Dask scheduler answers"):
        list(cluster.run(tasks(1), ADDRESS.format(port=free_port())))
