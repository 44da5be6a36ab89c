"""How many blocks share an SM, and what keeps more of them out.

Sources: CUDA C++ Programming Guide, technical specifications per compute capability
(9.0 and 10.0); CUDA occupancy calculator for the 1 KiB that each block reserves.
"""

from __future__ import annotations

import dataclasses

from course_lib.simulator.machine.arch import Arch

LANES = 128  # of a Pallas thread
_RESERVED_BYTES = 1024
# What a lane needs beside its accumulator: addresses, counters, pieces in conversion. ptxas gives
# 168 registers to the wgmma kernel whose accumulator takes 128 (128x128 float32 on 128 lanes).
_REGISTERS_BESIDE = 40


@dataclasses.dataclass(frozen=True)
class Occupancy:
    """Blocks on an SM.

    Attributes:
      blocks_per_sm: how many fit at the same time.
      limited_by: "SMEM", "registers", "threads", "TMEM" or "blocks": what is used up first.
      smem_bytes: shared memory of one block.
      smem_per_sm_bytes: what an SM has.
      threads: Pallas threads of one block.
      registers: registers of a lane, estimated from the accumulators; `compile_for` counts them.
    """

    blocks_per_sm: int
    limited_by: str
    smem_bytes: int
    smem_per_sm_bytes: int
    threads: int
    registers: int

    def __str__(self) -> str:
        blocks = f"{self.blocks_per_sm} block{'' if self.blocks_per_sm == 1 else 's'}"
        return (
            f"{blocks} per SM, limited by {self.limited_by} ({self.smem_bytes:,} of "
            f"{self.smem_per_sm_bytes:,} bytes of SMEM each, about {self.registers} registers per "
            "lane)"
        )


def occupancy(
    arch: Arch, *, threads: int, smem_bytes: int, accumulator_bytes: int = 0, tmem_columns: int = 0
) -> Occupancy:
    """How many blocks of a kernel share an SM.

    Args:
      threads: Pallas threads of a block, 128 lanes each.
      smem_bytes: shared memory of a block.
      accumulator_bytes: the largest accumulator of one Pallas thread in registers.
      tmem_columns: columns of tensor memory of a block.
    """
    registers = accumulator_bytes // (4 * LANES) + _REGISTERS_BESIDE
    registers = min(arch.registers_per_lane, -(-registers // 8) * 8)
    places = {
        "SMEM": arch.smem_per_sm_bytes // (smem_bytes + _RESERVED_BYTES),
        "registers": arch.registers_per_sm // (registers * LANES * threads),
        "threads": arch.threads_per_sm // (LANES * threads),
        "blocks": arch.blocks_per_sm,
    }
    if tmem_columns:
        places["TMEM"] = arch.tmem_columns // tmem_columns
    limit = min(places, key=lambda name: places[name])
    return Occupancy(
        max(1, places[limit]), limit, smem_bytes, arch.smem_per_sm_bytes, threads, registers
    )
