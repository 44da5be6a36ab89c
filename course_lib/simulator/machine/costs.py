"""What things cost, in cycles of an SM: the constants behind the timeline.

Rates come from the vendor's data sheets (dense throughput and memory bandwidth,
divided by SMs and boost clock: H200 SXM 989 Tflop/s in float16 and 4.8 TB/s over
132 SMs, B200 2.25 Pflop/s and 8 TB/s over 148). Latencies are assumed round
numbers in the range that published microbenchmarks of Hopper report. Arithmetic
in registers and hits in the L2 cache are modelled where a timeline is asked to be detailed
(`clockwork.Detailed`), instruction issue of lanes is not.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Costs:
    """Cycles and rates of one SM.

    Attributes:
      clock_ghz: boost clock, to turn cycles into time.
      gmem_bytes_per_cycle: an even share of the memory bandwidth.
      gmem_latency, smem_latency, barrier_latency: cycles until a result is seen.
      smem_bytes_per_cycle: shared memory bandwidth (32 banks of 4 bytes).
      flops_per_cycle: dense tensor-core float16 operations (a multiply-add is two).
      issue: cycles to issue an asynchronous operation.
      alu_per_cycle, special_per_cycle: 32-bit results of plain arithmetic, and of powers of two and
        the like (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions").
      mma_sustained: the part of the tensor core's peak that is left when nothing waits: from the
        ladder's steps on an H200 (step 7: 801 Tflop/s at 8192 cubed); the same for all kernels.
      smem_delivered: the part of shared memory's bandwidth that MMAs and copies get together: from
        the ladder's step 9 on an H200, whose tiles of 128 x 128 ask for more of it than for the
        tensor core (740 cycles a step; 640 by the bandwidth).
      mma_latency: cycles from an MMA's last product to its result (performance: 60, assumed).
      running_ghz: the clock while matmuls run (nvidia-smi on an H200: 1.92 to 1.98); 0: boost.
      hbm_delivered: the part of the memory's bandwidth that copies get (H200: 4286 of 4800 GB/s).
      l2_bytes_per_cycle: from L2 to one SM (64 bytes a cycle; a matmul measured on an H200 took
        54 of them).
      l2_latency: cycles until a TMA load from L2 has landed (assumed).
      l2_partitions: L2 has two, each of which caches for the SMs connected to it (NVIDIA A100
        Tensor Core GPU Architecture, "L2 cache"). Which SMs, and where the block of a number
        goes, is not documented: assumed is the first half of a wave's blocks in one, the rest in
        the other. It explains what orders of tiles cost on an H200: row by row, 32 tiles wide,
        8% more than a snake 8 wide; a snake 4 wide, with the same tiles in a wave, 2% more.
      miss_cycles_per_byte: what a byte that a partition has to fetch first costs an SM although
        copies run ahead: from the ladder's steps 6 and 7 on an H200, which differ in the order
        of tiles only (at 8192 cubed 1484 and 1368 cycles a step; 34% and 13% of 48 KiB fetched).
      launch_cycles: from the launch to the first instruction, and the end (assumed: 2 us).
    """

    clock_ghz: float
    gmem_bytes_per_cycle: float
    flops_per_cycle: float
    gmem_latency: int = 700
    smem_latency: int = 30
    barrier_latency: int = 20
    smem_bytes_per_cycle: int = 128
    issue: int = 20
    alu_per_cycle: int = 128
    special_per_cycle: int = 16

    # What the timing-only mode needs beside (see `course_lib.simulator.performance`).
    mma_sustained: float = 1.0
    mma_latency: int = 0
    running_ghz: float = 0.0
    smem_delivered: float = 0.92
    hbm_delivered: float = 0.89
    hbm_bytes_per_cycle: float = 0.0  # filled in by the timing-only mode
    l2_bytes_per_cycle: float = 64
    l2_latency: int = 650
    l2_partitions: int = 2
    miss_cycles_per_byte: float = 0.009
    launch_cycles: int = 4000

    def mma_cycles(self, m: int, n: int, k: int, dtype: np.dtype) -> float:
        """Cycles of an MMA of a block: half the rate for tf32, twice for one-byte types."""
        rate = self.flops_per_cycle * 2 / dtype.itemsize
        return 2.0 * m * n * k / rate


COSTS = {
    "sm_90a": Costs(
        clock_ghz=1.83,
        gmem_bytes_per_cycle=20,
        flops_per_cycle=4096,
        mma_sustained=0.825,
        running_ghz=1.98,
    ),
    "sm_100a": Costs(clock_ghz=1.85, gmem_bytes_per_cycle=29, flops_per_cycle=8192),
}
