"""Which tcgen05 operations exist: shapes, dtypes, and how operands lie in tensor memory.

Sources: PTX ISA, tcgen05.mma (matrix shapes; kinds), tcgen05 block scaling and sparse matrices;
and what JAX makes of them (jax.experimental.mosaic.gpu.tcgen05, `mma` and the copies), where
one operation of Pallas is several instructions. Each check raises KernelFault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.simulator import ir
from course_lib.simulator.machine.blockscale import SCALES
from course_lib.simulator.machine.faults import KernelFault
from course_lib.simulator.machine.memory import View

Views = Mapping[str, View]

_ALLOWED = {
    # operand dtype -> accumulator dtypes (PTX ISA, tcgen05.mma kinds)
    "float16": ("float16", "float32"),
    "bfloat16": ("float32",),
    "float32": ("float32",),
    "float8_e4m3fn": ("float16", "float32"),
    "float8_e5m2": ("float16", "float32"),
    "float4_e2m1fn": ("float32",),
    "int8": ("int32",),
    "uint8": ("int32",),
}
_ATOM_BITS = 256  # the narrowest swizzle that an operand can have, 32 bytes


def check_mma(thread: Any, views: Views, blocks: int) -> None:
    """Complains about an MMA that there is no instruction for.

    `views` are the operands of one block, by role; `blocks` is how many work on it.
    """
    if thread.machine.arch.name != "sm_100a":
        raise KernelFault("wrong-architecture", "tcgen05 exists on Blackwell (sm_100a) only")
    _check_dtypes(views)
    for role in ("acc", "a", "a_scale", "b_scale", "a_sparse"):
        if role in views:
            check_whose(views[role], blocks, "this MMA")
            if views[role].buffer.space == "tmem":
                check_rows(views[role])
    _check_columns(views, blocks)
    _check_tensor_memory(views)
    if "a_sparse" in views:
        _check_sparse(views)
    if "a_scale" in views:
        _check_scales(views, blocks)


def check_rows(view: View) -> None:
    """A part of tensor memory has all of its rows: a lane's columns are what can be chosen."""
    rows = view.buffer.data.shape[-2]
    if view.hi[-2] - view.lo[-2] == rows:
        return
    raise KernelFault(
        "unaligned-offset",
        f"{view} is a slice along rows, and tensor memory can be sliced along columns only",
        why="Each row lies in a lane of its own, and the tensor core's operations and the loads of "
        "a Pallas thread go over all of a ref's lanes.",
        fix=f"Slice the columns, {view.buffer.name}.at[:, pl.ds(...)]. What is to be cut along "
        "rows goes through shared memory.",
    )


def _type(view: View) -> ir.RefType | None:
    """How a buffer was allocated, where that is known."""
    return view.buffer.type


def _check_dtypes(views: Views) -> None:
    a, b, acc = (views[r].data.dtype.name for r in ("a", "b", "acc"))
    if acc not in _ALLOWED.get(a, ()):
        raise KernelFault("illegal-mma", f"tcgen05 cannot multiply {a} into {acc}")
    if a != b and not (a.startswith("float8") and b.startswith("float8")):
        raise KernelFault("illegal-mma", f"tcgen05 cannot multiply {a} with {b}")
    if "a_scale" in views and acc != "float32":
        raise KernelFault(
            "illegal-mma", f"A block-scaled MMA adds up in float32, and {views['acc']} is {acc}"
        )
    if a.startswith("float4") and "a_scale" not in views:
        raise KernelFault(
            "illegal-mma",
            f"tcgen05 multiplies {a} with scales only",
            fix="Give it a_scale= and b_scale=, in tensor memory.",
        )


def check_whose(view: View, blocks: int, what: str) -> None:
    """Tensor memory of a pair and of a block by itself do not go together.

    `what` is the operation that touches `view`, of so many blocks.
    """
    type_, name = _type(view), view.buffer.name
    if type_ is None or type_.space != "tmem" or type_.collective == (blocks > 1):
        return
    if blocks > 1:
        raise KernelFault(
            "not-collective",
            f"{name} is tensor memory of each block by itself, and {what} is done by two blocks "
            "together (collective_axis=)",
            why="The tensor cores of both blocks work at the same columns of their tensor memory, "
            "so both must have got the same ones.",
            fix="Allocate it for the pair: plgpu.TMEM(shape, dtype, collective=True).",
        )
    raise KernelFault(
        "not-collective",
        f"{name} is tensor memory of a pair of blocks (collective=True), and {what} is one block's",
        why="In a kernel, tensor memory and what works on it belong to pairs of blocks, or to "
        "blocks by themselves: all of it alike.",
        fix="Name the cluster axis of the pair, collective_axis=, or allocate without collective.",
    )


