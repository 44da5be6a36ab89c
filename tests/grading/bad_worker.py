"""A worker that meets with accidents, by the student's name: what the pool has to live with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from course_lib.grading.records import to_data
from course_lib.grading.worker import task_from
from tests.grading.classroom import grade_by_name


def main() -> None:
    for line in sys.stdin:
        path = Path(line.strip())
        task = task_from(json.loads(path.read_text(encoding="utf-8")))
        if "dies" in task.student:
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        if "hangs" in task.student:
            subprocess.Popen(["sleep", "600"])
            time.sleep(600)
        if "lies" in task.student:
            print("done", flush=True)  # without a record
            continue
        record = to_data(grade_by_name(task))
        path.with_suffix(".result").write_text(json.dumps(record), encoding="utf-8")
        print("done", flush=True)


if __name__ == "__main__":
    main()
