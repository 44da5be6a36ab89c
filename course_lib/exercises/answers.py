"""Values that can be predicted, and when two of them are the same.

A value is read as plain data first: True, False, None, a text, a `Number`, or a tuple or
frozenset of those. NumPy's and JAX's scalars and small arrays are read as the Python
values that they hold.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence, Set
from typing import Any

KINDS = "a number, True or False, a text in quotes, or a tuple of those"
MOST_ELEMENTS = 64
_PYTHON_ROUNDING = 1e-9
_WORDS = {"yes": True, "true": True, "no": False, "false": False}


@dataclasses.dataclass(frozen=True)
class Number:
    """A number as it is compared.

    Attributes:
      value: the number itself.
      rounding: by how much, relative to it, another may differ and still be the same
        number: what the number's own type rounds away. 0 for an integer.
    """

    value: int | float
    rounding: float


def plain(value: Any) -> Any:
    """A value as plain data: bool, None, str, `Number`, or a tuple or frozenset of those.

    Raises:
      TypeError: it is nothing that can be predicted; the message says what it is.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return Number(int(value), 0.0)
    if isinstance(value, float):
        return Number(float(value), _PYTHON_ROUNDING)
    if isinstance(value, Set):
        return frozenset(plain(v) for v in _few(value))
    if isinstance(value, tuple | list):
        return tuple(plain(v) for v in _few(value))
    return _plain_array(value)


def _few(values: Any) -> Any:
    if len(values) > MOST_ELEMENTS:
        raise TypeError(f"{len(values)} values, more than anybody predicts")
    return values


def _plain_array(value: Any) -> Any:
    import numpy as np

    if value is ...:
        raise TypeError("unfinished: there is a ... in it")
    if not hasattr(type(value), "__array__"):
        name = type(value).__name__
        raise TypeError(f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}")
    array = np.asarray(value)
    if array.size > MOST_ELEMENTS:
        raise TypeError(f"an array of {array.size} elements, more than anybody predicts")
    if array.dtype.kind in "biuU":
        return plain(array.tolist())
    rounding = _rounding(array.dtype)
    return _numbers(array.astype(np.float64).tolist(), rounding)


def _rounding(dtype: Any) -> float:
    """The relative spacing of a floating-point type's numbers; 0 for a narrow integer's."""
    import ml_dtypes

    try:
        return max(float(ml_dtypes.finfo(dtype).eps), _PYTHON_ROUNDING)
    except ValueError:
        pass
    try:
        ml_dtypes.iinfo(dtype)
    except ValueError:
        raise TypeError(f"an array of {dtype}") from None
    return 0.0


def _numbers(values: Any, rounding: float) -> Any:
    if isinstance(values, list):
        return tuple(_numbers(v, rounding) for v in values)
    return Number(values, rounding)


def same(given: Any, answer: Any, within: float | None = None) -> bool:
    """Whether an answer is what was given, both as plain data.

    Capitals, spaces, hyphens and underscores of texts do not matter, nor does the order
    of a set. A number in quotes is a number, "yes" is True, and one value alone is a
    tuple or set of one.

    Args:
      given: what the run gave.
      answer: what was predicted.
      within: how far off a number may be, relative to `given`: 0.2 is 20 %.
    """
    answer = _read_as(given, answer)
    if isinstance(given, Number) and isinstance(answer, Number):
        return _close(given, answer, within)
    if isinstance(given, str) and isinstance(answer, str):
        return _bare(given) == _bare(answer)
    if isinstance(given, tuple) and isinstance(answer, tuple):
        pairs = zip(given, answer, strict=False)
        return len(given) == len(answer) and all(same(g, a, within) for g, a in pairs)
    if isinstance(given, frozenset) and isinstance(answer, tuple | frozenset):
        return _same_set(given, answer, within)
    return type(given) is type(answer) and bool(given == answer)


def _read_as(given: Any, answer: Any) -> Any:
    """An answer in the kind of what was given, where there is one way only to read it so."""
    if isinstance(answer, str) and isinstance(given, bool):
        return _WORDS.get(_bare(answer), answer)
    if isinstance(answer, str) and given is None:
        return None if _bare(answer) == "none" else answer
    if isinstance(answer, str) and isinstance(given, Number):
        return _number_in(answer)
    if isinstance(given, tuple | frozenset) and not isinstance(answer, tuple | frozenset):
        return (answer,)
    if isinstance(answer, tuple) and len(answer) == 1 and not isinstance(given, tuple | frozenset):
        return _read_as(given, answer[0])
    return answer


def _number_in(text: str) -> Any:
    try:
        return Number(float(text.replace("_", "")), _PYTHON_ROUNDING)
    except ValueError:
        return text


def _close(given: Number, answer: Number, within: float | None) -> bool:
    g, a = given.value, answer.value
    if g == a or (math.isnan(g) and math.isnan(a)):
        return True
    if not (math.isfinite(g) and math.isfinite(a)):
        return False
    return abs(g - a) <= max(given.rounding, within or 0.0) * abs(g)


def _bare(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text).casefold()


def _same_set(given: Set[Any], answer: Sequence[Any] | Set[Any], within: float | None) -> bool:
    """Whether each value of either has its equal in the other."""
    return all(any(same(g, a, within) for a in answer) for g in given) and all(
        any(same(g, a, within) for g in given) for a in answer
    )


def kind(value: Any) -> str:
    """What a plain value is, in words."""
    if isinstance(value, bool):
        return "True or False"
    if isinstance(value, tuple | frozenset):
        return f"{len(value)} value{'s' * (len(value) != 1)}"
    return {Number: "a number", str: "a text"}.get(type(value), "None")


def shown(value: Any) -> str:
    """A plain value as a reader would write it; the same value always gives the same text."""
    if isinstance(value, Number):
        return _shown_number(value.value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' * (len(value) == 1)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(shown, sorted(value, key=_rank)))}}}" if value else "set()"
    return str(value)


def _shown_number(value: int | float) -> str:
    if isinstance(value, int) or (
        math.isfinite(value) and abs(value) < 1e15 and value == int(value)
    ):
        return str(int(value))
    return f"{value:.6g}"


def _rank(value: Any) -> tuple[float, str]:
    """Numbers by size, everything else by its text."""
    return (value.value if isinstance(value, Number) else 0.0, shown(value))
