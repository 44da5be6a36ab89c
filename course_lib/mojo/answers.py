"""A learner's Mojo program, and the gaps that are left in it."""

from __future__ import annotations

import dataclasses
import re

MAGIC = "%%mojo_gpu"
# What stands in the place of a solution in the learner's copy; Mojo would refuse it in these words.
NOT_DONE = 'comptime assert False, "not done yet"'

_EXERCISE = re.compile(rf"{MAGIC}\b.*?\s--exercise[ =]([\w.]+)")


@dataclasses.dataclass(frozen=True)
class Answer:
    """What is handed to `check` as the answer to a Mojo exercise.

    Attributes:
      source: the program's text, without the magic's line.
    """

    source: str

    @property
    def done(self) -> bool:
        """Whether every gap is filled in."""
        return not any(line.strip() == NOT_DONE for line in self.source.splitlines())

    @property
    def code(self) -> str:
        """The program without its comments."""
        return re.sub(r"#.*", "", self.source)

    def uses(self, word: str) -> int:
        """How often a word or a dotted name ("warp.sum") stands in the program's code."""
        return len(re.findall(rf"(?<![\w.]){re.escape(word)}(?!\w)", self.code))


def exercise_of(cell: str) -> str:
    """The exercise that a cell's magic line names, "" if it names none."""
    found = _EXERCISE.match(cell)
    return found.group(1) if found else ""


def answer_of(cell: str) -> Answer:
    """The program of a cell that begins with the magic's line."""
    return Answer(cell.partition("\n")[2])
