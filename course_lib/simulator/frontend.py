"""From a jaxpr to a `Program`: the only file here that touches private JAX names.

`trace(f, *args)` runs `f` abstractly, as `jax.jit` does, and turns what comes
out into plain data. Everything that a kernel does becomes ops that the machine
knows; what stands around the kernels keeps its JAX equation as well, so that
in this process JAX runs it (`bind`), and a replay elsewhere falls back on numpy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core as jax_core
from jax._src import source_info_util
from jax._src.pallas.mosaic_gpu import core as gpu_core
from jax._src.state import indexing
from jax._src.state import types as state_types

from course_lib.diagnostics import CourseError, Location, locate
from course_lib.diagnostics.locations import is_course_kernel, is_own_code
from course_lib.simulator import ir
from course_lib.simulator.adapters import ADAPTERS, UNSUPPORTED, Adapted
from course_lib.simulator.inline import ATTRIBUTE
from course_lib.simulator.naming import kernel_names, param_names, plain_params

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}

_OTHER_BACKENDS = {
    "jax/_src/pallas/mosaic/": "TPU",
    "jax/_src/tpu_custom_call": "TPU",
    "jax/_src/pallas/triton/": "Triton",
}


def trace(f: Callable[..., Any], *args: Any) -> tuple[ir.Program, Any]:
    """The program of `f(*args)` and the tree of its result.

    Raises whatever `f` raises while it is traced, and CourseError where the
    function holds a kernel of another backend (Triton, TPU).
    """
    closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
    converter = _Converter()
    converter.program.entry = converter.block(closed, -1)
    return converter.program, jax.tree.structure(shape)


def other_backend(error: BaseException) -> str:
    """Of which other backend of Pallas the code is that raised; "" if of none."""
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename.replace("\\", "/")
        for folder, backend in _OTHER_BACKENDS.items():
            if folder in file:
                return backend
        step = step.tb_next
    return ""


def bind(program: ir.Program, op: ir.Op, args: Sequence[Any]) -> list[Any] | None:
    """Runs one op with JAX itself; None where this process has no equation for it."""
    eqn = program.live.get(op.uid)
    if eqn is None:
        return None
    if plain_name(eqn.primitive.name) == "inline_mgpu":
        return _run_model(eqn, args)
    with jax.default_device(jax.devices("cpu")[0]):
        return _bind_equation(eqn, args)


def _run_model(eqn: Any, args: Sequence[Any]) -> list[Any]:
    """The results of an inline function's numpy model (`simulated_by`)."""
    p = eqn.params
    model = getattr(p["mgpu_fn"], ATTRIBUTE)
    results = jax.tree.leaves(model(*p["pytree_args"].unflatten(list(args))))
    wanted = [(tuple(t.shape), np.dtype(t.dtype)) for t in p["flat_ret_ty"]]
    got = [(np.shape(r), np.asarray(r).dtype) for r in results]
    if got != wanted:
        raise TypeError(f"it returned {_types(got)}, where return_type says {_types(wanted)}")
    return results


def _types(types: Sequence[tuple[Any, Any]]) -> str:
    return ", ".join(f"{d.name}{list(s)}" for s, d in types) or "nothing"


