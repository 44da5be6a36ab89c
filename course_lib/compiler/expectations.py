"""Whether a compiled kernel got there by the right means."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping

from course_lib.compiler.compiled import Compiled

_RESOURCES = {
    "registers": "registers per lane",
    "spill_bytes": "bytes spilled",
    "smem_bytes": "bytes of SMEM",
    "tmem_columns": "columns of TMEM",
}
_RELATIONS = {
    ">=": (operator.ge, "at least"),
    "<=": (operator.le, "at most"),
    ">": (operator.gt, "more than"),
    "<": (operator.lt, "less than"),
    "!=": (operator.ne, "anything but"),
    "==": (operator.eq, "exactly"),
}
_CONDITION = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*(\d+)\s*")


def expectations(compiled: Compiled, expected: Mapping[str, int | str]) -> list[str]:
    """The expectations that a compiled kernel does not meet, a sentence for each.

    Args:
      compiled: what `compile_for` returned.
      expected: for a resource ("registers", "spill_bytes", "smem_bytes", "tmem_columns") or a
        pattern of `Compiled.count` the number it must be: `0`, or a condition like ">=4".

    Returns:
      an empty list if all are met.

    Raises:
      ValueError: a condition cannot be read.
    """
    sentences = []
    for subject, condition in expected.items():
        match = _CONDITION.fullmatch(str(condition))
        if match is None:
            raise ValueError(f'the condition on "{subject}" is {condition!r}; write 4 or ">=4"')
        holds, words = _RELATIONS[match[1] or "=="]
        if subject in _RESOURCES:
            found, what = getattr(compiled, subject), _RESOURCES[subject]
        else:
            found, what = compiled.count(subject), f"{subject} instructions"
        if not holds(found, int(match[2])):
            sentences.append(
                f"Compiled for {compiled.arch} it has {found} {what}; expected {words} {match[2]}."
            )
    return sentences
