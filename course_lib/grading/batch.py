"""Goes through a class: what is new is graded, what is known is kept, whatever happens on the way.

    report/.grading/inbox/      copies of the notebooks, by digest
    report/.grading/results/    a record for each student, written as soon as it is there

A record is kept as long as its key is that of the student's work, the release and the options:
an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from course_lib.authoring.files import write_whole
from course_lib.diagnostics import CourseError
from course_lib.grading import cluster
from course_lib.grading.intake import Student, collect
from course_lib.grading.processes import Pool
from course_lib.grading.records import ChapterRecord, StudentRecord, from_data, to_data
from course_lib.grading.release import Release
from course_lib.grading.tasks import Options, Task, key_of, priced, task_for

STATE = ".grading"
_STOPPED = "\nStopped. What was graded is kept: the same command goes on from there."
Run = Callable[[Sequence[Task]], Iterable[StudentRecord]]


def grade_class(
    submissions: Path,
    release: Release,
    out: Path,
    *,
    options: Options,
    run: Run | None = None,
    jobs: int | None = None,
    dask: str = "",
    students: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[StudentRecord, ...]:
    """Grades a class and returns a record for each student, by name.

    Args:
      submissions: what was handed in.
      release: what was given out.
      out: the report's folder.
      options: how it is graded; its `exercises` are graded anew for everybody.
      run: what grades tasks; by default processes here, or `dask`'s.
      jobs: how many students at a time; by default one for each processor.
      dask: a scheduler's address, "" for none.
      students: grade these anew, and leave all others as they are.
      progress: is told how far it is.

    Raises:
      CourseError: there is nothing to grade, or a name that nobody has.
    """
    found = collect(submissions, store=out / STATE / "inbox")
    _check_names(found, students)
    stored = read_records(out)
    tasks = list(_tasks(found, stored, release, options, students))
    bar = Progress(len(tasks), progress or _print_progress)
    with _kept_if_stopped(tasks, run or _runner(jobs, dask, len(tasks))) as records:
        for record in records:
            whole = _joined(record, stored.get(record.student), release)
            stored[record.student] = whole
            _write_record(out, whole)
            bar.advance()
    known = [priced(stored[s.name], release.rubric) for s in found if s.name in stored]
    return tuple(sorted(known, key=lambda r: r.student))


@contextlib.contextmanager
def _kept_if_stopped(tasks: Sequence[Task], run: Run) -> Iterator[Iterable[StudentRecord]]:
    """The records as they come; whoever stops that is told that nothing is lost."""
    records = run(tasks) if tasks else ()
    try:
        yield records
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # of a terminal that is closed
            print(_STOPPED, file=sys.stderr, flush=True)
        raise
    finally:
        if isinstance(records, Generator):
            records.close()


def _check_names(found: Sequence[Student], wanted: Sequence[str]) -> None:
    names = {s.name for s in found}
    for name in wanted:
        if name not in names:
            close = [n for n in sorted(names) if name.lower() in n.lower()][:3]
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise CourseError(f"No student is called {name!r}.{hint}")


def _tasks(
    found: Sequence[Student],
    stored: dict[str, StudentRecord],
    release: Release,
    options: Options,
    wanted: Sequence[str],
) -> Iterator[Task]:
    """The tasks that are to be done: what is not known, and what is to be done anew."""
    whole = dataclasses.replace(options, exercises=())
    for student in found:
        if wanted and student.name not in wanted:
            continue
        known = stored.get(student.name)
        fresh = (
            known is not None and not known.failed and known.key == key_of(student, release, whole)
        )
        if not fresh:
            yield task_for(student, release, whole)
        elif options.exercises or wanted:
            yield task_for(student, release, options)


def _joined(record: StudentRecord, known: StudentRecord | None, release: Release) -> StudentRecord:
    """A record of some exercises with what is known of the others."""
    if known is None or known.failed or record.failed or known.key != record.key:
        return record
    old = {c.chapter: c for c in known.chapters}
    new = {c.chapter: c for c in record.chapters}
    chapters = [
        _joined_chapter(old.get(c), new[c]) if c in new else old[c]
        for c in release.chapters
        if c in new or c in old
    ]
    return dataclasses.replace(record, chapters=tuple(chapters))


def _joined_chapter(old: ChapterRecord | None, new: ChapterRecord) -> ChapterRecord:
    if old is None or len(new.answers) >= len(old.answers):
        return new
    anew = {a.exercise: a for a in new.answers}
    answers = tuple(anew.get(a.exercise, a) for a in old.answers)
    return dataclasses.replace(old, answers=answers)


def _runner(jobs: int | None, dask: str, count: int) -> Run:
    if dask:
        return lambda tasks: cluster.run(tasks, dask)
    return lambda tasks: _in_processes(tasks, jobs or min(os.cpu_count() or 1, count))


def _in_processes(tasks: Sequence[Task], jobs: int) -> Iterator[StudentRecord]:
    with Pool(jobs=jobs) as pool:
        yield from pool.run(tasks)


# --- what is kept --------------------------------------------------------------------------------


def read_records(out: Path) -> dict[str, StudentRecord]:
    """The records of earlier runs, by student; a file that cannot be read is as none."""
    records = {}
    for path in sorted((out / STATE / "results").glob("*.json")):
        try:
            record = from_data(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        records[record.student] = record
    return records


def _write_record(out: Path, record: StudentRecord) -> None:
    name = hashlib.sha256(record.student.encode()).hexdigest()[:24]
    text = json.dumps(to_data(record), indent=1, sort_keys=True)
    try:
        write_whole(out / STATE / "results" / f"{name}.json", text)
    except OSError as error:
        raise CourseError(
            f"{out} cannot be written to ({error.strerror or error}): make room and run it again. "
            "What was graded before is kept."
        ) from error


# --- how far it is -------------------------------------------------------------------------------


class Progress:
    """Says how many are done and about how long it takes still."""

    def __init__(self, of: int, say: Callable[[str], None]):
        self._of, self._say, self._done = of, say, 0
        self._start = time.monotonic()
        if of:
            say(self.line())

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        self._say(self.line())

    def line(self) -> str:
        """The bar, the count and the time left."""
        filled = 24 * self._done // max(self._of, 1)
        bar = "#" * filled + "." * (24 - filled)
        return f"[{bar}] {self._done} of {self._of} students{self._left()}"

    def _left(self) -> str:
        if not 0 < self._done < self._of:
            return ""
        seconds = (time.monotonic() - self._start) / self._done * (self._of - self._done)
        return f", about {_duration(seconds)} left"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_progress(line: str) -> None:
    """One line that is written over on a terminal, a line each in a file."""
    if not sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
        return
    end = "\n" if _finished(line) else ""
    print(f"\r{line}\x1b[K", end=end, file=sys.stderr, flush=True)


def _finished(line: str) -> bool:
    done, _, of = line.split("] ")[1].split()[:3]
    return done == of
