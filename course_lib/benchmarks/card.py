"""The card in this machine: what it is, how it is, and what its ceilings are.

Sources: `nvidia-smi --help-query-gpu` (the fields, and the clock event reasons as
bits); CUDA driver API, `CUdevice_attribute` (the numbers of the attributes).
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
from typing import Any

import psutil

from course_lib import runtime
from course_lib.diagnostics import CourseError

_FIELDS = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "utilization.gpu",
)
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # new name, old name
# Bits of the clock event reasons that mean the card cannot do what it usually does. The
# software power cap (bit 0x4) is not among them: a matmul on a healthy card meets it, too.
_SLOWED = {
    0x08: "a hardware slowdown is active",
    0x20: "it is too warm (software thermal slowdown)",
    0x40: "it is too warm (hardware thermal slowdown)",
    0x80: "its power supply brakes it",
}
_BUSY_PERCENT = 5
# CUdevice_attribute
_SMS, _CLOCK_KHZ, _MEMORY_CLOCK_KHZ, _BUS_BITS, _L2_BYTES = 16, 13, 36, 37, 38
# Dense 16-bit tensor-core FLOP per SM and clock, with float32 sums, by compute capability:
# what the data sheets' peaks come to at the data sheets' clocks (A100 312 TFLOP/s, RTX 4090
# 165, H100 and H200 989, B200 2250).
_FLOP_PER_SM_AND_CLOCK = {(8, 0): 2048, (8, 9): 512, (9, 0): 4096, (10, 0): 8192}


@dataclasses.dataclass(frozen=True)
class State:
    """What `nvidia-smi` says at one moment.

    Attributes:
      name: the product's name.
      driver: the driver's version.
      sm_mhz: the SMs' clock now.
      max_sm_mhz: the highest they can have.
      memory_mhz: the memory's clock now.
      temperature_c: in degrees Celsius.
      power_w: what it draws now, in watts.
      power_limit_w: what it may draw.
      utilization_percent: the part of the last moments in which a kernel ran.
      reasons: the clock event reasons, as bits.
      others: how many other processes compute on it; None if that cannot be seen.
    """

    name: str
    driver: str
    sm_mhz: float
    max_sm_mhz: float
    memory_mhz: float
    temperature_c: float
    power_w: float
    power_limit_w: float
    utilization_percent: float
    reasons: int
    others: int | None

    def objections(self) -> list[str]:
        """Why numbers taken now would not be this card's: sentences; none if nothing is wrong."""
        found = [
            f"{self.name} is slowed: {why}." for bit, why in _SLOWED.items() if self.reasons & bit
        ]
        if self.utilization_percent > _BUSY_PERCENT:
            found.append(f"{self.name} is busy: {self.utilization_percent:.0f} % in use already.")
        if self.others:
            found.append(f"{self.name} is shared: other processes on it: {self.others}.")
        return found


def need_gpu() -> runtime.Device:
    """The GPU that JAX can use here.

    Raises:
      CourseError: there is none; one sentence says so.
    """
    device = runtime.device()
    if device is None:
        raise CourseError(
            "There is no GPU that JAX can use here, so there is nothing to time:"
            " only `course bench simulator` works on this machine."
        )
    return device


def state() -> State | None:
    """What the card in use is doing now; None where there is no `nvidia-smi`."""
    for reasons in _REASONS:
        answer = _ask(f"--query-gpu={','.join(_FIELDS)},{reasons}")
        if answer:
            return parse(answer.splitlines()[0], others=_others())
    return None


def parse(line: str, *, others: int | None = None) -> State:
    """A `State` from a line of comma-separated values, without units."""
    name, driver, *numbers, reasons = (part.strip() for part in line.split(","))
    sm, max_sm, memory, temperature, power, limit, utilization = map(_number, numbers)
    return State(
        name=name,
        driver=driver,
        sm_mhz=sm,
        max_sm_mhz=max_sm,
        memory_mhz=memory,
        temperature_c=temperature,
        power_w=power,
        power_limit_w=limit,
        utilization_percent=utilization,
        reasons=_bits(reasons),
        others=others,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "[N/A]": not every card measures everything
        return float("nan")


def _bits(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


def _others() -> int | None:
    answer = _ask("--query-compute-apps=pid")
    if answer is None:
        return None
    mine = psutil.Process()
    family = {mine.pid, mine.ppid(), *(child.pid for child in mine.children(recursive=True))}
    return len({int(pid) for pid in answer.split() if pid.isdigit()} - family)


def _ask(query: str) -> str | None:
    tool = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    index = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    command = [tool, query, "--format=csv,noheader,nounits", f"--id={index}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Two ceilings of a card.

    Attributes:
      flop_per_s: what its tensor cores can do with 16-bit operands at the highest clock.
      bytes_per_s: what its memory can move.
      sms: how many SMs it has.
      l2_bytes: how large its L2 cache is.
      clock_hz: the SMs' highest clock.
    """

    flop_per_s: float
    bytes_per_s: float
    sms: int
    l2_bytes: int
    clock_hz: float

    @property
    def ridge(self) -> float:
        """FLOP per byte from which on the tensor cores are the limit, not the memory."""
        return self.flop_per_s / self.bytes_per_s

    def attainable(self, flop_per_byte: float) -> float:
        """The most FLOP/s that a kernel of this intensity can reach."""
        return min(self.flop_per_s, flop_per_byte * self.bytes_per_s)


def roofline() -> Roofline | None:
    """The ceilings of the card in use, from the driver; None for a card that is not known here."""
    device = runtime.device()
    rate = _FLOP_PER_SM_AND_CLOCK.get(device.capability) if device else None
    cuda = _driver()
    if rate is None or cuda is None:
        return None
    sms, clock_khz = _attribute(cuda, _SMS), _attribute(cuda, _CLOCK_KHZ)
    memory_khz, bus_bits = _attribute(cuda, _MEMORY_CLOCK_KHZ), _attribute(cuda, _BUS_BITS)
    return Roofline(
        flop_per_s=rate * sms * clock_khz * 1e3,
        bytes_per_s=2 * memory_khz * 1e3 * bus_bits / 8,  # two transfers per clock
        sms=sms,
        l2_bytes=_attribute(cuda, _L2_BYTES),
        clock_hz=clock_khz * 1e3,
    )


def _driver() -> Any | None:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if library.cuInit(0) == 0:
            return library
    return None


def _attribute(cuda: Any, number: int) -> int:
    value = ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    return value.value
