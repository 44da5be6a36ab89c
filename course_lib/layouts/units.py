"""Numbers of bytes in words, the same here and in `explorer/layouts.mjs`."""

from __future__ import annotations

import math

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def bytes_in_words(count: int) -> str:
    """A number of bytes in words, three digits or the whole number: "96 KiB", "1.05 GiB"."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    scale = 1 if value >= 100 else 10 if value >= 10 else 100
    return f"{math.floor(value * scale + 0.5) / scale:.10g} {_UNITS[unit]}"
