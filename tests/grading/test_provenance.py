"""Where a result comes from: out of a kernel, or from what stands around it.

Programs are traced from real kernels and read as marking reads them. Every answer that is refused
has a twin that is not, which does the same in the kernel, or leaves every element in its place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from course_lib import tracing
from course_lib.exercises import all_exercises, get
from course_lib.grading.families import LAYOUT, ORDER, around
from course_lib.grading.provenance import NO_KERNEL, Around, architecture, look_around
from course_lib.grading.trusted import Job, Looked, look_here
from course_lib.kernels import asynchronous_copies, barriers, clusters, start_here, wgmma
from course_lib.kernels import many_gpus as devices_kernels
from course_lib.kernels import tmem_and_tcgen05 as blackwell
from course_lib.kernels.many_gpus import AXIS, on_devices
from course_lib.simulator import checked, frontend, ir
from tests.grading.test_variants import function_of, solution

pytestmark = pytest.mark.timeout(300)

Function = Callable[..., Any]
MATRIX = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def program_of(function: Function, *shapes: jax.ShapeDtypeStruct) -> ir.Program:
    """What marking gets of a function: traced, written, read strictly."""
    program, _ = frontend.trace(function, *shapes)
    return checked.read(ir.dumps(program))


def looked(
    function: Function, *shapes: Any, allowed: frozenset[str] = ORDER, has_arrays: bool = True
) -> Around:
    """What stands around the kernels of a function of a matrix."""
    program = program_of(function, *(shapes or (MATRIX,)))
    return look_around(program, allowed, has_arrays=has_arrays)


# What the functions below are made of: kernels that hand on, double, and add a table.


def kernel_of(work: Function, out: Any, *args: Any) -> Any:
    """A block for each row: what `work` makes of the row of each argument."""

    def kernel(*refs: Any) -> None:
        row = jax.lax.axis_index("row")
        refs[-1][row] = work(*(r[row] for r in refs[:-1]))

    return plgpu.kernel(kernel, out_type=out, grid=(out.shape[0],), grid_names=("row",))(*args)


def copied(x: Any) -> Any:
    return kernel_of(lambda row: row, x, x)


def doubled(x: Any) -> Any:
    return kernel_of(lambda row: row * 2, x, x)


def filled(out: Any) -> Any:
    return kernel_of(lambda: jnp.ones(out.shape[1:], out.dtype), out)


def added(x: Any, y: Any) -> Any:
    return kernel_of(lambda a, b: a + b, x, x, y)


def in_a_ref(x: Any) -> Any:
    """The kernel writes into memory that the function made."""
    ref = jax.new_ref(copied(x))
    ref[...] = doubled(ref[...])
    return jax.freeze(ref)


def each_its_own_rows(x: Any) -> Any:
    return on_devices(copied, 2)(x)


RIGHT: dict[str, Function] = {
    "out of the kernel": copied,
    "reshaped on both sides": lambda x: copied(x.reshape(64, 256)).reshape(x.shape),
    "flattened": lambda x: copied(x).reshape(-1),
    "cast on both sides": lambda x: copied(x.astype(jnp.float16)).astype(x.dtype),
    "a dimension more and one less": lambda x: copied(x)[None].squeeze(0)[:, None],
    "under jit": jax.jit(lambda x: copied(x)),
    "under vmap": lambda x: jax.vmap(copied)(x.reshape(2, 64, 128)),
    "through two kernels": lambda x: doubled(copied(x)),
    "two results": lambda x: (copied(x), doubled(x)),
    "the input twice": lambda x: added(x, x),
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: doubled(y), x),
    "in a while loop that counts": lambda x: jax.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, doubled(c[1])), (0, copied(x))
    )[1],
    "in a ref": in_a_ref,
    "in a branch that is known": lambda x: jax.lax.cond(1 < 2, copied, doubled, x),
    "with zeros to begin with": lambda x: added(x, jnp.zeros_like(x)),
    "with the derivative of a kernel": lambda x: differentiable(x),
    "each device its own rows": each_its_own_rows,
    "a kernel beside that nobody needs": lambda x: (doubled(x), copied(x))[1],
}


def differentiable(x: Any) -> Any:
    """What jax.vjp makes of a kernel that has a kernel as its derivative."""

    @jax.custom_vjp
    def f(x: Any) -> Any:
        return copied(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (added(x, ct),))
    return jax.vjp(f, x)[1](x)[0]


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_kernel_made_is_accepted(name: str) -> None:
    seen = looked(RIGHT[name])
    assert seen.wrong == ""
    assert all("kernel" in sources for sources in seen.outputs)


# Work around a kernel.


def dot(a: Any, b: Any) -> Any:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def later_rows(x: Any) -> Any:
    """Every row one place further down: a loop that keeps the row before."""
    y = copied(x)
    return jax.lax.scan(lambda before, row: (row, before), doubled(x).reshape(-1)[:128], y)[1]


def kept_for_later(x: Any) -> Any:
    y = copied(x)
    return jax.lax.scan(lambda before, row: (row, before), jnp.ones(128), y)[0]


def by_and_by(x: Any) -> Any:
    """A product that a loop hands from hand to hand, until it comes out twelve rounds later."""
    hands = (dot(x, x), *[copied(x)] * 11)
    return jax.lax.fori_loop(0, 11, lambda _, h: (h[-1], *h[:-1]), hands)[-1]


def swapped_in_a_ref(x: Any) -> Any:
    """Two kernels' rows in other places, without a slice of a value."""
    ref = jax.new_ref(copied(x))
    ref[0] = kernel_of(lambda row: row, jax.ShapeDtypeStruct((1, 128), x.dtype), x).reshape(128)
    return jax.freeze(ref)


