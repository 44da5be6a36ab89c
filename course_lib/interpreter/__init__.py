"""JAX's own GPU interpret mode with race detection, made safe and readable.

It runs in a child process (its deadlocks cannot be interrupted), and its
reports, some 36 lines each, are turned into findings. What it can and cannot
see is said in `docs/cpu_model.md`.
"""

from course_lib.interpreter.client import execute

__all__ = ["execute"]
