"""Which versions of JAX the course works with."""

from __future__ import annotations

import importlib.metadata
import re
import sys

from course_lib.diagnostics.errors import CourseError

OLDEST, BEYOND = "0.11.2", "0.13"  # as pyproject.toml has them; a test compares


def check_jax() -> None:
    """Says in a sentence that the installed JAX is not one that the course works with.

    Raises:
      CourseError: there is no JAX, or one outside of the supported range.
    """
    wanted = f"this course works with jax >= {OLDEST}, < {BEYOND}; run `make setup`."
    try:
        found = installed_jax()
    except importlib.metadata.PackageNotFoundError:
        raise CourseError(f"JAX is not installed; {wanted}") from None
    if not _numbers(OLDEST) <= _numbers(found) < _numbers(BEYOND):
        raise CourseError(f"The installed JAX is {found}; {wanted}")


def installed_jax() -> str:
    """The version of the JAX that is loaded, else of the one that would be.

    Raises:
      importlib.metadata.PackageNotFoundError: there is none.
    """
    loaded = getattr(sys.modules.get("jax"), "__version__", None)
    return str(loaded or importlib.metadata.version("jax"))


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 12, 0, 1) for "0.12.0.1"; what follows the numbers (".dev", "rc") does not count."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()
