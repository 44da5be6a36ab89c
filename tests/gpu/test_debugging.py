"""Chapter 14 on the GPU: inline code, the profiler, and what is called from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import runtime
from course_lib.benchmarks import scopes
from course_lib.kernels import debugging as k
from tests.kernels.test_debugging import CALLS, draw, equal

pytestmark = pytest.mark.gpu


def _needs(function: Any, *args: Any) -> None:
    if not runtime.can_run_natively(function, *args):
        pytest.skip("this card lacks what the kernel needs")


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_equals_its_reference(name: str) -> None:
    """The inline ones too, bit by bit: what the simulator is told of them is what they do."""
    function, args = CALLS[name][0], draw(name)
    _needs(function, *args)
    native = runtime.execute_native(function, tuple(args))
    assert native.ok, native.findings
    equal(name, native.value, args)


def test_the_profiler_records_every_scope() -> None:
    rng = np.random.default_rng()
    a, b = (jnp.asarray(rng.standard_normal(s), jnp.bfloat16) for s in ((128, 512), (512, 128)))
    _needs(k.product, a, b)
    found = scopes.record_here(a, b, slots=2)
    assert found is not None
    counts = {n: sum(s.name == n for s in found) for n in scopes.NAMES}
    assert counts == {"copy": 8, "arrive": 8, "multiply": 8, "store": 1}
    assert all(s.cycles > 0 for s in found)


def test_pytorch_calls_one_kernel() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(256, device="cuda")
    y = plgpu.as_torch_kernel(k.swish)(x)
    assert torch.allclose(y, x * torch.sigmoid(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="Multiple Mosaic GPU kernels"):
        plgpu.as_torch_kernel(lambda x: k.swish(k.swish(x)))(x)
    with pytest.raises(NotImplementedError, match="i32 constants"):
        plgpu.as_torch_kernel(lambda x: k.swish(x) + 1)(x)
    with pytest.raises(ValueError, match="only return kernel results"):
        plgpu.as_torch_kernel(lambda x: (k.swish(x), x))(x)


def test_pytorch_runs_the_pages_example() -> None:
    torch = pytest.importorskip("torch")

    def add(x_gmem: Any, y_gmem: Any, out_gmem: Any) -> None:
        out_gmem[...] = x_gmem[...] + y_gmem[...]

    kernel = plgpu.kernel(add, out_type=jax.ShapeDtypeStruct((128,), jnp.int32))
    x = torch.arange(128, dtype=torch.int32, device="cuda")
    out = plgpu.as_torch_kernel(kernel)(x, x * x)
    assert out.device == x.device
    assert torch.equal(out, x + x * x)


def test_an_exported_kernel_runs() -> None:
    x = np.random.default_rng().standard_normal(256).astype(np.float32)
    y = k.exported(k.swish, x).call(jax.device_put(x, jax.devices("gpu")[0]))
    np.testing.assert_allclose(y, k.swish_reference(x), rtol=1e-5, atol=1e-6)


def test_debug_print_prints_a_line_for_each_thread() -> None:
    program = (
        "import jax, numpy as np; from course_lib.kernels import debugging as k; "
        "x = np.arange(1024, dtype=np.float32).reshape(4, 2, 128); "
        "jax.block_until_ready(jax.jit(k.talkative)(x)); jax.effects_barrier()"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )  # fmt: skip
    lines = said.stdout.splitlines()
    assert sum(line.startswith("x: ") for line in lines) == 1
    wanted = [f"block {b}, thread {t}: {(2 * b + t) * 128:f}" for b in range(4) for t in range(2)]
    assert sorted(line for line in lines if line.startswith("block")) == wanted
