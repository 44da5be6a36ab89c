"""What each architecture has (CUDA C++ Programming Guide, compute capabilities 9.0 and 10.0)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Arch:
    """Sizes of a GPU.

    Attributes:
      smem_bytes: shared memory that one block may have.
      tmem_columns: columns of tensor memory per SM (0: there is none).
      sms: streaming multiprocessors: how many blocks run at the same time at least.
      smem_per_sm_bytes: shared memory of an SM; 1 KiB of it goes to each block beside its own.
      threads_per_sm, blocks_per_sm: the most lanes (CUDA threads) and blocks on an SM.
      registers_per_sm: 32-bit registers of an SM.
      registers_per_lane: the most that one lane may have.
    """

    name: str
    smem_bytes: int
    tmem_columns: int
    sms: int
    smem_per_sm_bytes: int = 228 * 1024
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    registers_per_sm: int = 65536
    registers_per_lane: int = 255


ARCHS = {
    "sm_90a": Arch("sm_90a", smem_bytes=227 * 1024, tmem_columns=0, sms=132),
    "sm_100a": Arch("sm_100a", smem_bytes=227 * 1024, tmem_columns=512, sms=148),
}
