"""From a chapter's source to the notebooks, and from those to the learner's own copies.

    solutions/NN_title.md  --build-->   solutions/NN_title.ipynb   the executed record
                                        notebooks/NN_title.ipynb   the learner's, unsolved
    notebooks/*.ipynb      --update-->  workspace/*.ipynb          the learner's own copies

`build` runs the notebooks and stores what they print, `update` merges a newer
chapter into a copy that the learner has worked on. Names are imported when they
are first used: a notebook's kernel needs `cell_ids_by_source` only, and quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.authoring.cellids import cell_ids_by_source, source_sha
    from course_lib.authoring.notebooks import BuildError, build
    from course_lib.authoring.solutions import exercise_cells, solution_functions
    from course_lib.authoring.source import Cell, Chapter, Course, read_chapter
    from course_lib.authoring.workspace import reset, update

_HOMES = {
    "BuildError": "notebooks",
    "Cell": "source",
    "Chapter": "source",
    "Course": "source",
    "build": "notebooks",
    "cell_ids_by_source": "cellids",
    "exercise_cells": "solutions",
    "read_chapter": "source",
    "reset": "workspace",
    "solution_functions": "solutions",
    "source_sha": "cellids",
    "update": "workspace",
}

__all__ = [
    "BuildError",
    "Cell",
    "Chapter",
    "Course",
    "build",
    "cell_ids_by_source",
    "exercise_cells",
    "read_chapter",
    "reset",
    "solution_functions",
    "source_sha",
    "update",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