def _bind_equation(eqn: Any, args: Sequence[Any]) -> list[Any]:
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)
    out = eqn.primitive.bind(*functions, *args, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def plain_name(name: str) -> str:
    """A primitive's name without the `_p` that jax 0.11 left on some of them."""
    return name.removesuffix("_p")


@dataclasses.dataclass
class _Builder:
    """One block while it is being built: which variable is in which slot."""

    converter: _Converter
    place: int
    slots: dict[Any, int] = dataclasses.field(default_factory=dict)
    types: list[ir.Type] = dataclasses.field(default_factory=list)
    consts: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def new(self, aval: Any, transforms: Sequence[Any] = ()) -> int:
        self.types.append(self.converter.type_of(aval, transforms))
        return len(self.types) - 1

    def define(self, var: Any, transforms: Sequence[Any] = ()) -> int:
        slot = self.new(var.aval, transforms)
        self.slots[var] = slot
        return slot

    def constant(self, value: Any) -> int:
        array = np.asarray(value)
        self.types.append(ir.ArrayType(array.shape, array.dtype.name))
        slot = len(self.types) - 1
        self.consts.append((slot, self.converter.const(array)))
        return slot

    def slot(self, atom: Any) -> int:
        """The slot of a variable, or of a new constant for a literal or a number."""
        if isinstance(atom, jax_core.Var):
            return self.slots[atom]
        if isinstance(atom, jax_core.Literal):
            aval: Any = atom.aval
            dtype = ir.numpy_dtype(aval.dtype.name)
            return self.constant(np.asarray(atom.val).astype(dtype))
        return self.constant(atom)

    def number(self, atom: Any) -> int | ir.Var:
        """A plain int where the program has one, else the slot it will be in."""
        if isinstance(atom, jax_core.Literal):
            return int(atom.val)
        if isinstance(atom, jax_core.Var):
            return ir.Var(self.slots[atom])
        if np.ndim(atom):
            return ir.Var(self.constant(np.asarray(atom)))
        return int(atom)

    def ref(self, var: Any, transforms: Sequence[Any] | None = ()) -> ir.RefUse:
        steps = [self.transform(t) for t in transforms or ()]
        return ir.RefUse(self.slot(var), tuple(s for s in steps if s is not None))

    def tree(self, var: Any, tree: Any, leaves: Sequence[Any]) -> ir.RefUse:
        """A ref with the transforms that an equation holds as a tree and its leaves."""
        return self.ref(var, None if tree is None else tree.unflatten(leaves))

    def index(self, item: Any) -> Any:
        if isinstance(item, indexing.Slice):
            return ir.Slice(self.number(item.start), self.number(item.size), item.stride or 1)
        return self.number(item)

    def transform(self, t: Any) -> ir.Transform | None:
        make = ir.Transform
        match t:
            case indexing.NDIndexer():
                return make("index", tuple(self.index(i) for i in t.indices))
            case state_types.TransposeTransform():
                return make("transpose", tuple(t.permutation))
            case state_types.ReshapeTransform():
                return make("reshape", tuple(t.shape))
            case state_types.BitcastTransform():
                return make("bitcast", (np.dtype(t.dtype).name,))
            case gpu_core.UntilingTransform():
                return make("untile", tuple(t.tiling))
            case gpu_core.UnswizzleRef():
                return make("unswizzle", (t.swizzle,))
            case gpu_core.ExtractAliasedRef():
                return make("alias", self.converter.alias(t))
            case gpu_core.PeerMemRef():
                return make("peer", (self.device(t.device_id),))
        return self._rarer_transform(t)

    def _rarer_transform(self, t: Any) -> ir.Transform:
        names = self.converter.axis_names
        match type(t).__name__:
            case "ClusterRefTransform":
                where = tuple(self.number(i) for i in t.idxs)
                return ir.Transform("cluster", (names(t.dims), where))
            case "MulticastRef":
                return ir.Transform("multicast", (names(t.collective_axes),))
            case "ExpandLeadingBatchDimensionsTransform":
                return ir.Transform("batch", tuple(int(n) for n in t.batch_shape))
        return ir.Transform("unsupported", (type(t).__name__,))

    def device(self, device_id: Any) -> Any:
        """A device id: one number, one per mesh axis, or ((axis, number), ...)."""
        if device_id is None:
            return None
        if isinstance(device_id, dict):
            pairs = []
            for axis, i in device_id.items():
                axes = axis if isinstance(axis, tuple) else (axis,)
                pairs.append((self.converter.axis_names(axes), self.number(i)))
            return ("axes", tuple(pairs))
        if isinstance(device_id, tuple):
            return ("mesh", tuple(self.number(i) for i in device_id))
        return ("mesh", (self.number(device_id),))


class _Converter:
    """Turns jaxprs into blocks; equal jaxprs are converted once."""

    def __init__(self) -> None:
        self.program = ir.Program()
        self._blocks: dict[Any, int] = {}
        self._keep: list[Any] = []  # jaxprs whose identity is a key of _blocks
        self._places: dict[ir.Place, int] = {}
        self._axes: dict[Any, str] = {}
        self._uid = 0

    # Names, types and constants.

    def axis_name(self, name: Any) -> str:
        """An axis name as text; vmap's axes are named by an `object()`."""
        if isinstance(name, str):
            return name
        if name not in self._axes:
            self._axes[name] = f"vmap {len(self._axes)}"
            self._keep.append(name)
        return self._axes[name]

    def axis_names(self, names: Any) -> tuple[str, ...]:
        if names is None:
            return ()
        names = names if isinstance(names, tuple | list) else (names,)
        flat: list[str] = []
        for n in names:
            flat += self.axis_names(n) if isinstance(n, tuple) else [self.axis_name(n)]
        return tuple(flat)

    def const(self, array: np.ndarray) -> int:
        self.program.consts.append(array)
        return len(self.program.consts) - 1

    def type_of(self, aval: Any, transforms: Sequence[Any] = ()) -> ir.Type:
        if isinstance(aval, state_types.AbstractRef):
            return self._ref_type(aval, transforms)
        dtype = getattr(aval, "dtype", None)
        return ir.ArrayType(tuple(getattr(aval, "shape", ())), getattr(dtype, "name", "opaque"))

    def _ref_type(self, aval: Any, transforms: Sequence[Any]) -> ir.RefType:
        inner = aval.inner_aval
        space = getattr(aval.memory_space, "name", None) or str(aval.memory_space or "gmem")
        space = {"device": "gmem", "default": "gmem"}.get(space.lower(), space.lower())
        tiling: tuple[int, ...] = ()
        swizzle = 0
        for t in transforms:
            inner = t.transform_type(inner)
            tiling = getattr(t, "tiling", tiling)
            swizzle = getattr(t, "swizzle", swizzle)
        kind = type(inner.dtype).__name__
        barrier = _barrier_spec(self, inner.dtype) if "Barrier" in kind else None
        dtype = "barrier" if barrier else _dtype_name(inner.dtype)
        packed, columns, layout = _tmem_layout(aval)
        return ir.RefType(
            shape=tuple(inner.shape),
            dtype=dtype,
            space=space,
            barrier=barrier,
            tiling=tuple(tiling),
            swizzle=swizzle,
            union=isinstance(aval, gpu_core.AbstractRefUnion),
            packed=packed,
            collective=isinstance(aval, gpu_core.AbstractTMEMRef) and bool(aval.collective),
            columns=columns,
            layout=layout,
        )

    def alias(self, t: Any) -> tuple[Any, ...]:
        return (np.dtype(t.dtype).name, tuple(t.shape), int(t.offset), int(t.alias_group_idx))

    def place(self, eqn: Any, parent: int) -> int:
        """The learner's line of an equation; that of the enclosing one if it has none.

        Where that line calls a kernel of the course, the kernel's own line is kept beside it.
        """
        frames = list(source_info_util.user_frames(eqn.source_info.traceback))
        own = next((f for f in frames if is_own_code(f.file_name)), None)
        shown = next((f for f in frames if f is own or is_course_kernel(f.file_name)), None)
        within = "" if shown is None or shown is own else _line(shown).short
        if own is None and parent >= 0 and is_own_code(self.program.places[parent].file):
            # JAX forgets who called the function that holds a loop
            if not within:
                return parent
            return self.place_index(dataclasses.replace(self.program.places[parent], within=within))
        frame = own or shown or next(iter(frames), None)
        if frame is None:
            return parent
        at = _line(frame)
        within = within if frame is own else ""
        return self.place_index(ir.Place(at.file, at.line, at.function, at.cell, within))

    def place_index(self, place: ir.Place) -> int:
        if place not in self._places:
            self._places[place] = len(self.program.places)
            self.program.places.append(place)
        return self._places[place]

    # Blocks and ops.

    def block(
        self, jaxpr: Any, place: int, transforms: Sequence[Sequence[Any]] | None = None,
        *, consts_are_params: bool = False,
    ) -> int:  # fmt: skip
        """The number of a jaxpr's block.

        `transforms` are the layouts of its refs (of a run_scoped); with
        `consts_are_params` its constvars are filled by the caller, before the rest.
        """
        consts = () if consts_are_params else tuple(getattr(jaxpr, "consts", ()))
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        key = (id(jaxpr), place, consts_are_params)
        if key not in self._blocks:
            self._keep.append(jaxpr)
            block = self._build(jaxpr, place, transforms, consts, consts_are_params)
            self.program.blocks.append(block)
            self._blocks[key] = len(self.program.blocks) - 1
        return self._blocks[key]

    def _build(
        self, jaxpr: Any, place: int, transforms: Any, consts: Any, consts_are_params: bool
    ) -> ir.Block:
        b = _Builder(self, place)
        params = []
        if consts_are_params:
            params += [b.define(v) for v in jaxpr.constvars]
        else:
            for v, value in zip(jaxpr.constvars, consts, strict=True):
                b.slots[v] = b.constant(value)
        layouts = transforms or [()] * len(jaxpr.invars)
        params += [b.define(v, t) for v, t in zip(jaxpr.invars, layouts, strict=True)]
        used = {v for e in jaxpr.eqns for v in e.invars if isinstance(v, jax_core.Var)}
        used |= {v for v in jaxpr.outvars if isinstance(v, jax_core.Var)}
        ops = [self._op(b, eqn, used) for eqn in jaxpr.eqns]
        results = tuple(b.slot(v) for v in jaxpr.outvars)
        return ir.Block(
            params=tuple(params),
            results=results,
            types=tuple(b.types),
            ops=tuple(ops),
            consts=tuple(b.consts),
            names=param_names(jaxpr, len(params)),
        )

    def _op(self, b: _Builder, eqn: Any, used: set[Any]) -> ir.Op:
        place = self.place(eqn, b.place)
        name = plain_name(eqn.primitive.name)
        adapted = self._adapt(b, eqn, name, place)
        outputs = [b.define(v) for v in eqn.outvars]
        self._uid += 1
        if adapted.live:
            self.program.live[self._uid] = eqn
        params = adapted.params
        if adapted.name not in ("", name, "call"):
            params = {"was": name, **params}  # exercises ask for JAX's own names
        return ir.Op(
            name=adapted.name or name,
            inputs=tuple(adapted.inputs),
            outputs=tuple(
                s if v in used else -1 for s, v in zip(outputs, eqn.outvars, strict=True)
            ),
            refs=adapted.refs,
            params=params,
            where=place,
            uid=self._uid,
        )

    def _adapt(self, b: _Builder, eqn: Any, name: str, place: int) -> Adapted:
        if name in _CALLS:
            block = self.block(eqn.params[_CALLS[name]], place)
            return Adapted(name="call", inputs=_slots(b, eqn.invars), params={"blocks": (block,)})
        if name in _CONTROL:
            return _CONTROL[name](self, b, eqn, place)
        if name in ADAPTERS:
            return ADAPTERS[name](b, eqn)
        params = plain_params(eqn.params)
        return Adapted(inputs=_slots(b, eqn.invars), params=params, live=True)


def _slots(b: _Builder, atoms: Sequence[Any]) -> list[int]:
    return [b.slot(a) for a in atoms]


# Control flow and kernels.


def _cond(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    blocks = tuple(c.block(j, place) for j in eqn.params["branches"])
    return Adapted(inputs=_slots(b, eqn.invars), params={"blocks": blocks})


def _while(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    blocks = (c.block(p["cond_jaxpr"], place), c.block(p["body_jaxpr"], place))
    counts = {"cond_consts": p["cond_nconsts"], "body_consts": p["body_nconsts"]}
    return Adapted(inputs=_slots(b, eqn.invars), params={"blocks": blocks, **counts})


def _scan(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    consts, carry, xs = (list(g) for g in p["ft_in"].update(list(range(len(eqn.invars)))).unpack())
    inputs = _slots(b, [eqn.invars[i] for i in (*consts, *carry, *xs)])
    return Adapted(
        inputs=inputs,
        params={
            "blocks": (c.block(p["jaxpr"], place),),
            "consts": len(consts),
            "carry": len(carry),
            "length": int(p["length"]),
            "reverse": bool(p["reverse"]),
        },
    )


def _run_scoped(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    jaxpr = p["jaxpr"]
    block = c.block(jaxpr, place, p.get("ref_transforms"), consts_are_params=True)
    return Adapted(
        inputs=_slots(b, eqn.invars),
        params={"blocks": (block,), "collective_axes": c.axis_names(p["collective_axes"])},
    )


def _run_state(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    return Adapted(
        inputs=_slots(b, eqn.invars),
        params={
            "blocks": (c.block(p["jaxpr"], place),),
            "initialized": tuple(bool(i) for i in p["is_initialized"]),
        },
    )


def _mpmd_map(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    [mesh, *others] = p["meshes"]
    if others:
        raise CourseError("A kernel over several meshes at once cannot be simulated.")
    block = c.block(p["jaxprs"][0], place)
    if isinstance(mesh, gpu_core.WarpMesh):
        axis = c.axis_name(mesh.axis_name)
        params = {"blocks": (block,), "axis": axis}
        return Adapted(name="warp_map", inputs=_slots(b, eqn.invars), params=params)
    if not isinstance(mesh, gpu_core.Mesh):
        raise CourseError(
            f"This kernel runs on a {type(mesh).__name__}, which is not Mosaic GPU's; "
            "use plgpu.kernel, or pl.kernel with mesh=plgpu.Mesh(...)."
        )
    return Adapted(
        name="kernel",
        inputs=_slots(b, eqn.invars),
        params={
            "blocks": (block,),
            "grid": tuple(int(g) for g in mesh.grid),
            "grid_names": c.axis_names(mesh.grid_names),
            "cluster": tuple(int(g) for g in mesh.cluster),
            "cluster_names": c.axis_names(mesh.cluster_names),
            "num_threads": int(mesh.num_threads or 1),
            "thread_name": mesh.thread_name,
            "name": str(p.get("name") or "kernel"),
            "aliases": tuple((int(i), int(o)) for i, o in p["input_output_aliases"].items()),
            "outputs": len(p["out_avals"]),
            "names": kernel_names(p["jaxprs"][0]),
        },
    )


def _pallas_call(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    raise CourseError(
        "pl.pallas_call is not for Mosaic GPU any more (and Triton and TPU kernels are not "
        "simulated here); write the kernel with plgpu.kernel, and plgpu.emit_pipeline for "
        "its BlockSpecs."
    )


def _shard_map(c: _Converter, b: _Builder, eqn: Any, place: int) -> Adapted:
    p = eqn.params
    mesh = p["mesh"]
    axes = tuple((c.axis_name(n), int(s)) for n, s in dict(mesh.shape).items())

    def spec(pspec: Any, aval: Any) -> tuple[tuple[str, ...], ...]:
        parts = tuple(pspec) + (None,) * (len(aval.shape) - len(tuple(pspec)))
        return tuple(c.axis_names(part) for part in parts)

    return Adapted(
        inputs=_slots(b, eqn.invars),
        params={
            "blocks": (c.block(p["jaxpr"], place),),
            "axes": axes,
            "in_specs": tuple(
                spec(s, v.aval) for s, v in zip(p["in_specs"], eqn.invars, strict=True)
            ),
            "out_specs": tuple(
                spec(s, v.aval) for s, v in zip(p["out_specs"], eqn.outvars, strict=True)
            ),
        },
    )


_CONTROL: dict[str, Callable[[_Converter, _Builder, Any, int], Adapted]] = {
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "run_scoped": _run_scoped,
    "run_state": _run_state,
    "mpmd_map": _mpmd_map,
    "pallas_call": _pallas_call,
    "shard_map": _shard_map,
}


# Small facts about JAX's objects.


def _line(frame: Any) -> Location:
    return locate(frame.file_name, frame.start_line, frame.function_name)


def _dtype_name(dtype: Any) -> str:
    return "semaphore" if "semaphore" in str(dtype).lower() else np.dtype(dtype).name


def _barrier_spec(c: _Converter, dtype: Any) -> ir.BarrierSpec:
    axes = getattr(dtype, "collective_axes", None)
    return ir.BarrierSpec(
        num_arrivals=int(dtype.num_arrivals),
        orders_tensor_core=bool(dtype.orders_tensor_core),
        cluster_axes=None if axes is None else tuple(c.axis_names(axis) for axis in axes),
        leader_tracked=bool(getattr(dtype, "leader_tracked", False)),
    )


_TMEM_LAYOUTS = {
    "scales": gpu_core.TMEMLayout.SCALES_LAYOUT.to_mgpu(),
    "scales of a pair": gpu_core.TMEMLayout.SCALES_M64_COLLECTIVE_LAYOUT.to_mgpu(),
    "sparsity metadata": gpu_core.TMEMLayout.SPARSE_METADATA_LAYOUT.to_mgpu(),
}


def _tmem_layout(aval: Any) -> tuple[bool, int, str]:
    """Whether a TMEM ref is packed, how many of the 512 columns it takes, and what it is for."""
    if not isinstance(aval, gpu_core.AbstractTMEMRef):
        return False, 0, ""
    layout = aval.layout
    inner: Any = aval.inner_aval
    shape, dtype = inner.shape, np.dtype(inner.dtype)
    packed = getattr(layout, "vector_length", 1) > 1
    name = next((n for n, known in _TMEM_LAYOUTS.items() if known == layout), "")
    try:
        columns = int(layout.cols_in_shape(shape, ir.dtype_bits(dtype)))
    except ValueError:  # elements that do not fit this layout: the machine says so at their use
        columns = 0
    return packed, columns, name


def leaves(args: Any) -> list[Any]:
    """The flat arrays of a function's arguments."""
    return jax.tree.leaves(args)


def unflatten(tree: Any, values: Sequence[Any]) -> Any:
    """The tree of a function's results."""
    return jax.tree.unflatten(tree, values)


def devices(count: int, name: str = "x") -> jax.sharding.AbstractMesh:
    """A mesh of `count` simulated devices along one axis, whatever JAX was started with.

    For `jax.shard_map(f, mesh=devices(2), ...)` inside of what is simulated.
    """
    auto = (jax.sharding.AxisType.Auto,)
    return jax.sharding.AbstractMesh((count,), (name,), axis_types=auto)


def pallas_primitives() -> frozenset[str]:
    """The names of all primitives of Pallas and its Mosaic GPU backend in this JAX."""
    from jax._src.pallas import mpmd, pallas_call
    from jax._src.pallas import primitives as shared
    from jax._src.pallas.mosaic_gpu import core, primitives

    homes = (shared, mpmd, pallas_call, core, primitives)
    found = [v for home in homes for v in vars(home).values()]
    return frozenset(plain_name(p.name) for p in found if isinstance(p, jax_core.Primitive))


def known_primitives() -> dict[str, bool]:
    """The primitives that the simulator knows by name, and whether it can run them."""
    known = {name: adapter not in UNSUPPORTED for name, adapter in ADAPTERS.items()}
    return known | dict.fromkeys(_CONTROL, True) | {"pallas_call": False}
