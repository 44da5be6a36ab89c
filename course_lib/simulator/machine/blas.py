"""One thread for the matrix products of numpy while a kernel runs.

An MMA's tile is so small that sharing it between threads costs more than it
gains, and on a busy machine far more. `threadpoolctl` finds numpy's BLAS once;
without it the products take as many threads as they like.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from typing import Any


@functools.cache
def _controller() -> Any:
    if importlib.util.find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """A context in which matrix products take one thread."""
    controller = _controller()
    if controller is None:
        return contextlib.nullcontext()
    return controller.limit(limits=1, user_api="blas")
