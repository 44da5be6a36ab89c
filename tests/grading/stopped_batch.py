"""A batch for tests to stop: `python -m tests.grading.stopped_batch SUBMISSIONS OUT`.

The class is graded by `worker_that_waits`, one student at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from course_lib.grading.batch import grade_class
from course_lib.grading.processes import Pool
from course_lib.grading.records import StudentRecord
from course_lib.grading.tasks import Options, Task
from tests.grading.classroom import release


def run(tasks: Sequence[Task]) -> Iterator[StudentRecord]:
    with Pool(jobs=1, module="tests.grading.worker_that_waits") as pool:
        yield from pool.run(tasks)


def main() -> None:
    submissions, out = map(Path, sys.argv[1:])
    grade_class(submissions, release(), out, options=Options(), run=run)


if __name__ == "__main__":
    main()
