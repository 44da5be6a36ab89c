"""The course's own answers: the solution function of every exercise, taken from the sources.

Running a whole chapter for the sake of its functions would take minutes, so an
exercise's cell runs after those statements above it that it needs: the imports,
definitions and assignments of the names that it uses, and of the names that
those use.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from course_lib.authoring.regions import is_mojo
from course_lib.authoring.source import (
    Cell,
    Chapter,
    Course,
    find_sources,
    read_chapter,
    registered_function,
)
from course_lib.diagnostics import CourseError
from course_lib.mojo.answers import Answer, answer_of


def exercise_cells(chapter: str, *, course: Course | None = None) -> dict[str, Cell]:
    """The exercise cells of a chapter ("00", "start_here", ...), by exercise id.

    Raises:
      CourseError: there is no such chapter, or its source is wrong.
    """
    (source,) = find_sources(course or Course(), [chapter])
    return {c.exercise: c for c in read_chapter(source).exercises}


def solution_functions(
    chapters: Sequence[str] | None = None, *, course: Course | None = None
) -> dict[str, Callable[..., Any] | Answer]:
    """The function, or the Mojo program, that solves each exercise, by exercise id.

    Args:
      chapters: numbers or titles; None is every chapter.
      course: where the course is; this one by default.

    Raises:
      CourseError: a source is wrong, or its statements raise.
    """
    sources = find_sources(course or Course(), chapters)
    return {
        cell.exercise: solution_function(chapter, cell.exercise, registered_function(cell.exercise))
        for chapter in map(read_chapter, sources)
        for cell in chapter.exercises
    }


def solution_function(
    chapter: Chapter, exercise: str, function: str
) -> Callable[..., Any] | Answer:
    """The function called `function` that the cell of an exercise defines, ready to be called.

    Of a Mojo exercise, the cell's program.

    A line of it is known by its line of the chapter's source: "00_start_here.md:120".

    Raises:
      CourseError: no cell holds the exercise, or what it needs cannot be run.
    """
    cells = [c for c in chapter.exercises if c.exercise == exercise]
    if not cells:
        raise CourseError(f'{chapter.name} has no cell for the exercise "{exercise}"')
    if is_mojo(cells[0].text):
        return answer_of(cells[0].text)
    namespace: dict[str, Any] = {"__name__": f"solution_of_{exercise.replace('.', '_')}"}
    for statements in _needed(chapter, cells[0]):
        code = compile(statements, str(chapter.path), "exec", dont_inherit=True)
        try:
            exec(code, namespace)
        except Exception as error:
            raise CourseError(
                f'{chapter.name}: the solution of "{exercise}" cannot be defined, '
                f"{type(error).__name__}: {error}"
            ) from error
    if not isinstance(namespace.get(function), types.FunctionType):
        raise CourseError(
            f'{chapter.name}, cell "{cells[0].id}": there is no function called "{function}"'
        )
    solution: Callable[..., Any] = namespace[function]
    return solution


def _needed(chapter: Chapter, cell: Cell) -> list[ast.Module]:
    """What has to run for the cell's functions to work, in order; the cell itself last."""
    own = [s for s in _statements(cell) if _binds(s)]
    wanted = {name for s in own for name in _uses(s)}
    above: list[ast.stmt] = []
    earlier = [s for c in chapter.code[: chapter.code.index(cell)] for s in _statements(c)]
    for statement in reversed(earlier):
        if _binds(statement) & wanted:
            above.insert(0, statement)
            wanted |= _uses(statement)
    return [ast.Module(body=[s], type_ignores=[]) for s in [*above, *own]]


def _statements(cell: Cell) -> list[ast.stmt]:
    """The cell's statements, with their lines in the chapter's source; none for a magic."""
    try:
        tree = ast.parse(cell.text)
    except SyntaxError:
        return []
    for statement in tree.body:
        ast.increment_lineno(statement, cell.line - 1)
    return tree.body


def _binds(statement: ast.stmt) -> set[str]:
    """The names that a statement defines, if all it does is to define."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return set(_stored_names(statement))
    return set()


def _stored_names(statement: ast.AST) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _uses(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } | (_binds(statement) if isinstance(statement, ast.AugAssign) else set())
