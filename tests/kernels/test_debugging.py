"""The kernels of chapter 14: right, free of findings, and what others make of them."""

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

from course_lib import simulator
from course_lib.authoring import Course
from course_lib.compiler import compile_for
from course_lib.kernels import debugging as k

Array = np.ndarray[Any, Any]
# kernel, reference, shapes of its arguments, their dtype, tolerance
Call = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...], str, float]


def _pull_back(x: jax.Array, ct: jax.Array) -> jax.Array:
    [dx] = jax.vjp(k.swish, x)[1](ct)
    return dx


CALLS: dict[str, Call] = {
    "double": (k.double, lambda x: 2 * x, ((256,),), "float32", 0.0),
    "layouts": (k.layouts, lambda x: x, ((64, 64),), "float32", 0.0),
    "talkative": (k.talkative, lambda x: x, ((4, 2, 128),), "float32", 0.0),
    **{
        f"product, {slots} slots": (
            functools.partial(k.product, slots=slots),
            k.product_reference,
            ((128, 320), (320, 128)),
            "bfloat16",
            2e-2,
        )
        for slots in (1, 2, 4)
    },
    "product, one step": (k.product, k.product_reference, ((128, 64), (64, 128)), "bfloat16", 2e-2),
    "softmax, whole": (k.softmax_whole, k.softmax_reference, ((2, 128, 256),), "float32", 1e-5),
    "softmax, pieces": (k.softmax_pieces, k.softmax_reference, ((3, 32, 256),), "float32", 1e-5),
    "nearest_tf32": (k.nearest_tf32, k.nearest_tf32_reference, ((512,),), "float32", 0.0),
    "reversed_bits": (k.reversed_bits, k.reversed_bits_reference, ((512,),), "int32", 0.0),
    "tanh": (k.tanh, np.tanh, ((256,),), "float32", 1e-6),
    "tanh, rough": (functools.partial(k.tanh, approx=True), np.tanh, ((256,),), "float32", 2e-5),
    "reciprocal": (k.reciprocal, np.reciprocal, ((256,),), "float32", 1e-6),
    "halves": (k.halves, lambda x: 2 * x, ((256,),), "float32", 0.0),
    "halves_of_each": (k.halves_of_each, lambda x: 2 * x, ((3, 256),), "float32", 0.0),
    "swish": (k.swish, k.swish_reference, ((256,),), "float32", 1e-5),
    "swish's derivative": (
        *(_pull_back, lambda x, ct: ct * k.swish_slope_reference(x)),
        *(((256,), (256,)), "float32", 1e-5),
    ),
    "swish of each": (jax.vmap(k.swish), k.swish_reference, ((4, 256),), "float32", 1e-5),
}


def draw(name: str) -> list[Array]:
    """Fresh inputs: iid normal, and for integers all their bits."""
    _, _, shapes, dtype, _ = CALLS[name]
    rng = np.random.default_rng()
    if dtype == "int32":
        return [rng.integers(-(2**31), 2**31, s).astype(np.int32) for s in shapes]
    return [rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes]


def equal(name: str, got: Any, args: list[Array]) -> None:
    """Fails unless `got` is the reference's result, exactly where the tolerance is 0."""
    _, reference, _, _, tolerance = CALLS[name]
    wanted = np.asarray(reference(*args))
    if tolerance == 0:
        np.testing.assert_array_equal(np.asarray(got), wanted)
        return
    scale = 8.0 if "product" in name else 1.0  # sums of 320 products
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.float64(wanted), rtol=tolerance, atol=tolerance * scale
    )


