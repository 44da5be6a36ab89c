"""What an instructor should look at. A flag is never a mark: there may be a good reason.

Which cells were changed and which nbval markers were used is found by `merging`, near-identical
work by `similarity`; here: code that looks at the machinery around it, and outputs that do not
come out again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from course_lib.grading.merging import parsed
from course_lib.grading.model import Merged

# Modules that an exercise has no use for, by what they are for.
_MODULES = {
    **dict.fromkeys(("inspect", "gc", "dis", "traceback", "ctypes", "ast"), "introspection"),
    **dict.fromkeys(("sys", "builtins", "importlib", "imp", "runpy", "types"), "introspection"),
    **dict.fromkeys(("os", "pathlib", "glob", "shutil", "io", "tempfile", "mmap"), "files"),
    **dict.fromkeys(("subprocess", "multiprocessing", "signal", "threading", "pty"), "processes"),
    **dict.fromkeys(("socket", "urllib", "http", "requests", "ssl", "httpx"), "network"),
    **dict.fromkeys(("pickle", "cloudpickle", "marshal", "dill"), "pickles"),
    "nbval": "the grader", "pytest": "the grader", "IPython": "the notebook",
}  # fmt: skip
_GIVEN_MODULES = frozenset({"functools", "jax", "jnp", "np", "pl", "plgpu"})  # by setup cells
_CORRECT = re.compile(r": correct (on |\[)")  # what a check's first line says of a right answer
_COURSE_INSIDE = frozenset(
    {"exercises", "grading", "authoring", "simulator", "model", "workers", "tracing", "compiler"}
)
_NAMES = {
    "exec": "introspection", "eval": "introspection", "compile": "introspection",
    "globals": "introspection", "locals": "introspection", "vars": "introspection",
    "__import__": "introspection", "open": "files", "get_ipython": "the notebook",
    "setattr": "introspection", "delattr": "introspection",
}  # fmt: skip
_ATTRIBUTES = re.compile(
    r"^(__(?!init__|name__|doc__|call__|len__|iter__|getitem__|enter__|exit__|repr__|str__)\w+__"
    r"|_getframe|_src|settrace|setprofile|f_back|f_globals|gi_frame|ast_transformers"
    r"|input_transformers\w*|run_cell|set_custom_exc)$"
)


def introspection(merged: Merged) -> tuple[str, ...]:
    """Flags for a student's code that looks at the machinery around it, a place for each."""
    flags: dict[str, None] = {}
    for cell in merged.cells:
        tree = parsed(cell.source) if cell.own or cell.exercise else None
        if tree is not None:
            for what, name, line in sorted(_uses(tree), key=lambda use: (use[2], use[1])):
                flags[f"uses {what}: {name} (cell {cell.id}, line {line})"] = None
    return tuple(flags)


def _uses(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    imported = _GIVEN_MODULES | {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield from _replaced(node, imported)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "course_lib":
            for alias in node.names:
                yield from _module(f"course_lib.{alias.name}", node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from _module(node.module, node.lineno)
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            yield _NAMES[node.id], node.id, node.lineno
        elif isinstance(node, ast.Attribute) and _ATTRIBUTES.match(node.attr):
            yield "introspection", node.attr, node.lineno


def _replaced(node: ast.Attribute, imported: Set[str]) -> Iterator[tuple[str, str, int]]:
    """Something of another module's that gets another value: what traces or judges may be next."""
    base: ast.expr = node
    while isinstance(base, ast.Attribute):
        base = base.value
    if isinstance(base, ast.Name) and base.id in imported:
        yield "introspection", f"sets {ast.unparse(node)}"[:60], node.lineno


def _module(name: str, line: int) -> Iterator[tuple[str, str, int]]:
    top, *rest = name.split(".")
    if top == "course_lib" and rest and rest[0] in _COURSE_INSIDE:
        yield "the course's inside", name, line
    elif top == "jax" and "_src" in rest:
        yield "introspection", name, line
    elif top in _MODULES:
        yield _MODULES[top], name, line


def differing_outputs(
    stored: Mapping[str, Sequence[Any]], fresh: Mapping[str, str], checks: Sequence[str]
) -> tuple[str, ...]:
    """Flags for checks whose stored verdict is not what they say when they run.

    Args:
      stored: the outputs in the student's file, by cell id.
      fresh: the text that each cell printed, by cell id.
      checks: the ids of the check cells.
    """
    flags = []
    for cell_id in checks:
        was, now = verdict_in(text_of(stored.get(cell_id, ()))), verdict_in(fresh.get(cell_id, ""))
        if was and now and says_correct(was) is not says_correct(now):
            flags.append(f'the output of cell "{cell_id}" says {was!r}; run again it says {now!r}')
    return tuple(flags)


def says_correct(text: str) -> bool:
    """Whether a check says that an answer is right."""
    return bool(_CORRECT.search(text))


def verdict_in(text: str) -> str:
    """The first line of a text, cut short: what a check says in a word."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return re.sub(r"\s+", " ", re.sub(r"\bseed \d+|\(.*?\)", "", first))[:80].strip()


def text_of(outputs: Sequence[Any]) -> str:
    """What a notebook's outputs print, as far as they are text."""
    parts = []
    for output in outputs:
        if not isinstance(output, dict):
            continue
        text: Any = output.get("text")
        if text is None and isinstance(output.get("data"), dict):
            text = output["data"].get("text/plain")
        if isinstance(text, list):
            text = "".join(t for t in text if isinstance(t, str))
        if isinstance(text, str):
            parts.append(text)
    return "".join(parts)
