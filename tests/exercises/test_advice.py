"""What JAX says of a learner's slip reaches them in words that help; on real messages of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from course_lib.diagnostics import Finding, Severity
from course_lib.exercises import judge
from course_lib.exercises.advice import advise
from tests.exercises.practice import COLUMNS, ROWS

pytestmark = pytest.mark.two_jax

SHAPE = (ROWS, COLUMNS)


def _kernel(body: Any) -> Any:
    def double(x: Any) -> Any:
        return plgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(x.shape[0] // ROWS,),
            grid_names=("i",),
            scratch_types=[plgpu.SMEM(SHAPE, x.dtype), plgpu.Barrier()],
        )(x)

    return double


def _rows() -> Any:
    return pl.ds(lax.axis_index("i") * ROWS, ROWS)


def stores_a_row_in_all(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = 2 * x_gmem[0]


def stores_integers(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = jnp.ones(SHAPE, jnp.int32)


def asks_for_another_axis(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[pl.ds(lax.axis_index("rows") * ROWS, ROWS)] = 2 * x_gmem[_rows()]


def swaps_start_and_size(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[pl.ds(10 * ROWS, ROWS)] = 2 * x_gmem[_rows()]


def slices_as_in_python(x_gmem, y_gmem, x_smem, loaded):
    i = lax.axis_index("i")
    y_gmem[i * ROWS : (i + 1) * ROWS] = 2 * x_gmem[_rows()]


def multiplies_a_ref(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = 2 * x_gmem


def adds_parts_of_refs(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = x_gmem.at[_rows()] + x_gmem.at[_rows()]


def stores_a_place(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = x_gmem.at[_rows()]


def copies_a_value(x_gmem, y_gmem, x_smem, loaded):
    plgpu.copy_gmem_to_smem(x_gmem[_rows()], x_smem, loaded)
    plgpu.barrier_wait(loaded)
    y_gmem[_rows()] = 2 * x_smem[...]


def _pipeline(step: Any, *, specs: int = 1) -> Any:
    spec = plgpu.BlockSpec(SHAPE, lambda i: (i, 0))
    return plgpu.emit_pipeline(
        step, grid=(1,), in_specs=[spec] * specs, max_concurrent_steps=1, init_carry=jnp.ones(SHAPE)
    )


def forgets_to_return_the_carry(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = _pipeline(lambda indices, tile_smem, total: None)(x_gmem)


def has_a_spec_too_many(x_gmem, y_gmem, x_smem, loaded):
    y_gmem[_rows()] = _pipeline(lambda indices, one, two, total: total, specs=2)(x_gmem)


SLIPS = [
    (stores_a_row_in_all, "A value of shape (128,) is stored into a place of shape (64, 128)"),
    (stores_integers, "int32 values are stored into a float32 ref"),
    (asks_for_another_axis, "has no axis called `rows`"),
    (asks_for_another_axis, "Add `rows` to grid_names"),
    (swaps_start_and_size, "a slice begins at 640, in 64 elements"),
    (slices_as_in_python, "known only when the kernel runs"),
    (multiplies_a_ref, "ref[...] reads what it holds"),
    (adds_parts_of_refs, "ref[...] reads what it holds"),
    (stores_a_place, "ref[...] reads what it holds"),
    (copies_a_value, "ref.at[part] with .at"),
    (forgets_to_return_the_carry, "returns another carry"),
    (has_a_spec_too_many, "the numbers of specs and of references differ"),
]


@pytest.mark.parametrize(("body", "says"), SLIPS, ids=lambda v: getattr(v, "__name__", None))
def test_a_slip_is_answered_in_words_that_help(exercises, body, says):
    verdict = judge("practice.double", _kernel(body), native=False)
    assert verdict.fault == "exception"
    assert says in " ".join(str(verdict).split())
    assert "test_advice.py:" in str(verdict)


def copies_without_a_barrier(x_gmem, y_gmem, x_smem, loaded):
    plgpu.copy_gmem_to_smem(x_gmem.at[_rows()], x_smem)
    plgpu.barrier_wait(loaded)
    y_gmem[_rows()] = 2 * x_smem[...]


def test_a_copy_without_a_barrier_is_told_what_it_lacks(exercises):
    verdict = judge("practice.double", _kernel(copies_without_a_barrier), native=False)
    assert verdict.fault == "lowering"
    said = " ".join(str(verdict).split())
    assert "the TMA unit does this copy" in said
    assert "pass it as the third argument, and barrier_wait on it" in said


@pytest.mark.parametrize(
    "what",
    [
        "ValueError: Incompatible shapes for broadcasting: (1,), (2,)",
        "NameError: name 'blok' is not defined",
        "AttributeError: 'Array' object has no attribute 'reversed'",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
    ],
)
def test_any_other_message_stays_as_it_is(what):
    finding = Finding("exception", Severity.ERROR, what, fix="As before.")
    assert advise(finding) == finding


def test_what_jax_said_stays_readable_under_the_plain_words(exercises):
    text = str(judge("practice.double", _kernel(stores_integers), native=False))
    plain, _, original = text.replace("\n  ", " ").partition("In JAX's words: ")
    assert "clinic" not in plain
    assert "ValueError" in original or "TypeError" in original
    assert len(text.splitlines()) <= 8
