"""A worker whose sandbox sits and waits, where the student's name says so; else it grades by name.

`deaf` in the name: the worker neither listens nor ends, as all did without what is tested.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from course_lib.grading.records import StudentRecord
from course_lib.grading.sandbox import Sandbox
from course_lib.grading.tasks import Task
from course_lib.grading.worker import serve
from tests.grading.classroom import grade_by_name


def graded(task: Task) -> StudentRecord:
    if "deaf" in task.student:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(tempfile.gettempdir(), "deaf").touch()
        time.sleep(300)
    if "waits" in task.student:
        Sandbox().run(["python", "-c", "import time; time.sleep(300)"], course="")
    return grade_by_name(task)


if __name__ == "__main__":
    serve(graded)
