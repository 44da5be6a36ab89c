"""How much arithmetic an op is, for a timeline in which arithmetic takes its time.

What is spread over the lanes of a thread counts, element by element; scalars do not, as other
instructions hide them. A product whose only use is in a sum or a difference is part of that: one
fused multiply-add. What only moves or renames registers is free.
"""

from __future__ import annotations

import dataclasses
import math

from course_lib.simulator import ir

_LANES = 128
_FREE = frozenset(
    {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "copy", "copy_p", "identity",
     "stop_gradient", "optimization_barrier", "layout_cast", "bitcast_convert_type",
     "broadcasted_iota", "iota", "transpose", "slice"}
)  # fmt: skip
# The special function unit's: one per quadrant of an SM, four lanes wide.
_SPECIAL = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "tanh", "logistic", "sqrt", "rsqrt", "cbrt", "sin",
     "cos", "div", "pow", "reciprocal"}
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Work:
    """The arithmetic of one op.

    Attributes:
      elements: how many elements it computes, or takes in if it reduces.
      special: whether they are the special function unit's (powers, roots, quotients).
    """

    elements: int
    special: bool


def work_of(block: ir.Block, op: ir.Op) -> Work | None:
    """The work of an op of a block; None if it is nothing to speak of."""
    slots = [s for s in (*op.inputs, *op.outputs) if s >= 0]
    elements = max((math.prod(block.types[s].shape) for s in slots), default=1)
    if elements < _LANES or op.name in _FREE or _is_fused(block, op):
        return None
    return Work(elements, op.name in _SPECIAL)


def _is_fused(block: ir.Block, op: ir.Op) -> bool:
    """Whether an op is a product whose only reader adds something to it."""
    if op.name != "mul":
        return False
    [out] = op.outputs
    readers = [other.name for other in block.ops for s in other.inputs if s == out]
    return readers in (["add"], ["sub"]) and out not in block.results
