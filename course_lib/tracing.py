"""What a function asks of a GPU, read from its jaxpr: nothing runs.

Works on primitive names and parameters as `jax.make_jaxpr` shows them, so it
imports no private JAX name. The kernel equations are `mpmd_map` (what
`plgpu.kernel` and `pl.kernel` become), `core_map` and `pallas_call`.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax

KERNEL_PRIMITIVES = frozenset({"mpmd_map", "core_map", "pallas_call"})
# These move or relabel elements and compute nothing.
_SHAPE_ONLY = frozenset(
    {
        "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "expand_dims",
        "pad", "reshape", "rev", "slice", "split", "squeeze", "transpose",
    }
)  # fmt: skip
_LOOPS = frozenset({"scan", "while", "cond", "run_state", "shard_map"})

BARRIER_OF_ALL = "ClusterBarrier of all"
SLOTS_IN_TURN = "slots in turn"


@dataclasses.dataclass(frozen=True)
class Trace:
    """What is in a traced function.

    Attributes:
      kernels: how many kernels its jaxpr holds.
      inside: how often each primitive occurs inside kernels (by equation, not by execution);
        a copy out that leaves its group open counts as `commit_group=False` as well, a cluster
        barrier over all blocks of several axes as `BARRIER_OF_ALL`, and answers of cluster
        launch control in several slots as `SLOTS_IN_TURN`.
      outside: the same outside of kernels, calls such as jit not counted.
      from_kernel: whether every output is a kernel's output, reshaped at most.
      grids: the grid of each kernel, `((size, ...), ...)`.
      clusters: the cluster shape of each kernel, `()` for none.
      threads: the Pallas threads per block of each kernel.
      smem_bytes: the most shared memory that a block of any kernel asks for explicitly, in bytes.
      gathers: how many copies inside kernels take their rows by an array of indices.
      tmem_buffers: how many references to tensor memory the kernels allocate.
      devices: how many devices the largest `jax.shard_map` around a kernel runs on.
    """

    kernels: int
    inside: Counter[str]
    outside: Counter[str]
    from_kernel: bool
    grids: tuple[tuple[int, ...], ...] = ()
    clusters: tuple[tuple[int, ...], ...] = ()
    threads: tuple[int, ...] = ()
    smem_bytes: int = 0
    gathers: int = 0
    tmem_buffers: int = 0
    devices: int = 1


# What the primitives inside of kernels ask of the hardware, in the words of PTX ISA.
_NEEDS = {
    "copy_gmem_to_smem": "tma",
    "copy_smem_to_gmem": "tma",
    "async_prefetch": "tma",
    "wgmma_ref": "wgmma",
    "wgmma": "wgmma",
    "tcgen05_mma": "tcgen05",
    "tcgen05_commit_arrive": "tcgen05",
    "async_load_tmem": "tcgen05",
    "async_store_tmem": "tcgen05",
    "try_cluster_cancel": "cluster launch control",
}


def features(traced: Trace) -> frozenset[str]:
    """The hardware features that the traced kernels use; the names are those of `runtime`."""
    found = {_NEEDS[name] for name in traced.inside if name in _NEEDS}
    if any(math.prod(c) > 1 for c in traced.clusters):
        found.add("clusters")
    if traced.gathers:
        found.add("tma gather")
    if traced.tmem_buffers:
        found.add("tcgen05")
    return frozenset(found)


def arch_for(traced: Trace | None) -> str:
    """The architecture to model: "sm_100a" for kernels that only Blackwell has, else "sm_90a"."""
    blackwell = {"tcgen05", "cluster launch control", "tma gather"}
    return "sm_100a" if traced is not None and features(traced) & blackwell else "sm_90a"


def trace(function: Callable[..., Any], *args: Any) -> Trace:
    """Traces `function(*args)` without running it.

    Args:
      function: any function of arrays.
      *args: arrays, or `jax.ShapeDtypeStruct`s.

    Raises:
      whatever `function` raises while it is traced.
    """
    return analyse(jax.make_jaxpr(function)(*args))


def analyse(closed: Any) -> Trace:
    """What is in a jaxpr of a traced function."""
    jaxpr = _open(closed)
    inside: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    kernels = list(_visit(jaxpr, outside))
    for kernel in kernels:
        slots: set[Any] = set()
        for sub in _subjaxprs(kernel):
            _count(sub, inside, slots)
        inside[SLOTS_IN_TURN] += len(slots) if None in slots or len(slots) > 1 else 0
    meshes = [_mesh(k) for k in kernels]
    inside += Counter()  # drops what occurs 0 times
    return Trace(
        kernels=len(kernels),
        inside=inside,
        outside=outside,
        from_kernel=bool(kernels) and all(_from_kernel(jaxpr, v) for v in jaxpr.outvars),
        grids=tuple(m[0] for m in meshes),
        clusters=tuple(m[1] for m in meshes),
        threads=tuple(m[2] for m in meshes),
        smem_bytes=max((_smem_bytes(k) for k in kernels), default=0),
        gathers=sum(_gathers(sub) for kernel in kernels for sub in _subjaxprs(kernel)),
        tmem_buffers=sum(_tmem_buffers(sub) for kernel in kernels for sub in _subjaxprs(kernel)),
        devices=_devices(jaxpr),
    )


def _open(jaxpr: Any) -> Any:
    """The jaxpr with equations; older JAX wraps it in a `ClosedJaxpr`."""
    return jaxpr if hasattr(jaxpr, "eqns") else jaxpr.jaxpr


def _subjaxprs(eqn: Any) -> Iterator[Any]:
    for value in eqn.params.values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(item, "eqns") or hasattr(getattr(item, "jaxpr", None), "eqns"):
                yield _open(item)


def _visit(jaxpr: Any, outside: Counter[str]) -> Iterator[Any]:
    """Yields the kernel equations; counts what computes outside of them."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in KERNEL_PRIMITIVES:
            yield eqn
            continue
        subs = list(_subjaxprs(eqn))
        if not subs:
            outside[eqn.primitive.name] += 1
        for sub in subs:
            yield from _visit(sub, outside)


