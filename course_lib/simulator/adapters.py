"""How each Pallas primitive lays out its refs, transforms and operands.

A primitive's equation holds refs, then the leaves of several trees of
transforms, then optional operands; which, is its own business. Each adapter
here names them by role. No private JAX name is needed: an equation's params
and invars are enough. The keys of `ADAPTERS` are the kernel primitives that the
simulator knows by name; what is neither here nor arithmetic is "unsupported".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.inline import ATTRIBUTE


@dataclasses.dataclass
class Adapted:
    """An equation's operands by role; `name` replaces the primitive's own if given."""

    name: str = ""
    inputs: Sequence[int] = ()
    refs: Mapping[str, ir.RefUse] = dataclasses.field(default_factory=dict)
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    live: bool = False


Adapter = Callable[[Any, Any], Adapted]


class _Leaves:
    """The flat operands of an equation, taken from the left."""

    def __init__(self, b: Any, atoms: Sequence[Any]):
        self.b = b
        self.atoms = list(atoms)

    def take(self, n: int = 1) -> list[Any]:
        taken, self.atoms = self.atoms[:n], self.atoms[n:]
        return taken

    def ref(self, var: Any, tree: Any) -> ir.RefUse:
        return self.b.tree(var, tree, self.take(tree.num_leaves if tree is not None else 0))

    def value(self) -> int:
        [atom] = self.take()
        return self.b.slot(atom)


def _is_ref(atom: Any) -> bool:
    return hasattr(atom.aval, "inner_aval")


def _operand(b: Any, atom: Any, use: ir.RefUse) -> tuple[str, Any]:
    """An operand that is a ref (by use) or an array in registers (by slot)."""
    return ("ref", use) if _is_ref(atom) else ("value", b.slot(atom))


def _get(b: Any, eqn: Any) -> Adapted:
    ref, *leaves = eqn.invars
    return Adapted("get", refs={"ref": b.tree(ref, eqn.params["tree"], leaves)})


def _swap(b: Any, eqn: Any) -> Adapted:
    ref, value, *leaves = eqn.invars
    use = b.tree(ref, eqn.params["tree"], leaves)
    return Adapted("swap", inputs=[b.slot(value)], refs={"ref": use})


def _addupdate(b: Any, eqn: Any) -> Adapted:
    return dataclasses.replace(_swap(b, eqn), name="addupdate")


def _masked_load(b: Any, eqn: Any) -> Adapted:
    ref, transforms, mask, other = eqn.params["args_tree"].unflatten(eqn.invars)
    inputs = [b.slot(a) for a in (mask, other) if a is not None]
    params = {"has_mask": mask is not None, "has_other": other is not None}
    return Adapted(
        "masked_load", inputs=inputs, refs={"ref": b.ref(ref, transforms)}, params=params
    )


def _masked_swap(b: Any, eqn: Any) -> Adapted:
    ref, transforms, value, mask = eqn.params["args_tree"].unflatten(eqn.invars)
    inputs = [b.slot(a) for a in (value, mask) if a is not None]
    params = {"has_mask": mask is not None}
    return Adapted(
        "masked_swap", inputs=inputs, refs={"ref": b.ref(ref, transforms)}, params=params
    )


def _barrier(b: Any, eqn: Any) -> Adapted:
    """barrier_wait, barrier_arrive, barrier_test, barrier_arrive_and_wait."""
    leaves = _Leaves(b, eqn.invars)
    [barrier] = leaves.take()
    use = leaves.ref(barrier, eqn.params["transforms_treedef"])
    has_predicate = bool(eqn.params.get("has_user_predicate", False))
    inputs = [leaves.value()] if has_predicate else []
    return Adapted(inputs=inputs, refs={"barrier": use}, params={"has_predicate": has_predicate})


def _copy_gmem_to_smem(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    src, dst = leaves.take(2)
    has_barrier = p.get("has_barrier", True)
    barrier = leaves.take()[0] if has_barrier else None
    refs = {
        "src": leaves.ref(src, p["src_transforms_treedef"]),
        "dst": leaves.ref(dst, p["dst_transforms_treedef"]),
    }
    if barrier is not None:
        refs["barrier"] = leaves.ref(barrier, p["barrier_transforms_treedef"])
    has_predicate = bool(p.get("has_user_predicate", False))
    axes = b.converter.axis_names(p["collective_axes"]) if p["collective_axes"] else ()
    return Adapted(
        inputs=[leaves.value()] if has_predicate else [],
        refs=refs,
        params={
            "collective_axes": axes,
            "partition": _partition(p.get("leader_tracked")),
            "oob": getattr(p.get("oob_mode"), "name", "ZEROS").lower(),
            "has_predicate": has_predicate,
        },
    )


def _partition(mode: Any) -> Any:
    """None, "replicated", or the axis of a PARTITIONED leader-tracked copy."""
    if mode is None:
        return None
    return mode.axis if hasattr(mode, "axis") else "replicated"


def _copy_smem_to_gmem(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    src, dst = leaves.take(2)
    refs = {
        "src": leaves.ref(src, p["src_transforms_treedef"]),
        "dst": leaves.ref(dst, p["dst_transforms_treedef"]),
    }
    has_predicate = bool(p["has_user_predicate"])
    return Adapted(
        inputs=[leaves.value()] if has_predicate else [],
        refs=refs,
        params={
            "commit": bool(p["commit_group"]),
            "reduction": p["reduction_op"],
            "has_predicate": has_predicate,
        },
    )


def _async_prefetch(b: Any, eqn: Any) -> Adapted:
    return Adapted("nothing")


def _simple(*names: str) -> Adapter:
    """An op with plain params only; `names` are the params to keep."""

    def adapt(b: Any, eqn: Any) -> Adapted:
        kept = {n: eqn.params[n] for n in names}
        return Adapted(inputs=[b.slot(a) for a in eqn.invars], params=kept)

    return adapt


def _nothing(b: Any, eqn: Any) -> Adapted:
    return Adapted("nothing", params={"was": eqn.primitive.name})


def _debug_print(b: Any, eqn: Any) -> Adapted:
    """pl.debug_print of scalars, or of one array; without names, as JAX wants it on a GPU."""
    inputs = [b.slot(a) for a in eqn.invars]
    return Adapted("print", inputs=inputs, params={"text": str(eqn.params["fmt"])})


def _identity(b: Any, eqn: Any) -> Adapted:
    return Adapted("identity", inputs=[b.slot(eqn.invars[0])])


def _wgmma(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    acc, a, bb = leaves.take(3)
    refs = {"acc": leaves.ref(acc, p["acc_transforms_tree"])}
    a_kind, a_use = _operand(b, a, leaves.ref(a, p["a_transforms_tree"]))
    refs["b"] = leaves.ref(bb, p["b_transforms_tree"])
    if a_kind == "ref":
        return Adapted(refs={**refs, "a": a_use})
    return Adapted(inputs=[a_use], refs=refs)


def _accumulator_deref(b: Any, eqn: Any) -> Adapted:
    wait_n = eqn.params.get("wait_n", 0)
    return Adapted(refs={"acc": b.ref(eqn.invars[0])}, params={"n": wait_n})


def _accumulator_store(b: Any, eqn: Any) -> Adapted:
    acc, value = eqn.invars
    return Adapted(inputs=[b.slot(value)], refs={"acc": b.ref(acc)})


def _tcgen05_mma(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    acc, a, bb, accumulate = leaves.take(4)
    barrier = leaves.take()[0] if p["arrive"] else None
    scales = leaves.take(2) if p["scaled"] else []
    sparse = leaves.take() if p["sparse"] else []
    refs = {"acc": leaves.ref(acc, p["acc_transforms_tree"])}
    refs["a"] = leaves.ref(a, p["a_transforms_tree"])
    refs["b"] = leaves.ref(bb, p["b_transforms_tree"])
    if barrier is not None:
        refs["barrier"] = leaves.ref(barrier, p["barrier_transforms_tree"])
    if scales:
        refs["a_scale"] = leaves.ref(scales[0], p["a_scale_transforms_tree"])
        refs["b_scale"] = leaves.ref(scales[1], p["b_scale_transforms_tree"])
    if sparse:
        refs["a_sparse"] = leaves.ref(sparse[0], p["a_sparse_metadata_transforms_tree"])
    axes = b.converter.axis_names(p["collective_axis"]) if p["collective_axis"] else ()
    return Adapted(inputs=[b.slot(accumulate)], refs=refs, params={"collective_axes": axes})


def _tcgen05_commit(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    [barrier] = leaves.take()
    refs = {"barrier": leaves.ref(barrier, p["barrier_transforms_tree"])}
    has_predicate = bool(p.get("has_user_predicate", False))
    axes = b.converter.axis_names(p["collective_axis"]) if p["collective_axis"] else ()
    return Adapted(
        inputs=[leaves.value()] if has_predicate else [],
        refs=refs,
        params={"collective_axes": axes, "has_predicate": has_predicate},
    )


def _load_tmem(b: Any, eqn: Any) -> Adapted:
    ref, *leaves = eqn.invars
    use = b.tree(ref, eqn.params["tree"], leaves)
    return Adapted(
        "async_load_tmem", refs={"ref": use}, params={"reduce": eqn.params.get("reduce")}
    )


def _store_tmem(b: Any, eqn: Any) -> Adapted:
    return dataclasses.replace(_swap(b, eqn), name="async_store_tmem")


def _copy_to_tmem(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    smem, tmem = leaves.take(2)
    refs = {"src": leaves.ref(smem, p["smem_tree"]), "dst": leaves.ref(tmem, p["tmem_tree"])}
    axes = b.converter.axis_names(p["collective_axis"]) if p["collective_axis"] else ()
    kind = eqn.primitive.name.removesuffix("_p").removeprefix("async_copy_")
    params = {"collective_axes": axes, "kind": kind.removesuffix("_to_tmem")}
    return Adapted("copy_smem_to_tmem", refs=refs, params=params)


def _semaphore_signal(b: Any, eqn: Any) -> Adapted:
    args = eqn.params["args_tree"].unflatten(eqn.invars)
    ref, transforms, inc, device_id, _core = args
    return Adapted(
        "semaphore_signal",
        inputs=[b.slot(inc)],
        refs={"sem0": b.ref(ref, transforms)},
        params={"devices": (b.device(device_id),)},
    )


def _semaphore_signal_parallel(b: Any, eqn: Any) -> Adapted:
    refs, transforms, incs, device_ids = eqn.params["args_tree"].unflatten(eqn.invars)
    uses = {f"sem{i}": b.ref(r, t) for i, (r, t) in enumerate(zip(refs, transforms, strict=True))}
    return Adapted(
        "semaphore_signal",
        inputs=[b.slot(i) for i in incs],
        refs=uses,
        params={"devices": tuple(b.device(d) for d in device_ids)},
    )


def _semaphore_signal_multicast(b: Any, eqn: Any) -> Adapted:
    ref, transforms, inc = eqn.params["args_tree"].unflatten(eqn.invars)
    axes = b.converter.axis_names(eqn.params["collective_axes"])
    return Adapted(
        "semaphore_signal",
        inputs=[b.slot(inc)],
        refs={"sem0": b.ref(ref, transforms)},
        params={"devices": (("all", axes),)},
    )


def _semaphore_wait(b: Any, eqn: Any) -> Adapted:
    ref, transforms, value, decrement = eqn.params["args_tree"].unflatten(eqn.invars)
    decrement = bool(getattr(decrement, "val", decrement))
    return Adapted(
        "semaphore_wait",
        inputs=[b.slot(value)],
        refs={"sem": b.ref(ref, transforms)},
        params={"decrement": decrement},
    )


def _semaphore_read(b: Any, eqn: Any) -> Adapted:
    ref, transforms = eqn.params["args_tree"].unflatten(eqn.invars)
    return Adapted("semaphore_read", refs={"sem": b.ref(ref, transforms)})


def _get_global(b: Any, eqn: Any) -> Adapted:
    return Adapted("get_global", params={"type": b.converter.type_of(eqn.params["what"])})


def _try_cancel(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    result, barrier = leaves.take(2)
    refs = {"dst": leaves.ref(result, p["result_transforms_tree"])}
    refs["barrier"] = leaves.ref(barrier, p["barrier_transforms_tree"])
    axes = b.converter.axis_names(p["collective_axes"])
    return Adapted("try_cluster_cancel", refs=refs, params={"collective_axes": axes})


def _query_cancel(b: Any, eqn: Any) -> Adapted:
    p = eqn.params
    ref, *leaves = eqn.invars
    names = b.converter.axis_names(tuple(p["grid_names"]))
    use = b.tree(ref, p["transforms_tree"], leaves)
    return Adapted("query_cluster_cancel", refs={"ref": use}, params={"grid_names": names})


def _atomic_store(b: Any, eqn: Any) -> Adapted:
    args = eqn.params["args_tree"].unflatten(eqn.invars)
    ref, transforms, value = args[:3]
    kind = getattr(eqn.params["atomic_type"], "name", str(eqn.params["atomic_type"])).lower()
    use = b.ref(ref, transforms)
    return Adapted("atomic", inputs=[b.slot(value)], refs={"ref": use}, params={"kind": kind})


def _axis_index(b: Any, eqn: Any) -> Adapted:
    return Adapted(params={"axis": b.converter.axis_name(eqn.params["axis_name"])}, live=True)


def _program_id(b: Any, eqn: Any) -> Adapted:
    return Adapted(params={"axis": int(eqn.params["axis"])})


def _values(b: Any, eqn: Any) -> Adapted:
    """Arithmetic of Pallas' own: values in, values out."""
    return Adapted(inputs=[b.slot(a) for a in eqn.invars], live=True)


