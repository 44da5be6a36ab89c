"""Whether a Mojo program compiled to what a cell or an exercise expects."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable

from course_lib.diagnostics import OptionError
from course_lib.mojo.compiling import Program

_RESOURCES = {
    "registers": "registers per lane",
    "spill_bytes": "bytes spilled",
    "smem_bytes": "bytes of SMEM",
    "kernels": "kernels",
}
_RELATIONS = {
    ">=": (operator.ge, "at least"),
    "<=": (operator.le, "at most"),
    ">": (operator.gt, "more than"),
    "<": (operator.lt, "less than"),
    "!=": (operator.ne, "anything but"),
    "=": (operator.eq, "exactly"),
}
_EXPECTATION = re.compile(r"\s*([\w.*]+?)\s*(>=|<=|!=|==?|>|<)\s*(\d+)\s*")


def unmet(program: Program, expected: Iterable[str]) -> list[str]:
    """The expectations that a program does not meet, a sentence for each.

    Args:
      program: the compiled program.
      expected: conditions such as "ld.shared>=1", "bar.sync=2" or "spill_bytes=0": on the number
        of instructions with such a name in all kernels, or on a resource ("registers",
        "spill_bytes", "smem_bytes", "kernels").

    Raises:
      OptionError: a condition cannot be read.
    """
    sentences = []
    for text in expected:
        match = _EXPECTATION.fullmatch(text)
        if match is None:
            raise OptionError(f'"{text}" cannot be read; write "ld.shared>=1" or "spill_bytes=0"')
        subject, relation, number = match.groups()
        holds, words = _RELATIONS[relation.replace("==", "=")]
        found = _amount(program, subject)
        if not holds(found, int(number)):
            what = _RESOURCES.get(subject, f"{subject} instructions")
            sentences.append(
                f"Compiled for {program.arch} the program has {found} {what}; expected {words} "
                f"{number}."
            )
    return sentences


def _amount(program: Program, subject: str) -> int:
    if subject == "kernels":
        return len(program.kernels)
    return getattr(program, subject) if subject in _RESOURCES else program.count(subject)
