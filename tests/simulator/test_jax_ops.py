"""JAX's own Mosaic GPU kernels (jax.experimental.pallas.ops.gpu), at small shapes.

They are the best code of this kind that there is, and nobody here wrote it: each must give the
right value, and no finding of severity error, under every schedule. Those that need NVLink
multicast (all_gather, reduce_scatter) are not run.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as Spec

from course_lib.simulator import devices, simulate

SMS = 4
HOPPER, BLACKWELL = "sm_90a", "sm_100a"


class _Patched:
    """A module with some of its names replaced, as another module sees it."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@pytest.fixture
def op(monkeypatch):
    """Imports one of JAX's modules and gives it a GPU of 4 SMs to ask about."""
    device = types.SimpleNamespace(core_count=SMS)
    # They import JAX's test helpers, which need a package more, and use nothing of them.
    unused = types.ModuleType("jax._src.test_util")
    monkeypatch.setitem(sys.modules, unused.__name__, unused)

    def load(name: str, *, count: int = 1) -> Any:
        module = importlib.import_module(f"jax.experimental.pallas.ops.gpu.{name}")
        fake = _Patched(
            jax,
            devices=lambda *_: [device] * count,
            local_devices=lambda *_: [device] * count,
            device_count=lambda: count,
            local_device_count=lambda: count,
        )
        monkeypatch.setattr(module, "jax", fake)
        if hasattr(module, "get_num_sms"):
            monkeypatch.setattr(module, "get_num_sms", lambda: SMS)
        if hasattr(module, "backend"):
            monkeypatch.setattr(
                module, "backend", types.SimpleNamespace(get_default_device=lambda: device)
            )
        if hasattr(module, "cuda_versions"):  # None without a GPU; only the version is asked for
            runtime = types.SimpleNamespace(cuda_runtime_get_version=lambda: 13000)
            monkeypatch.setattr(module, "cuda_versions", runtime)
        return module

    return load


def normal(*shape: int, dtype: str = "float16") -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float32) @ b.astype(np.float32)


def run_all(f, args, want, *, arch: str, schedules, tol: float = 2e-2) -> None:
    """No error under any schedule, and the value that is wanted."""
    for schedule in schedules:
        report = simulate(f, *args, arch=arch, schedule=schedule)
        assert report.ok, f"{schedule=}\n{report}"
        for got, right in zip(jax.tree.leaves(report.value), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(
                np.asarray(got, np.float32), np.asarray(right, np.float32), rtol=tol, atol=tol
            )


FEW = ("in_order", "adversarial", 0)
MANY = tuple(range(1, 21))
effort = pytest.mark.parametrize(
    "schedules", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"]
)


@effort
@pytest.mark.parametrize("cluster", [None, 0, 1], ids=["alone", "cluster-m", "cluster-n"])
def test_hopper_matmul(op, cluster, schedules) -> None:
    m = op("hopper_matmul_mgpu")
    config = m.TuningConfig(
        tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2, grid_tile_width=2,
        cluster_dimension=None if cluster is None else m.MatmulDimension(cluster),
    )  # fmt: skip
    a, b = normal(256, 192), normal(192, 256)
    run_all(
        lambda a, b: m.matmul(a, b, None, config), (a, b), product(a, b),
        arch=HOPPER, schedules=schedules,
    )  # fmt: skip


@effort
def test_hopper_matmul_and_add(op, schedules) -> None:
    m = op("hopper_matmul_mgpu")
    config = m.TuningConfig(
        tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=3,
        wg_dimension=m.MatmulDimension.M, epi_tile_m=32, epi_tile_n=32,
    )  # fmt: skip
    a, b, c = normal(128, 256), normal(256, 128), normal(128, 128)
    run_all(
        lambda a, b, c: m.matmul(a, b, c, config), (a, b, c), product(a, b) + c,
        arch=HOPPER, schedules=schedules,
    )  # fmt: skip


@effort
def test_hopper_mixed_type_matmul(op, schedules) -> None:
    m = op("hopper_mixed_type_matmul_mgpu")
    config = m.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)
    rng = np.random.default_rng()
    a = rng.integers(-128, 127, (128, 192), dtype=np.int8)
    b = normal(192, 256)

    def f(a, b):
        return m.mixed_matmul_kernel(a, b, out_dtype=jnp.float32, config=config)

    run_all(f, (a, b), product(a, b), arch=HOPPER, schedules=schedules)


@effort
@pytest.mark.parametrize("causal", [False, True])
def test_attention(op, causal, schedules) -> None:
    m = op("attention_mgpu")
    config = m.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, causal=causal)
    q, k, v = normal(1, 256, 2, 64), normal(1, 256, 1, 64), normal(1, 256, 1, 64)
    want = m.attention_reference(q, k, v, causal=causal, save_residuals=True)
    run_all(
        lambda q, k, v: m.attention(q, k, v, config, True), (q, k, v), want,
        arch=HOPPER, schedules=schedules,
    )  # fmt: skip


