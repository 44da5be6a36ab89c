"""The strict reader: honest programs come through as they are, anything else is refused in words.

Each wrong part stands beside its right twin in the same place, which is read.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import json
import math
import pickle
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.kernels import start_here, wgmma
from course_lib.simulator import frontend, ir, replay
from course_lib.simulator.checked import Bounds, Refused, read

pytestmark = pytest.mark.timeout(60)  # whatever the bytes: no hang


# Honest programs.


def powers(x: jax.Array) -> jax.Array:
    """A loop, a branch and constants: x ** 3 in even rows, x elsewhere, times a small table."""
    table = jnp.asarray(np.array([1.5, -2.0], ml_dtypes.bfloat16))

    @functools.partial(plgpu.kernel, out_type=x, grid=(x.shape[0],), grid_names=("row",))
    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        row = jax.lax.axis_index("row")
        value = x_gmem[row]
        cube = jax.lax.fori_loop(0, 2, lambda _, v: v * value, value)
        y_gmem[row] = jax.lax.cond(row % 2 == 0, lambda: cube, lambda: value)

    return kernel(x) * table.astype(x.dtype).sum()


HONEST: dict[str, tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], str], ...]]] = {
    "blocks of a grid": (start_here.reverse_rows, (((4, 128), "float32"),)),
    "copies and barriers": (start_here.double_through_smem, (((256,), "float32"),)),
    "the TensorCore": (wgmma.product, (((64, 64), "float16"), ((64, 64), "float16"))),
    "no arguments": (functools.partial(start_here.fill_iota, blocks=3), ()),
    "a loop, a branch and constants": (powers, (((2, 128), "float32"),)),
}


@functools.cache
def traced(name: str) -> bytes:
    """What the grader's child process writes for a function."""
    function, args = HONEST[name]
    shapes = [jax.ShapeDtypeStruct(s, jnp.dtype(d)) for s, d in args]
    program, _ = frontend.trace(function, *shapes)
    return ir.dumps(program)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_is_read_as_it_was_written(name: str) -> None:
    was, now = ir.loads(traced(name)), read(traced(name))
    assert (now.blocks, now.places, now.entry) == (was.blocks, was.places, was.entry)
    assert [c.dtype for c in now.consts] == [c.dtype for c in was.consts]
    for mine, theirs in zip(now.consts, was.consts, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    again = read(ir.dumps(now))
    assert (again.blocks, again.places, again.entry) == (now.blocks, now.places, now.entry)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_computes_the_same_afterwards(name: str) -> None:
    _, args = HONEST[name]
    rng = np.random.default_rng()
    inputs = [rng.standard_normal(s).astype(d) for s, d in args]
    before = replay(ir.loads(traced(name)), inputs)
    after = replay(read(traced(name)), inputs)
    assert not before.findings
    assert not after.findings
    for was, now in zip(jax.tree.leaves(before.value), jax.tree.leaves(after.value), strict=True):
        np.testing.assert_array_equal(np.asarray(now), np.asarray(was))


# One small program, by hand, whose parts are put wrong one after the other.

_REF = ir.RefType((128,), "float32", "gmem")
_SPEC = {"!": "BarrierSpec", "f": [1, False, None, False]}
_ROW = ir.ArrayType((128,), "float32")
_KERNEL = {
    "blocks": (0,), "grid": (2,), "grid_names": ("block",), "cluster": (1,),
    "cluster_names": ("pair",), "num_threads": 1, "thread_name": None, "name": "kernel",
    "aliases": (), "outputs": 1, "names": ("x", "y"), "extra": 0,
}  # fmt: skip


def by_hand() -> ir.Program:
    """A kernel that copies a row, and a call around it that has a constant."""
    get = ir.Op("get", (), (2,), {"ref": ir.RefUse(0)}, {"extra": 0}, 0, 1)
    put = ir.Op("swap", (2,), (-1,), {"ref": ir.RefUse(1)}, {}, 0, 2)
    inner = ir.Block((0, 1), (), (_REF, _REF, _ROW), (get, put), names=("x", "y"))
    kernel = ir.Op("kernel", (0,), (1,), {}, _KERNEL, -1, 3)
    scalar = ir.ArrayType((), "float32")
    outer = ir.Block((0,), (1, 2), (_ROW, _ROW, scalar), (kernel,), ((2, 0),))
    return ir.Program([inner, outer], [np.array(1.5, np.float32)], [ir.Place("a.py", 3)], 1)


def archive(head: Any, constants: Sequence[np.ndarray]) -> bytes:
    """An archive as `ir.dumps` makes it; `head` may be text that is no JSON."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    out = io.BytesIO()
    arrays: dict[str, Any] = {f"c{i}": c for i, c in enumerate(constants)}
    np.savez(out, program=np.frombuffer(text, np.uint8), **arrays)
    return out.getvalue()


@functools.cache
def _opened(data: bytes) -> tuple[str, tuple[np.ndarray, ...]]:
    with np.load(io.BytesIO(data)) as file:
        constants = tuple(file[f"c{i}"] for i in range(len(file.files) - 1))
        return file["program"].tobytes().decode(), constants


def parts(data: bytes | None = None) -> tuple[Any, list[np.ndarray]]:
    """The structure of a program's bytes (by default of the one by hand), and its constants."""
    text, constants = _opened(ir.dumps(by_hand()) if data is None else data)
    return json.loads(text), list(constants)


def holders(head: Any, path: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """What holds each part of a path; "f" is implied, and a table's part goes by its name."""
    for part in path:
        step = part
        if isinstance(head, dict) and "f" in head and part not in ("f", "!"):
            head = head["f"]
        if isinstance(part, str) and isinstance(head, list):
            head = next(pair for pair in head if pair[0] == part)
            step = 1
        yield head, step
        head = head[step]


def put(head: Any, path: Sequence[Any], value: Any) -> None:
    """Replaces the part at a path."""
    *_, (inside, step) = holders(head, path)
    inside[step] = value


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


def node(name: Any, *fields: Any) -> dict[str, Any]:
    return {"!": name, "f": list(fields)}


_GET = ("blocks", 0, 3, 0)
_PUT = ("blocks", 0, 3, 1)
_LAUNCH = ("blocks", 1, 3, 0)
_EXTRA = (*_GET, 4, "extra")
_TYPE = ("blocks", 0, 2, 0)
_GET_FIELDS = ["get", [], [2], node("dict", ["ref", node("RefUse", 0, [])]), node("dict"), 0, 1]


# What is put wrong -> (where, the wrong part, its right twin, words of the refusal).
WRONG: dict[str, tuple[tuple[Any, ...], Any, Any, str]] = {
    "a later version": (("version",), ir.VERSION + 1, ir.VERSION, "reads version"),
    "a version in text": (("version",), str(ir.VERSION), ir.VERSION, "reads version"),
    "a version with a point": (("version",), float(ir.VERSION), ir.VERSION, "reads version"),
    "a huge version": (("version",), 10**4_000, ir.VERSION, "reads version"),
    "no blocks": (("blocks",), None, [*parts()[0]["blocks"]], "blocks are no list"),
    # Nodes.
    "an unknown operation": ((*_GET, 0), "exec", "get", "no operation 'exec'"),
    "an operation of Python": ((*_GET, 0), "__import__", "get", "no operation '__import__'"),
    "an unknown node": ((*_GET, "!"), "Import", "Op", "is no Op"),
    "another node than there should be": ((*_GET, "!"), "Block", "Op", "is no Op"),
    "a node whose name is a list": ((*_TYPE, "!"), ["RefType"], "RefType", "cannot be"),
    "a parameter whose name is a list": (_EXTRA, node(["Var"], 0), 0, "of the kind list"),
    "a parameter whose name is a table": (_EXTRA, node({}, 0), 0, "of the kind dict"),
    "a parameter that is an operation": (_EXTRA, node("Op", *_GET_FIELDS), 0, "the kind 'Op'"),
    "a parameter without a name": (_EXTRA, {"f": []}, 0, "of the kind None"),
    "a node with one part more": (
        _EXTRA, {**node("Tagged", "a", 0), "x": 1}, node("Tagged", "a", 0), "is no Tagged",
    ),
    # Fields.
    "a field missing": ((*_GET, "f"), _GET_FIELDS[:-1], _GET_FIELDS, "is no Op"),
    "a field too many": ((*_GET, "f"), [*_GET_FIELDS, 0], _GET_FIELDS, "is no Op"),
    "fields by name": ((*_GET, "f"), {"name": "get"}, _GET_FIELDS, "is no Op"),
    "text for a number": ((*_GET, 5), "0", 0, "'0' where int is needed"),
    "true for a number": ((*_GET, 5), True, 0, "True where int is needed"),
    "a broken number": ((*_GET, 5), 0.5, 0, "0.5 where int is needed"),
    "code for a slot": ((*_PUT, 1), ["0] or exec('')"], [2], "where int is needed"),
    "a number for text": ((*_GET, 0), 7, "get", "7 where text is needed"),
    "a number for a list": ((*_PUT, 1), 2, [2], "2 where a list is needed"),
    "a pair of three": (("blocks", 1, 4), [[2, 0, 0]], [[2, 0]], "wrong length"),
    "a list for a table": ((*_GET, 4), [], node("dict"), "no table of names"),
    "a table with a name twice": (
        (*_GET, 4), node("dict", ["a", 0], ["a", 1]), node("dict", ["a", 0], ["b", 1]),
        "a name twice",
    ),
    "a table of threes": (
        (*_GET, 4), node("dict", ["a", 0, 0]), node("dict", ["a", 0]), "is broken",
    ),
    "a table by numbers": (
        (*_GET, 4), node("dict", [1, 0]), node("dict", ["1", 0]), "where text is needed",
    ),
    "no type": (_TYPE, None, node("ArrayType", [128], "float32"), "cannot be"),
    "a name too long": (("blocks", 0, 5, 0), "x" * 501, "x" * 500, "name that is too long"),
    "half a character": (("blocks", 0, 5, 0), "\ud83d", "\U0001f600", "cannot be written down"),
    "more names than parameters": (
        ("blocks", 0, 5), ["x", "y", "z"], ["x", "y"], "names other values",
    ),
    # Numbers.
    "a huge number": (_EXTRA, 1 << 62, (1 << 62) - 1, "too large"),
    "a hugely negative number": (_EXTRA, -(10**300), -(10**18), "too large"),
    "a huge line number": (("places", 0, 1), 1 << 70, 7, "too large"),
    "a huge array": (("blocks", 1, 2, 0, 0), [1 << 14, 1 << 13], [1 << 13, 1 << 13], "elements"),
    "a hugely huge array": (("blocks", 1, 2, 0, 0), [(1 << 62) - 1] * 32, [1] * 32, "elements"),
    "a negative size": (("blocks", 1, 2, 0, 0), [-1], [0], "a shape that none has"),
    "33 dimensions": (("blocks", 1, 2, 0, 0), [1] * 33, [1] * 32, "a shape that none has"),
    "a dtype of objects": (("blocks", 1, 2, 0, 1), "object", "bfloat16", "an array of 'object'"),
    "a memory that no GPU has": ((*_TYPE, 2), "disk", "smem", "a ref in 'disk'"),
    "a crowd of barriers": (
        _TYPE, node("RefType", [4097], "barrier", "smem", _SPEC, [], 0, False, False, False, 0, ""),
        node("RefType", [4096], "barrier", "smem", _SPEC, [], 0, False, False, False, 0, ""),
        "more than 4,096 of a barrier",
    ),
    "a crowd of semaphores": (
        _TYPE,
        node("RefType", [65, 64], "semaphore", "gmem", None, [], 0, False, False, False, 0, ""),
        node("RefType", [64, 64], "semaphore", "gmem", None, [], 0, False, False, False, 0, ""),
        "more than 4,096 of a semaphore",
    ),
    "an undeclared barrier": ((*_TYPE, 1), "barrier", "float32", "a barrier is not declared"),
    "NaN for a number": ((*_GET, 5), math.nan, 0, "nan where int is needed"),
    "infinity for a slot": ((*_PUT, 1), [math.inf], [2], "inf where int is needed"),
    "infinity as a size": (("blocks", 1, 2, 0, 0), [math.inf], [8], "inf where int is needed"),
    "NaN threads": ((*_LAUNCH, 4, "num_threads"), math.nan, 32, "impossible num_threads"),
    "NaN as an entry": (("entry",), math.nan, 1, "no entry"),
    # Nesting.
    "a deep parameter": (_EXTRA, nested(12), nested(6), "nested too deeply"),
    "a very deep parameter": (_EXTRA, nested(300), nested(0), "nested too deeply"),
    # What is there, and when.
    "a block that runs itself": ((*_LAUNCH, 4, "blocks"), [1], [0], "a block that runs it"),
    "a block that is not there": ((*_LAUNCH, 4, "blocks"), [7], [0], "a block that runs it"),
    "a block before the first": ((*_LAUNCH, 4, "blocks"), [-1], [0], "a block that runs it"),
    "two blocks for a kernel": ((*_LAUNCH, 4, "blocks"), [0, 0], [0], "as many blocks"),
    "an entry that is not there": (("entry",), 2, 1, "no entry"),
    "an entry before the first": (("entry",), -1, 1, "no entry"),
    "an entry that is true": (("entry",), True, 1, "no entry"),
    "a value that is not there": ((*_PUT, 1), [9], [2], "before it is there"),
    "a value before it is there": ((*_LAUNCH, 1), [1], [0], "before it is there"),
    "a hidden value that is not there": (
        _EXTRA, [node("Slice", 0, node("Var", 9), 1)], [node("Slice", 0, node("Var", 1), 1)],
        "before it is there",
    ),
    "a ref that is not there": ((*_GET, 3, "ref", 0), 5, 1, "before it is there"),
    "a value defined twice": ((*_GET, 2), [0], [2], "defines a value twice"),
    "an undeclared value": ((*_PUT, 2), [3], [-1], "does not declare"),
    "a result that is not there": (("blocks", 0, 1), [5], [2], "returns a value"),
    "a constant that is not there": (("blocks", 1, 4), [[2, 1]], [[2, 0]], "a constant that it"),
    "a line that is not there": ((*_GET, 5), 1, 0, "a source line that it does not have"),
    "a line before none": ((*_GET, 5), -2, -1, "a source line that it does not have"),
    "one number for two operations": ((*_PUT, 6), 1, 7, "have one number"),
    # Kernels.
    "memory of the host in a kernel": ((*_TYPE, 2), "host", "gmem", "memory of the host"),
    "the host's work in a kernel": ((*_PUT, 0), "free_ref", "swap", "inside of a kernel"),
    "a cluster of 17": ((*_LAUNCH, 4, "cluster"), [17], [16], "impossible cluster"),
    "no threads": ((*_LAUNCH, 4, "num_threads"), 0, 1, "impossible num_threads"),
    "a grid without end": (
        (*_LAUNCH, 4, "grid"), [(1 << 31) - 1] * 8, [1 << 10], "runs more than 6,000,000",
    ),
    "a negative grid": ((*_LAUNCH, 4, "grid"), [-1], [1], "impossible grid"),
    "an alias of three": ((*_LAUNCH, 4, "aliases"), [[0, 0, 0]], [[0, 0]], "impossible aliases"),
    # Constants.
    "a constant of objects": (("dtypes",), ["object"], ["float32"], "a constant of 'object'"),
    "a constant of another dtype": (("dtypes",), ["int32"], ["float32"], "the dtype it says"),
    "a constant without a dtype": (("dtypes",), [], ["float32"], "lack dtypes"),
}  # fmt: skip


def refused(data: bytes, words: str, bounds: Bounds | None = None) -> None:
    """The bytes are refused in words that a person can read."""
    with pytest.raises(Refused) as caught:
        read(data, bounds=bounds)
    said = str(caught.value)
    assert words in said
    assert len(said) < 1_000
    said.encode()  # it can be written down


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_words(name: str) -> None:
    path, wrong, right, words = WRONG[name]
    head, constants = parts()
    put(head, path, wrong)
    refused(archive(head, constants), words)
    put(head, path, right)
    assert isinstance(read(archive(head, constants)), ir.Program)


def test_the_refusal_of_an_operation_says_its_line() -> None:
    head, constants = parts()
    put(head, ("places", 0, 3), "double")
    put(head, (*_GET, 0), "exec")
    refused(archive(head, constants), "no operation 'exec' (cell double, line 3)")


@pytest.mark.parametrize("part", ["version", "entry", "blocks", "places", "dtypes"])
def test_a_part_that_is_missing_or_too_many_is_refused(part: str) -> None:
    head, constants = parts()
    assert read(archive(head, constants)).blocks == by_hand().blocks
    refused(archive({**head, f"{part}2": 0}, constants), "parts are not those of a program")
    del head[part]
    refused(archive(head, constants), "parts are not those of a program")


def test_numbers_that_are_none_are_parameters_but_nothing_else() -> None:
    head, constants = parts()
    put(head, _EXTRA, [math.nan, math.inf, -math.inf, 0.5, None, True])
    extra = read(archive(head, constants)).blocks[0].ops[0].params["extra"]
    np.testing.assert_array_equal(extra[:4], [math.nan, math.inf, -math.inf, 0.5])
    assert extra[4:] == (None, True)
    refused(
        archive(json.dumps(head).replace('"entry": 1', '"entry": 1e999').encode(), constants),
        "no entry",
    )


def test_a_mesh_has_few_axes() -> None:
    head, constants = parts()
    params = node("dict", ["blocks", [0]], ["axes", [["x", 64], *[["y", 1]] * 7]])
    put(head, (*_LAUNCH, 0), "shard_map")
    put(head, (*_LAUNCH, 4), params)
    assert read(archive(head, constants))
    for axes in ([["x", 65]], [["x"]], [["y", 1]] * 9, [["x", (1 << 31) - 1]] * 100_000):
        put(head, (*_LAUNCH, 4, "axes"), axes)
        refused(archive(head, constants), "impossible axes", Bounds(file_bytes=1 << 26))


# How large a program may be.

_COUNTED = {
    "blocks": 2, "ops": 3, "slots": 6, "places": 1, "constants": 1, "elements": 128,
    "all_elements": 641, "values": 139, "nesting": 2, "steps": 5,
}  # fmt: skip


@pytest.mark.parametrize("bound", _COUNTED)
def test_as_many_as_allowed_and_no_more(bound: str) -> None:
    data, many = ir.dumps(by_hand()), _COUNTED[bound]
    assert read(data, bounds=dataclasses.replace(Bounds(), **{bound: many}))
    refused(data, "", dataclasses.replace(Bounds(), **{bound: many - 1}))


def test_as_many_bytes_as_allowed_and_no_more() -> None:
    data = ir.dumps(by_hand())
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        unpacked = sum(i.file_size for i in file.infolist())
    assert read(data, bounds=Bounds(file_bytes=len(data), unpacked_bytes=unpacked))
    refused(data, "bytes; ", Bounds(file_bytes=len(data) - 1))
    refused(data, "unpacked it has", Bounds(unpacked_bytes=unpacked - 1))


def test_a_structure_of_as_many_bytes_as_allowed_and_no_more() -> None:
    head, constants = parts()
    data = archive(head, constants)
    size = len(json.dumps(head).encode())
    assert read(data, bounds=Bounds(text_bytes=size))
    refused(data, "its structure has more than", Bounds(text_bytes=size - 2_000))


@pytest.mark.parametrize("filling", ["[],", '{"!":0},', "9" * 4300 + ",", "1e999,"])
def test_a_structure_of_many_megabytes_is_refused_in_seconds(filling: str) -> None:
    """However much a small file unpacks to: nothing is made of it but a sentence."""
    head, _ = parts()
    put(head, _EXTRA, "HERE")
    text = json.dumps(head)

    def filled(count: int) -> bytes:
        data = text.replace('"HERE"', f"[{filling * count}0]").encode()
        return _zipped(
            [("program.npy", _npy("'|u1'", f"({len(data)},)", data)), *_but_the_program()],
            zipfile.ZIP_DEFLATED,
        )

    large = filled((9 << 20) // len(filling))
    assert len(large) < Bounds().file_bytes
    started = time.process_time()
    refused(large, "its structure has more than")
    refused(filled((7 << 20) // len(filling)), "The program")  # for other reasons, and soon
    assert time.process_time() - started < 30
    assert read(filled(100 if len(filling) < 100 and filling != '{"!":0},' else 0))


def _but_the_program() -> list[tuple[str, bytes]]:
    return [(n, c) for n, c in _members().items() if n != "program.npy"]


# How much a program runs, whatever its inputs are.


def _called(block: int, uid: int) -> ir.Op:
    return ir.Op("call", (), (), {}, {"blocks": (block,)}, -1, uid)


def _looped(block: int, length: int, uid: int) -> ir.Op:
    how = {"blocks": (block,), "consts": 0, "carry": 0, "length": length, "reverse": False}
    return ir.Op("scan", (), (), {}, how, -1, uid)


def _branching(blocks: tuple[int, ...], uid: int) -> ir.Op:
    return ir.Op("cond", (0,), (), {}, {"blocks": blocks}, -1, uid)


def around(*tower: tuple[ir.Op, ...], inside: bool = False) -> bytes:
    """Blocks above an empty one, each of some operations; the last runs, perhaps in a kernel."""
    number = ir.ArrayType((), "int32")
    blocks = [ir.Block((), (), (), ())]
    for ops in tower:
        takes = any(op.name == "cond" for op in ops)
        blocks.append(ir.Block((0,) if takes else (), (), (number,) if takes else (), ops))
    if inside:
        launch = {**_KERNEL, "blocks": (len(blocks) - 1,), "outputs": 0, "names": ()}
        blocks.append(ir.Block((), (), (), (ir.Op("kernel", (), (), {}, launch, -1, 10**6),)))
    return ir.dumps(ir.Program(blocks, [], [], len(blocks) - 1))


@pytest.mark.parametrize("inside", [False, True])
def test_what_runs_without_end_is_refused_before_it_runs(inside: bool) -> None:
    def doubled(times: int) -> list[tuple[ir.Op, ...]]:
        return [(_called(i, 2 * i), _called(i, 2 * i + 1)) for i in range(times)]

    def loops(*lengths: int) -> list[tuple[ir.Op, ...]]:
        return [(_looped(i, length, i),) for i, length in enumerate(lengths)]

    most = (1 << 31) - 1
    for wrong in (doubled(60), loops(most), loops(most, most), loops(5_000, 5_000)):
        refused(around(*wrong, inside=inside), "runs more than 6,000,000 operations")
    for right in (doubled(12), loops(1 << 20), loops(50, 50), loops(most, 0)):
        assert read(around(*right, inside=inside))


def test_of_branches_the_shortest_counts() -> None:
    long, short = (_looped(0, (1 << 31) - 1, 0),), (_looped(0, 3, 1),)
    assert read(around(long, short, (_branching((1, 2), 2),)))
    refused(around(long, short, (_branching((1, 1), 2),)), "runs more than 6,000,000")


def test_blocks_run_each_other_so_deep_and_no_deeper() -> None:
    deep = [(_called(i, i),) for i in range(99)]
    assert read(around(*deep))
    refused(around(*deep, (_called(99, 99),)), "run each other more than 100 deep")
    refused(around(*[(_called(i, i),) for i in range(4_900)]), "run each other more than 100 deep")


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    with zipfile.ZipFile(out := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("program.npy", bytes(Bounds().unpacked_bytes + 1))
    assert len(out.getvalue()) < Bounds().file_bytes
    refused(out.getvalue(), "unpacked it has")


def test_constants_of_as_many_numbers_as_allowed_and_no_more() -> None:
    head, _ = parts()
    rng = np.random.default_rng()
    most = Bounds().constant
    right = rng.standard_normal(most).astype(np.float32)
    np.testing.assert_array_equal(read(archive(head, [right])).consts[0], right)
    wrong = rng.standard_normal(most + 1).astype(np.float32)
    refused(archive(head, [wrong]), "an array of 65 numbers")
    assert read(archive(head, [wrong]), bounds=Bounds(constant=65)).consts[0].size == 65
    head["dtypes"] *= 3
    refused(archive(head, [right] * 3), "192 numbers together", Bounds(constants=191))
    assert len(read(archive(head, [right] * 3), bounds=Bounds(constants=192)).consts) == 3


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "bool", "uint8", "float64"])
def test_a_constant_of_any_dtype_is_read(name: str) -> None:
    dtype = ir.numpy_dtype(name)
    value = np.random.default_rng().standard_normal((2, 3)).astype(dtype)
    program = by_hand()
    program.consts[0] = value
    [got] = read(ir.dumps(program)).consts
    assert got.dtype == dtype
    assert got.tobytes() == value.tobytes()


# The archive.


def _zipped(members: Sequence[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(out := io.BytesIO(), "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return out.getvalue()


def _members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(ir.dumps(by_hand()))) as file:
        return {n: file.read(n) for n in file.namelist()}


def _npy(descr: str, shape: str, content: bytes, version: int = 1) -> bytes:
    """An npy file whose header says what it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2, "little") + header + content


def _with(name: str, content: bytes) -> bytes:
    return _zipped([*{**_members(), name: content}.items()])


def _pickled(value: Any) -> bytes:
    np.save(out := io.BytesIO(), np.array([value], object), allow_pickle=True)
    return out.getvalue()


_FOUR = np.float32(1.5).tobytes()


def _archives() -> dict[str, tuple[bytes, str]]:
    """Archives that are wrong, and words of their refusals."""
    m = _members()
    text = [("program.npy", m["program.npy"])]
    head = parts()[0]
    return {
        "nothing": (b"", "is no archive"),
        "text": (b"not a program", "is no archive"),
        "a pickle": (pickle.dumps(by_hand()), "is no archive"),
        "JSON": (json.dumps(head).encode(), "is no archive"),
        "an array": (m["program.npy"], "is no archive"),
        "no structure": (_zipped([("c0.npy", m["c0.npy"])]), "no archive of a program"),
        "a path out of it": (_with("../c1.npy", m["c0.npy"]), "parts that a program does not"),
        "a module": (_with("evil.py", b"1 / 0"), "parts that a program does not"),
        "a constant with a zero": (_with("c01.npy", m["c0.npy"]), "parts that a program does not"),
        "constants that skip": (_zipped([*text, ("c1.npy", m["c0.npy"])]), "not numbered"),
        "no constants": (_zipped(text), "lack dtypes"),
        "a constant too many": (_with("c1.npy", m["c0.npy"]), "lack dtypes"),
        "an unusual packing": (_zipped([*m.items()], zipfile.ZIP_BZIP2), "an unusual way"),
        "a pickled constant": (_with("c0.npy", _pickled(by_hand())), "not an array of plain"),
        "a pickled structure": (_with("program.npy", _pickled(by_hand())), "not an array of plain"),
        "a structure of numbers": (_with("program.npy", m["c0.npy"]), "is not text"),
        "a record": (_with("c0.npy", _npy("[('a', '<f4')]", "()", _FOUR)), "plain numbers"),
        "text as a constant": (_with("c0.npy", _npy("'<U1'", "()", _FOUR)), "plain numbers"),
        "another byte order": (_with("c0.npy", _npy("'>f4'", "()", _FOUR)), "plain numbers"),
        "another npy": (_with("c0.npy", _npy("'<f4'", "()", _FOUR, 2)), "another version of npy"),
        "code in a header": (_with("c0.npy", _npy("exit()", "()", _FOUR)), "is no array"),
        "a long header": (_with("c0.npy", _npy("'<f4'", "()" + " " * 2_000, _FOUR)), "no array"),
        "more than is there": (_with("c0.npy", _npy("'<f4'", "(2,)", _FOUR)), "as large as it"),
        "less than is there": (_with("c0.npy", _npy("'<f4'", "(0,)", _FOUR)), "as large as it"),
        "a huge size": (_with("c0.npy", _npy("'<f4'", f"({1 << 61},)", _FOUR)), "a bad shape"),
        "a hugely huge size": (_with("c0.npy", _npy("'<f4'", f"({10**400},)", b"")), "a bad shape"),
        "a negative size": (_with("c0.npy", _npy("'<f4'", "(-1,)", _FOUR)), "a bad shape"),
        "none of very many": (
            _with("c0.npy", _npy("'<f4'", f"(0, {1 << 61}, {1 << 61})", b"")), "a bad shape",
        ),
        "33 dimensions": (_with("c0.npy", _npy("'<f4'", f"{(1,) * 33}", _FOUR)), "a bad shape"),
        "no JSON": (archive(b"{", []), "is not JSON"),
        "code for JSON": (archive(b"__import__('os')", []), "is not JSON"),
        "no UTF-8": (archive(b"\xff\xfe", []), "is not JSON"),
        "a number of 5,000 digits": (archive(b"9" * 5_000, []), "is not JSON"),
        "brackets without end": (archive(b"[" * 200_000, []), "JSON"),
        "a list": (archive([head], []), "parts are not those"),
        "null": (archive(None, []), "parts are not those"),
    }  # fmt: skip


ARCHIVES = _archives()


def test_the_right_archives() -> None:
    """The twins of those below: what they change, changed to something allowed."""
    members = _members()
    want = by_hand().blocks
    assert read(_zipped([*members.items()])).blocks == want
    assert read(_zipped([*members.items()], zipfile.ZIP_DEFLATED)).blocks == want
    assert read(_with("c0.npy", _npy("'<f4'", "()", _FOUR))).consts == [np.float32(1.5)]
    empty = read(_with("c0.npy", _npy("'<f4'", "(0, 1000, 1000)", b""))).consts[0]
    assert empty.shape == (0, 1000, 1000)


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_wrong_archive_is_refused_in_words(name: str) -> None:
    data, words = ARCHIVES[name]
    refused(data, words)


def test_a_name_twice_in_an_archive_is_refused() -> None:
    members = [*_members().items()]
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = _zipped([*members, members[0]])
    refused(data, "a name twice")


def test_a_program_that_was_cut_off_is_refused() -> None:
    data = traced("copies and barriers")
    assert read(data)
    for length in {*range(0, len(data), max(1, len(data) // 150)), len(data) - 1}:
        refused(data[:length], "is no archive")


# Mutations at random.

_ODD: Sequence[Any] = (
    None, True, -1, 0, 1, 2, 1 << 31, 1 << 63, 10**400, 0.5, math.nan, math.inf, "", "0", "gmem",
    "barrier", "get", "kernel", "cond", "while", "shard_map", "\ud800", "x" * 501, [], [[]], [0],
    [-1], [1 << 62], {}, {"!": []}, {"!": {}}, {"!": "Op"}, {"!": "dict", "f": [[[], 0]]},
    {"!": "Var", "f": [0]}, {"!": "Var", "f": [99]}, {"!": "Slice", "f": [0, 1, 1]}, nested(20),
    {"!": "Tagged", "f": ["a", {"!": ["a"], "f": 0}]}, {"!": "ArrayType", "f": [[2], "bool"]},
)  # fmt: skip


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a structure, as (what holds it, its key)."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _mutated(data: st.DataObject, head: Any) -> None:
    """Replaces, removes, doubles or moves one part of a structure."""
    found = list(_places(head))
    inside, key = found[data.draw(st.integers(0, len(found) - 1), "place")]
    how = data.draw(st.sampled_from(("replace", "remove", "double", "move")), "how")
    if how == "replace":
        inside[key] = copy.deepcopy(data.draw(st.sampled_from(_ODD), "odd"))
    elif how == "remove":
        del inside[key]
    elif how == "double" and isinstance(inside, list):
        inside.insert(key, copy.deepcopy(inside[key]))
    else:
        other, place = found[data.draw(st.integers(0, len(found) - 1), "from")]
        inside[key] = copy.deepcopy(other[place])


def _read_or_refused(data: bytes) -> bool:
    """Whether it is read; what is read is a program that can be written and read again."""
    try:
        program = read(data)
    except Refused as error:
        return not str(error).encode()  # it can be written down
    assert isinstance(program, ir.Program)
    assert read(ir.dumps(program)).entry == program.entry
    return True


_FUZZ = settings(
    deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
_SOURCES = ("by hand", *HONEST)


def _source(name: str) -> bytes:
    return ir.dumps(by_hand()) if name == "by hand" else traced(name)


@settings(_FUZZ, max_examples=200)
@given(st.sampled_from(_SOURCES), st.integers(1, 3), st.data())
def test_a_mutated_structure_is_read_or_refused(name: str, times: int, data: st.DataObject) -> None:
    head, constants = parts(_source(name))
    for _ in range(times):
        if head:
            _mutated(data, head)
    _read_or_refused(archive(head, constants))


@settings(_FUZZ, max_examples=250)
@given(st.sampled_from(_SOURCES), st.randoms(use_true_random=False), st.integers(1, 8))
def test_mutated_bytes_are_read_or_refused(name: str, rng: Any, times: int) -> None:
    data = bytearray(_source(name))
    for _ in range(times):
        data[rng.randrange(len(data))] = rng.randrange(256)
    _read_or_refused(bytes(data))


def test_the_fuzz_starts_from_programs_that_are_read() -> None:
    assert all(_read_or_refused(_source(name)) for name in _SOURCES)
    assert all(_read_or_refused(archive(*parts(_source(name)))) for name in _SOURCES)
