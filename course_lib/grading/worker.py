"""The process that grades one student after the other: `python -m course_lib.grading.worker`.

It reads a line for each task, the name of a file that holds it, and answers with a line when the
record has been written beside it. A batch starts as many as it has processors, and another in the
place of one that crashed or took too long: whatever happens, it happens to one student.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from course_lib.grading.model import Problem
from course_lib.grading.records import to_data
from course_lib.grading.tasks import Options, Sheet, Task, grade


def main() -> None:
    """Serves tasks until its input ends."""
    from course_lib.grading.sandbox import Sandbox

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not look like an answer
    sandbox: Sandbox | None = None
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        task = task_from(json.loads(path.read_text(encoding="utf-8")))
        if sandbox is None:
            sandbox = Sandbox.probe(unsafe=task.options.unsafe)
        record = to_data(grade(task, sandbox))
        result = path.with_suffix(".result")
        result.write_text(json.dumps(record), encoding="utf-8")
        print("done", file=answers, flush=True)


def task_from(data: dict[str, Any]) -> Task:
    """A task from JSON."""
    return Task(
        **{
            **data,
            "sheets": tuple(Sheet(**s) for s in data["sheets"]),
            "problems": tuple(Problem(**p) for p in data["problems"]),
            "options": Options(
                **{**data["options"], "exercises": tuple(data["options"]["exercises"])}
            ),
        }
    )


if __name__ == "__main__":
    main()
