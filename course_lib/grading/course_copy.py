"""The course as a student's code may see it: a copy, made once per process.

"full" is what the public has, without solutions, tests and grading. "sealed" lacks the
exercises as well, and the bodies of all functions that are a reference for something: a
function that is traced there finds no answer to copy.
"""

from __future__ import annotations

import ast
import atexit
import compileall
import functools
import os
import py_compile
import shutil
import tempfile
from pathlib import Path

_LIBRARY = Path(__file__).resolve().parents[1]
_NEVER = ("__pycache__", "grading")
_SEALED = ("authoring", "benchmarks", "mojo", "cli.py", "lab.py", "chapter_check.py")
_CHILDREN = ("tracing_child.py", "card_child.py")  # what runs a student's code
_INSTEAD = 'raise RuntimeError("the sandbox holds no references")'


@functools.cache
def copy_of_the_course(kind: str) -> str:
    """A folder with a `course_lib` that everybody can read; it goes when this process ends."""
    return _copy(kind, os.getpid())


@functools.cache
def _copy(kind: str, pid: int) -> str:
    folder = Path(tempfile.mkdtemp(prefix=f"course-{kind}-"))
    atexit.register(_remove, folder, pid)
    hidden = _NEVER + ((*_SEALED, *_chapters()) if kind == "sealed" else ())
    target = folder / "course_lib"
    shutil.copytree(_LIBRARY, target, ignore=functools.partial(_ignored, set(hidden)))
    if kind == "sealed":
        for path in (target / "kernels").rglob("*.py"):
            path.write_text(without_references(path.read_text(encoding="utf-8")), encoding="utf-8")
        (target / "grading").mkdir()
        (target / "grading" / "__init__.py").write_text("", encoding="utf-8")
        for child in _CHILDREN:
            shutil.copy(Path(__file__).with_name(child), target / "grading" / child)
    # inside nothing can be written: what is not compiled here is compiled by each process anew
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(folder, quiet=2, invalidation_mode=unchecked)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return str(folder)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child has it from its parent
        shutil.rmtree(folder, ignore_errors=True)


def _ignored(hidden: set[str], folder: str, names: list[str]) -> set[str]:
    """What is not copied. A chapter's exercises have the name of its kernels."""
    here = Path(folder).relative_to(_LIBRARY).parts
    chapters = set(_chapters())
    exercises = here[:1] == ("exercises",)
    return {n for n in names if n in hidden and (exercises or n not in chapters)}


@functools.cache
def _chapters() -> tuple[str, ...]:
    """The files of `exercises` that hold a chapter's exercises."""
    from course_lib.exercises import all_exercises

    return tuple(sorted({f"{e.chapter}.py" for e in all_exercises()}))


def without_references(text: str) -> str:
    """A module's text in which functions named for a reference do nothing.

    Every line stays where it was, for findings to point at.
    """
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and "reference" in node.name:
            first, last = node.body[0], node.body[-1]
            assert last.end_lineno is not None
            if first.lineno == node.lineno:
                continue
            indent = " " * first.col_offset
            count = last.end_lineno - first.lineno
            lines[first.lineno - 1 : last.end_lineno] = [indent + _INSTEAD, *[""] * count]
    return "\n".join(lines)
