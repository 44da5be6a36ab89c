"""A kernel as plain data: what the frontend writes and the machine runs.

A `Program` is a table of `Block`s. A block is a straight list of `Op`s over
numbered slots; control flow, scopes and kernels are ops that name other blocks
by number. Nothing in here knows JAX: names, numbers, tuples and numpy arrays
only, so that a program can be saved, sent to another process and replayed.
`save` writes one file (an npz archive: the structure as JSON, the constants as
arrays); `load` reads it back and refuses other versions.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

VERSION = 3

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Var:
    """A slot of the block: a number that is only known when the kernel runs."""

    slot: int


@dataclasses.dataclass(frozen=True)
class ArrayType:
    """A value in registers, or an array of the host program."""

    shape: Shape
    dtype: str


@dataclasses.dataclass(frozen=True)
class BarrierSpec:
    """What a barrier was declared as.

    Attributes:
      num_arrivals: how many arrivals complete a phase (per block of a cluster barrier).
      orders_tensor_core: whether it also orders tensor-core work.
      cluster_axes: what shares it, or None for a block's own barrier: tuples of cluster axes. A
        block shares it with those that differ from it along the axes of one tuple only.
    """

    num_arrivals: int
    orders_tensor_core: bool
    cluster_axes: tuple[Any, ...] | None = None
    leader_tracked: bool = False


@dataclasses.dataclass(frozen=True)
class RefType:
    """A reference: `shape` is the logical one, before tiling and swizzling.

    Attributes:
      space: "gmem", "smem", "tmem", "regs", or "host" (a host program's own ref).
      barrier: set for barriers, whose `dtype` is "barrier".
      smem_tiling, swizzle: the declared layout in shared memory, where it has one.
      packed, collective, columns: of tensor memory: whether narrow elements share a column,
        whether it is allocated for a pair of blocks, and how many columns it takes.
      layout: of tensor memory: what it is laid out for, where that is no matrix of an MMA:
        "scales", "scales of a pair", "sparsity metadata".
    """

    shape: Shape
    dtype: str
    space: str
    barrier: BarrierSpec | None = None
    tiling: tuple[int, ...] = ()
    swizzle: int = 0
    union: bool = False
    packed: bool = False
    collective: bool = False
    columns: int = 0
    layout: str = ""


Type = ArrayType | RefType


@dataclasses.dataclass(frozen=True)
class Slice:
    """`start : start + size * stride : stride` of one dimension."""

    start: int | Var
    size: int | Var
    stride: int = 1


@dataclasses.dataclass(frozen=True)
class Transform:
    """One step of the way from a ref to the part of it that an op touches.

    `kind` and `args`: "index" (a Slice, int or Var per dimension), "transpose"
    (permutation), "reshape" (shape), "bitcast" (dtype), "untile" (tiling),
    "unswizzle" (bytes), "batch" (the leading axes of a ref in tensor memory), "alias" (dtype,
    shape, byte offset, group), "peer" (device id by axis), "cluster" (axis names, indices),
    "multicast" (axis names).
    """

    kind: str
    args: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class RefUse:
    """A ref in a slot, and the transforms an op applies to it."""

    slot: int
    transforms: tuple[Transform, ...] = ()


@dataclasses.dataclass(frozen=True)
class Tagged:
    """A parameter that JSON has no word for: a dtype, an enum member, a named tuple."""

    tag: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
      name: the primitive's name, without a trailing "_p".
      inputs: the slots of its values.
      refs: its refs, by role ("src", "dst", "barrier", "acc").
      outputs: the slots of its results (-1: nobody reads it).
      params: its static parameters, plain data.
      where: the line it came from, an index into `Program.places` (-1: none).
      uid: a number that no other op of the program has.
    """

    name: str
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    refs: Mapping[str, RefUse] = dataclasses.field(default_factory=dict)
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    where: int = -1
    uid: int = -1


@dataclasses.dataclass(frozen=True)
class Block:
    """A list of ops. `params` are filled by the caller, `consts` from the program."""

    params: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]
    ops: tuple[Op, ...]
    consts: tuple[tuple[int, int], ...] = ()  # (slot, index into Program.consts)
    names: tuple[str, ...] = ()  # what the learner calls the params, "" if unknown


