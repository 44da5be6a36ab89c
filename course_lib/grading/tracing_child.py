"""Runs a student's code in the sandbox and writes down their kernels: programs, no verdicts.

    python -m course_lib.grading.tracing_child        (in a folder with request.json)

For each exercise it makes a process, defines what the function needs, traces the function
with shapes and nothing else, and writes the simulator's programs. Nothing in this process is
worth stealing: no reference, no hidden data, no expected value. Nothing that it writes is
believed to be right: its programs are read strictly and simulated elsewhere. What it says
*against* the student (an error, a kernel that cannot be lowered) is, since nobody gains by it.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import inspect
import json
import linecache
import os
import re
import signal
import symtable
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

FIRST_S = 120.0  # for defining and tracing a function
SECOND_S = 60.0  # of processor time for lowering it: JAX may search long for layouts
WAITS = 4  # and so many times that by the clock, on a machine that is busy with others
_LONGEST = 2_000  # characters of a message
_ANYTHING = "*"  # what `from somewhere import *` defines
# Methods that change what they belong to: a list, a dictionary, a set, `jax.config`.
_CHANGES = frozenset(
    {
        "add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert",
        "intersection_update", "pop", "popitem", "remove", "reverse", "setdefault", "sort",
        "symmetric_difference_update", "update",
    }
)  # fmt: skip
# IPython's magics whose cell is run as if they were not there.
_RUNS_ITS_CELL = re.compile(r"\A\s*%%(time|capture|prun)\b[^\n]*")


def main() -> None:
    """Works through the request, an exercise at a time, each in a process of its own."""
    request = json.loads(Path("request.json").read_text(encoding="utf-8"))
    first_s, second_s = request["seconds"]
    _import_everything()
    for asked in request["exercises"]:
        folder = Path(asked["folder"])
        folder.mkdir()
        (folder / "begun").touch()
        _in_a_process((first_s, first_s), _first, request["cells"], asked, folder)
        if asked["needs_kernel"] and any(folder.glob("*.program")):
            limits = (second_s, WAITS * second_s)
            _in_a_process(limits, _second, request["cells"], asked, folder)
        (folder / "ended").touch()


def _import_everything() -> None:
    """Once, before the processes are made: importing JAX takes longer than all the rest."""
    import jax.experimental.pallas
    import jax.experimental.pallas.mosaic_gpu
    import jax.numpy
    import numpy

    from course_lib.compiler import lowering
    from course_lib.simulator import frontend, ir

    assert jax
    assert numpy
    assert lowering
    assert frontend
    assert ir


def _in_a_process(limits: tuple[float, float], work: Callable[..., None], *args: Any) -> None:
    """Runs `work(*args)` in a fork, and ends that and its group when its time is up.

    `limits` are its processor time and its time by the clock, in seconds.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            work(*args)
        except BaseException as error:
            write_error(args[-1], error)
        finally:
            os._exit(0)
    started = time.monotonic()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if _cpu_s(child) > limits[0] or time.monotonic() - started > limits[1]:
            (args[-1] / "too-long").touch()
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _cpu_s(pid: int) -> float:
    """The processor time of a process, in seconds; 0 where that cannot be known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def write(path: Path, content: bytes) -> None:
    """A whole file or none."""
    path.with_suffix(".part").write_bytes(content)
    path.with_suffix(".part").rename(path)


def write_error(folder: Path, error: BaseException, case: int = 0) -> None:
    from course_lib.diagnostics import own_frame
    from course_lib.diagnostics.locations import locate

    place, message = own_frame(error), str(error)
    if isinstance(error, SyntaxError) and locate(error.filename or "", 0).cell:
        place, message = locate(error.filename or "", error.lineno or 0), error.msg
    said = {
        "type": type(error).__name__[:100],
        "message": message[:_LONGEST],
        "cell": place.cell if place else "",
        "line": place.line if place else 0,
        "case": case,
    }
    write(folder / "error.json", json.dumps(said).encode())


# What has to be defined.


def definitions(cells: Sequence[dict[str, Any]], exercise: str, function: str) -> list[Any]:
    """The statements to run for a function to work, as `(cell id, statement)`, in order.

    Those of its cell that define something, the student's own cells behind it that define the
    function anew, and whatever defines the names that these use: above, else below.
    """
    parsed = [(c, _statements(c["source"])) for c in cells]
    home = next((i for i, (c, _) in enumerate(parsed) if c["exercise"] == exercise), None)
    if home is None:
        raise LookupError(f"no cell answers {exercise}")
    lines = [(i, s) for i, (_, statements) in enumerate(parsed) for s in statements if _binds(s)]
    binding: dict[str, list[int]] = {}
    for n, (_, statement) in enumerate(lines):
        for name in _binds(statement):
            binding.setdefault(name, []).append(n)
    own = {home, *_redefining(parsed, home, function)}
    taken = {n for n, (i, _) in enumerate(lines) if i in own}
    wanted = {_ANYTHING, *(name for n in taken for name in _uses(lines[n][1]))}
    known: set[str] = set()
    while new := wanted - known:
        for name in sorted(new):
            known.add(name)
            found = binding.get(name, [])
            above = [n for n in found if lines[n][0] < home]
            anywhere = above or found
            more = set(above if any(lines[n][0] in own for n in found) else anywhere) - taken
            taken |= more
            wanted |= {used for n in more for used in _uses(lines[n][1])}
    return [(parsed[lines[n][0]][0]["id"], lines[n][1]) for n in sorted(taken)]


def _redefining(parsed: Sequence[Any], home: int, function: str) -> Iterator[int]:
    """Cells behind an exercise's that define its function again, up to the check."""
    for i in range(home + 1, len(parsed)):
        cell, statements = parsed[i]
        if "check" in cell["tags"] or cell["exercise"]:
            return
        if cell["own"] and any(function in _binds(s) for s in statements):
            yield i


