"""Mosaic GPU, hands-on: the names that notebooks use.

    y = run(kernel, x)            # on a GPU that has what it needs, else on the CPU model
    report = simulate(kernel, x)  # always the model: the value, and what is wrong, in words
    where()                       # where kernels run in this machine, and why
    requirements(kernel, x)       # what a kernel needs of a device
    compile_for(kernel, x)        # PTX, SASS and registers, on any machine
    check("start_here.fill", f)   # is my answer right?   hint("start_here.fill")
    predict("start_here.ends", 8) # before a run: what will it give?
    reveal("start_here.ends", y)  # after it: was that right?
    progress()                    # what is done, and how many predictions were right
    explore.waves(...)            # pictures to play with

Each name is loaded at its first use, so `import course_lib` stays light.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib import explorer as explore
    from course_lib.compiler import compile_for
    from course_lib.exercises import check, hint, predict, progress, reveal
    from course_lib.model import simulate
    from course_lib.runtime import requirements, run, where

_HOMES = {
    "check": "course_lib.exercises",
    "compile_for": "course_lib.compiler",
    "hint": "course_lib.exercises",
    "predict": "course_lib.exercises",
    "progress": "course_lib.exercises",
    "requirements": "course_lib.runtime",
    "reveal": "course_lib.exercises",
    "run": "course_lib.runtime",
    "simulate": "course_lib.model",
    "where": "course_lib.runtime",
}
_MODULES = {"explore": "course_lib.explorer"}

__all__ = [
    "check",
    "compile_for",
    "explore",
    "hint",
    "predict",
    "progress",
    "requirements",
    "reveal",
    "run",
    "simulate",
    "where",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _HOMES:
        from course_lib.diagnostics import check_jax

        check_jax()
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'course_lib' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))


if "ipykernel" in sys.modules:
    from course_lib import notebook as _notebook

    _notebook.install()
