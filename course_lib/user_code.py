"""An engineer's own code, as command lines name it: "file.py:function" and "float16[64,64]"."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from course_lib.diagnostics import CourseError, clinic
from course_lib.diagnostics.locations import locate

_ARRAY = re.compile(r"\s*(\w+)\s*\[([\d,\s]*)\]\s*")
_SHORT = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
}


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


def parse_array(text: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
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
    return tuple(int(n) for n in match[2].split(",") if n.strip()), dtype


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
        raise CourseError(
            f"{line} is not valid Python: {error.msg}\n    {(error.text or '').strip()}"
        ) from None
    except Exception as error:
        where = clinic.innermost_reader_frame(clinic.frames_of(error))
        what = "".join(traceback.format_exception_only(error)).strip()
        raise CourseError(
            f"{place} cannot be imported{f' ({where})' if where else ''}: {what}"
        ) from None
    return module
