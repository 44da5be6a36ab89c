"""The second ladder: attention, forward, in steps, from three kernels to one that beats cuDNN.

    from course_lib.kernels import attention_ladder
    attention_ladder.step(4).attention(q, k, v)
    print(attention_ladder.diff(4))     # what step 4 changes in the code of step 3

Each step is a module, `attention0` and so on, with a frozen `Config` and a function
`attention(q, k, v, *, config=None)`; from step 5 on it takes `causal` and `return_lse`, too.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax

_IDEAS = (
    "three kernels, scores in GMEM",
    "online softmax",
    "a ring, and two warpgroups that compute",
    "ping-pong",
    "softmax beside P V",
    "causal",
    "persistent blocks",
    "one slot for one step",
    "no maximum ahead",
)
_CAUSAL_SINCE = 5


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
        return f"attention{self.number}"

    @property
    def module(self) -> ModuleType:
        """Its code."""
        return importlib.import_module(f"{__name__}.{self.name}")

    @property
    def source(self) -> str:
        """Its code as text."""
        return inspect.getsource(self.module)

    @property
    def takes_causal(self) -> bool:
        """Whether its function takes `causal` and `return_lse`."""
        return self.number >= _CAUSAL_SINCE

    def config(self, head_dim: int, *, causal: bool = False) -> Any:
        """The configuration for a head_dim: the module's own; for the last step, the tuned one.

        Args:
          head_dim: 64 or 128.
          causal: whether queries see no later keys.
        """
        settings = _TUNED.get((head_dim, causal), {}) if self.number == LAST else {}
        return self.module.Config(**settings)

    def attention(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        *,
        causal: bool = False,
        return_lse: bool = False,
        config: Any = None,
    ) -> Any:
        """`softmax(q k^T / sqrt(head_dim)) v`: (batch, q_len, heads, head_dim).

        Args:
          q: (batch, q_len, heads, head_dim), float16 or bfloat16.
          k: (batch, kv_len, kv_heads, head_dim), of the same dtype.
          v: like k.
          causal: whether query i sees the keys 0 to i only.
          return_lse: whether to return log(sum(exp(scores))) as well, (batch, heads, q_len).
          config: the tile sizes; None is what is best for this head_dim.

        Raises:
          ValueError: a shape is not a multiple of its tile, it names the multiple; or the step
            takes no `causal` or `return_lse`.
        """
        options = {}
        if self.takes_causal:
            options = dict(causal=causal, return_lse=return_lse)
        elif causal or return_lse:
            raise ValueError(
                f"{self.name} knows neither causal nor return_lse;"
                f" steps {_CAUSAL_SINCE} to {LAST} do"
            )
        config = config or self.config(q.shape[-1], causal=causal)
        return self.module.attention(q, k, v, config=config, **options)


_TUNED: dict[tuple[int, bool], dict[str, Any]] = {
    (64, False): dict(compute_wgs=3, max_concurrent_steps=4),
    (64, True): dict(max_concurrent_steps=4, turns=False),
    (128, False): dict(compute_wgs=3, block_kv=64, max_concurrent_steps=4, turns=False),
    (128, True): dict(turns=False),
}
"""By head_dim and causal, the last step's best configuration on an H200. Where a maximum is not
kept beside the scores, registers are left for a third warpgroup."""

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


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool = False, return_lse: bool = False
) -> Any:
    """The last step, in the best configuration known for this head_dim."""
    return STEPS[LAST].attention(q, k, v, causal=causal, return_lse=return_lse)


def contenders(head_dim: int, *, causal: bool) -> Iterator[tuple[Step, Any]]:
    """For a benchmark: each step that can do it, and its configuration."""
    for each in STEPS:
        if each.takes_causal or not causal:
            yield each, each.config(head_dim, causal=causal)


def diff(number: int, *, since: int | None = None) -> str:
    """What a step changes in the code of the one before, as a unified diff.

    Args:
      number: the step.
      since: another step to compare it with.
    """
    new = step(number)
    old = step(since if since is not None else max(number - 1, 0))
    return "\n".join(
        difflib.unified_diff(
            old.source.splitlines(), new.source.splitlines(), old.name, new.name, n=2, lineterm=""
        )
    )
