"""Chapter 07 on the GPU: the TensorCore does what the model, and the chapter, say of it."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

from course_lib import runtime
from course_lib.kernels import wgmma as k
from course_lib.simulator import simulate
from tests.kernels.test_wgmma import B_AS_N_K, CALLS, draw, tolerance

pytestmark = pytest.mark.gpu

BLOCKS = 132  # one for each SM of an H100 or H200


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_equals_its_reference(name: str) -> None:
    kernel, reference, _, _, static = CALLS[name]
    args = draw(name)
    native = runtime.execute_native(lambda *a: kernel(*a, **static), args)
    assert native.ok, native.findings
    wanted = reference(*args, **static)
    np.testing.assert_allclose(native.value, wanted, rtol=1e-5, atol=2 * tolerance(name))


def test_float32_operands_are_cut_off_after_ten_bits() -> None:
    x = np.random.default_rng().standard_normal((64, 64)).astype(np.float32)
    kernel = functools.partial(k.product, config=B_AS_N_K)
    native = runtime.execute_native(kernel, (np.eye(64, dtype=np.float32), x))
    assert native.ok, native.findings
    np.testing.assert_array_equal(native.value, k.tf32(x).T)


def _overwritten(a: jax.Array, b: jax.Array) -> jax.Array:
    """a[0] @ b + a[1] @ b in every block; a[0] is overwritten behind the second call's issue.

    The reference page says that the first call no longer runs then. PTX has no wait for it.
    """
    m, k_size, n = a.shape[1], a.shape[2], b.shape[1]

    def body(a_gmem: Any, b_gmem: Any, y_gmem: Any, a_smem: Any, b_smem: Any, loaded: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, loaded)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
        plgpu.barrier_wait(loaded)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem.at[0], b_smem)
            plgpu.wgmma(acc, a_smem.at[1], b_smem)
            a_smem[0] = jnp.full((m, k_size), 9, a.dtype)
            return acc[...]

        y_gmem[jax.lax.axis_index("block")] = pl.run_scoped(multiply, plgpu.ACC((m, n), y.dtype))

    y = jax.ShapeDtypeStruct((BLOCKS, m, n), jnp.float32)
    scratch: dict[str, Any] = dict(
        a_smem=plgpu.SMEM(a.shape, a.dtype),
        b_smem=plgpu.SMEM(b.shape, b.dtype),
        loaded=plgpu.Barrier(num_arrivals=2),
    )
    launch: dict[str, Any] = dict(grid=(BLOCKS,), grid_names=("block",))
    return plgpu.kernel(body, out_type=y, scratch_types=scratch, **launch)(a, b)


def test_behind_a_second_call_the_first_no_longer_reads() -> None:
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype(jnp.bfloat16) for s in ((2, 64, 256), (256, 256)))
    assert simulate(_overwritten, a, b).findings == ()
    native = runtime.execute_native(_overwritten, (a, b))
    assert native.ok, native.findings
    wanted = a.astype(np.float64).sum(0) @ b.astype(np.float64)
    np.testing.assert_allclose(
        native.value, np.broadcast_to(wanted, native.value.shape), rtol=1e-5, atol=1e-3
    )
