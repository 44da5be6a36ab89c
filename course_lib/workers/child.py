"""The child's side of a worker: reads calls, answers them, ends with its parent."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from course_lib.workers import pickling


def main() -> None:
    """Serves calls from the pipe named on the command line until it is closed."""
    os.environ["COURSE_WORKER"] = "1"  # what it is given to run must not start workers again
    read_fd, write_fd, memory_bytes = map(int, sys.argv[1:4])
    if memory_bytes:
        _limit_memory(memory_bytes)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    calls, answers = Connection(read_fd, writable=False), Connection(write_fd, readable=False)
    while True:
        try:
            message = calls.recv_bytes()
        except EOFError:
            return
        answer = _answer(message)
        if answer is not None:
            answers.send_bytes(answer)


def _answer(message: bytes) -> bytes | None:
    kind = "call"
    try:
        kind, function, args, kwargs = pickling.loads(message)
        return (
            pickling.dumps(("result", function(*args, **kwargs)))
            if kind == "call"
            else (function() and None)
        )
    except BaseException as error:
        return _describe(error) if kind == "call" else None


def _describe(error: BaseException) -> bytes:
    frames = [
        (f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)
    ]
    parts: list[Any] = [type(error).__name__, str(error), frames, traceback.format_exc()]
    try:
        blob = pickling.dumps(error)
        pickling.loads(blob)  # some exceptions pickle but do not come back
        return pickling.dumps(("error", *parts, error))
    except Exception:
        return pickling.dumps(("error", *parts, None))


def _limit_memory(memory_bytes: int) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_AS)  # no process may raise its own limit
    limit = memory_bytes if most == resource.RLIM_INFINITY else min(memory_bytes, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _end_with_parent(parent: int) -> None:
    """A child stuck in a kernel never sees its pipe close: it looks for its parent instead."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


if __name__ == "__main__":
    main()