@effort
@pytest.mark.parametrize("use_schedule_barrier", [False, True])
def test_attention_with_pipeline_emitter(op, use_schedule_barrier, schedules) -> None:
    m = op("attention_mgpu")
    config = m.TuningConfig(
        block_q=64, block_kv=64, max_concurrent_steps=2, use_schedule_barrier=use_schedule_barrier
    )
    q, k, v = (normal(1, 256, 1, 64) for _ in range(3))
    want = m.attention_reference(q, k, v)
    run_all(
        lambda q, k, v: m.attention_with_pipeline_emitter(q, k, v, config), (q, k, v), want,
        arch=HOPPER, schedules=schedules,
    )  # fmt: skip


@effort
def test_attention_backwards(op, schedules) -> None:
    m = op("attention_mgpu")
    config = m.TuningConfig(
        block_q=64, block_kv=64, max_concurrent_steps=2, compute_wgs_bwd=1,
        block_q_dkv=64, block_kv_dkv=64, block_q_dq=64, block_kv_dq=64,
    )  # fmt: skip
    q, k, v = (normal(1, 128, 1, 64) for _ in range(3))

    def gradients(attend):
        return jax.grad(lambda *x: attend(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))

    want = gradients(m.attention_reference)(q, k, v)
    run_all(
        gradients(lambda q, k, v: m.attention(q, k, v, config)), (q, k, v), want,
        arch=HOPPER, schedules=schedules,
    )  # fmt: skip


@effort
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_ragged_dot(op, transpose_rhs, schedules) -> None:
    m = op("ragged_dot_mgpu")
    a, b = normal(256, 128), normal(3, 128, 128)
    groups = np.array([100, 37, 119], np.int32)
    right = b.swapaxes(1, 2) if transpose_rhs else b
    want = np.concatenate([product(a[:100], b[0]), product(a[100:137], b[1]),
                           product(a[137:], b[2])])  # fmt: skip

    def f(a, b, groups):
        return m.ragged_dot(
            a, b, group_sizes=groups, block_m=64, block_n=64, block_k=64, max_concurrent_steps=2,
            grid_block_n=1, transpose_rhs=transpose_rhs,
        )  # fmt: skip

    run_all(f, (a, np.ascontiguousarray(right), groups), want, arch=HOPPER, schedules=schedules)


@effort
def test_transposed_ragged_dot(op, schedules) -> None:
    m = op("transposed_ragged_dot_mgpu")
    a, b = normal(256, 64), normal(256, 128)
    groups = np.array([100, 37, 119], np.int32)
    ends = np.cumsum(groups)
    want = np.stack([product(a[e - g : e].T, b[e - g : e])
                     for g, e in zip(groups, ends, strict=True)])  # fmt: skip

    def f(a, b, groups):
        return m.transposed_ragged_dot(
            a, b, group_sizes=groups, block_m=64, block_n=64, block_k=64, max_concurrent_steps=2,
            grid_block_n=1,
        )  # fmt: skip

    run_all(f, (a, b, groups), want, arch=HOPPER, schedules=schedules)


def blackwell_matmul(m, *, collective: bool):
    config = m.TuningConfig(
        tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2, collective=collective,
        epilogue_tile_n=32, grid_tile_width=2,
    )  # fmt: skip
    return lambda a, b: m.matmul_kernel(a, b, config)


def mended(m, monkeypatch, *, collective: bool) -> None:
    """Adds what JAX's Blackwell matmul leaves out; the tests below say what that is."""

    def kernel(body, **options):
        def waits(*refs, **scratch):
            body(*refs, **scratch)
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)

        return plgpu.kernel(waits, **options)

    axes = {"cluster_axes": ("x",)} if collective else {}
    loop = functools.partial(plgpu.dynamic_scheduling_loop, **axes)
    patched = _Patched(plgpu, kernel=kernel, dynamic_scheduling_loop=loop)
    monkeypatch.setattr(m, "plgpu", patched)


MATRICES = ((512, 192), (192, 256))


@effort
@pytest.mark.parametrize("collective", [False, True], ids=["alone", "collective"])
def test_blackwell_matmul(op, monkeypatch, collective, schedules) -> None:
    m = op("blackwell_matmul_mgpu")
    mended(m, monkeypatch, collective=collective)
    a, b = normal(256 if collective else 512, 192), normal(192, 256)
    f = blackwell_matmul(m, collective=collective)
    run_all(f, (a, b), product(a, b), arch=BLACKWELL, schedules=schedules)


