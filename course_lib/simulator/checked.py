"""Reads a program that somebody else wrote: strictly, within bounds, or not at all.

`ir.loads` believes what it reads. This reader is for bytes from a process that may
lie: a student's, whose kernels somebody else simulates. What it lets through is a
program as the machine expects one: known operations over slots that are defined before
they are used, blocks that only use earlier ones (so no cycles), numbers and names within
limits, constants small enough to be looked through. Nothing in it is code, and nothing
of it names a file to open or a module to import.

Whether the program *computes* something sensible is the machine's to find out, in a
process of its own with limits (`apart`).
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import math
import re
import types
import typing
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from course_lib.diagnostics import CourseError
from course_lib.simulator import ir
from course_lib.simulator.machine.collectives import COLLECTIVES, SAME
from course_lib.simulator.machine.machine import MAKERS
from course_lib.simulator.machine.shapes import VALUES


class Refused(CourseError):  # noqa: N818
    """The bytes are no program that may be run; the message says why."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """How large a program may be.

    Attributes:
      file_bytes, unpacked_bytes: before and after decompression.
      text_bytes: of the structure, as JSON.
      values: numbers, names and lists of the structure together.
      blocks, ops, slots, places: how many, in all blocks together.
      constant: elements of one constant.
      constants: elements of all constants together.
      elements: of any array that an operation declares.
      all_elements: of all these arrays together.
      things: barriers or semaphores of an array of them.
      text: characters of a name.
      depth: of nested parameters.
      nesting: of blocks that run blocks.
      steps: operations that run whatever the inputs are.

    The largest honest program of the course has 22 kB of structure, 3,000 values, 20 blocks that
    are 7 deep, and arrays of 2 million elements together.
    """

    file_bytes: int = 4 << 20
    unpacked_bytes: int = 64 << 20
    text_bytes: int = 8 << 20
    values: int = 1_000_000
    blocks: int = 5_000
    ops: int = 100_000
    slots: int = 300_000
    places: int = 20_000
    constant: int = 64
    constants: int = 4_096
    elements: int = 1 << 26
    all_elements: int = 1 << 29
    things: int = 4_096
    text: int = 500
    depth: int = 12
    nesting: int = 100
    steps: int = 6_000_000


_PLAIN_DTYPES = frozenset(
    {
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    }
)  # fmt: skip
_SMALL_DTYPES = frozenset(
    n for n in vars(ml_dtypes) if re.fullmatch(r"(bfloat|float|u?int)\d\w*", n)
)
DTYPES = _PLAIN_DTYPES | _SMALL_DTYPES
_SPECIAL = frozenset({"barrier", "semaphore"})
_SPACES = frozenset({"gmem", "smem", "tmem", "regs", "host"})
_HOST_ONLY = frozenset(
    {"kernel", "shard_map", "new_ref", "ref_new", "freeze", "ref_freeze", "free_ref"}
)
_EXTRA = frozenset({"unsupported"})
OPERATIONS = (
    frozenset(MAKERS) | VALUES.keys() | COLLECTIVES.keys() | set(SAME) | _HOST_ONLY | _EXTRA
)
_INT = 1 << 62
_MOST_BLOCKS_OF_OP = 64
_NPZ_NAME = re.compile(r"program\.npy|c(0|[1-9]\d{0,5})\.npy")
_HEADER = 1_024  # bytes that an npy file may have before its content
_DIMENSIONS = 32
_ELEMENTS = 1 << 40
_SURROGATES = re.compile("[\ud800-\udfff]")


def read(data: bytes, *, bounds: Bounds | None = None) -> ir.Program:
    """The program of `ir.dumps`, every part of it checked.

    Raises:
      Refused: it is not such a program, or exceeds `bounds`. No other exception.
    """
    bounds = bounds or Bounds()
    try:
        head, arrays = _unpack(data, bounds)
        return _Reader(bounds).program(head, arrays)
    except Refused:
        raise
    except (RecursionError, MemoryError):
        raise Refused("The program is nested too deeply, or too large.") from None


def has_kernel(data: bytes, *, bounds: Bounds | None = None) -> bool:
    """Whether bytes that `read` refuses hold a kernel; True where that cannot be said.

    It is for words only: who brings no kernel at all should read that, rather than that the model
    has no sort.
    """
    try:
        head, _ = _unpack(data, bounds or Bounds())
    except (Refused, RecursionError, MemoryError):
        return True
    left = [head]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            fields = part.get("f")
            if part.get("!") == "Op" and isinstance(fields, list) and fields[:1] == ["kernel"]:
                return True
            left += part.values()
    return False


def _unpack(data: bytes, bounds: Bounds) -> tuple[Any, list[np.ndarray]]:
    """The structure and the constants' raw arrays of an npz archive."""
    if len(data) > bounds.file_bytes:
        raise Refused(f"The program has {len(data):,} bytes; {bounds.file_bytes:,} are allowed.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {i.filename: i for i in archive.infolist()}
            names = sorted(members)
            _need(len(members) == len(archive.infolist()), "its archive has a name twice")
            _need("program.npy" in members, "it is no archive of a program")
            bad = [n for n in names if not _NPZ_NAME.fullmatch(n)]
            _need(not bad, "its archive has parts that a program does not have")
            _need(len(names) <= 1 + bounds.constants, "it has too many constants")
            total = sum(i.file_size for i in members.values())
            _need(total <= bounds.unpacked_bytes, f"unpacked it has {total:,} bytes")
            parts = {n: _member(archive, members[n]) for n in names}
    except Refused:
        raise
    except Exception as error:  # zipfile and zlib raise many kinds for what is no archive
        raise Refused(f"The program is no archive: {type(error).__name__}.") from None
    content = parts.pop("program.npy")
    most = bounds.text_bytes
    _need(len(content) <= most + _HEADER, f"its structure has more than {most:,} bytes")
    text = _array(content, "program")
    _need(text.dtype == np.uint8 and text.ndim == 1, "its structure is not text")
    try:
        head = json.loads(text.tobytes().decode(), parse_constant=float)
    except (ValueError, RecursionError):
        raise Refused("The program's structure is not JSON.") from None
    count = len(parts)
    _need(all(f"c{i}.npy" in parts for i in range(count)), "its constants are not numbered")
    return head, [_array(parts[f"c{i}.npy"], f"constant {i}") for i in range(count)]


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    _need(
        info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not info.flag_bits & 1,
        "its archive is packed in an unusual way",
    )
    with archive.open(info) as file:
        content = file.read(info.file_size + 1)
    _need(len(content) == info.file_size, "its archive lies about sizes")
    return content


def _array(content: bytes, name: str) -> np.ndarray:
    """An array of plain numbers, without numpy's unpickling and without believing its header."""
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        _need(version == (1, 0), f"{name} is in another version of npy")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1_000)
    except Refused:
        raise
    except Exception:  # numpy parses the header with ast
        raise Refused(f"The program's {name} is no array.") from None
    plain = dtype.kind in "biufc" and dtype.itemsize <= 16 and dtype.isnative
    _need(plain and not dtype.hasobject, f"{name} is not an array of plain numbers")
    _need(len(shape) <= _DIMENSIONS and all(n >= 0 for n in shape), f"{name} has a bad shape")
    # Numpy refuses an empty array, too, whose other dimensions would be too large together.
    _need(math.prod(n for n in shape if n) < _ELEMENTS, f"{name} has a bad shape")
    rest = content[file.tell() :]
    _need(math.prod(shape) * dtype.itemsize == len(rest), f"{name} is not as large as it says")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C").copy()


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(f"The program cannot be used: {what}.")


