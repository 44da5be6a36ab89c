"""Collective operations between devices, outside of kernels (jax.lax.psum and its kin)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

# What a group of devices has, in the order of the named axes -> what each of them gets.
Group = Callable[[Sequence[np.ndarray], Mapping[str, Any]], list[np.ndarray]]


def _all(function: Callable[[Any, Any], Any]) -> Group:
    def run(parts: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
        return [reduce(function, parts)] * len(parts)

    return run


def _all_gather(parts: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
    axis = params["all_gather_dimension"]
    whole = np.concatenate(parts, axis) if params["tiled"] else np.stack(parts, axis)
    return [whole] * len(parts)


def _reduce_scatter(parts: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
    axis, tiled = params["scatter_dimension"], params["tiled"]
    pieces = np.split(reduce(np.add, parts), len(parts), axis)
    return pieces if tiled else [np.squeeze(p, axis) for p in pieces]


def _all_to_all(parts: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
    split, concat, n = params["split_axis"], params["concat_axis"], len(parts)
    pieces = [np.split(p, n, split) for p in parts]
    if params["tiled"]:
        return [np.concatenate([pieces[j][i] for j in range(n)], concat) for i in range(n)]
    return [np.stack([np.squeeze(pieces[j][i], split) for j in range(n)], concat) for i in range(n)]


def _ppermute(parts: Sequence[np.ndarray], params: Mapping[str, Any]) -> list[np.ndarray]:
    out = [np.zeros_like(p) for p in parts]
    for source, target in params["perm"]:
        out[target] = parts[source]
    return out


COLLECTIVES: dict[str, Group] = {
    "psum": _all(np.add),
    "psum_invariant": _all(np.add),
    "pmax": _all(np.maximum),
    "pmin": _all(np.minimum),
    "all_gather": _all_gather,
    "all_gather_invariant": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "ppermute": _ppermute,
}

# They say how a value varies between devices, and change nothing.
SAME: tuple[str, ...] = ("pvary", "pbroadcast", "pcast")


def axes_of(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the axes that a collective goes along."""
    names = params.get("axes", params.get("axis_name", ()))
    return tuple(names) if isinstance(names, tuple | list) else (names,)
