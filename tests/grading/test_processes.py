"""The pool of processes: an accident of one student's is no accident of another's.

And however a batch ends, nothing of it stays behind, and what was graded is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from course_lib.grading.batch import read_records
from course_lib.grading.intake import Student
from course_lib.grading.processes import Pool
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options, task_for
from course_lib.setup_env import ROOT
from tests.grading import unprivileged
from tests.grading.classroom import hand_in, handed_in, release

pytestmark = pytest.mark.timeout(900)


def graded(*names: str, timeout_s: float = 200) -> dict[str, StudentRecord]:
    tasks = [task_for(Student(name), release(), Options()) for name in names]
    with Pool(jobs=2, timeout_s=timeout_s, module="tests.grading.bad_worker") as pool:
        return {r.student: r for r in pool.run(tasks)}


@pytest.mark.slow
def test_a_crash_stays_with_its_student() -> None:
    records = graded("Ada right", "Bob dies", "Dot lies", "Eve right")
    assert len(records) == 4
    assert [records[n].answers[0].points for n in ("Ada right", "Eve right")] == [1.0, 1.0]
    assert "its process ended (out of luck)" in records["Bob dies"].failed
    assert "FileNotFoundError" in records["Dot lies"].failed


@pytest.mark.slow
def test_a_hang_is_ended_with_all_that_it_started() -> None:
    records = graded("Cyd hangs", "Ada right", timeout_s=45)
    assert "more than 45 s" in records["Cyd hangs"].failed
    assert records["Ada right"].answers[0].points == 1.0
    assert not any(p.info["cmdline"] == ["sleep", "600"] for p in psutil.process_iter(["cmdline"]))


# A batch that is stopped.


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something comes true in some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


@contextlib.contextmanager
def started(*command: str, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own; what is left of it is killed in the end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    process = subprocess.Popen(
        [sys.executable, *command], env=env, start_new_session=True, stderr=subprocess.PIPE,
        text=True, preexec_fn=_as_in_a_terminal,
    )  # fmt: skip
    try:
        yield process
    finally:
        for left in {*family(process), process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        process.wait()


def _as_in_a_terminal() -> None:
    """Tests that run in the background, or under nohup, ignore what a terminal sends."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the processes put their temporary files: a sandbox without rights has to get there."""
    with unprivileged.open_folder() as folder:
        yield folder


def family(process: subprocess.Popen[str]) -> dict[int, psutil.Process]:
    """The descendants of a process."""
    with contextlib.suppress(psutil.Error):
        return {p.pid: p for p in psutil.Process(process.pid).children(recursive=True)}
    return {}


def alive(processes: dict[int, psutil.Process]) -> list[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    return [p for p in processes.values() if lives(p)]


def waits_in_a_sandbox(process: subprocess.Popen[str]) -> bool:
    names = []
    for child in family(process).values():
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(child.cmdline()[:3]))
    return any(name.endswith("time.sleep(300)") for name in names)


def folders(scratch: Path) -> list[str]:
    return sorted(p.name.split("-")[0] for p in scratch.iterdir())


def class_of(folder: Path, *names: str) -> list[str]:
    """Hands in for some students; returns the command line's rest that grades them."""
    for name in names:
        hand_in(folder / "in", name, handed_in())
    return ["-m", "tests.grading.stopped_batch", str(folder / "in"), str(folder / "report")]


SIGNALS = {
    "SIGTERM": [signal.SIGTERM],
    "a closed terminal": [signal.SIGHUP],
    "Ctrl-C": [signal.SIGINT],
    "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
    "SIGKILL": [signal.SIGKILL],
}


