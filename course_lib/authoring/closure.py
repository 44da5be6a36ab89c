"""Which files of the library a chapter's code can reach: what its outputs depend on.

The answer is read from the sources, nothing is imported. An edge is an `import`
anywhere in a module (those inside functions too), or a text that is the dotted
name of a module ("course_lib.workers.child", "course_lib.runtime:run"). A package
with a `__getattr__`, as the front door, imports a name's module when the name is
asked for: there only the names that are asked for count. Files that are not
Python belong to the modules in their folder; of the records of Mojo programs only
those of the chapter's own.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from course_lib.authoring.canonical import digest_of
from course_lib.authoring.mojo_cells import mojo_cells
from course_lib.authoring.source import Chapter
from course_lib.mojo import records

_DOTTED = re.compile(r"^\.?[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?$")


def digest(chapter: Chapter, library: Path) -> str:
    """What the outputs of a chapter depend on, as one SHA-256: its code and the library's files."""
    parts: list[str | bytes] = []
    for cell in chapter.code:
        parts += [cell.id, cell.text, *sorted(cell.tags), cell.exercise]
    for program in mojo_cells(chapter):
        record = records.load(program.source)
        parts += [json.dumps(dataclasses.asdict(record))] if record is not None else []
    for file in reached_files(chapter, library):
        parts += [file.relative_to(library.parent).as_posix(), file.read_bytes()]
    return digest_of(*parts)


def reached_files(chapter: Chapter, library: Path) -> list[Path]:
    """The library's files that the chapter's code can reach, sorted."""
    graph = _Graph(library)
    for cell in chapter.code:
        graph.add_code(cell.text)
    for exercise in {e.split(".")[0] for e in _exercise_names(chapter)}:
        graph.add_module(f"{library.name}.exercises.{exercise}")
    modules = graph.files
    folders = {f.parent for f in modules}
    return sorted(modules | {d for folder in folders for d in _data_files(folder)})


def _exercise_names(chapter: Chapter) -> Iterator[str]:
    """Everything in the code that looks like an exercise's id, "title.name"."""
    for cell in chapter.code:
        yield from re.findall(r"""["']([a-z]\w*\.[a-z]\w*)["']""", cell.text)
        if cell.exercise:
            yield cell.exercise


def _data_files(folder: Path) -> Iterator[Path]:
    """The files beside the modules of a folder, and those in its folders without modules."""
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")):
            continue
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            yield path
        elif path == records.FOLDER:
            continue
        elif path.is_dir() and not any(path.rglob("*.py")):
            yield from (p for p in path.rglob("*") if p.is_file() and p.suffix != ".pyc")


class _Graph:
    """The modules reached so far."""

    def __init__(self, library: Path):
        self.library = library
        self.files: set[Path] = set()
        self._done: set[str] = set()
        self._opened: set[str] = set()

    def add_code(self, text: str) -> None:
        """Follows the imports of a notebook cell."""
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell magic: only its plain import lines can be followed
            lines = [ln for ln in text.splitlines() if re.match(r"\s*(from|import)\s", ln)]
            for line in lines:
                self._follow(ast.parse(line.strip()), "")
            return
        self._follow(tree, "")

    def add_module(self, name: str, names: Iterable[str] | None = None) -> None:
        """Adds a module, its packages and what they import; of a lazy package only `names`."""
        file = self._file(name)
        if file is None:
            return
        if "." in name:
            self.add_module(name.rpartition(".")[0], ())
        self.files.add(file)
        if names is not None and _is_lazy(_tree(file)):
            self._open_door(name, _tree(file), names)
        elif name not in self._done:
            self._done.add(name)
            self._follow(_tree(file), self._package(name, file))

    def _open_door(self, package: str, tree: ast.Module, names: Iterable[str]) -> None:
        """Follows what a lazy package imports at once, and where `names` of it live."""
        if package not in self._opened:
            self._opened.add(package)
            eager = [n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.Assign)]
            self._follow(ast.Module(body=list(eager), type_ignores=[]), package)
        for name in names:
            homes = _homes(tree, name)
            if self._file(f"{package}.{name}"):
                self.add_module(f"{package}.{name}")
            elif homes:
                for home in homes:
                    self._follow(home, package, short_names=True)
            else:
                self.add_module(package)

    def _follow(self, tree: ast.AST, package: str, *, short_names: bool = False) -> None:
        for node in _running_nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.add_module(alias.name)
            elif isinstance(node, ast.ImportFrom):
                self._follow_from(node, package)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._follow_text(node.value, package if short_names else "")

    def _follow_from(self, node: ast.ImportFrom, package: str) -> None:
        module = node.module or ""
        if node.level:
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*base, *([module] if module else [])])
        if self._file(module) is None:
            return
        names = [a.name for a in node.names]
        self.add_module(module, None if "*" in names else names)
        for name in names:
            self.add_module(f"{module}.{name}")

    def _follow_text(self, text: str, package: str) -> None:
        """Follows a text that names a module: "course_lib.runtime", or "runtime" in `package`."""
        if not _DOTTED.match(text):
            return
        name = text.split(":")[0]
        if name.startswith(f"{self.library.name}."):
            self.add_module(name)
        elif package:
            self.add_module(f"{package}.{name.lstrip('.')}")

    def _file(self, name: str) -> Path | None:
        """The file of a module of the library, or None: it is somebody else's, or an attribute."""
        head, *rest = name.split(".")
        if head != self.library.name:
            return None
        base = self.library.joinpath(*rest)
        for file in (base / "__init__.py", base.with_suffix(".py")):
            if file.is_file():
                return file
        return None

    def _package(self, name: str, file: Path) -> str:
        return name if file.name == "__init__.py" else name.rpartition(".")[0]


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, without those that only a type checker sees."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def _is_lazy(tree: ast.Module) -> bool:
    """Whether a package imports its names when they are asked for (PEP 562)."""
    return any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in tree.body)


def _homes(tree: ast.Module, name: str) -> list[ast.AST]:
    """Where a lazy package says where `name` lives: its row in a table, or its function."""
    rows: list[ast.AST] = [
        value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == name
    ]
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    return rows + list(functions)


@functools.lru_cache(maxsize=1024)
def _parsed(file: Path, stamp: tuple[int, int]) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _tree(file: Path) -> ast.Module:
    stat = file.stat()
    try:
        return _parsed(file, (stat.st_mtime_ns, stat.st_size))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])  # running the chapter will say it better