@pytest.mark.two_jax
@pytest.mark.parametrize("schedule", ["in_order", "adversarial", 1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_equals_its_reference_without_findings(name: str, schedule: str | int) -> None:
    args = draw(name)
    report = simulator.simulate(CALLS[name][0], *args, schedule=schedule)
    assert report.findings == (), report
    equal(name, report.value, args)


@pytest.mark.parametrize("name", CALLS)
def test_compiles_for_a_hopper_gpu(name: str) -> None:
    kernel, _, shapes, dtype, _ = CALLS[name]
    code = compile_for(kernel, *(jax.ShapeDtypeStruct(s, jnp.dtype(dtype)) for s in shapes))
    assert code.spill_bytes == 0 or name == "softmax, whole"


def test_of_the_two_softmaxes_only_the_whole_one_spills() -> None:
    x = jax.ShapeDtypeStruct((2, 128, 512), jnp.float32)
    assert compile_for(k.softmax_whole, x).spill_bytes > 1000
    assert compile_for(k.softmax_pieces, x).spill_bytes == 0


def test_inline_code_is_in_the_ptx() -> None:
    floats, integers = (jax.ShapeDtypeStruct((256,), d) for d in (jnp.float32, jnp.int32))
    assert compile_for(k.nearest_tf32, floats).count("cvt.rna.tf32.f32") == 2
    assert compile_for(k.reversed_bits, integers).count("brev.b32") == 2


def test_rounding_to_tf32_is_to_the_nearest_and_ties_go_away_from_zero() -> None:
    step = 2.0**-10
    x = np.float32([1 + step / 2, 1 + 0.49 * step, 1 + 0.51 * step, -1 - step / 2, 1, 1 + step])
    wanted = np.float32([1 + step, 1, 1 + step, -1 - step, 1, 1 + step])
    np.testing.assert_array_equal(k.nearest_tf32_reference(x), wanted)


def test_bits_are_reversed() -> None:
    x = np.int32([1, 2, -1, 0, 6])
    wanted = [int(f"{v & 0xFFFFFFFF:032b}"[::-1], 2) for v in x.tolist()]
    np.testing.assert_array_equal(k.reversed_bits_reference(x).view(np.uint32), wanted)


def test_only_with_the_permission_tanh_is_one_instruction() -> None:
    x = jax.ShapeDtypeStruct((256,), jnp.float32)
    for approx in (False, True):
        code = compile_for(functools.partial(k.tanh, approx=approx), x)
        assert (code.count("tanh.approx.f32") > 0) is approx


VECTOR = jax.ShapeDtypeStruct((256,), jnp.float32)


@pytest.mark.two_jax
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (k.swish, "fine"),
        (jax.jit(k.swish), "fine"),
        (lambda x: (k.swish(x),) * 2, "fine"),
        (lambda x: k.swish(k.swish(x)), "2 kernels"),
        (lambda x: k.swish(x) + 1, "an operation that is no kernel: add"),
        (lambda x: k.swish(x + 1), "an operation that is no kernel: add"),
        (jnp.sin, "an operation that is no kernel: sine"),
        (lambda x: (k.swish(x), x), "an argument is returned"),
    ],
)
def test_pytorch_takes_one_kernel_and_nothing_else(function: Any, words: str) -> None:
    assert k.torch_says(function, VECTOR) == words


@pytest.mark.two_jax
def test_an_exported_kernel_is_for_cuda_and_holds_no_machine_code() -> None:
    exported = k.exported(k.swish, VECTOR)
    assert exported.platforms == ("cuda",)
    text = exported.mlir_module()
    assert f"@{k.KERNEL_CALL}" in text
    assert ".visible .entry" not in text
    with pytest.raises(ValueError, match="cuda"):
        exported.call(np.ones(256, np.float32))


def test_a_kernel_without_a_rule_has_no_derivative() -> None:
    with pytest.raises(NotImplementedError, match="mpmd_map"):
        jax.grad(lambda x: k.double(x).sum())(jnp.ones(256))


@pytest.mark.two_jax
def test_the_options_that_the_chapter_names_are_all_there_are() -> None:
    text = (Course().solutions / "14_debugging.md").read_text()
    table = text[text.index("## Compiler parameters") : text.index("### `approx_math`")]
    for field in dataclasses.fields(plgpu.CompilerParams):
        assert f"`{field.name}" in table, field.name