def first_positive(x: Any) -> Any:
    """How often a loop goes round says where something is; a kernel only writes it down."""
    found = jax.lax.while_loop(lambda i: x[0, i] <= 0, lambda i: i + 1, 0)
    out = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    return kernel_of(lambda row: row, out, jnp.broadcast_to(found, (1, 128)))


def at_a_place_of_the_data(x: Any) -> Any:
    """A row of a ref, and the data say which."""
    ref = jax.new_ref(copied(x))
    return ref[jnp.argmax(x[:, 0])]


def for_everybody(x: Any) -> Any:
    """Each device gets all rows, and returns those of another: no message is sent."""
    spec = PartitionSpec(AXIS)
    return on_devices(copied, 2, in_specs=PartitionSpec(), out_specs=spec)(x)


def columns_for_rows(x: Any) -> Any:
    specs = {"in_specs": PartitionSpec(AXIS), "out_specs": PartitionSpec(None, AXIS)}
    return on_devices(copied, 2, **specs)(x)


def sent_by_jax(x: Any) -> Any:
    return on_devices(lambda x: jax.lax.ppermute(copied(x), AXIS, [(0, 1), (1, 0)]), 2)(x)


WRONG: dict[str, tuple[Function, str]] = {
    "jnp.dot ahead of a copy": (lambda x: copied(dot(x, x)), "`dot_general`"),
    "jnp.dot behind a copy": (lambda x: dot(copied(x), x), "`dot_general`"),
    "jnp.dot beside a copy": (lambda x: copied(x) * 0 + dot(x, x), "`dot_general`"),
    "jnp.dot, and a kernel nobody needs": (lambda x: (copied(x), dot(x, x))[1], "`dot_general`"),
    "jnp.dot in one of two results": (lambda x: (copied(x), dot(x, x)), "`dot_general`"),
    "jnp.dot under jit": (lambda x: copied(jax.jit(dot)(x, x)), "`dot_general`"),
    "jnp.dot under vmap": (lambda x: jax.vmap(lambda y: dot(y, x))(copied(x)), "`dot_general`"),
    "jnp.dot in a loop ahead": (
        lambda x: copied(jax.lax.fori_loop(0, 2, lambda _, y: dot(y, x), x)),
        "`dot_general`",
    ),
    "jnp.dot, handed on by a long loop": (by_and_by, "`dot_general`"),
    "jnp.dot in a branch": (
        lambda x: copied(jax.lax.cond(x[0, 0] > 0, lambda: dot(x, x), lambda: x)),
        "`cond`, `dot_general`",
    ),
    "jnp.dot on each device": (on_devices(lambda x: copied(x @ x.T @ x), 2), "`dot_general`"),
    "jnp.dot into a ref that a kernel reads": (
        lambda x: copied(jax.new_ref(dot(x, x))[...]),
        "`dot_general`",
    ),
    "a factor behind": (lambda x: copied(x) * 2, "`mul`"),
    "a factor ahead": (lambda x: copied(x * 2), "`mul`"),
    "a sum of two kernels": (lambda x: copied(x) + doubled(x), "`add`"),
    "nought times a kernel": (lambda x: copied(x) * 0 + x, "`add`"),
    "one of two by the data": (lambda x: jax.lax.cond(x[0, 0] > 0, copied, doubled, x), "`cond`"),
    "reversed": (lambda x: copied(x)[::-1], "`rev`"),
    "sorted out by columns": (lambda x: jnp.ravel(copied(x), order="F"), "`reshape`"),
    "one row repeated": (lambda x: jnp.broadcast_to(copied(x)[:1], x.shape), "broadcast_in_dim"),
    "rolled": (lambda x: jnp.roll(copied(x), 1, axis=0), "`concatenate`"),
    "rolled by a loop": (later_rows, "`scan`"),
    "the last row, by a loop": (kept_for_later, "`scan`"),
    "put into other rows of a ref": (swapped_in_a_ref, "`slice`"),
    "a row of a ref that the data choose": (at_a_place_of_the_data, "`argmax`"),
    "as often as the data say": (first_positive, "`while`"),
    "everything for every device": (for_everybody, "`shard_map`"),
    "a device's rows as columns": (columns_for_rows, "`shard_map`"),
    "sent by JAX": (sent_by_jax, "`ppermute`"),
    "the input, and a kernel nobody needs": (lambda x: (copied(x), x)[1], "not what a kernel"),
    "the input as one of two results": (lambda x: (copied(x), x), "not what a kernel wrote"),
    "a constant beside": (lambda x: (copied(x), jnp.ones_like(x)), "not what a kernel wrote"),
    "a list of numbers beside": (
        lambda x: (copied(x), jnp.arange(128.0)),
        "not what a kernel wrote",
    ),
    "padded with noughts": (
        lambda x: jnp.concatenate([copied(x), jnp.zeros_like(x)]),
        "`concatenate`",
    ),
    "nothing": (lambda x: [copied(x), ()][1], "It returns nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_made_around_a_kernel_is_refused(name: str) -> None:
    function, says = WRONG[name]
    wrong = looked(function).wrong
    assert wrong
    assert says in wrong


# Exercises in which moving data is not what is asked.


MOVED: dict[str, Function] = {
    "transposed behind": lambda x: copied(x).T,
    "transposed ahead": lambda x: copied(x.T),
    "a slice of it": lambda x: copied(x)[:64],
    "in two parts": lambda x: jnp.concatenate([copied(x[:64]), doubled(x[64:])]),
    "padded ahead": lambda x: copied(jnp.pad(x, ((0, 128), (0, 0))))[:128],
    "flattened by columns": lambda x: jnp.ravel(copied(x), order="F"),
    "a row repeated": lambda x: jnp.broadcast_to(copied(x)[:1], x.shape),
    "row by row": lambda x: jax.lax.map(lambda row: copied(row[None]), x),
    "a row of a ref": lambda x: jax.new_ref(copied(x))[3],
}


@pytest.mark.parametrize("name", MOVED)
def test_moving_data_is_allowed_where_it_is_not_the_point(name: str) -> None:
    assert looked(MOVED[name], allowed=LAYOUT).wrong == ""
    assert "Outside of the kernel stands" in looked(MOVED[name]).wrong


@pytest.mark.parametrize(
    "name", ["jnp.dot ahead of a copy", "a factor behind", "as often as the data say", "nothing"]
)
def test_computing_never_is(name: str) -> None:
    assert looked(WRONG[name][0], allowed=LAYOUT).wrong


def test_noughts_behind_a_kernel_are_nobodys_work_but_part_of_the_result() -> None:
    padded = WRONG["padded with noughts"][0]
    assert "not what a kernel wrote" in looked(padded, allowed=LAYOUT).wrong


# What was known before the kernel ran.


def test_a_table_may_help_with_arrays_but_not_be_the_answer() -> None:
    numbers = np.arange(32, dtype=np.float32).reshape(1, 32)  # the strict reader allows 64

    def table(x: Any) -> Any:
        return jnp.concatenate([x] * 4, axis=1)

    def helped(x: Any) -> Any:
        return added(x[:1], table(jnp.asarray(numbers)))

    def handed_out() -> Any:
        return copied(table(jnp.asarray(numbers)))

    assert looked(helped, allowed=LAYOUT).wrong == ""
    wrong = looked_without_arrays(handed_out, allowed=LAYOUT)
    assert "known before the kernel ran" in wrong


def looked_without_arrays(function: Function, *, allowed: frozenset[str] = ORDER) -> str:
    """What is wrong with a function that takes no arrays."""
    return look_around(program_of(function), allowed, has_arrays=False).wrong


def test_counting_ahead_of_a_copy_is_known_before() -> None:
    shape = jax.ShapeDtypeStruct((1, 128), jnp.int32)
    assert looked_without_arrays(lambda: filled(shape)) == ""
    wrong = looked_without_arrays(lambda: copied(jnp.arange(128).reshape(1, 128)))
    assert "known before the kernel ran" in wrong


def test_a_large_array_of_constants_is_not_even_read() -> None:
    values = np.random.default_rng().standard_normal((128, 128)).astype(np.float32)
    with pytest.raises(checked.Refused, match="brings along an array of 16,384 numbers"):
        looked(lambda x: added(x, jnp.asarray(values)))


# No kernel at all: that is what the student reads, whatever else is not known here.


WITHOUT: dict[str, Function] = {
    "a product": lambda x: dot(x, x),
    "nothing done": lambda x: x,
    "a derivative": jax.grad(lambda x: jnp.sum(jnp.sin(x))),
    "sort": lambda x: jnp.sort(x, axis=0),
    "fft": lambda x: jnp.fft.fft(x).real,
    "gather": lambda x: x[jnp.asarray([1, 0, 2])],
    "scatter": lambda x: x.at[3].set(0.0),
    "top_k": lambda x: jax.lax.top_k(x, 2)[0],
    "cholesky": lambda x: jax.scipy.linalg.cholesky(x @ x.T),
    "conv_general_dilated": lambda x: jnp.convolve(x[0], x[1]),
    "random numbers": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "a table": lambda x: x + jnp.asarray(np.arange(16_384, dtype=np.float32).reshape(128, 128)),
    "sorted on each device": on_devices(lambda x: jnp.sort(x), 2),
}


def marked(function: Function) -> Looked:
    """What marking sees of an answer to an exercise about a matrix."""
    exercise = get("start_here.reverse_rows")
    case = dataclasses.replace(
        exercise.cases[0], args=(dataclasses.replace(exercise.cases[0].args[0], shape=(128, 128)),)
    )
    program, _ = frontend.trace(function, MATRIX)
    [seen] = look_here(Job((case,), (ir.dumps(program),), ("x",), 7, ORDER), exercise)
    return seen


@pytest.mark.parametrize("name", WITHOUT)
def test_without_a_kernel_the_student_reads_that_there_is_none(name: str) -> None:
    seen = marked(WITHOUT[name])
    assert (seen.around, seen.refused, seen.right) == (NO_KERNEL, "", False)


@pytest.mark.parametrize("name", ["sort", "fft", "cholesky"])
def test_with_a_kernel_they_read_what_is_not_known(name: str) -> None:
    function = WITHOUT[name]
    seen = marked(lambda x: copied(function(x)))
    assert seen.around == ""
    assert f"no operation '{name}'" in seen.refused


def test_a_kernel_that_is_right_is_right() -> None:
    seen = marked(start_here.reverse_rows)
    assert (seen.right, seen.around, seen.refused) == (True, "", "")


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"[" * 100_000, ir.dumps(ir.Program([], []))[:-40]],
    ids=["nothing", "two letters", "brackets", "cut off"],
)
def test_of_what_is_no_program_nobody_says_that_it_has_no_kernel(data: bytes) -> None:
    with pytest.raises(checked.Refused):
        checked.read(data)
    assert checked.has_kernel(data)


