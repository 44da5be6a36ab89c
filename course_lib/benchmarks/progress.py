"""What is under way, for somebody who waits for it."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    """A line that says what is under way: written over on a terminal, once a stage elsewhere.

        progress = Progress()
        progress("B4 S4096 H16 D128 float16", "round 2 of 5")

    Args:
      stream: where to; None is stderr, so that a table on stdout stays alone there.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream
        self._started = time.perf_counter()
        self._stage = ""
        self._width = 0

    def __call__(self, stage: str, detail: str = "") -> None:
        """Says it.

        Args:
          stage: what is done; elsewhere than on a terminal, the same stage is said once.
          detail: how far it is.
        """
        stream = self._stream or sys.stderr
        text = f"[{time.perf_counter() - self._started:4.0f} s] {stage}"
        if stream.isatty():
            text += f": {detail}" * bool(detail)
            end = "\n" if stage == "done" else ""
            print(f"\r{text:{self._width}}", end=end, file=stream, flush=True)
            self._width = len(text)
        elif stage != self._stage:
            print(text, file=stream, flush=True)
        self._stage = stage
