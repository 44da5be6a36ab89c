"""The exceptions that a learner meets. In a notebook each prints its sentences only."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.diagnostics.findings import Finding, Severity


class CourseError(Exception):
    """An error whose message is all that the reader needs.

    IPython asks an exception for `_render_traceback_` before it formats one:
    a `CourseError` answers with its own words, so a notebook shows a sentence
    and no traceback. The message names what is wrong and what would be right.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class OptionError(CourseError, ValueError):
    """An option has a value that it cannot have; the message names those that it can."""


class KernelError(CourseError):
    """A kernel was run on the model of the GPU and something is wrong with it.

    Attributes:
      findings: what was found, most important first.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()):
        super().__init__(message)
        self.findings = tuple(findings)

    @property
    def rule(self) -> str:
        """The id of the rule that was broken first ("data-race"); "" without an error finding."""
        return next((f.rule for f in self.findings if f.severity is Severity.ERROR), "")
