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
    """

    name: str
    smem_bytes: int
    tmem_columns: int
    sms: int


ARCHS = {
    "sm_90a": Arch("sm_90a", smem_bytes=227 * 1024, tmem_columns=0, sms=132),
    "sm_100a": Arch("sm_100a", smem_bytes=227 * 1024, tmem_columns=512, sms=148),
}
