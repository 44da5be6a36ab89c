"""`course compile file.py:kernel float16[4096,4096] ...`: an engineer's own kernel, from a shell.

Prints what the compiler made of it; with `--expect` the exit status says whether
it got there by the right means.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from typing import Any

import jax

from course_lib.compiler.api import compile_for
from course_lib.compiler.compiled import Compiled
from course_lib.compiler.expectations import expectations
from course_lib.diagnostics import CourseError
from course_lib.user_code import load_function, parse_array

_EXPECTATION = re.compile(r"\s*([^<>=!\s]+)\s*((?:>=|<=|==|!=|>|<)\s*\d+)\s*")


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


def array(text: str) -> jax.ShapeDtypeStruct:
    """The shape and dtype that "float16[4096,4096]" (or "f16[4096,4096]") means.

    Raises:
      CourseError: it cannot be read.
    """
    return jax.ShapeDtypeStruct(*parse_array(text))


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
