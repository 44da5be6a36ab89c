"""Runs in the child process: a function of kernels, under JAX's GPU interpret mode."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import numpy as np

from course_lib import tracing

_Frame = tuple[str, int, str]
_FRAME = re.compile(r'File "(.*?)", line (\d+), in (.*)')


def warm() -> None:
    """Starts JAX, so that a first call does not wait for it."""
    jax.block_until_ready(jax.numpy.zeros(()) + 1)


def run(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """`{"value", "trace"}`, or `{"error", "trace"}` with the error as plain data."""
    found: dict[str, Any] = {"trace": None}
    heard = _Listener()
    printed = io.StringIO()
    try:
        with heard, interpreted(), contextlib.redirect_stdout(printed):
            arrays = jax.tree.map(_to_jax, args)
            found["trace"] = tracing.trace(function, *arrays)
            found["value"] = jax.tree.map(_to_numpy, jax.block_until_ready(function(*arrays)))
    except BaseException as error:
        found["error"] = _describe(error, heard.frames)
    # JAX before 0.12 prints a race and goes on
    _, race, details = printed.getvalue().partition("RACE DETECTED")
    if race and "error" not in found:
        found["error"] = ("RuntimeError", race + details, heard.frames)
    return found


class _Listener(logging.Handler):
    """Keeps what JAX logs of a failed callback: only there it names the kernel's own line."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[_Frame] = []
        self._before: list[logging.Handler] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            self.frames += [(f, int(n), name) for f, n, name in _FRAME.findall(text)]

    def __enter__(self) -> _Listener:
        root = logging.getLogger()
        self._before, root.handlers = root.handlers, [self]
        return self

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger().handlers = self._before


def interpreted() -> contextlib.AbstractContextManager[Any]:
    """The mode in which kernels run on the CPU, with races detected."""
    return plgpu.force_gpu_interpret_mode(plgpu.InterpretGPUParams(detect_races=True))


def _to_jax(x: Any) -> Any:
    return jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x


def _to_numpy(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, jax.Array) else x


def _describe(error: BaseException, heard: list[_Frame]) -> tuple[str, str, list[_Frame]]:
    """`(class, message, frames)`; the frames are those of its chain and those JAX logged."""
    frames = list(heard)
    link: BaseException | None = error
    while link is not None:
        tb = traceback.extract_tb(link.__traceback__)
        frames = [(f.filename, f.lineno or 0, f.name) for f in tb] + frames
        link = link.__cause__ or link.__context__
    return type(error).__name__, str(error), frames