def _check_columns(views: Views, blocks: int) -> None:
    """M, and which N go with it: an instruction's, or several instructions side by side."""
    m, n = views["acc"].data.shape
    whose = "a block's M" if blocks > 1 else "M"
    if m not in (64, 128):
        raise _no_shape(m, n, f"{whose} must be 64 or 128")
    step = 32 if blocks > 1 or m == 64 else 16
    if views["acc"].data.dtype.name == "int32":
        step *= 2
    step //= 2 if blocks == 1 else 1
    if n % step:
        with_m = f" where {whose} is 64" if blocks == 1 and m == 64 else ""
        pair = " of a pair" if blocks > 1 else ""
        raise _no_shape(m, n, f"N{pair} must be a multiple of {step}{with_m}")
    if blocks > 1 and n > 256:
        raise _no_shape(m, n, "N of a pair is at most 256")
    if n > 512 or 256 < n < 512:
        raise _no_shape(m, n, "N is at most 256, or it is 512 (two instructions of 256)")
    atom = _ATOM_BITS // ir.dtype_bits(views["a"].data.dtype)
    if blocks == 1 and m == 64 and n < 2 * atom:
        raise _no_shape(
            m, n, f"where M is 64, N of {views['a'].data.dtype.name} is at least {2 * atom} (each "
            f"half of it is a tile of B by itself, of {atom} columns at least)",
        )  # fmt: skip


def _no_shape(m: int, n: int, why: str) -> KernelFault:
    return KernelFault(
        "illegal-mma",
        f"tcgen05 has no {m}x{n}: {why}",
        fix="Choose another tile, or cut the product in two along N.",
    )


def _check_tensor_memory(views: Views) -> None:
    """How the accumulator and a left operand lie in tensor memory."""
    acc, a = views["acc"], views["a"]
    acc_type, a_type = _type(acc), _type(a)
    if acc_type is not None and acc_type.packed and ir.dtype_bits(acc.data.dtype) < 32:
        raise KernelFault(
            "illegal-mma",
            f"{acc.buffer.name} is packed, and an MMA adds up into one element per column",
            fix="Allocate the accumulator with packed=False.",
        )
    if a.buffer.space != "tmem":
        return
    if a.data.shape[0] != 128:
        raise KernelFault(
            "illegal-mma",
            f"A left operand in tensor memory has 128 rows, and {a} has {a.data.shape[0]}",
            fix="Keep A in shared memory, or multiply 128 rows at a time.",
        )
    if a_type is not None and not a_type.packed and ir.dtype_bits(a.data.dtype) < 32:
        raise KernelFault(
            "illegal-mma",
            f"{a.buffer.name} is not packed, and a left operand in tensor memory always is",
            fix="Allocate it with packed=True: several elements share a column of 32 bits.",
        )


