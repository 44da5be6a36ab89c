"""The ladder for Blackwell: one matrix product in steps, from one slot to two accumulators in TMEM.

    from course_lib.kernels import blackwell_ladder
    blackwell_ladder.step(3).matmul(a, b)
    print(blackwell_ladder.diff(4))     # what step 4 changes in the code of step 3

Each step is a module, `matmul0` and so on, with a frozen `Config` and a function
`matmul(a, b, *, config=None)`. `kernels.matmul_blackwell` has the product by pairs of SMs.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import sys
from types import ModuleType
from typing import Any

import jax

_IDEAS = (
    "one slot: copy, wait, multiply, wait",
    "warp specialized: one warp copies, one multiplies",
    "tiled epilogue, 128x256 per block",
    "persistent blocks",
    "a warpgroup for the epilogue, two accumulators",
)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the ladder.

    Attributes:
      number: its place, from 0.
      idea: what it adds, in a few words.
    """

    number: int
    idea: str

    @property
    def name(self) -> str:
        """The name of its module."""
        return f"matmul{self.number}"

    @property
    def module(self) -> ModuleType:
        """Its code."""
        return importlib.import_module(f"{__name__}.{self.name}")

    @property
    def source(self) -> str:
        """Its code as text."""
        return inspect.getsource(self.module)

    def matmul(self, a: jax.Array, b: jax.Array, *, config: Any = None) -> jax.Array:
        """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

        Raises:
          ValueError: a shape is not a multiple of its tile; it names the multiple.
        """
        return self.module.matmul(a, b, config=config)


STEPS = tuple(Step(i, idea) for i, idea in enumerate(_IDEAS))
LAST = len(STEPS) - 1


def step(number: int) -> Step:
    """A step by its number.

    Raises:
      ValueError: there is no such step.
    """
    if not 0 <= number <= LAST:
        raise ValueError(f"there is no step {number}: the ladder goes from 0 to {LAST}")
    return STEPS[number]


def diff(number: int) -> str:
    """What a step changes in the code of the one before, as a unified diff.

    Raises:
      ValueError: there is no such step, or none before it.
    """
    if number == 0:
        raise ValueError("step 0 is the first: it changes nothing")
    new, old = step(number), step(number - 1)
    return "\n".join(
        difflib.unified_diff(
            old.source.splitlines(), new.source.splitlines(), old.name, new.name, n=2, lineterm=""
        )
    )


def variant(number: int, old: str, new: str) -> ModuleType:
    """A step's module with a piece of its code replaced: to see what that piece is for.

    Args:
      number: the step.
      old: a piece of its code, of one line or several.
      new: what takes its place; its lines should be as many, so that findings name the right ones.

    Raises:
      ValueError: there is no such step, or it has no such piece.
    """
    original = step(number)
    if old not in original.source:
        raise ValueError(f"{original.name} does not contain {old!r}")
    module = ModuleType(f"{original.name}_changed")
    code = compile(original.source.replace(old, new), original.module.__file__ or "", "exec")
    sys.modules[module.__name__] = module  # dataclasses look it up
    try:
        exec(code, module.__dict__)
    finally:
        # No process could import it: what travels to another one takes its code along.
        del sys.modules[module.__name__]
    return module
