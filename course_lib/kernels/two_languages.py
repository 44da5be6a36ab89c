"""The Pallas kernels of chapter 22, whose problems the chapter solves in Mojo, too.

Each is beside its NumPy reference. `softmax` and `softmax_pipelined` give the softmax of every
row; `matmul` multiplies matrices on Hopper's TensorCore (PTX ISA, wgmma.mma_async). The
chapter's Mojo programs are judged against the same references.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from course_lib.kernels.matmul_ladder import matmul0

Array = np.ndarray[Any, Any]

LANES = 128
"""Lanes of a Pallas thread."""

matmul = matmul0.matmul
"""a @ b, tile by tile through one slot of SMEM: step 0 of the ladder."""


@dataclasses.dataclass(frozen=True)
class Config:
    """How `softmax_pipelined` cuts its work.

    Attributes:
      rows_per_block: how many rows one block goes through, one after the other.
      slots: how many rows are on their way into SMEM at a time, and out of it.
    """

    rows_per_block: int = 32
    slots: int = 4


def softmax(x: jax.Array) -> jax.Array:
    """The softmax of each row of x, (rows, cols): one block with one Pallas thread for each row.

    Args:
      x: float32; 128 divides cols, as the 128 lanes share a row.
    """

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        row = jax.lax.axis_index("row")
        x = x_gmem[row]
        e = jnp.exp(x - jnp.max(x))
        y_gmem[row] = e / jnp.sum(e)

    return plgpu.kernel(kernel, out_type=x, grid=x.shape[:1], grid_names=("row",))(x)


def softmax_pipelined(x: jax.Array, *, config: Config | None = None) -> jax.Array:
    """`softmax`, with the TMA unit bringing the next rows while a block works on one.

    Args:
      x: float32[rows, cols]; 128 divides cols.
      config: see there; rows_per_block divides rows.

    Raises:
      ValueError: rows_per_block does not divide rows.
    """
    config = config or Config()
    rows, cols = x.shape
    if rows % config.rows_per_block or cols % LANES:
        raise ValueError(
            f"{rows=} must be a multiple of rows_per_block={config.rows_per_block}, "
            f"and {cols=} of {LANES}"
        )

    def step(_: Any, x_smem: Any, y_smem: Any) -> None:
        e = jnp.exp(x_smem[...] - jnp.max(x_smem[...]))
        y_smem[...] = e / jnp.sum(e)

    def kernel(x_gmem: Any, y_gmem: Any) -> None:
        first = jax.lax.axis_index("block") * config.rows_per_block
        one_row = plgpu.BlockSpec((None, cols // LANES, LANES), lambda i: (first + i, 0, 0))
        plgpu.emit_pipeline(
            step,
            grid=(config.rows_per_block,),
            in_specs=[one_row],
            out_specs=[one_row],
            max_concurrent_steps=config.slots,
        )(x_gmem, y_gmem)

    # A copy takes at most 256 elements along each axis (chapter 05): a row has to be two of them.
    folded = x.reshape(rows, cols // LANES, LANES)
    grid = (rows // config.rows_per_block,)
    call = plgpu.kernel(kernel, out_type=folded, grid=grid, grid_names=("block",))
    return call(folded).reshape(x.shape)


def softmax_reference(x: Array) -> Array:
    """The softmax of each row in NumPy, in float64, with x's dtype."""
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    softmax: Array = (e / e.sum(axis=1, keepdims=True)).astype(x.dtype)
    return softmax


def matmul_reference(a: Array, b: Array) -> Array:
    """a @ b in NumPy, added up in float64, with a's dtype."""
    product: Array = (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)
    return product


def standardize_reference(x: Array, **_: int) -> Array:
    """(x - mean) / sqrt(variance + 1e-5) of each row, in float64; x is (rows, cols).

    Sizes that only a Mojo program is told (`rows`, `cols`) are accepted and not needed.
    """
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    y: Array = (centred / np.sqrt(variance + 1e-5)).astype(x.dtype)
    return y


def place_reference(acc: Array) -> Array:
    """The 64 x 128 accumulator of which lane `i` holds the registers acc[i]: float32 (128, 64).

    PTX ISA, Register Fragments for wgmma.mma_async.m64nNk16, the figure of accumulator D.
    """
    lane, i = np.indices(acc.shape)
    rows = lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8
    cols = lane % 4 * 2 + i % 2 + i // 4 * 8
    whole = np.empty((64, 128), acc.dtype)
    whole[rows, cols] = acc
    return whole


def mojo_source() -> str:
    """The matmul in Mojo that uses the TensorCore, a whole program (`two_languages_wgmma.mojo`)."""
    return Path(__file__).with_name("two_languages_wgmma.mojo").read_text()


def mojo_loop() -> str:
    """Its loop over K, from the line with `for` to the barrier at its end."""
    lines = mojo_source().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("    for k in range"))
    body = itertools.takewhile(lambda line: line.startswith(" " * 8), lines[first + 1 :])
    return "\n".join([lines[first], *body])
