"""The pictures of wgmma: drawn the same each time, told in words as well, and true."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from matplotlib.figure import Figure

from course_lib.compiler import compile_for
from course_lib.figures import png, wgmma
from course_lib.kernels import wgmma as kernels


@pytest.mark.parametrize("draw", [wgmma.one_call, wgmma.life_of_a_call])
def test_draws_the_same_picture_twice(draw: Callable[[], Figure]) -> None:
    assert png(draw()) == png(draw())


def test_the_picture_has_as_many_instructions_as_the_compiler_issues() -> None:
    a = jax.ShapeDtypeStruct((128, 64), jnp.bfloat16)
    b = jax.ShapeDtypeStruct((64, 128), jnp.bfloat16)
    count = compile_for(kernels.product, a, b).count("wgmma.mma_async")
    assert f"{count} instructions of shape m64n128k16" in str(wgmma.one_call().get_label())


def test_the_k_of_an_instruction_depends_on_the_size_of_an_element() -> None:
    text = str(wgmma.one_call(64, 256, 64, itemsize=4).get_label())
    assert "8 instructions of shape m64n256k8" in text


def test_the_tensorcore_works_from_the_call_until_its_result_is_used() -> None:
    begin, end = wgmma._TENSOR[0][:2]
    edges = [edge for span in wgmma._THREAD for edge in span[:2]]
    assert edges == sorted(edges)
    assert {begin, end} <= set(edges)


def test_the_alternative_text_names_both_hand_overs() -> None:
    alt = str(wgmma.life_of_a_call().get_label())
    assert all(f"({n})" in alt for n in (1, 2))
