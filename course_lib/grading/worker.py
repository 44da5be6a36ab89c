"""The process that grades one student after the other: `python -m course_lib.grading.worker`.

It reads a line for each task, the name of a file that holds it, and answers with a line when the
record has been written beside it. A batch starts as many as it has processors, and another in the
place of one that crashed or took too long: whatever happens, it happens to one student.

It ends with all that it started when the batch asks it to, and as soon as its input ends: then
there is no batch any more, however that came to its end.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from course_lib.grading.model import Problem
from course_lib.grading.records import StudentRecord, to_data
from course_lib.grading.tasks import Options, Sheet, Task, grade

_GRACE_S = 8.0  # what the rest of this process has to leave in order


def main() -> None:
    """Grades tasks until its input ends."""
    from course_lib.grading.sandbox import Sandbox

    boxes: list[Sandbox] = []

    def graded(task: Task) -> StudentRecord:
        if not boxes:
            boxes.append(Sandbox.probe(unsafe=task.options.unsafe))
        return grade(task, boxes[0])

    serve(graded)


def serve(graded: Callable[[Task], StudentRecord]) -> None:
    """Answers tasks until this process is told to end, or its input does."""
    signal.signal(signal.SIGTERM, _leave)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not look like an answer
    for path in _paths():
        task = task_from(json.loads(path.read_text(encoding="utf-8")))
        record = to_data(graded(task))
        path.with_suffix(".result").write_text(json.dumps(record), encoding="utf-8")
        print("done", file=answers, flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends this process in order: sandboxes are closed, folders removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise SystemExit(128 + number)


def _paths() -> Iterator[Path]:
    """The files of the tasks. They are listened for all the time, also while one is graded."""
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(waiting,), daemon=True).start()
    while True:
        yield waiting.get()


def _listen(waiting: queue.SimpleQueue[Path]) -> None:
    """Hands on the lines of the input; at its end it ends this process, by force if it must."""
    rest = b""
    while piece := os.read(0, 1 << 16):  # not sys.stdin: its lock would be held at the end
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            waiting.put(Path(os.fsdecode(line)))
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    time.sleep(_GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


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