def test_a_kernel_in_any_block_is_one() -> None:
    program, _ = frontend.trace(each_its_own_rows, MATRIX)
    assert checked.has_kernel(ir.dumps(program))
    without, _ = frontend.trace(WITHOUT["sorted on each device"], MATRIX)
    assert not checked.has_kernel(ir.dumps(without))


def test_a_program_that_goes_round_and_round_is_refused() -> None:
    """Thirty blocks, each of which calls the one before twice."""
    row = ir.ArrayType((128,), "float32")
    blocks = [ir.Block((0,), (0,), (row,), ())]
    for number in range(30):
        calls = tuple(
            ir.Op("call", (i,), (i + 1,), {}, {"blocks": (number,)}, -1, 2 * number + i)
            for i in range(2)
        )
        blocks.append(ir.Block((0,), (2,), (row, row, row), calls))
    with pytest.raises(checked.Refused, match="too long to follow"):
        look_around(ir.Program(blocks, [], [], 30), ORDER, has_arrays=True)
    few = look_around(ir.Program(blocks, [], [], 5), ORDER, has_arrays=True)
    assert few.wrong == NO_KERNEL


# What is in the kernels.


def struct(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


HALF = struct(128, 64, dtype="float16"), struct(64, 128, dtype="float16")
KERNELS: dict[str, tuple[Function, tuple[Any, ...], str]] = {
    "copies": (start_here.double_through_smem, (struct(256),), "sm_90a"),
    "barriers": (barriers.queue, (struct(4, 128),), "sm_90a"),
    "clusters": (clusters.smooth, (struct(3, 16, 128),), "sm_90a"),
    "wgmma": (wgmma.product, (struct(64, 64, dtype="float16"),) * 2, "sm_90a"),
    "devices": (on_devices(devices_kernels.rotate, 2), (struct(16, 128),), "sm_90a"),
    "tensor memory": (blackwell.product, HALF, "sm_100a"),
    "rows by an array": (
        asynchronous_copies.gather_rows, (struct(512, 64), struct(64, dtype="uint16")), "sm_100a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_what_is_in_a_kernel_is_counted_as_the_learners_check_counts(name: str) -> None:
    function, shapes, arch = KERNELS[name]
    program = program_of(function, *shapes)
    seen = look_around(program, ORDER, has_arrays=True)
    wanted = tracing.trace(function, *shapes)
    inside = wanted.inside.copy()
    inside["run_scoped"] -= wanted.kernels  # Pallas' own, for the scratch
    assert seen.kernels == wanted.kernels
    for primitive in {p for e in all_exercises() for p in (*e.requires, *e.forbids)}:
        assert seen.inside[primitive] == inside[primitive], primitive
    assert architecture(program) == arch


def test_what_no_compiler_has_code_for_is_named() -> None:
    by_dot = looked(lambda x: kernel_of(lambda row: jnp.dot(row, row) * row, x, x))
    assert by_dot.unlowerable == ("dot_general",)
    by_sum = looked(lambda x: kernel_of(lambda row: jnp.sum(row * row) * row, x, x))
    assert by_sum.unlowerable == ()
    down = looked(lambda x: kernel_of(lambda row: jnp.floor(row) + jnp.log1p(row), x, x))
    assert down.unlowerable == ("floor", "log1p")
    logs = looked(lambda x: kernel_of(lambda row: jnp.log(row) + jnp.tanh(row), x, x))
    assert logs.unlowerable == ()


PALLAS = [e for e in all_exercises() if e.program is None and e.needs_kernel]
QUICK = ("start_here.reverse_rows", "debugging.pull_back", "many_gpus.fetch")


@pytest.mark.parametrize(
    "exercise_id",
    [pytest.param(e.id, marks=() if e.id in QUICK else pytest.mark.slow) for e in PALLAS],
)
def test_the_courses_solutions_come_out_of_their_kernels(exercise_id: str) -> None:
    answer, case = function_of(exercise_id, solution(exercise_id)), get(exercise_id).cases[-1]
    shapes = [struct(*a.shape, dtype=a.dtype) for a in case.args]
    seen = look_around(
        program_of(functools.partial(answer, **case.static), *shapes),
        around(exercise_id),
        has_arrays=bool(case.args),
    )
    assert seen.wrong == ""
    assert seen.unlowerable == ()
