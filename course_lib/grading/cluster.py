"""The same tasks on a Dask cluster that exists already: `course grade --dask tcp://host:8786`.

The cluster's workers need this course installed, and a sandbox of their own. Tasks travel with
all that they need; a worker that dies takes nothing with it but the time of its last task.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from course_lib.diagnostics import CourseError
from course_lib.grading.records import StudentRecord, from_data, to_data
from course_lib.grading.tasks import Task, failed

_RETRIES = 3


def run(
    tasks: Sequence[Task], address: str, *, grade: Callable[[Task], StudentRecord] | None = None
) -> Iterator[StudentRecord]:
    """The records of some tasks, as the cluster's workers finish them.

    Args:
      tasks: the students to grade.
      address: the scheduler's, "tcp://host:8786".
      grade: what grades a task; by default a process on the worker's machine.

    Raises:
      CourseError: Dask is not installed, or nobody answers at that address.
    """
    try:
        from distributed import Client, as_completed
    except ModuleNotFoundError:
        raise CourseError(
            "--dask needs the package distributed: `make grading` installs it."
        ) from None
    try:
        client = Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        raise CourseError(f"No Dask scheduler answers at {address}: {error}") from None
    with client:
        futures = {
            client.submit(
                grade_there, dataclasses.asdict(t), grade, pure=False, retries=_RETRIES, key=t.key
            ): t
            for t in tasks
        }
        for future in as_completed(futures, loop=client.loop):
            if future.status == "finished":
                yield from_data(json.loads(future.result()))
            else:
                why = f"{type(future.exception()).__name__}: {future.exception()}"
                yield failed(futures[future], f"The cluster could not grade this: {why}.")


def grade_there(data: dict[str, Any], grade: Callable[[Task], StudentRecord] | None) -> str:
    """Runs on the cluster's worker: grades one task, in a process that can be killed."""
    from course_lib.grading.worker import task_from

    task = task_from(data)
    if grade is not None:
        return json.dumps(to_data(grade(task)))
    from course_lib.grading.processes import Pool

    with Pool(jobs=1) as pool:
        [record] = pool.run([task])
    return json.dumps(to_data(record))