@pytest.mark.slow
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("name", SIGNALS)
def test_of_a_batch_that_is_stopped_nothing_is_left_and_the_next_goes_on(
    tmp_path: Path, scratch: Path, name: str
) -> None:
    command = class_of(tmp_path, "Ada right", "Bob waits")
    with started(*command, scratch=scratch) as process:
        assert until(lambda: waits_in_a_sandbox(process), 300)
        everybody = family(process)
        assert len(alive(everybody)) >= 3  # the worker, bwrap, and what it shows
        for number in SIGNALS[name]:
            process.send_signal(number)
            time.sleep(0.3)
        assert until(lambda: process.poll() is not None and not alive(everybody), 40)
        _, said = process.communicate()
    killed = name == "SIGKILL"
    assert ("What was graded is kept" in said) is not killed
    assert [n for n in folders(scratch) if n == "course"] == ["course"] * killed
    assert list(read_records(tmp_path / "report")) == ["Ada right"]

    for left in scratch.iterdir():
        os.utime(left, (0, 0))  # not in the making any more
    hand_in(tmp_path / "in", "Bob waits", handed_in({}))
    (tmp_path / "in" / "Bob waits").rename(tmp_path / "in" / "Bob")
    with started(*command, scratch=scratch) as process:
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "0 of 1 students" in said
    assert sorted(read_records(tmp_path / "report")) == ["Ada right", "Bob"]
    assert folders(scratch) == []


@pytest.mark.slow
def test_of_a_batch_that_ends_nothing_is_left_either(tmp_path: Path, scratch: Path) -> None:
    seen: dict[int, psutil.Process] = {}
    with started(*class_of(tmp_path, "Ada right", "Bob"), scratch=scratch) as process:
        while process.poll() is None:
            seen |= family(process)
            time.sleep(0.02)
        _, said = process.communicate()
    assert "2 of 2 students" in said
    assert seen
    assert not alive(seen)
    assert folders(scratch) == []


@pytest.mark.slow
def test_a_worker_that_neither_listens_nor_ends_is_killed(tmp_path: Path, scratch: Path) -> None:
    with started(*class_of(tmp_path, "Bob is deaf"), scratch=scratch) as process:
        assert until(lambda: bool(list(scratch.glob("*/scratch/deaf"))), 300)
        everybody = family(process)
        process.send_signal(signal.SIGTERM)
        time.sleep(3)
        assert alive(everybody)  # it would be left
        assert until(lambda: not alive(everybody), 30)


@pytest.mark.slow
def test_who_is_immune_to_a_closed_terminal_stays_so(tmp_path: Path, scratch: Path) -> None:
    command = class_of(tmp_path, "Ada right", "Bob")
    nohup = "import signal, os, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    nohup += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    with started("-c", nohup, *command, scratch=scratch) as process:
        assert until(lambda: bool(family(process)), 300)
        process.send_signal(signal.SIGHUP)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "2 of 2 students" in said


# A sandbox whose owner is killed: a pipe and the kernel each see to its end.

OWNER = """
import os, subprocess, sys
from course_lib.grading import sandbox, walls
if "no signal" in sys.argv[1]:
    names = walls._namespaces
    walls._namespaces = lambda: [n for n in names() if n != "--die-with-parent"]
if "no pipe" in sys.argv[1]:  # somebody else keeps it open
    popen = subprocess.Popen
    def kept(*args, **kwargs):
        process = popen(*args, **kwargs)
        popen(["sleep", "60"], stdout=process.stdin.fileno(), start_new_session=True)
        return process
    subprocess.Popen = kept
sandbox.Sandbox().run(["python", "-c", "import time; time.sleep(300)"], course="")
"""


@pytest.mark.slow
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("without", ["", "no signal", "no pipe", "no signal, no pipe"])
def test_a_sandbox_ends_with_its_owner(scratch: Path, without: str) -> None:
    with started("-c", OWNER, without, scratch=scratch) as process:
        assert until(lambda: waits_in_a_sandbox(process), 300)
        everybody = {p: q for p, q in family(process).items() if q.name() != "sleep"}
        try:
            os.kill(process.pid, signal.SIGKILL)
            gone = until(lambda: not alive(everybody), 6)
            assert gone is (without != "no signal, no pipe")
        finally:
            end(alive(everybody))


def end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_two_pools_at_once_leave_each_other_alone() -> None:
    with Pool(jobs=1) as one, Pool(jobs=1) as other:
        places = [w._folder for w in (*one._workers, *other._workers)]
        for place in places:
            os.utime(place, (0, 0))
        with Pool(jobs=1):
            assert all(place.is_dir() for place in places)
    assert not any(place.is_dir() for place in places)
    left = Path(tempfile.mkdtemp(prefix="course-grading-"))
    (left / "lock").touch()
    with Pool(jobs=1):
        assert left.is_dir()  # it may be in the making
    os.utime(left, (0, 0))
    with Pool(jobs=1):
        assert not left.is_dir()
