"""Tiny chapters to test with: each a few cells long, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from course_lib.authoring.source import Chapter, Course, read_chapter

HEADER = """\
---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---
"""

DOUBLE = """\
def double(x):
    ### BEGIN SOLUTION
    y = x + x
    return y
    ### END SOLUTION"""

# A stand-in for the course's own check, so that a tiny chapter starts in no time.
CHECK = """\
def check(name, function):
    try:
        print(name, "is right" if function(3) == 6 else "is wrong")
    except NotImplementedError as error:
        print(name, error)"""


def registry(exercise: str) -> str:
    """The exercises of the tiny chapters: the function has the exercise's name."""
    return exercise.split(".")[1]


def md(cell_id: str, text: str) -> str:
    """A Markdown cell."""
    return f'+++ {{"id": "{cell_id}"}}\n\n{text}\n'


def code(cell_id: str, text: str, *, tags: Sequence[str] = ("given",), exercise: str = "") -> str:
    """A code cell."""
    options = [f":id: {cell_id}"] if cell_id else []
    options += [f":tags: [{', '.join(tags)}]"] if tags else []
    options += [f":exercise: {exercise}"] if exercise else []
    return "\n".join(["```{code-cell} ipython3", *options, "", text, "```", ""])


def exercise(text: str = DOUBLE) -> str:
    """The cell of the exercise `tiny.double`."""
    return code("double", text, tags=["exercise"], exercise="tiny.double")


def check_cell() -> str:
    """The cell that checks `tiny.double`."""
    return code("check-double", 'check("tiny.double", double)', tags=["check"])


def whole() -> list[str]:
    """The cells of a whole tiny chapter with one exercise."""
    return [
        md("title", "# 00 Tiny\n\nA goal."),
        code("setup", f"import math\n\n\n{CHECK}\n\n\nprint(math.gcd(12, 18))"),
        md("task", "Write `double`."),
        exercise(),
        check_cell(),
        md("recap", "## Recap"),
    ]


def write(root: Path, *cells: str, name: str = "00_tiny", header: str = HEADER) -> Path:
    """Writes a chapter's source below `root` and returns its path."""
    path = root / "solutions" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(header + "\n".join(cells), encoding="utf-8")
    return path


def read(root: Path, *cells: str) -> Chapter:
    """The chapter of these cells, read and checked."""
    return read_chapter(write(root, *cells), registry=registry)


def course(root: Path) -> Course:
    """A course in `root` with a library of its own, `root/course_lib`."""
    library = root / "course_lib"
    library.mkdir(exist_ok=True)
    (library / "__init__.py").touch()
    return Course(root=root, library=library)
