"""`course compile file.py:kernel float16[4096,4096] ...`: an engineer's own kernel, from a shell.

Prints what the compiler made of it; with `--expect` the exit status says whether
it got there by the right means.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from course_lib.compiler.api import compile_for
from course_lib.compiler.compiled import Compiled
from course_lib.compiler.errors import CompileError
from course_lib.compiler.expectations import expectations
from course_lib.diagnostics import CourseError, clinic
from course_lib.diagnostics.locations import locate

_ARRAY = re.compile(r"\s*(\w+)\s*\[([\d,\s]*)\]\s*")
_EXPECTATION = re.compile(r"\s*([^<>=!\s]+)\s*((?:>=|<=|==|!=|>|<)\s*\d+)\s*")
_SHORT = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i32": "int32",
    "u8": "uint8",
    "u32": "uint32",
}


def compile_command(options: argparse.Namespace) -> int:
    """Compiles and prints; returns the exit status.

    Args:
      options: `function`, `arrays`, `arch`, `format` and `expect`, as `course compile` reads them.

    Raises:
      CourseError: something is wrong with the arguments, the file or the kernel.
    """
    expected = dict(map(_expectation, options.expect))
    function = load_function(options.function)
    code = compile_for(function, *map(array, options.arrays), arch=options.arch)
    print(_printed(code, options.format))
    unmet = expectations(code, expected)
    for sentence in unmet:
        print(sentence, file=sys.stderr)
    return 1 if unmet else 0


def load_function(target: str) -> Callable[..., Any]:
    """The function that "file.py:name" or "package.module:name" means.

    Raises:
      CourseError: there is no such file or name, or the file cannot be imported.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise CourseError(f"{target} does not name a function: write file.py:name.")
    module = _load(place)
    if not hasattr(module, name):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        close = difflib.get_close_matches(name, names, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise CourseError(f"{place} has nothing called {name}.{hint}")
    return getattr(module, name)


def array(text: str) -> jax.ShapeDtypeStruct:
    """The shape and dtype that "float16[4096,4096]" (or "f16[4096,4096]") means.

    Raises:
      CourseError: it cannot be read.
    """
    match = _ARRAY.fullmatch(text)
    try:
        dtype = jax.numpy.dtype(_SHORT.get(match[1], match[1])) if match else None
    except TypeError:
        dtype = None
    if match is None or dtype is None:
        raise CourseError(f"{text} is no array: write dtype[sizes], as float16[4096,4096].")
    sizes = [int(n) for n in match[2].split(",") if n.strip()]
    return jax.ShapeDtypeStruct(sizes, dtype)


def _load(place: str) -> Any:
    try:
        if not place.endswith(".py"):
            sys.path.insert(0, "")
            return importlib.import_module(place)
        path = Path(place).resolve()
        if not path.is_file():
            raise CourseError(f"There is no file {place}.")
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except CourseError:
        raise
    except SyntaxError as error:
        line = locate(error.filename or place, error.lineno or 0)
        raise CompileError(
            f"{line} is not valid Python: {error.msg}\n    {(error.text or '').strip()}",
            original=str(error),
            where=line,
        ) from None
    except Exception as error:
        where = clinic.innermost_reader_frame(clinic.frames_of(error))
        what = "".join(traceback.format_exception_only(error)).strip()
        raise CourseError(
            f"{place} cannot be imported{f' ({where})' if where else ''}: {what}"
        ) from None
    return module


def _expectation(text: str) -> tuple[str, str]:
    match = _EXPECTATION.fullmatch(text)
    if match is None:
        raise CourseError(
            f"{text} is no condition: write 'wgmma.mma_async>=4' or 'spill_bytes==0'."
        )
    return match[1], match[2]


def _printed(code: Compiled, how: str) -> str:
    if how in ("ptx", "sass"):
        return str(getattr(code, how))
    if how == "json":
        return json.dumps(_as_data(code), indent=1)
    return f"{code.view()!r}\n\nLayouts\n{code.layouts!r}"


def _as_data(code: Compiled) -> dict[str, Any]:
    kernels = [
        {
            "name": k.name,
            "grid": k.grid,
            "block": k.block,
            "cluster": k.cluster,
            "registers": k.registers,
            "spill_bytes": k.spill_bytes,
            "stack_bytes": k.stack_bytes,
            "smem_bytes": k.smem_bytes,
            "tmem_columns": k.tmem_columns,
            "instructions": dict(Counter(i.opcode for i in k.instructions if i.kind)),
        }
        for k in code.kernels
    ]
    layouts = [
        {"kind": d.kind, "name": d.name, "array": d.array, "layout": d.layout, "line": str(d.where)}
        for d in code.layouts
    ]
    return {"arch": code.arch, "kernels": kernels, "layouts": layouts, "notes": list(code.notes)}
