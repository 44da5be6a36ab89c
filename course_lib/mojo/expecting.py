"""Whether a Mojo program compiled to what a cell or an exercise expects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from course_lib.compiler import expectations
from course_lib.diagnostics import OptionError
from course_lib.mojo.compiling import Program

_EXPECTATION = re.compile(r"\s*([\w.*]+?)\s*((?:>=|<=|!=|==?|>|<)\s*\d+)\s*")


def unmet(program: Program, expected: Iterable[str]) -> list[str]:
    """The expectations that a program does not meet, a sentence for each.

    Args:
      program: the compiled program.
      expected: conditions such as "ld.shared>=1", "bar.sync=2" or "spill_bytes=0": on the number
        of instructions with such a name in all kernels, or on a resource ("registers",
        "spill_bytes", "smem_bytes").

    Raises:
      OptionError: a condition cannot be read.
    """
    conditions: dict[str, int | str] = {}
    for text in expected:
        match = _EXPECTATION.fullmatch(text)
        if match is None:
            raise OptionError(f'"{text}" cannot be read; write "ld.shared>=1" or "spill_bytes=0"')
        conditions[match[1]] = re.sub(r"^=(?!=)", "==", match[2])
    return unmet_conditions(program, conditions)


def unmet_conditions(program: Program, conditions: Mapping[str, int | str]) -> list[str]:
    """As `unmet`, of conditions by what they are about: `{"ld.shared": ">=1"}`."""
    countable: Any = program  # counts and resources are what `expectations` asks of a `Compiled`
    return expectations(countable, conditions)
