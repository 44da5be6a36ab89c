"""One exception class for each rule, so that one mistake can be caught by name.

    from course_lib.simulator import errors
    try:
        run(kernel, x)
    except errors.DeadlockError as error:
        print(error.findings[0])

`run` raises the class of the first error finding. All of them are `KernelError`s; the
table in docs/simulator.md names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.diagnostics import Finding, KernelError, Severity
from course_lib.simulator.rules import RULES


def class_name(rule: str) -> str:
    """The name of a rule's exception class: "data-race" has `DataRaceError`."""
    if rule == "exception":
        return "KernelRaisedError"
    return "".join(word.capitalize() for word in rule.split("-")) + "Error"


def _class(rule: str) -> type[KernelError]:
    title = RULES[rule].title
    attributes = {"__doc__": f"{title[0].upper()}{title[1:]} (rule `{rule}`).", "id": rule}
    return type(class_name(rule), (KernelError,), {**attributes, "__module__": __name__})


BY_RULE: dict[str, type[KernelError]] = {rule: _class(rule) for rule in RULES}
globals().update({c.__name__: c for c in BY_RULE.values()})
__all__ = ["BY_RULE", "class_name", "of", *(c.__name__ for c in BY_RULE.values())]


def of(findings: Sequence[Finding]) -> KernelError:
    """The exception that says what was found.

    Args:
      findings: of one run, with at least one error among them.

    Returns:
      an exception of the first error's rule; a plain `KernelError` for what is no rule of the
      simulator's ("layout", "timeout"). Its text is all errors, its `findings` are all findings.
    """
    errors = [f for f in findings if f.severity is Severity.ERROR]
    kind = BY_RULE.get(errors[0].rule, KernelError)
    return kind("\n\n".join(map(str, errors)), findings)
