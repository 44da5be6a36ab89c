"""The GPU architectures that the compiler can be asked for, as XLA wants them described."""

from __future__ import annotations

import dataclasses

from course_lib.compiler.errors import CompileError


@dataclasses.dataclass(frozen=True)
class Target:
    """One architecture and a card that has it.

    Attributes:
      arch: the name that PTX uses ("sm_90a").
      card: a card of that architecture, for people.
      capability: (major, minor) compute capability.
      accelerated: whether the name ends in "a", so that wgmma or tcgen05 may be used.
      smem_bytes: the most shared memory one block may have, in bytes.
      smem_per_sm_bytes: the shared memory of one SM, in bytes.
      threads_per_sm: the most lanes (CUDA threads) that can live on one SM.
      core_count: the number of SMs.
      clock_ghz: the boost clock.
      bandwidth_bytes: the memory bandwidth, in bytes per second.
      l2_bytes: the size of the L2 cache.
      memory_bytes: the size of the device memory.
    """

    arch: str
    card: str
    capability: tuple[int, int]
    accelerated: bool
    smem_bytes: int
    smem_per_sm_bytes: int
    threads_per_sm: int
    core_count: int
    clock_ghz: float
    bandwidth_bytes: int
    l2_bytes: int
    memory_bytes: int

    def as_textproto(self) -> str:
        """XLA's `GpuTargetConfigProto`, for `jax.experimental.topologies`."""
        major, minor = self.capability
        extension = "ACCELERATED_FEATURES" if self.accelerated else "NONE"
        return f"""
            gpu_device_info {{
              threads_per_block_limit: 1024
              threads_per_warp: 32
              threads_per_core_limit: {self.threads_per_sm}
              block_dim_limit_x: 2147483647
              block_dim_limit_y: 65535
              block_dim_limit_z: 65535
              shared_memory_per_block: 49152
              shared_memory_per_core: {self.smem_per_sm_bytes}
              shared_memory_per_block_optin: {self.smem_bytes}
              core_count: {self.core_count}
              fpus_per_core: 128
              memory_bandwidth: {self.bandwidth_bytes}
              l2_cache_size: {self.l2_bytes}
              clock_rate_ghz: {self.clock_ghz}
              device_memory_size: {self.memory_bytes}
              registers_per_core_limit: 65536
              registers_per_block_limit: 65536
              cuda_compute_capability {{
                major: {major} minor: {minor} feature_extension: {extension}
              }}
            }}
            platform_name: "CUDA"
            dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
            device_description_str: "{self.card}"
        """


_KIB, _GIB = 1 << 10, 1 << 30

TARGETS = {
    t.arch: t
    for t in (
        Target(
            "sm_89", "NVIDIA GeForce RTX 4090", (8, 9), False, 99 * _KIB, 100 * _KIB, 1536,
            128, 2.52, 1_008_000_000_000, 72 * _KIB * _KIB, 24 * _GIB,
        ),
        Target(
            "sm_90a", "NVIDIA H100 SXM", (9, 0), True, 227 * _KIB, 228 * _KIB, 2048,
            132, 1.98, 3_352_000_000_000, 50 * _KIB * _KIB, 80 * _GIB,
        ),
        Target(
            "sm_100a", "NVIDIA B200", (10, 0), True, 227 * _KIB, 228 * _KIB, 2048,
            148, 1.97, 8_000_000_000_000, 126 * _KIB * _KIB, 180 * _GIB,
        ),
        Target(
            "sm_120a", "NVIDIA GeForce RTX 5090", (12, 0), True, 99 * _KIB, 100 * _KIB, 1536,
            170, 2.41, 1_792_000_000_000, 96 * _KIB * _KIB, 32 * _GIB,
        ),
    )
}  # fmt: skip


def get(arch: str) -> Target:
    """The `Target` called `arch`.

    Raises:
      CompileError: there is none of that name.
    """
    if arch in TARGETS:
        return TARGETS[arch]
    hint = f' Did you mean "{arch}a"?' if f"{arch}a" in TARGETS else ""
    known = ", ".join(f'"{a}" ({t.card})' for a, t in TARGETS.items())
    raise CompileError(
        f'arch is "{arch}", which this course has no target for.{hint} Known: {known}.'
    )
