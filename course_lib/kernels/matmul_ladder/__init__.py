"""The ladder: one matrix product in steps, from a single slot of SMEM to cuBLAS.

    from course_lib.kernels import matmul_ladder
    matmul_ladder.step(3).matmul(a, b)
    print(matmul_ladder.diff(4))        # what step 4 changes in the code of step 3

Each step is a module, `matmul0` and so on, with a frozen `Config` and a function
`matmul(a, b, *, config=None)`. `tuned` reads what `course tune` found for the last one.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
from types import ModuleType
from typing import Any

import jax

from course_lib.kernels.matmul_ladder import tuned

_IDEAS = (
    "one slot: copy, wait, multiply",
    "a ring of slots",
    "emit_pipeline",
    "two warpgroups, 128x256 per block",
    "warp specialization",
    "tiled epilogue",
    "persistent blocks",
    "planar_snake",
    "clusters with multicast",
    "ping-pong",
    "a ring that never drains",
    "even waves",
    "there and back along K",
)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the ladder.

    Attributes:
      number: its place, from 0.
      idea: what it adds, in a few words.
      follows: the number of the step whose code it changes.
    """

    number: int
    idea: str
    follows: int | None

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

    def config(self, m: int, n: int, k: int, dtype: Any, *, device: str | None = None) -> Any:
        """The configuration for a shape: the module's own; for the last step, the tuned one.

        Args:
          m: rows of the result.
          n: columns of it.
          k: how many products each element adds up.
          dtype: of the operands.
          device: the name of the card; None is the one that JAX runs on.
        """
        if self.number != LAST:
            return self.module.Config()
        device = device or jax.devices()[0].device_kind
        return self.module.Config(**tuned.best(m, n, k, dtype, device=device))

    def matmul(self, a: jax.Array, b: jax.Array, *, config: Any = None) -> jax.Array:
        """`a @ b`: (m, k) times (k, n), float16 or bfloat16, added up in float32.

        Raises:
          ValueError: a shape is not a multiple of its tile; it names the multiple.
        """
        if config is None:
            config = self.config(a.shape[0], b.shape[-1], a.shape[-1], a.dtype)
        return self.module.matmul(a, b, config=config)


_FOLLOWS = {3: 1, 4: 2}  # step 3 needs the loop by hand again, step 4 a pipeline
STEPS = tuple(Step(i, idea, _FOLLOWS.get(i, i - 1) if i else None) for i, idea in enumerate(_IDEAS))
LAST = len(STEPS) - 1


def step(number: int) -> Step:
    """A step by its number.

    Raises:
      ValueError: there is no such step.
    """
    if not 0 <= number <= LAST:
        raise ValueError(f"there is no step {number}: the ladder goes from 0 to {LAST}")
    return STEPS[number]


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b` by the last step, in the best configuration known for this shape."""
    return STEPS[LAST].matmul(a, b)


def diff(number: int, *, since: int | None = None) -> str:
    """What a step changes in the code of the one it follows, as a unified diff.

    Args:
      number: the step.
      since: another step to compare it with.
    """
    new = step(number)
    old = step(since) if since is not None else step(new.follows or 0)
    return "\n".join(
        difflib.unified_diff(
            old.source.splitlines(), new.source.splitlines(), old.name, new.name, n=2, lineterm=""
        )
    )
