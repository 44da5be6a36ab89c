"""cloudpickle that keeps where code came from, and JAX's operations what they are.

cloudpickle replaces the file name of every code object by "<dynamic-code>", so
that equal functions pickle equally. A finding must name the learner's line, so
here a code object travels by `marshal`, file name and all: both ends are the
same Python.

A function inside a function of JAX's (`pl.kernel` returns one) takes the operations
that it uses along. A copy of an operation has none of the rules that were registered
for it, so these travel by name.
"""

from __future__ import annotations

import collections
import importlib
import io
import marshal
import sys
import types
from typing import Any, ClassVar

import cloudpickle


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = collections.ChainMap(
        {types.CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
        cloudpickle.Pickler.dispatch_table,
    )

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ == "Primitive" and (place := _global_of_jax(obj)):
            return _global, place
        return super().reducer_override(obj)


def _global_of_jax(primitive: Any) -> tuple[str, str] | None:
    """The module of JAX's and the name there of an operation, which is its own name and `_p`."""
    attribute = f"{primitive.name}_p"
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "jax" and vars(module).get(attribute) is primitive:
            return name, attribute
    return None


def _global(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def dumps(obj: Any) -> bytes:
    """`obj` as bytes; functions of a notebook travel by value, with their file names."""
    with io.BytesIO() as file:
        _Pickler(file).dump(obj)
        return file.getvalue()


loads = cloudpickle.loads
