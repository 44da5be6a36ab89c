"""What every step of the ladder asks of its operands."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from course_lib.kernels.matmul_ladder.shapes import even_blocks as fewest_blocks
from course_lib.kernels.matmul_ladder.shapes import num_sms, require_multiple

__all__ = [
    "DTYPES",
    "HEAD_DIMS",
    "Sizes",
    "check_operands",
    "even_blocks",
    "most_crossed",
    "num_sms",
    "register_shares",
    "require_multiple",
]

DTYPES = ("float16", "bfloat16")
"""What the steps take; the probabilities are cast to it before they meet V."""

HEAD_DIMS = (64, 128)
"""For more, one warpgroup's registers hold neither 64 rows of the output nor of the scores."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of an attention.

    Attributes:
      batch: how many sequences.
      q_len: queries of a sequence.
      kv_len: keys and values of a sequence.
      heads: heads of the queries, a multiple of kv_heads.
      kv_heads: heads of the keys and values.
      head_dim: elements of a query, a key or a value.
    """

    batch: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def heads_per_kv_head(self) -> int:
        """How many heads of the queries share one of the keys and values."""
        return self.heads // self.kv_heads


def check_operands(
    q: jax.Array, k: jax.Array, v: jax.Array, multiple_of_q: int, block_kv: int
) -> Sizes:
    """The sizes of an attention, once everything fits.

    Args:
      q: (batch, q_len, heads, head_dim), float16 or bfloat16.
      k: (batch, kv_len, kv_heads, head_dim), of the same dtype.
      v: like k.
      multiple_of_q: what q_len has to be a multiple of.
      block_kv: what kv_len has to be a multiple of.

    Raises:
      ValueError: a dtype or a shape does not fit; it names the multiple.
    """
    if {q.dtype, k.dtype, v.dtype} != {q.dtype} or jnp.dtype(q.dtype).name not in DTYPES:
        raise ValueError(
            f"q is {q.dtype}, k is {k.dtype} and v is {v.dtype}; all must be {' or '.join(DTYPES)}"
        )
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(
            f"q, k and v have {q.ndim}, {k.ndim} and {v.ndim} dimensions; 4 are needed"
        )
    batch, q_len, heads, head_dim = q.shape
    kv_len, kv_heads = k.shape[1:3]
    expected = (batch, kv_len, kv_heads, head_dim)
    if k.shape != expected or v.shape != expected:
        raise ValueError(f"k is {k.shape} and v is {v.shape}; for this q, both must be {expected}")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head_dim={head_dim} must be 64 or 128")
    require_multiple(
        q_len=(q_len, multiple_of_q), kv_len=(kv_len, block_kv), heads=(heads, kv_heads)
    )
    return Sizes(batch, q_len, kv_len, heads, kv_heads, head_dim)


def register_shares(compute_wgs: int) -> tuple[int, int]:
    """Registers per thread for each computing warpgroup, and for the one that copies.

    An SM has 65,536 for all threads of its block, so the shares of four warpgroups add up to
    at most 512; `setmaxnreg` takes multiples of 8 from 24 to 256 (PTX ISA, setmaxnreg).

    Raises:
      ValueError: there are no shares for so many warpgroups.
    """
    shares = {1: (232, 40), 2: (232, 40), 3: (160, 24)}
    if compute_wgs not in shares:
        raise ValueError(f"compute_wgs={compute_wgs} must be 1, 2 or 3")
    return shares[compute_wgs]


def most_crossed(tile_q: int, block_kv: int) -> int:
    """How many tiles of keys the diagonal crosses at most, for a tile of queries.

    128 queries meet it in one tile of 128 keys. 192 queries begin, every second time, in the
    middle of one, and then reach into the next.
    """
    return -(-(tile_q + block_kv - math.gcd(tile_q, block_kv)) // block_kv)


def even_blocks(q_tiles: int, sequences: int, most: int, *, causal: bool) -> int:
    """How many persistent blocks to launch, so that all of them are done at the same time.

    Not causal: the fewest that need no more rounds than `most` do. Causal: as many as deal out
    whole heads in each round, so that two rounds in opposite directions even out.

    Args:
      q_tiles: tiles of queries per sequence and head.
      sequences: the number of sequences times that of heads.
      most: how many blocks the card runs at the same time.
      causal: whether a head's tiles differ in length.
    """
    if not causal:
        return fewest_blocks(q_tiles * sequences, most)
    if q_tiles <= most:
        return q_tiles * min(most // q_tiles, sequences)
    return fewest_blocks(q_tiles, most)
