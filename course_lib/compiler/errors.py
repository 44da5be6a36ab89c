"""Why there is no listing, in the reader's words."""

from __future__ import annotations

from course_lib.diagnostics import CourseError, Location


class CompileError(CourseError):
    """A kernel did not compile, or could not be given to the compiler.

    Attributes:
      original: the compiler's own message, "" where the course itself refused.
      where: the reader's line that it is about, None where the compiler names none.
    """

    def __init__(self, message: str, *, original: str = "", where: Location | None = None):
        super().__init__(message)
        self.original = original
        self.where = where


class ToolchainMissing(CompileError):  # noqa: N818
    """There is no compiler that fits this Python; the message says which command adds one."""
