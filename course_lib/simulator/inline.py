"""Numpy models of inline Mosaic GPU code, which only a GPU can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ATTRIBUTE = "numpy_model"


def simulated_by[F: Callable[..., Any]](model: Callable[..., Any]) -> Callable[[F], F]:
    """Tells the simulator what an inline function computes; goes under plgpu.inline_mgpu.

        @plgpu.inline_mgpu(arg_types=(L,), return_type=plgpu.ShapeDtypeStruct(shape, F32, layout=L))
        @simulated_by(lambda x: x + 1)
        def add_one(ctx, x):
            ...  # MLIR

    Args:
      model: a function of numpy arrays, one per argument of the inline function without its
        context. A ref comes as an array of its values; what the model writes into that array is
        written to the ref. It returns what the inline function does, as numpy arrays.

    Returns:
      A decorator that leaves the function as it is. On a GPU the model is not used; that the two
      agree is up to you, and worth a test.
    """

    def mark(function: F) -> F:
        setattr(function, ATTRIBUTE, model)
        return function

    return mark
