"""A rule's wrong kernel and its right twin."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two functions of the same arguments; `wrong` breaks exactly the rule.

    Attributes:
      rule: the id of the rule.
      args: (shape, dtype) of each argument; data is normal, fresh each time.
      says: words that the finding must contain.
      max_steps: a step limit for both.
      adversarial: a right value that `wrong` must miss in the adversarial schedule, as a
        function of the arguments; None where a missing wait cannot show.
    """

    rule: str
    wrong: Callable[..., Any]
    right: Callable[..., Any]
    args: tuple[tuple[tuple[int, ...], str], ...]
    says: tuple[str, ...] = ()
    arch: str = "sm_90a"
    name: str = ""
    max_steps: int = 1_000_000
    reference: Callable[..., Any] | None = None
    differs: bool = False

    @property
    def label(self) -> str:
        return f"{self.rule}-{self.name}" if self.name else self.rule

    def draw(self) -> list[np.ndarray]:
        rng = np.random.default_rng()
        return [rng.standard_normal(shape).astype(dtype) for shape, dtype in self.args]