def _statements(source: str) -> list[ast.stmt]:
    """The statements of a cell; of one with magics, as IPython reads it."""
    source = _RUNS_ITS_CELL.sub("", source, count=1)
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    try:
        from IPython.core.inputtransformer2 import TransformerManager

        return ast.parse(TransformerManager().transform_cell(source)).body
    except Exception:
        return []


@functools.cache
def _binds(statement: ast.stmt) -> frozenset[str]:
    """The names that a statement defines or changes, if that is what it does."""
    names: set[str] = set()
    for node in _outside_of_functions(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= _base(node)
        elif isinstance(node, ast.Expr):
            names |= _changed(node.value)
    return frozenset(names)


def _changed(value: ast.expr) -> set[str]:
    """Of `table.update(...)` or `sizes.append(8)`: what is changed."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):  # noqa: SIM102
        if value.func.attr in _CHANGES:
            return _base(value.func)
    return set()


def _base(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _outside_of_functions(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(statement):
        yield from _outside_of_functions(child)


@functools.cache
def _uses(statement: ast.stmt) -> frozenset[str]:
    """The names of the notebook that a statement reads, now or when its functions are called."""
    table = symtable.symtable(ast.unparse(statement), "cell", "exec")
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        names |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
        inner += scope.get_children()
    return frozenset(names)


def define(
    cells: Sequence[dict[str, Any]], asked: dict[str, Any]
) -> tuple[Callable[..., Any], Exception | None]:
    """The exercise's function, after what it needs has run, and what went wrong on the way."""
    from course_lib.diagnostics.locations import register_cell

    for cell in cells:
        cell["source"] = cell["source"].lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        file = _file(cell["id"])
        register_cell(file, cell["id"])
        text = cell["source"]
        linecache.cache[file] = (len(text), None, [f"{t}\n" for t in text.split("\n")], file)
    names: dict[str, Any] = {"__name__": "__main__", "display": print}
    first: Exception | None = None
    flags = _future_flags(cells)
    for cell_id, statement in definitions(cells, asked["id"], asked["function"]):
        module = ast.Module([statement], [])
        code = compile(module, _file(cell_id), "exec", flags=flags, dont_inherit=True)
        try:
            exec(code, names)
        except Exception as error:  # the function may do without
            first = first or error
    function = names.get(asked["function"])
    if not callable(function):
        missing = LookupError(f"there is no function called {asked['function']}")
        raise first or _why_unread(cells, asked["id"]) or missing
    return function, first


def _future_flags(cells: Sequence[dict[str, Any]]) -> int:
    """How to compile a notebook in which somebody imports `annotations` from `__future__`."""
    imports = (
        s
        for cell in cells
        if "__future__" in cell["source"]
        for s in _statements(cell["source"])
        if isinstance(s, ast.ImportFrom) and s.module == "__future__"
    )
    lazy = any(a.name == "annotations" for i in imports for a in i.names)
    return __future__.annotations.compiler_flag if lazy else 0


def _why_unread(cells: Sequence[dict[str, Any]], exercise: str) -> SyntaxError | None:
    """Why the cell of an exercise is no Python; None where it is."""
    for cell in cells:
        if cell["exercise"] == exercise and not _statements(cell["source"]):
            try:
                compile(cell["source"], _file(cell["id"]), "exec", dont_inherit=True)
            except SyntaxError as error:
                return error
    return None


def _file(cell_id: str) -> str:
    return f"/cells/{cell_id}.py"


# What is written.


def _first(cells: Any, asked: dict[str, Any], folder: Path) -> None:
    """Defines the function; then its programs, or its results where it has no kernel."""
    function, earlier = define(cells, asked)
    misfit = _misfit(function, asked)
    if misfit:
        write(folder / "misfit.json", json.dumps(misfit[:_LONGEST]).encode())
        return
    write(folder / "names.json", json.dumps(_names(function, asked)).encode())
    for number, case in enumerate(asked["cases"]):
        try:
            if asked["needs_kernel"]:
                write(folder / f"{number}.program", _program(function, case))
            else:
                write(folder / f"{number}.results", _results(function, case, folder.parent))
        except BaseException as error:
            shown = earlier if earlier is not None and isinstance(error, NameError) else error
            write_error(folder, shown, number)
            return


def _misfit(function: Callable[..., Any], asked: dict[str, Any]) -> str:
    case = asked["cases"][0]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*case["args"], **case["static"])
    except TypeError as error:
        return f"`{asked['function']}{signature}` does not fit `{asked['signature']}`: {error}."
    return ""


