"""A question that Pallas has no word for: whether any lane of a warp sees something."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, nvvm, vector


def any_positive(x: jax.Array) -> jax.Array:
    """1 where an element of x is above 0, else 0: an int32 that is the same for a whole warp.

    A sum over all rows would have to go through SMEM, with a barrier; a vote of a warp's lanes is
    one instruction (PTX ISA, vote.sync). The four warps of a warpgroup may get different answers
    on a GPU, each for its own 16 rows, so what depends on it may use registers and shuffles
    only: no wgmma, no barrier, no SMEM.

    Args:
      x: (rows, columns) float32 in Layout.WGMMA.
    """
    flag = plgpu.ShapeDtypeStruct((), np.dtype(np.int32), layout=plgpu.Layout.WGMMA)
    vote = plgpu.inline_mgpu(arg_types=(plgpu.Layout.WGMMA,), return_type=flag)(_vote)
    return vote(x)


def _vote(_context: Any, x: mgpu.FragmentedArray) -> mgpu.FragmentedArray:
    f32, i32 = ir.F32Type.get(), ir.IntegerType.get_signless(32)
    largest = None
    for register in x.registers.flat:
        value = vector.reduction(f32, vector.CombiningKind.MAXIMUMF, register)
        largest = value if largest is None else arith.maximumf(largest, value)
    found = arith.cmpf(arith.CmpFPredicate.OGT, largest, mgpu.c(0.0, f32))
    found = nvvm.vote_sync(mgpu.c(-1, i32), found, "any")
    return mgpu.FragmentedArray.splat(arith.extui(i32, found), (), is_signed=True)


def _model(x: Any) -> Any:
    """What `_vote` computes; in the simulator a warpgroup has one answer."""
    return np.int32((x > 0).any())


_vote.numpy_model = _model  # type: ignore[attr-defined]  # as course_lib.simulator.simulated_by does
