"""What things cost, in cycles of an SM: the constants behind the timeline.

Rates come from the vendor's data sheets (dense throughput and memory bandwidth,
divided by SMs and boost clock: H200 SXM 989 Tflop/s in float16 and 4.8 TB/s over
132 SMs, B200 2.25 Pflop/s and 8 TB/s over 148). Latencies are assumed round
numbers in the range that published microbenchmarks of Hopper report. Arithmetic
in registers, instruction issue of lanes and L2 hits are not modelled.
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
    """

    clock_ghz: float
    gmem_bytes_per_cycle: float
    flops_per_cycle: float
    gmem_latency: int = 700
    smem_latency: int = 30
    barrier_latency: int = 20
    smem_bytes_per_cycle: int = 128
    issue: int = 20

    def mma_cycles(self, m: int, n: int, k: int, dtype: np.dtype) -> float:
        """Cycles of an MMA of a block: half the rate for tf32, twice for one-byte types."""
        rate = self.flops_per_cycle * 2 / dtype.itemsize
        return 2.0 * m * n * k / rate


COSTS = {
    "sm_90a": Costs(clock_ghz=1.83, gmem_bytes_per_cycle=20, flops_per_cycle=4096),
    "sm_100a": Costs(clock_ghz=1.85, gmem_bytes_per_cycle=29, flops_per_cycle=8192),
}
