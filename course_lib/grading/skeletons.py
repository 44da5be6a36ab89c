"""The notebook that a class was given: a learner's notebook, with the variants in it.

A variant changes the exercise's cell and the Markdown cell above it, by the edits
that the variant declares, and tells the check which variant it is about:

    check("asynchronous_copies.triple", triple, variant="factor=5, slots=3")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from nbformat import NotebookNode

from course_lib.authoring.merge import issued
from course_lib.diagnostics import CourseError
from course_lib.exercises import registry, variations

ABOUT_HINTS = "These are your class's numbers. Hints speak of the course's own version."


def exercises_of(notebook: NotebookNode) -> tuple[str, ...]:
    """The ids of a notebook's exercises, in its order."""
    return tuple(
        c.metadata["exercise"]
        for c in notebook.cells
        if c.cell_type == "code" and c.metadata.get("exercise")
    )


def skeleton(learners: NotebookNode, variants: Mapping[str, str]) -> NotebookNode:
    """A learner's notebook as a class gets it: nothing run, its variants in place.

    Args:
      learners: the notebook of `notebooks/`; it stays as it is.
      variants: by exercise id, as "factor=5, slots=3"; what is not named stays the course's.

    Raises:
      CourseError: a variant does not fit the notebook's text.
    """
    notebook = issued(learners)
    for exercise_id in exercises_of(notebook):
        if text := variants.get(exercise_id, ""):
            _put_in(notebook, exercise_id, text)
    return notebook


def _put_in(notebook: NotebookNode, exercise_id: str, text: str) -> None:
    exercise = registry.get(exercise_id)
    values = variations.from_text(exercise, text)
    index = next(
        i for i, c in enumerate(notebook.cells) if c.metadata.get("exercise") == exercise_id
    )
    above = next(c for c in reversed(notebook.cells[:index]) if c.cell_type == "markdown")
    for old, new in variations.edits(exercise, values):
        _edit(exercise_id, (above, notebook.cells[index]), old, new)
    above.source = f"{above.source.rstrip()}\n\n*{ABOUT_HINTS}*"
    for cell in notebook.cells[index:]:
        if "check" in cell.metadata.get("tags", ()):
            cell.source = with_variant(cell.source, exercise_id, variations.to_text(values))


def _edit(exercise_id: str, cells: tuple[NotebookNode, ...], old: str, new: str) -> None:
    found = [cell for cell in cells if old in cell.source]
    if not found:
        raise CourseError(
            f'The variant of "{exercise_id}" changes {old!r}, which is not in the notebook: mend '
            "course_lib/exercises/variations."
        )
    for cell in found:
        cell.source = cell.source.replace(old, new)


def with_variant(source: str, exercise_id: str, text: str) -> str:
    """A check cell whose `check("id", function)` names the variant as well."""
    lines = source.split("\n")
    for call in reversed(list(_checks(source, exercise_id))):
        end, column = call.end_lineno or call.lineno, call.end_col_offset or 1
        line = lines[end - 1].encode()  # columns are counted in bytes
        head, tail = line[: column - 1].decode(), line[column - 1 :].decode()
        comma = "" if head.rstrip().endswith(",") or not head.strip() else ", "
        lines[end - 1] = f'{head}{comma}variant="{text}"{tail}'
    return "\n".join(lines)


def _checks(source: str, exercise_id: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "check"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value == exercise_id
        ):
            yield node