def test_blackwell_matmul_of_many_tiles_may_overrun_a_barrier(op, monkeypatch) -> None:
    """From its third tile on, nothing makes the following block's MMA warp keep up.

    The leader's MMA does not need that warp, which only waits for store_done_barrier: the barrier
    can complete again before it has.
    """
    m = op("blackwell_matmul_mgpu")
    mended(m, monkeypatch, collective=True)
    a, b = (normal(*shape) for shape in MATRICES)
    for schedule in ("in_order", "adversarial"):
        report = simulate(blackwell_matmul(m, collective=True), a, b, arch=BLACKWELL,
                          schedule=schedule)  # fmt: skip
        assert {e.rule for e in report.errors} == {"barrier-overrun"}, report
        assert "store_done_barrier" in report.errors[0].what
        np.testing.assert_allclose(report.value, product(a, b), rtol=2e-2, atol=2e-2)


def test_blackwell_matmul_ends_before_its_last_copy(op) -> None:
    """It does not wait for its last copy out of shared memory, as the other kernels do.

    JAX's own interpret mode reports the same. The value is right all the same.
    """
    a, b = (normal(*shape) for shape in MATRICES)
    f = blackwell_matmul(op("blackwell_matmul_mgpu"), collective=False)
    for schedule in FEW:
        report = simulate(f, a, b, arch=BLACKWELL, schedule=schedule)
        assert {e.rule for e in report.errors} == {"unfinished-copy"}, report
        np.testing.assert_allclose(report.value, product(a, b), rtol=2e-2, atol=2e-2)


def test_blackwell_matmul_does_not_name_its_cluster_axis(op) -> None:
    """JAX asks for cluster_axes where a kernel has clusters; this one leaves it out."""
    a, b = (normal(*shape) for shape in MATRICES)
    f = blackwell_matmul(op("blackwell_matmul_mgpu"), collective=True)
    for schedule in FEW:
        report = simulate(f, a, b, arch=BLACKWELL, schedule=schedule)
        assert [e.rule for e in report.errors] == ["cancel-not-collective"], report
        assert "cluster_axes=('x',)" in report.errors[0].fix


@effort
def test_blackwell_ragged_dot(op, schedules) -> None:
    m, matmul = op("blackwell_ragged_dot_mgpu"), op("blackwell_matmul_mgpu")
    config = m.TuningConfig(
        tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2, collective=True,
        grid_tile_width=1, grid_minor_dim=matmul.MatmulDimension.N,
    )  # fmt: skip
    a, b = normal(512, 128), normal(3, 128, 128)
    groups = np.array([140, 300, 72], np.int32)
    want = np.concatenate([product(a[:140], b[0]), product(a[140:440], b[1]),
                           product(a[440:], b[2])])  # fmt: skip
    run_all(
        lambda a, b, g: m.ragged_dot_kernel(a, b, g, config), (a, b, groups), want,
        arch=BLACKWELL, schedules=schedules,
    )  # fmt: skip


def collective_matmul(m, count: int):
    config = m.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)

    def shard(a, b):
        return m.all_gather_lhs_matmul(a, b, "x", config=config)

    return jax.shard_map(
        shard, mesh=devices(count), in_specs=(Spec("x"), Spec(None, "x")),
        out_specs=Spec(None, "x"), check_vma=False,
    )  # fmt: skip


@effort
def test_collective_matmul(op, schedules) -> None:
    """Each device multiplies while it hands its part of the left side on to the next one."""
    f = collective_matmul(op("collective_matmul_mgpu", count=2), 2)
    op("hopper_matmul_mgpu")
    a, b = normal(128, 128), normal(128, 256)
    run_all(f, (a, b), product(a, b), arch=HOPPER, schedules=schedules)


def test_collective_matmul_of_three_devices_counts_signals_of_two_steps_together(op) -> None:
    """A block that is a step ahead signals twice, and so can stand in for one that is late.

    The semaphore counts the signals of all blocks of all steps: nobody can tell. Schedules that
    keep the blocks together do not show it; the data race is there.
    """
    f = collective_matmul(op("collective_matmul_mgpu", count=3), 3)
    op("hopper_matmul_mgpu")
    a, b = normal(192, 128), normal(128, 384)
    run_all(f, (a, b), product(a, b), arch=HOPPER, schedules=("in_order", "adversarial"))
    found = {e.rule for seed in range(6) for e in simulate(f, a, b, schedule=seed).errors}
    assert found == {"data-race"}


def test_reference_of_ragged_dot() -> None:
    """The numpy reference above is what lax.ragged_dot computes."""
    a, b = normal(64, 32, dtype="float32"), normal(2, 32, 16, dtype="float32")
    want = np.concatenate([a[:20] @ b[0], a[20:] @ b[1]])
    got = lax.ragged_dot(a, b, np.array([20, 44], np.int32))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
