"""What can go wrong between a Mojo program and its output, in the reader's words."""

from __future__ import annotations

from course_lib.diagnostics import CourseError


class MojoMissing(CourseError):  # noqa: N818 - as the compiler's ToolchainMissing
    """There is no Mojo compiler here; the message says how to get one, or that there is none."""
