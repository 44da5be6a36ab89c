"""Measurements: the simulator's speed, and ladders of kernels against cuBLAS on a card.

course bench matmul            # tables, and a dated record in benchmarks/records/
course tune 8192x8192x8192     # the best configuration of the last step
score(my_matmul)               # where a kernel of yours stands
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.benchmarks.scoring import score

__all__ = ["score"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module("course_lib.benchmarks.scoring"), name)
    globals()[name] = value
    return value
