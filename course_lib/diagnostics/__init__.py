"""What went wrong, in words: findings, source locations and the course's errors.

The bottom of the house: every room may import it, and it imports nothing of
ours, neither JAX nor IPython. A `Finding` says what a tool saw; a `Location`
says where in the learner's own code; a `CourseError` is what a notebook shows:
one or a few sentences, never a traceback.
"""

from course_lib.diagnostics.errors import CourseError, KernelError, OptionError
from course_lib.diagnostics.findings import Access, Finding, Severity
from course_lib.diagnostics.locations import Location, locate, own_frame, register_cell
from course_lib.diagnostics.versions import check_jax

__all__ = [
    "Access",
    "CourseError",
    "Finding",
    "KernelError",
    "Location",
    "OptionError",
    "Severity",
    "check_jax",
    "locate",
    "own_frame",
    "register_cell",
]