def _call_hi_primitive(b: Any, eqn: Any) -> Adapted:
    """jnp.frexp and jnp.ldexp, which stand around kernels: primitives with a class each."""
    kind = type(eqn.params["_prim"]).__name__.lower()
    name = kind if kind in ("frexp", "ldexp") else ""
    return Adapted(name, inputs=[b.slot(a) for a in eqn.invars], live=True)


def _reduce(b: Any, eqn: Any) -> Adapted:
    name = eqn.primitive.name.removeprefix("mosaic_gpu_")
    params = {"axes": tuple(int(a) for a in eqn.params["axes"])}
    return Adapted(name, inputs=[b.slot(eqn.invars[0])], params=params)


def _store_smem(b: Any, eqn: Any) -> Adapted:
    """A store into another block's shared memory."""
    p = eqn.params
    leaves = _Leaves(b, eqn.invars)
    value = leaves.value()
    dst, barrier = leaves.take(2)
    index = leaves.value()
    refs = {
        "dst": leaves.ref(dst, p["ref_transforms_treedef"]),
        "barrier": leaves.ref(barrier, p["barrier_transforms_treedef"]),
    }
    [axis] = b.converter.axis_names(p["cluster_dim"])
    params = {"axis": axis, "atomic": p["atomic"]}
    return Adapted("async_store_smem", inputs=[value, index], refs=refs, params=params)


