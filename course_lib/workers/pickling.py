"""cloudpickle that keeps where code came from.

cloudpickle replaces the file name of every code object by "<dynamic-code>", so
that equal functions pickle equally. A finding must name the learner's line, so
here a code object travels by `marshal`, file name and all: both ends are the
same Python.
"""

from __future__ import annotations

import collections
import io
import marshal
import types
from typing import Any, ClassVar

import cloudpickle


class _Pickler(cloudpickle.Pickler):
    dispatch_table: ClassVar[Any] = collections.ChainMap(
        {types.CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
        cloudpickle.Pickler.dispatch_table,
    )


def dumps(obj: Any) -> bytes:
    """`obj` as bytes; functions of a notebook travel by value, with their file names."""
    with io.BytesIO() as file:
        _Pickler(file).dump(obj)
        return file.getvalue()


loads = cloudpickle.loads
