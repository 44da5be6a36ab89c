"""Parameters as plain data, and what the learner calls a kernel's refs."""

from __future__ import annotations

import ast
import dataclasses
import enum
import linecache
import re
from typing import Any

import numpy as np

from course_lib.simulator import ir


def _plain(value: Any) -> Any:
    """A parameter as plain data. Raises TypeError where there is no word for it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, enum.Enum):
        return ir.Tagged("enum", (type(value).__name__, value.name))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ir.Tagged(type(value).__name__, tuple(_plain(v) for v in value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, f.name) for f in dataclasses.fields(value)]
        return ir.Tagged(type(value).__name__, tuple(_plain(v) for v in fields))
    if isinstance(value, tuple | list):
        return tuple(_plain(v) for v in value)
    raise TypeError(type(value).__name__)


def plain_params(params: dict[str, Any]) -> dict[str, Any]:
    out = {}
    for key, value in params.items():
        try:
            out[key] = _plain(value)
        except TypeError:
            out[key] = ir.Tagged("opaque", type(value).__name__)
    return out


def param_names(jaxpr: Any, count: int) -> tuple[str, ...]:
    """What the learner calls a block's params; "" where JAX did not keep it."""
    names = list(jaxpr.debug_info.arg_names or ())
    names = names[-len(jaxpr.invars) :] if jaxpr.invars else []
    names = [n or "" for n in names]
    return tuple([""] * (count - len(names)) + names)


def kernel_names(jaxpr: Any) -> tuple[str, ...]:
    """The names of a kernel's refs in its body's own signature, where they can be read."""
    inner = next((e for e in jaxpr.eqns if e.primitive.name == "run_scoped"), None)
    info = (inner.params["jaxpr"] if inner else jaxpr).debug_info.func_src_info or ""
    match = re.fullmatch(r"(\S+) at (.+):(\d+)", info)
    names = _signature(match[1], match[2], int(match[3])) if match else ()
    if not names:
        names = tuple(n or "" for n in jaxpr.debug_info.arg_names or ())
    return names


def _signature(function: str, file: str, line: int) -> tuple[str, ...]:
    """The parameter names of the function that starts at a line of a source file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.split(".")[-1]:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= line <= node.lineno:
                return tuple(a.arg for a in (*node.args.posonlyargs, *node.args.args))
    return ()