def _inline_mgpu(b: Any, eqn: Any) -> Adapted:
    """Inline code cannot be simulated, except for the fences of JAX's own helpers."""
    f = eqn.params["mgpu_fn"]
    if f.__qualname__.startswith("inline_ptx.") and not eqn.outvars:
        texts = [c.cell_contents for c in f.__closure__ or ()]
        if any(isinstance(t, str) and t.startswith("fence.proxy.async") for t in texts):
            return Adapted("commit_smem")
    name = f"the inline function {f.__name__!r}"
    if hasattr(f, ATTRIBUTE):
        return _modelled(b, eqn, name)
    params = {
        "was": "inline_mgpu",
        "what": f"{name} (inline_mgpu): its MLIR code runs on a GPU only",
        "fix": "Say what it computes, in numpy: @course_lib.simulator.simulated_by(model) under "
        "@plgpu.inline_mgpu. Or run the kernel on a GPU.",
    }
    return Adapted("unsupported", params=params)


def _modelled(b: Any, eqn: Any, name: str) -> Adapted:
    """Inline code whose author gave a model of it."""
    p = eqn.params
    count = p["pytree_args"].num_leaves
    transforms = p["pytree_ref_transforms"].unflatten(eqn.invars[count:])
    args = list(zip(eqn.invars[:count], transforms, strict=True))
    return Adapted(
        "inline_model",
        inputs=[b.slot(a) for a, _ in args if not _is_ref(a)],
        refs={str(i): b.ref(a, t) for i, (a, t) in enumerate(args) if _is_ref(a)},
        params={"was": name, "args": count},
        live=True,
    )