@dataclasses.dataclass(frozen=True)
class Place:
    """A source line, as `diagnostics.Location` has it."""

    file: str
    line: int
    function: str = ""
    cell: str = ""
    within: str = ""


@dataclasses.dataclass
class Program:
    """A traced function: blocks, constants, source lines; `entry` is the block to run."""

    blocks: list[Block] = dataclasses.field(default_factory=list)
    consts: list[np.ndarray] = dataclasses.field(default_factory=list)
    places: list[Place] = dataclasses.field(default_factory=list)
    entry: int = 0
    # Ops that JAX itself can still run in this process (by uid); never saved.
    live: dict[int, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    # What the machine made of it, for the next run; never saved.
    compiled: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def walk(self, start: int | None = None) -> Iterator[tuple[Op, bool]]:
        """Every op that can run, once, with whether it is inside a kernel."""
        seen: set[tuple[int, bool]] = set()
        todo = [(self.entry if start is None else start, False)]
        while todo:
            index, inside = todo.pop()
            if (index, inside) in seen:
                continue
            seen.add((index, inside))
            for op in self.blocks[index].ops:
                yield op, inside
                todo += [(b, inside or op.name == "kernel") for b in sub_blocks(op)]


def sub_blocks(op: Op) -> tuple[int, ...]:
    """The numbers of the blocks that an op runs."""
    blocks = op.params.get("blocks", ())
    return tuple(blocks)


@functools.cache
def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of a name, those of ml_dtypes (bfloat16, float8_...) included."""
    if hasattr(ml_dtypes, name):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


@functools.cache
def dtype_bits(dtype: np.dtype) -> int:
    """The bits of an element; numpy keeps one of 2 or 4 bits in a byte, the GPU does not."""
    return _NARROW.get(dtype.name, dtype.itemsize * 8)


_NARROW = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}

_CLASSES: dict[str, type] = {
    c.__name__: c
    for c in (
        Var, ArrayType, BarrierSpec, RefType, Slice, Transform, RefUse, Tagged, Op, Block, Place,
    )
}  # fmt: skip


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [_encode(getattr(value, f.name)) for f in dataclasses.fields(value)]
        return {"!": type(value).__name__, "f": fields}
    if isinstance(value, tuple | list):
        return [_encode(v) for v in value]
    if isinstance(value, Mapping):
        return {"!": "dict", "f": [[k, _encode(v)] for k, v in value.items()]}
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is not plain data")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if isinstance(value, dict):
        if value["!"] == "dict":
            return {k: _decode(v) for k, v in value["f"]}
        return _CLASSES[value["!"]](*(_decode(v) for v in value["f"]))
    return value


def save(program: Program, path: str | Path) -> None:
    """Writes a program to `path` (an npz archive)."""
    Path(path).write_bytes(dumps(program))


def load(path: str | Path) -> Program:
    """The program that `save` wrote. Raises ValueError for another version's file."""
    return loads(Path(path).read_bytes())


def dumps(program: Program) -> bytes:
    """A program as bytes: JSON and arrays in one npz archive, no code and no pickles."""
    text = json.dumps(
        {
            "version": VERSION,
            "entry": program.entry,
            "blocks": _encode(program.blocks),
            "places": _encode(program.places),
            "dtypes": [c.dtype.name for c in program.consts],
        }
    )
    arrays = {f"c{i}": _storable(c) for i, c in enumerate(program.consts)}
    out = io.BytesIO()
    np.savez_compressed(out, program=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def loads(data: bytes) -> Program:
    """The program of `dumps`. Raises ValueError for another version's data."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        head = json.loads(file["program"].tobytes().decode())
        if head["version"] != VERSION:
            raise ValueError(
                f"this program was saved in version {head['version']} of the format; "
                f"this course reads version {VERSION}"
            )
        consts = [file[f"c{i}"].view(numpy_dtype(name)) for i, name in enumerate(head["dtypes"])]
    return Program(
        blocks=list(_decode(head["blocks"])),
        consts=consts,
        places=list(_decode(head["places"])),
        entry=head["entry"],
    )


def _storable(array: np.ndarray) -> np.ndarray:
    """The array, with dtypes that npz does not know viewed as unsigned integers."""
    if array.dtype.kind in "biufc":
        return array
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize]
    return np.ascontiguousarray(array).view(unsigned)