def _check_sparse(views: Views) -> None:
    m, n = views["acc"].data.shape
    if m != 128 or n % 16:
        raise KernelFault(
            "illegal-mma", f"A sparse tcgen05 MMA needs M = 128 and N a multiple of 16, not {m}x{n}"
        )
    meta, want = views["a_sparse"], (m, views["b"].data.shape[0] // 2)
    _check_layout(meta, ("sparsity metadata",), "SPARSE_METADATA_LAYOUT")
    if meta.data.shape != want:
        raise KernelFault(
            "illegal-mma",
            f"{meta} is {_shape(meta)}, and the positions of this A are {want[0]} x {want[1]}: two "
            "for every four elements along K",
        )


def _check_scales(views: Views, blocks: int) -> None:
    """The scales that an operand can have, and how many of them."""
    m, n = views["acc"].data.shape
    if m == 64 and blocks == 1:
        raise KernelFault("illegal-mma", "A block-scaled tcgen05 MMA needs M = 128 (64 in a pair)")
    b_layout = "scales of a pair" if m == 64 else "scales"
    _check_layout(views["a_scale"], ("scales",), "SCALES_LAYOUT")
    in_jax = "SCALES_M64_COLLECTIVE_LAYOUT" if m == 64 else "SCALES_LAYOUT"
    _check_layout(views["b_scale"], (b_layout,), in_jax)
    k = views["b"].data.shape[0]
    for role in ("a", "b"):
        _check_scale_of(views[role], views[f"{role}_scale"], k)
    a_scale, b_scale = views["a_scale"], views["b_scale"]
    if a_scale.data.dtype != b_scale.data.dtype or a_scale.data.shape[1] != b_scale.data.shape[1]:
        raise KernelFault(
            "illegal-mma",
            f"The scales of A and B must be of one kind, and {a_scale} is {_words(a_scale)}, "
            f"{b_scale} {_words(b_scale)}",
        )
    if a_scale.data.shape[0] != 128:
        raise KernelFault(
            "illegal-mma", f"The scales of A have 128 rows, and {a_scale} is {_shape(a_scale)}"
        )
    rows = b_scale.data.shape[0]
    if rows % 128 or rows < n:
        raise KernelFault(
            "illegal-mma",
            f"The scales of B have a row for each of the {n} columns of the product, in a multiple "
            f"of 128, and {b_scale} is {_shape(b_scale)}",
        )


def _check_scale_of(operand: View, scale: View, k: int) -> None:
    """The dtype of an operand's scales, and for how many elements of K each is."""
    name, scale_name = operand.data.dtype.name, scale.data.dtype.name
    known = SCALES.get(name, {})
    if not known:
        raise KernelFault("illegal-mma", f"tcgen05 has no scales for {name}")
    if scale_name not in known:
        raise KernelFault(
            "illegal-mma",
            f"Scales for {name} are {' or '.join(known)}, and {scale} is {scale_name}",
        )
    count = scale.data.shape[1]
    blocks = known[scale_name]
    if k % count or k // count not in blocks:
        want = " or ".join(str(k // b) for b in blocks)
        raise KernelFault(
            "illegal-mma",
            f"A scale in {scale_name} is for {' or '.join(map(str, blocks))} elements of {name} "
            f"along K, so for K = {k} there are {want} to a row, and {scale} is {_shape(scale)}",
            fix="Allocate the scales with K divided by the elements that share one as their second "
            "axis.",
        )


def _check_layout(view: View, layouts: tuple[str, ...], in_jax: str) -> None:
    """Scales and metadata lie in tensor memory in a way of their own."""
    type_ = _type(view)
    if type_ is None or type_.layout in layouts:
        return
    what = "sparsity metadata" if "SPARSE" in in_jax else "scales"
    raise KernelFault(
        "illegal-mma",
        f"{view.buffer.name} is not laid out for {what}",
        why="The tensor core looks for them at places of their own in tensor memory, not where a "
        "matrix has its elements.",
        fix=f"Allocate it with plgpu.TMEM(..., layout=plgpu.TMEMLayout.{in_jax}).",
    )


def check_copy(src: View, dst: View, kind: str, blocks: int) -> None:
    """Complains about a copy to tensor memory that there is no instruction for."""
    check_whose(dst, blocks, "this copy")
    check_rows(dst)
    if src.data.dtype != dst.data.dtype:
        raise KernelFault(
            "illegal-mma",
            f"A copy to tensor memory does not convert: {src} is {src.data.dtype.name}, and {dst} "
            f"{dst.data.dtype.name}",
            fix="Allocate both with the same dtype.",
        )
    if kind == "scales":
        _check_scales_copy(src, dst)
    elif kind == "sparse_metadata":
        _check_layout(dst, ("sparsity metadata",), "SPARSE_METADATA_LAYOUT")
        rows, k = dst.data.shape
        _check_order(src, (rows // 128, k // 64, 128, 64), dst, "positions")
    elif src.data.shape != dst.data.shape:
        raise KernelFault(
            "illegal-mma",
            f"{src} is {_shape(src)}, and {dst} is {_shape(dst)}: a copy keeps shapes",
        )


def _check_scales_copy(src: View, dst: View) -> None:
    _check_layout(dst, ("scales", "scales of a pair"), "SCALES_LAYOUT")
    if ir.dtype_bits(dst.data.dtype) != 8:
        raise KernelFault(
            "illegal-mma",
            f"Scales have 8 bits, and {dst} is {dst.data.dtype.name}",
            fix="Make them float8_e8m0fnu, powers of two (or float8_e4m3fn, for float4_e2m1fn).",
        )
    rows, k = dst.data.shape
    pair = dst.buffer.type is not None and dst.buffer.type.layout == "scales of a pair"
    want = (rows // 256, k // 4, 64, 16) if pair else (rows // 128, k // 4, 32, 16)
    _check_order(src, want, dst, "scales")


def _check_order(src: View, want: tuple[int, ...], dst: View, what: str) -> None:
    """The order in shared memory that the copies expect; it is not a matrix."""
    if src.data.shape == want:
        return
    shape = " x ".join(map(str, want))
    raise KernelFault(
        "illegal-mma",
        f"The copy takes the {what} for {dst} ({_shape(dst)}) as {shape}, and {src} is "
        f"{_shape(src)}",
        why="It moves whole rows of 16 bytes to the lanes of tensor memory, so the elements must "
        "lie in shared memory in the order in which they go there.",
        fix=f"Order the {what} before the kernel, and allocate both sides for the same rows and K.",
    )


def _shape(view: View) -> str:
    return " x ".join(map(str, view.data.shape))


def _words(view: View) -> str:
    return f"{view.data.dtype.name}, {_shape(view)}"