def _unsupported(b: Any, eqn: Any) -> Adapted:
    return Adapted("unsupported", params={"was": eqn.primitive.name.removesuffix("_p")})


# What the simulator names and refuses, in a finding (inline code: all but JAX's own fences).
UNSUPPORTED: tuple[Adapter, ...] = (_unsupported, _inline_mgpu)

ADAPTERS: dict[str, Adapter] = {
    "get": _get,
    "load": _get,
    "swap": _swap,
    "store": _swap,
    "addupdate": _addupdate,
    "masked_load": _masked_load,
    "masked_swap": _masked_swap,
    "barrier_wait": _barrier,
    "barrier_arrive": _barrier,
    "barrier_test": _barrier,
    "barrier_arrive_and_wait": _barrier,
    "copy_gmem_to_smem": _copy_gmem_to_smem,
    "copy_smem_to_gmem": _copy_smem_to_gmem,
    "wait_smem_to_gmem": _simple("n", "wait_read_only"),
    "wait_gmem_to_smem": _unsupported,
    "commit_group": _simple(),
    "commit_smem": _simple(),
    "async_prefetch": _async_prefetch,
    "async_store_smem": _store_smem,
    "wgmma_ref": _wgmma,
    "wgmma_wait": _simple("n"),
    "wgmma_accumulator_deref": _accumulator_deref,
    "wgmma_accumulator_store": _accumulator_store,
    "mma": _values,
    "wgmma": _unsupported,  # the form without refs, which only lowering makes
    "tcgen05_mma": _tcgen05_mma,
    "tcgen05_commit_arrive": _tcgen05_commit,
    "async_load": _load_tmem,
    "async_store_tmem": _store_tmem,
    "wait_load_tmem": _simple(),
    "commit_tmem": _simple(),
    "async_copy_smem_to_tmem": _copy_to_tmem,
    "async_copy_scales_to_tmem": _copy_to_tmem,
    "async_copy_sparse_metadata_to_tmem": _copy_to_tmem,
    "semaphore_signal": _semaphore_signal,
    "semaphore_signal_parallel": _semaphore_signal_parallel,
    "semaphore_signal_multicast": _semaphore_signal_multicast,
    "semaphore_wait": _semaphore_wait,
    "semaphore_read": _semaphore_read,
    "get_global": _get_global,
    "try_cluster_cancel": _try_cancel,
    "query_cluster_cancel": _query_cancel,
    "mgpu_atomic_store": _atomic_store,
    "axis_index": _axis_index,
    "program_id": _program_id,
    "num_programs": _program_id,
    "reciprocal": _values,
    "call_hi_primitive": _call_hi_primitive,
    "mosaic_gpu_reduce_sum": _reduce,
    "mosaic_gpu_reduce_max": _reduce,
    "mosaic_gpu_reduce_min": _reduce,
    "mosaic_gpu_reduce_prod": _reduce,
    "layout_cast": _identity,
    "multiple_of": _identity,
    "set_max_registers": _simple("n", "action"),
    "griddepcontrol_wait": _nothing,
    "griddepcontrol_launch_dependents": _nothing,
    "print_layout": _nothing,
    "debug_print": _debug_print,
    "delay": _nothing,
    "inline_mgpu": _inline_mgpu,
    "multimem_store": _unsupported,
    "multimem_load_reduce": _unsupported,
}
