"""What every step of the ladder asks of its operands."""

from __future__ import annotations

import jax
import jax.numpy as jnp

DTYPES = ("float16", "bfloat16")
"""What the steps multiply. float32 and 8-bit operands want a transposed B (PTX ISA, wgmma)."""


def count_tiles(
    a: jax.Array, b: jax.Array, tile_m: int, tile_n: int, tile_k: int
) -> tuple[int, int, int]:
    """How many tiles there are along M, N and K.

    Args:
      a: (m, k), float16 or bfloat16.
      b: (k, n), of the same dtype.
      tile_m: rows of the result that one block, or one cluster, computes at a time.
      tile_n: columns of it.
      tile_k: how much of K one slot of SMEM holds.

    Raises:
      ValueError: a dtype or a shape does not fit; it names the multiple.
    """
    m, n, k_iters = check_operands(a, b, tile_m, tile_n, tile_k)
    return m // tile_m, n // tile_n, k_iters


def check_operands(
    a: jax.Array, b: jax.Array, multiple_of_m: int, multiple_of_n: int, tile_k: int
) -> tuple[int, int, int]:
    """The result's rows and columns, and how many tiles there are along K.

    Raises:
      ValueError: a dtype or a shape does not fit; it names the multiple.
    """
    (m, k), (k2, n) = a.shape, b.shape
    if a.dtype != b.dtype or jnp.dtype(a.dtype).name not in DTYPES:
        raise ValueError(f"a is {a.dtype} and b is {b.dtype}; both must be {' or '.join(DTYPES)}")
    if k != k2:
        raise ValueError(f"a has {k} columns and b has {k2} rows; they must be equal")
    require_multiple(m=(m, multiple_of_m), n=(n, multiple_of_n), k=(k, tile_k))
    return m, n, k // tile_k


def require_multiple(**sizes: tuple[int, int]) -> None:
    """Complains about the first of `name=(value, multiple)` that does not fit.

    Raises:
      ValueError: a value is not a positive multiple of what it has to be.
    """
    for name, (value, multiple) in sizes.items():
        if value <= 0 or value % multiple:
            raise ValueError(f"{name}={value} must be a multiple of {multiple}")


def num_sms() -> int:
    """How many SMs there are: of the GPU that JAX runs on, else of an H100 or H200 (132)."""
    device = jax.devices()[0]
    return int(device.core_count) if device.platform == "gpu" else 132


def even_blocks(tiles: int, most: int) -> int:
    """The fewest blocks that need no more waves than `most` blocks do.

    2048 tiles take 132 blocks 16 waves, the last of them about half full; they take 128
    blocks as many, all of them full.
    """
    waves = -(-tiles // most)
    return -(-tiles // waves)
