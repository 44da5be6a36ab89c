"""The driver's own copy from device memory to device memory, timed by its events.

CUPTI, as JAX's profiler uses it, records kernels only, and the driver's copy may be
none. Sources: CUDA driver API, `cuMemcpyDtoDAsync` and `cuEventElapsedTime`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from course_lib.diagnostics import CourseError


class DriverCopy:
    """`copy(x)` returns a copy of `x` and remembers how long the driver took for it."""

    def __init__(self) -> None:
        self._last_us = 0.0
        self._cuda: Any = None
        self._events = (ctypes.c_void_p(), ctypes.c_void_p())

    def __call__(self, x: jax.Array) -> jax.Array:
        """A copy of an array on the GPU."""
        cuda = self._driver()
        y = jax.block_until_ready(jnp.zeros_like(x))
        jax.block_until_ready(x)
        start, end = self._events
        # The driver's default stream: it runs beside JAX's, so both arrays must be ready.
        self._check(cuda.cuEventRecord(start, None))
        source, target = (ctypes.c_uint64(z.unsafe_buffer_pointer()) for z in (x, y))
        self._check(cuda.cuMemcpyDtoDAsync_v2(target, source, ctypes.c_size_t(x.nbytes), None))
        self._check(cuda.cuEventRecord(end, None))
        self._check(cuda.cuEventSynchronize(end))
        time_ms = ctypes.c_float()
        self._check(cuda.cuEventElapsedTime(ctypes.byref(time_ms), start, end))
        self._last_us = time_ms.value * 1e3
        return y

    def times_us(self, calls: Sequence[Callable[[], Any]]) -> list[float]:
        """Calls each function, which copies once, and returns the copies' microseconds."""
        times = []
        for call in calls:
            call()
            times.append(self._last_us)
        return times

    def _driver(self) -> Any:
        """The driver's library, with JAX's own context current and two events made in it."""
        if self._cuda is None:
            cuda = ctypes.CDLL("libcuda.so.1")
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._check(cuda.cuInit(0))
            self._check(cuda.cuDeviceGet(ctypes.byref(device), 0))
            self._check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
            self._check(cuda.cuCtxSetCurrent(context))
            for event in self._events:
                self._check(cuda.cuEventCreate(ctypes.byref(event), 0))
            self._cuda = cuda
        return self._cuda

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise CourseError(f"The driver's copy failed with CUDA error {code}.")