def _devices(jaxpr: Any) -> int:
    """The size of the largest mesh of devices that a kernel stands in."""
    most = 1
    for eqn in jaxpr.eqns:
        subs = list(_subjaxprs(eqn))
        if eqn.primitive.name == "shard_map" and any(list(_visit(s, Counter())) for s in subs):
            most = max(most, int(eqn.params["mesh"].size))
        if eqn.primitive.name not in KERNEL_PRIMITIVES:
            most = max((most, *map(_devices, subs)))
    return most


def _count(jaxpr: Any, counter: Counter[str], slots: set[Any]) -> None:
    """Counts primitives; adds the slots that answers are read from (None: not a fixed one)."""
    for eqn in jaxpr.eqns:
        counter[eqn.primitive.name.removesuffix("_p")] += 1
        if eqn.params.get("commit_group") is False:
            counter["commit_group=False"] += 1
        if eqn.primitive.name == "query_cluster_cancel":
            slots |= {getattr(v, "val", None) for v in eqn.invars[1:]}  # the result comes first
        for sub in _subjaxprs(eqn):
            if eqn.primitive.name == "run_scoped":
                counter[BARRIER_OF_ALL] += sum(_is_of_all(v.aval) for v in sub.invars)
            _count(sub, counter, slots)


def _is_of_all(aval: Any) -> bool:
    """Whether it is a cluster barrier with several axes as one: for all blocks along them."""
    axes = getattr(getattr(aval, "dtype", None), "collective_axes", ())
    return any(isinstance(axis, tuple) and len(axis) > 1 for axis in axes)


def _gathers(jaxpr: Any) -> int:
    """How many copies have an array among the indices of a reference.

    All other operands of a copy are references and scalars.
    """
    own = sum(
        any(getattr(v.aval, "shape", ()) and not hasattr(v.aval, "inner_aval") for v in eqn.invars)
        for eqn in jaxpr.eqns
        if eqn.primitive.name in ("copy_gmem_to_smem", "copy_smem_to_gmem", "async_prefetch")
    )
    return own + sum(_gathers(sub) for eqn in jaxpr.eqns for sub in _subjaxprs(eqn))


def _tmem_buffers(jaxpr: Any) -> int:
    """How many references to tensor memory the scopes of a kernel allocate."""
    own = sum(
        str(getattr(v.aval, "memory_space", "")).lower().endswith("tmem")
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "run_scoped"
        for sub in _subjaxprs(eqn)
        for v in sub.invars
    )
    return own + sum(_tmem_buffers(sub) for eqn in jaxpr.eqns for sub in _subjaxprs(eqn))


def _from_kernel(jaxpr: Any, var: Any) -> bool:
    """Whether `var` of `jaxpr` is a kernel's output up to shape-only primitives."""
    for eqn in jaxpr.eqns:
        if not any(out is var for out in eqn.outvars):
            continue
        name = eqn.primitive.name
        if name in KERNEL_PRIMITIVES:
            return True
        if name in _SHAPE_ONLY:
            return any(_from_kernel(jaxpr, v) for v in eqn.invars if not hasattr(v, "val"))
        subs = list(_subjaxprs(eqn))
        if name in _LOOPS:
            return any(list(_visit(s, Counter())) for s in subs)
        index = next(i for i, out in enumerate(eqn.outvars) if out is var)
        return bool(subs) and _from_kernel(subs[0], subs[0].outvars[index])
    return False


def _mesh(eqn: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """`(grid, cluster, threads per block)` of a kernel equation."""
    meshes = eqn.params.get("meshes") or (eqn.params.get("mesh"),)
    mesh = meshes[0]
    if mesh is None:  # pallas_call
        grid = getattr(eqn.params.get("grid_mapping"), "grid", ())
        return tuple(int(g) for g in grid if isinstance(g, int)), (), 1
    grid = tuple(int(g) for g in getattr(mesh, "grid", ()))
    cluster = tuple(int(c) for c in getattr(mesh, "cluster", ()))
    return grid, cluster, int(getattr(mesh, "num_threads", None) or 1)


def _smem_bytes(eqn: Any) -> int:
    """Bytes of SMEM references allocated in a kernel; nested scopes add up."""
    total = 0
    for sub in _subjaxprs(eqn):
        total += _scope_bytes(sub)
    return total


def _scope_bytes(jaxpr: Any) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        subs = list(_subjaxprs(eqn))
        own = 0
        if eqn.primitive.name == "run_scoped":
            own = sum(_ref_bytes(v.aval) for s in subs for v in s.invars)
        # scopes that follow each other reuse the memory: only the largest counts
        total = max(total, own + sum(_scope_bytes(s) for s in subs))
    return total


def _ref_bytes(aval: Any) -> int:
    space = str(getattr(aval, "memory_space", "")).lower()
    inner = getattr(aval, "inner_aval", aval)
    dtype = getattr(inner, "dtype", None)
    itemsize = getattr(dtype, "itemsize", 0) if "smem" in space else 0
    return math.prod(getattr(inner, "shape", ())) * itemsize
