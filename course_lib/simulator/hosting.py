"""Runs in the process that `course_lib.model` keeps: one simulation, and what its jaxpr holds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from course_lib import tracing
from course_lib.diagnostics import Finding, Severity
from course_lib.simulator.api import MAX_STEPS, check_values, simulate
from course_lib.simulator.report import Report


def warm() -> None:
    """Starts JAX, so that a first call does not wait for it."""
    jax.block_until_ready(jax.numpy.zeros(()) + 1)


def to_numpy(tree: Any) -> Any:
    """The pytree with numpy arrays for JAX arrays; whatever else it holds stays.

    Raises:
      CourseError: one of its leaves is no array, or an array without values.
    """
    check_values(jax.tree.leaves(tree))
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)


def simulate_and_trace(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    arch: str | None = None,
    schedule: str | int = "in_order",
    max_steps: int | None = None,
    timeline: bool | str = False,
    values: bool = True,
    sms: int | None = None,
    kernels_needed: bool = True,
) -> tuple[Report, tracing.Trace | None]:
    """The report of `function(*args)`, and its trace (None if tracing raised).

    Args:
      arch: the architecture; None for the one that its kernels need.
      kernels_needed: whether a function without a kernel is an error; if not, JAX runs it.

    Raises:
      CourseError: there is no kernel in `function` and one is needed.
    """
    traced = None
    with contextlib.suppress(Exception):  # `simulate` meets the same exception and explains it
        traced = tracing.trace(function, *args)
    if traced is not None and not traced.kernels and not kernels_needed:
        return _plain(function, args), traced
    report = simulate(
        function,
        *args,
        arch=arch or tracing.arch_for(traced),
        schedule=schedule,
        max_steps=MAX_STEPS if max_steps is None else max_steps,
        timeline=timeline,
        values=values,
        sms=sms,
    )
    return report, traced


def _plain(function: Callable[..., Any], args: tuple[Any, ...]) -> Report:
    """A function without kernels: JAX runs it."""
    try:
        return Report(to_numpy(function(*args)))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        return Report(None, (Finding("exception", Severity.ERROR, what),))