# Structure: every class by its fields' declared types.

Check = Callable[[Any, "_Reader", int], Any]


class _Reader:
    """Builds a program from its JSON, counting what it uses of the bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.ops = self.slots = self.values = self.elements = 0

    def program(self, head: Any, arrays: Sequence[np.ndarray]) -> ir.Program:
        keys = {"version", "entry", "blocks", "places", "dtypes"}
        _need(isinstance(head, dict) and set(head) == keys, "its parts are not those of a program")
        _need(
            head["version"] == ir.VERSION and type(head["version"]) is int,
            f"it is in version {_shown(head['version'])} of the format, and this course reads "
            f"version {ir.VERSION}",
        )
        places = self.list_of(head["places"], ir.Place, self.bounds.places, "source lines")
        blocks = self.list_of(head["blocks"], ir.Block, self.bounds.blocks, "blocks")
        consts = self.constants(head["dtypes"], arrays)
        entry = head["entry"]
        _need(type(entry) is int and 0 <= entry < len(blocks), "it has no entry")
        for number, block in enumerate(blocks):
            _check_block(number, block, blocks, len(consts), len(places), places)
        uids = [op.uid for block in blocks for op in block.ops]
        _need(len(set(uids)) == len(uids), "two of its operations have one number")
        program = ir.Program(blocks, consts, places, entry)
        _check_kernels(program)
        _check_size(program, self.bounds)
        return program

    def list_of(self, values: Any, cls: type, most: int, what: str) -> list[Any]:
        _need(isinstance(values, list), f"its {what} are no list")
        _need(len(values) <= most, f"it has {len(values):,} {what}; {most:,} are allowed")
        return [self.value(v, cls, 0) for v in values]

    def constants(self, names: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        _need(isinstance(names, list) and len(names) == len(arrays), "its constants lack dtypes")
        out = []
        for name, array in zip(names, arrays, strict=True):
            _need(isinstance(name, str) and name in DTYPES, f"it has a constant of {_shown(name)}")
            dtype = ir.numpy_dtype(name)
            same = array.dtype == dtype or (
                name in _SMALL_DTYPES and array.dtype.kind == "u" and array.dtype.itemsize == dtype.itemsize  # noqa: E501
            )  # fmt: skip
            _need(same, "a constant is not of the dtype it says")
            if array.size > self.bounds.constant:
                raise Refused(
                    f"The function brings along an array of {array.size:,} numbers that are known "
                    f"before it runs; {self.bounds.constant} are allowed. Let the kernel compute "
                    "them."
                )
            out.append(array.view(dtype) if array.dtype != dtype else array)
        total = sum(a.size for a in out)
        _need(total <= self.bounds.constants, f"its constants have {total:,} numbers together")
        return out

    def value(self, value: Any, hint: Any, depth: int) -> Any:
        """A JSON value as what a field's type says."""
        self.count()
        _need(depth <= self.bounds.depth, "its parameters are nested too deeply")
        return _checker(hint)(value, self, depth)

    def count(self) -> None:
        """One more value of the structure."""
        self.values += 1
        if self.values > self.bounds.values:
            _need(False, f"it has more than {self.bounds.values:,} values")

    def text(self, value: Any) -> str:
        _need(isinstance(value, str), f"it has {_shown(value)} where text is needed")
        _need(len(value) <= self.bounds.text, "it has a name that is too long")
        _need(not _SURROGATES.search(value), "it has a name that cannot be written down")
        return str(value)

    def instance(self, value: Any, cls: type, depth: int) -> Any:
        """A dataclass of the IR, from {"!": name, "f": [fields]}."""
        fields = dataclasses.fields(cls)
        given: Any = (
            value.get("f") if isinstance(value, dict) and set(value) == {"!", "f"} else None
        )
        fits = given is not None and value["!"] == cls.__name__ and isinstance(given, list)
        _need(fits and len(given) == len(fields), f"something in it is no {cls.__name__}")
        hints = _hints(cls)
        parts = [
            self.value(g, hints[f.name], depth + 1) for g, f in zip(given, fields, strict=True)
        ]
        made = cls(*parts)
        _CHECKS.get(cls.__name__, lambda m, r: None)(made, self)
        return made

    def plain(self, value: Any, depth: int) -> Any:
        """A parameter: plain data, or a type, a slice, a slot."""
        self.count()
        _need(depth <= self.bounds.depth, "its parameters are nested too deeply")
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            _need(abs(value) < _INT, "it has a number that is too large")
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return tuple(self.plain(v, depth + 1) for v in value)
        name = value.get("!") if isinstance(value, dict) else None
        _need(
            isinstance(name, str) and name in _PARAMETERS,
            f"it has a parameter of the kind {_shown(name)}",
        )
        return self.instance(value, _PARAMETERS[name], depth)