def _names(function: Callable[..., Any], asked: dict[str, Any]) -> list[str]:
    try:
        names = [str(p)[:40] for p in inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return []
    return names[: len(asked["cases"][0]["args"])]


def _shapes(case: dict[str, Any]) -> list[Any]:
    import jax

    return [jax.ShapeDtypeStruct(tuple(s), jax.numpy.dtype(d)) for s, d in case["args"]]


def checked_call(function: Callable[..., Any], static: dict[str, int]) -> Callable[..., Any]:
    """The function with the case's numbers; refuses a result that is not made of JAX arrays."""
    import jax

    def call(*args: Any) -> Any:
        value = function(*args, **static)
        for item in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(item, jax.Array):
                raise WrongReturn(f"The function returns {_thing(item)}, should return arrays.")
        return value

    return call


class WrongReturn(Exception):  # noqa: N818 - its name is looked for
    """A function returned something other than arrays."""


def _thing(value: Any) -> str:
    if value is None:
        return "nothing (None: is a `return` missing?)"
    return "a function (is a call missing?)" if callable(value) else f"a {type(value).__name__}"


def _program(function: Callable[..., Any], case: dict[str, Any]) -> bytes:
    from course_lib.simulator import frontend, ir

    program, _ = frontend.trace(checked_call(function, case["static"]), *_shapes(case))
    return ir.dumps(program)


def arguments(case: dict[str, Any], folder: Path) -> list[Any]:
    """The arrays of a case, out of the files in `folder`."""
    import jax
    import numpy as np

    arrays = [np.load(folder / name, allow_pickle=False) for name in case["files"]]
    typed = [a.view(jax.numpy.dtype(d)) for a, (_, d) in zip(arrays, case["args"], strict=True)]
    return list(map(jax.numpy.asarray, typed))


def _results(function: Callable[..., Any], case: dict[str, Any], folder: Path) -> bytes:
    """What a function without a kernel computes, as a program that returns it: constants."""
    import numpy as np

    from course_lib.simulator import ir

    value = checked_call(function, case["static"])(*arguments(case, folder))
    outputs = [np.asarray(v) for v in (value if isinstance(value, tuple | list) else [value])]
    types = tuple(ir.ArrayType(o.shape, o.dtype.name) for o in outputs)
    slots = tuple(range(len(outputs)))
    block = ir.Block((), slots, types, (), tuple((s, s) for s in slots))
    return ir.dumps(ir.Program([block], outputs))


def _second(cells: Any, asked: dict[str, Any], folder: Path) -> None:
    """What a GPU's compiler has against the kernels: findings as plain data."""
    from course_lib.compiler import lowering

    function, _ = define(cells, asked)
    said: list[dict[str, Any] | None] = []
    refused = None  # what is refused once is not asked about again: a search may be long
    for number, case in enumerate(asked["cases"]):
        said.append(refused)
        if number in asked["lower"] and refused is None:
            call = checked_call(function, case["static"])
            finding = lowering.lower(call, tuple(_shapes(case)), None).finding
            said[-1] = refused = _plain_finding(finding) if finding else None
        write(folder / "lowered.json", json.dumps(said).encode())
    if asked["expects"]:  # numbers of instructions are those of the first case that is shown
        case = asked["shown"]
        unmet = _unmet(
            checked_call(function, case["static"]), tuple(_shapes(case)), asked["expects"]
        )
        if unmet is not None:
            write(folder / "unmet.json", json.dumps([u[:_LONGEST] for u in unmet]).encode())


def _unmet(function: Callable[..., Any], shapes: tuple[Any, ...], expects: Any) -> list[str] | None:
    """What the compiled code lacks; None where no compiler looked at it.

    There is none here, or it ended without a word about the kernel, which is not held against it.
    """
    from course_lib.compiler import CompileError, ToolchainMissing, compile_for, expectations
    from course_lib.workers import WorkerDied

    unmet: list[str] = []
    for arch, conditions in expects.items():
        try:
            unmet += expectations(compile_for(function, *shapes, arch=arch), conditions)
        except ToolchainMissing:
            return None
        except CompileError as error:
            if isinstance(error.__context__, WorkerDied) and "without an answer" in str(error):
                return None
            unmet.append(f"It does not compile for {arch}. {error}")
    return unmet


def _plain_finding(finding: Any) -> dict[str, Any]:
    place = finding.location
    return {
        "rule": finding.rule,
        "what": finding.what[:_LONGEST],
        "why": finding.why[:_LONGEST],
        "fix": finding.fix[:_LONGEST],
        "cell": place.cell if place else "",
        "line": place.line if place else 0,
        "does": [a.what[:200] for a in finding.accesses[:2]],
    }


if __name__ == "__main__":
    sys.setrecursionlimit(5_000)
    main()
