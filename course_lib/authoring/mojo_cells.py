"""The Mojo programs in a chapter's cells, and what their first lines ask for."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from pathlib import Path

from course_lib.authoring.source import Chapter
from course_lib.mojo.answers import exercise_of

MAGICS = ("%%mojo_gpu", "%%mojo_cpu")


@dataclasses.dataclass(frozen=True)
class MojoCell:
    """A cell that holds a Mojo program.

    Attributes:
      name: "chapter/cell".
      source: the program.
      on_cpu: whether it runs on the CPU.
      wrong: whether Mojo has to refuse it.
      runs: whether it runs at all.
      exercise: the exercise that it answers, "" for none.
    """

    name: str
    source: str
    on_cpu: bool
    wrong: bool
    runs: bool
    exercise: str

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU where there is one."""
        return self.runs and not self.on_cpu


def holds_mojo(source: Path) -> bool:
    """Whether a chapter's source has Mojo programs in it."""
    return any(f"\n{magic}" in source.read_text(encoding="utf-8") for magic in MAGICS)


def program_of(text: str) -> str:
    """The Mojo program of a cell, "" where it holds none."""
    line, _, program = text.partition("\n")
    return program if line.split(" ")[0] in MAGICS else ""


def mojo_cells(chapter: Chapter) -> list[MojoCell]:
    """The Mojo cells of a chapter, top to bottom."""
    return [
        _read(f"{chapter.name}/{cell.id}", cell.text)
        for cell in chapter.code
        if program_of(cell.text)
    ]


def names_made(chapter: Chapter) -> frozenset[str]:
    """The Python variables that the Mojo cells of a chapter make: `--as` and the exercises'."""
    made = set()
    for cell in chapter.code:
        if program_of(cell.text):
            options = shlex.split(cell.text.partition("\n")[0])[1:]
            for option, value in itertools.pairwise(options):
                made |= {value} if option == "--as" else set()
                made |= {value.rpartition(".")[2]} if option == "--exercise" else set()
    return frozenset(made)


def _read(name: str, text: str) -> MojoCell:
    magic, *options = shlex.split(text.partition("\n")[0])
    wrong = "--wrong" in options
    return MojoCell(
        name=name,
        source=program_of(text),
        on_cpu=magic == "%%mojo_cpu",
        wrong=wrong,
        runs=not wrong and "--no-run" not in options,
        exercise=exercise_of(text),
    )
