"""A `course lab` in a process of its own, for the tests that look at it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil

_LOCALLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Running:
    """A `course lab` in a process of its own, up to its announcement.

    Attributes:
      said: the lines that it printed so far.
      seconds: from its start to the address.
      processor_seconds: what it and its children worked until then.
      url: the address that it printed, token included.
    """

    def __init__(self, workspace: Path, *arguments: str) -> None:
        started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "course_lib", "lab", "--no-browser", *arguments],
            env={**os.environ, "COURSE_WORKSPACE": str(workspace)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if found := re.search(r"http://localhost:\d+/lab\S+", line):
                self.url = found[0]
                self.seconds = time.monotonic() - started
                self.processor_seconds = _processor_seconds(self.process.pid)
                return
        raise AssertionError("\n".join(self.said))

    def ask(self, path: str, body: dict[str, str] | None = None) -> str:
        """The server's answer to a request for `path`; a POST where there is a body."""
        base, token = self.url.split("/lab/")[0], self.url.split("token=")[1]
        request = urllib.request.Request(
            f"{base}{path}",
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"token {token}"},
        )
        with _LOCALLY.open(request, timeout=60) as answer:
            return answer.read().decode()

    def stop(self) -> int:
        """Presses Ctrl-C and returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            rest, _ = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                process.kill()
            self.process.kill()
            raise
        self.said += rest.splitlines()
        return self.process.returncode


def _processor_seconds(pid: int) -> float:
    process = psutil.Process(pid)
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)


@contextlib.contextmanager
def running(workspace: Path, *arguments: str) -> Iterator[Running]:
    server = Running(workspace, *arguments)
    try:
        yield server
    finally:
        server.stop()
