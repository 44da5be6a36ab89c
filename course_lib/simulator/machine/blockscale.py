"""Block scaling and sparsity of tcgen05: scales and metadata, as they lie in shared memory.

Both reach the tensor core through tensor memory. The copies that bring them there expect
them in an order of their own (jax.experimental.mosaic.gpu.tcgen05,
async_copy_scales_smem_to_tmem and async_copy_sparse_metadata_smem_to_tmem; PTX ISA,
tcgen05 block scaling and sparse matrices). Here tensor memory holds them as matrices.
"""

from __future__ import annotations

import numpy as np

# operand dtype -> the dtypes of its scales, each with the elements of K that one scale is for
SCALES: dict[str, dict[str, tuple[int, ...]]] = {
    "float8_e4m3fn": {"float8_e8m0fnu": (32,)},
    "float8_e5m2": {"float8_e8m0fnu": (32,)},
    "float4_e2m1fn": {"float8_e8m0fnu": (16, 32), "float8_e4m3fn": (16,)},
}


def unpack_scales(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Scales as the matrix (rows, k) of tensor memory.

    `packed` is (rows / 128, k / 4, 32, 16), or (1, k / 4, 64, 16) for the B of a collective
    MMA with M = 64, where each block's columns take 128 of the 256 rows.
    """
    tiles, k = packed.shape[0], packed.shape[1] * 4
    if packed.shape[2] == 64:
        parts = packed.reshape(k // 4, 2, 32, 4, 4).transpose(1, 3, 2, 0, 4)
    else:
        parts = packed.reshape(tiles, k // 4, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    return parts.reshape(-1, k)[: shape[0], : shape[1]]


def apply_scales(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Each row of `values` (rows, k) times its scales (rows, k / block)."""
    factors = scales.astype(np.float32)
    return values * np.repeat(factors, values.shape[1] // factors.shape[1], axis=1)


def unpack_metadata(packed: np.ndarray) -> np.ndarray:
    """Sparsity metadata (1, k / 64, 128, 64) as the matrix (128, k), for operands of 8 bits."""
    tiles, k_tiles, rows, columns = packed.shape
    return packed.transpose(0, 2, 1, 3).reshape(tiles * rows, k_tiles * columns)


def metadata_of(held: np.ndarray, itemsize: int) -> np.ndarray:
    """The positions that tensor memory holds, row by row: (rows, k / 2), each 0 to 3."""
    positions = held.astype(np.int64) & 3
    if itemsize == 1:
        return positions
    # Operands of 16 bits swap two axes of every tile of 16 rows by 64 positions.
    rows, k = held.shape
    tiles = positions.reshape(rows // 128, 128, k // 64, 64).transpose(0, 2, 1, 3)
    parts = tiles.reshape(rows // 128, k // 64, 8, 2, 8, 4, 2, 8)
    return parts.transpose(0, 2, 6, 4, 1, 5, 3, 7).reshape(rows, k)


def expand_sparse(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The dense (rows, k) matrix: two of every four elements are in `values` (rows, k / 2)."""
    rows, half = values.shape
    out = np.zeros((rows, half // 2, 4), values.dtype)
    groups = positions.reshape(rows, half // 2, 2)
    np.put_along_axis(out, groups, values.reshape(rows, half // 2, 2), axis=-1)
    return out.reshape(rows, half * 2)


def disordered(positions: np.ndarray) -> bool:
    """Whether a pair of positions is not in rising order, which the hardware asks for."""
    return bool(np.any(positions[:, 0::2] >= positions[:, 1::2]))