_PARAMETERS: Mapping[Any, type] = {
    c.__name__: c for c in (ir.Var, ir.Slice, ir.Tagged, ir.ArrayType, ir.RefType)
}


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@functools.cache
def _checker(hint: Any) -> Check:
    """What reads a field of a type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value, reader, depth: reader.plain(value, depth)
    if origin in (typing.Union, types.UnionType):
        return _one_of(args)
    if origin is tuple:
        return _tuple_of(args)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(args[1])
    if dataclasses.is_dataclass(hint):
        cls: Any = hint
        return lambda value, reader, depth: reader.instance(value, cls, depth)
    if hint is str:
        return lambda value, reader, depth: reader.text(value)
    return functools.partial(_exactly, hint)


def _exactly(kind: type, value: Any, reader: _Reader, depth: int) -> Any:
    _need(type(value) is kind, f"it has {_shown(value)} where {kind.__name__} is needed")
    _need(kind is not int or abs(value) < _INT, "it has a number that is too large")
    return value


def _one_of(choices: Sequence[Any]) -> Check:
    classes: dict[str, Any] = {
        str(getattr(c, "__name__", "")): c
        for c in list[Any](choices)
        if dataclasses.is_dataclass(c)
    }
    simple = [c for c in choices if not dataclasses.is_dataclass(c)]

    def check(value: Any, reader: _Reader, depth: int) -> Any:
        if value is None and type(None) in simple:
            return None
        name = value.get("!") if isinstance(value, dict) else None
        if isinstance(name, str) and name in classes:
            return reader.instance(value, classes[name], depth)
        rest = [c for c in simple if c is not type(None)]
        _need(len(rest) == 1, f"it has {_shown(value)} in a place where that cannot be")
        return _checker(rest[0])(value, reader, depth)

    return check


def _tuple_of(args: Sequence[Any]) -> Check:
    many = len(args) == 2 and args[1] is Ellipsis

    def check(value: Any, reader: _Reader, depth: int) -> Any:
        _need(isinstance(value, list), f"it has {_shown(value)} where a list is needed")
        _need(many or len(value) == len(args), "it has a list of the wrong length")
        hints = [args[0]] * len(value) if many else args
        return tuple(reader.value(v, h, depth + 1) for v, h in zip(value, hints, strict=True))

    return check


def _mapping_of(hint: Any) -> Check:
    def check(value: Any, reader: _Reader, depth: int) -> Any:
        fits = isinstance(value, dict) and set(value) == {"!", "f"} and value["!"] == "dict"
        _need(fits and isinstance(value["f"], list), "something in it is no table of names")
        out = {}
        for pair in value["f"]:
            _need(isinstance(pair, list) and len(pair) == 2, "a table of names is broken")
            key = reader.text(pair[0])
            _need(key not in out, "a table has a name twice")
            out[key] = reader.value(pair[1], hint, depth + 1)
        return out

    return check


def _shown(value: Any) -> str:
    text = (
        repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    )
    return text if len(text) <= 40 else f"{text[:37]}..."


# What a field's type does not say.


def _shape(shape: Sequence[int], reader: _Reader) -> None:
    _need(len(shape) <= _DIMENSIONS and all(n >= 0 for n in shape), "it has a shape that none has")
    count, most, together = math.prod(shape), reader.bounds.elements, reader.bounds.all_elements
    _need(count <= most, f"it has an array of more than {most:,} elements")
    reader.elements += count
    _need(reader.elements <= together, f"its arrays have more than {together:,} elements together")


def _array_type(made: ir.ArrayType, reader: _Reader) -> None:
    _need(made.dtype in DTYPES, f"it has an array of {_shown(made.dtype)}")
    _shape(made.shape, reader)


def _ref_type(made: ir.RefType, reader: _Reader) -> None:
    special = made.dtype in _SPECIAL
    _need(special or made.dtype in DTYPES, f"it has a ref of {_shown(made.dtype)}")
    _need((made.dtype == "barrier") == (made.barrier is not None), "a barrier is not declared")
    _need(made.space in _SPACES, f"it has a ref in {_shown(made.space)}")
    _shape(made.shape, reader)
    few = not special or math.prod(made.shape) <= reader.bounds.things
    _need(few, f"it has more than {reader.bounds.things:,} of a {made.dtype}")


def _transform(made: ir.Transform, reader: _Reader) -> None:
    named = made.args[:1] if made.kind in ("bitcast", "alias") else ()
    _need(all(n in DTYPES | _SPECIAL for n in named), "it views memory as no known dtype")


def _op(made: ir.Op, reader: _Reader) -> None:
    reader.ops += 1
    most = reader.bounds.ops
    _need(reader.ops <= most, f"it has more than {most:,} operations")
    _need(len(set(made.refs)) <= 64 and len(made.inputs) <= 4096, "an operation has too many parts")


def _block(made: ir.Block, reader: _Reader) -> None:
    reader.slots += len(made.types)
    most = reader.bounds.slots
    _need(reader.slots <= most, f"it has more than {most:,} values")


_CHECKS: Mapping[str, Callable[[Any, _Reader], None]] = {
    "ArrayType": _array_type,
    "RefType": _ref_type,
    "Transform": _transform,
    "Op": _op,
    "Block": _block,
}


# Blocks: what is used is defined before, once, and blocks come after those that they use.


def _check_block(
    number: int, block: ir.Block, blocks: Sequence[ir.Block], consts: int, places: int,
    lines: Sequence[ir.Place],
) -> None:  # fmt: skip
    defined: set[int] = set()

    def define(slot: int) -> None:
        _need(0 <= slot < len(block.types), "it uses a value that it does not declare")
        _need(slot not in defined, "it defines a value twice")
        defined.add(slot)

    for slot, const in block.consts:
        _need(0 <= const < consts, "it uses a constant that it does not have")
        define(slot)
    for slot in block.params:
        define(slot)
    _need(len(block.names) in (0, len(block.params)), "it names other values than its parameters")
    for op in block.ops:
        _need(-1 <= op.where < places, "it points to a source line that it does not have")
        _need(op.name in OPERATIONS, _unknown(op, lines))
        used = {*op.inputs, *_slots_of(op)}
        _need(used <= defined, f"its {op.name} uses a value before it is there")
        _check_subblocks(op, number, blocks)
        for slot in op.outputs:
            if slot != -1:
                define(slot)
    _need(set(block.results) <= defined, "it returns a value that it does not have")


def _unknown(op: ir.Op, lines: Sequence[ir.Place]) -> str:
    place = lines[op.where] if op.where >= 0 else None
    where = f" (cell {place.cell}, line {place.line})" if place and place.cell else ""
    return f"the model of the GPU has no operation {_shown(op.name)}{where}"


def _slots_of(op: ir.Op) -> Iterator[int]:
    """The slots that an op uses beside its inputs: its refs, and what indexes them."""
    for use in op.refs.values():
        yield use.slot
        for transform in use.transforms:
            yield from _vars(transform.args)
    for value in op.params.values():
        yield from _vars(value)


def _vars(value: Any) -> Iterator[int]:
    if isinstance(value, ir.Var):
        yield value.slot
    elif isinstance(value, tuple):
        for v in value:
            yield from _vars(v)
    elif isinstance(value, ir.Slice):
        yield from _vars((value.start, value.size))
    elif isinstance(value, ir.Tagged):
        yield from _vars(value.value)


def _check_kernels(program: ir.Program) -> None:
    """Nothing of the program around kernels is inside of one."""
    inside: set[int] = set()
    for op, within in program.walk():
        _need(not within or op.name not in _HOST_ONLY, f"it has {op.name} inside of a kernel")
        if within or op.name == "kernel":
            inside.update(ir.sub_blocks(op))
    for index in inside:
        for type_ in program.blocks[index].types:
            host = isinstance(type_, ir.RefType) and type_.space == "host"
            _need(not host, "a kernel of it has memory of the host")


def _check_size(program: ir.Program, bounds: Bounds) -> None:
    """How deep the blocks run each other, and how much runs at least, whatever the inputs are.

    Blocks use earlier ones only, so both are known of those that a block uses.
    """
    levels: list[int] = []
    steps: list[int] = []
    for block in program.blocks:
        levels.append(
            1 + max((levels[b] for op in block.ops for b in ir.sub_blocks(op)), default=0)
        )
        steps.append(sum(1 + _steps_of(op, steps) for op in block.ops))
    deep, most = levels[program.entry] > bounds.nesting, bounds.steps
    _need(not deep, f"its blocks run each other more than {bounds.nesting} deep")
    _need(steps[program.entry] <= most, f"it runs more than {most:,} operations")


def _steps_of(op: ir.Op, steps: Sequence[int]) -> int:
    """The operations that run at least within an operation, given those of all earlier blocks."""
    inner = [max(1, steps[b]) for b in ir.sub_blocks(op)]
    if op.name == "scan":
        return int(op.params["length"]) * inner[0]
    if op.name == "kernel":
        return math.prod(op.params["grid"]) * int(op.params["num_threads"]) * inner[0]
    return min(inner, default=0)  # one branch, or a loop's condition, or all there is


# How many blocks an operation runs; none, where it is not listed.
_BLOCKS_OF = {
    "call": 1, "scan": 1, "while": 2, "run_scoped": 1, "run_state": 1, "kernel": 1, "warp_map": 1,
    "shard_map": 1,
}  # fmt: skip


def _check_subblocks(op: ir.Op, number: int, blocks: Sequence[ir.Block]) -> None:
    subs = op.params.get("blocks", ())
    whole = isinstance(subs, tuple) and all(type(b) is int for b in subs)
    _need(whole and all(0 <= b < number for b in subs), f"its {op.name} runs a block that runs it")
    count = _BLOCKS_OF.get(op.name, 0)
    right = 1 <= len(subs) <= _MOST_BLOCKS_OF_OP if op.name == "cond" else len(subs) == count
    _need(right, f"its {op.name} does not run as many blocks as it does")
    if op.name in _PARAMETER_KINDS:
        for key, kind in _PARAMETER_KINDS[op.name].items():
            _need(kind(op.params.get(key)), f"its {op.name} has an impossible {key}")


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _counts(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) <= 8 and all(_count(v) for v in value)


def _texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(v, str) for v in value)


def _mesh(value: Any) -> bool:
    axes = isinstance(value, tuple) and len(value) <= 8 and all(_axis(v) for v in value)
    return axes and math.prod(v[1] for v in value) <= 64


def _axis(value: Any) -> bool:
    named = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return named and _count(value[1]) and value[1] > 0


_PARAMETER_KINDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "kernel": {
        "grid": _counts,
        "cluster": lambda v: _counts(v) and math.prod(v) <= 16,
        "grid_names": _texts,
        "cluster_names": _texts,
        "num_threads": lambda v: _count(v) and 1 <= v <= 32,
        "thread_name": lambda v: v is None or isinstance(v, str),
        "name": lambda v: isinstance(v, str),
        "names": _texts,
        "outputs": _count,
        "aliases": lambda v: isinstance(v, tuple) and all(_counts(p) and len(p) == 2 for p in v),
    },
    "scan": {
        "consts": _count, "carry": _count, "length": _count,
        "reverse": lambda v: type(v) is bool,
    },
    "while": {"cond_consts": _count, "body_consts": _count},
    "shard_map": {"axes": _mesh},
    "run_state": {"initialized": lambda v: isinstance(v, tuple) and all(type(b) is bool for b in v)},  # noqa: E501
}  # fmt: skip
