"""What a function asks of a GPU is read from its jaxpr."""

from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import pytest

from course_lib.tracing import BARRIER_OF_ALL, SLOTS_IN_TURN, arch_for, trace
from tests.model import kernels

pytestmark = pytest.mark.two_jax
X = jax.ShapeDtypeStruct((128, 128), jnp.float32)


def test_primitives_inside_and_outside_of_kernels_are_told_apart():
    kernel = kernels.through_smem()
    t = trace(lambda x: jnp.dot(kernel(x), x), X)
    assert t.kernels == 1
    assert t.inside["copy_gmem_to_smem"] == 1
    assert t.inside["barrier_wait"] == 1
    assert t.outside["dot_general"] == 1
    assert "dot_general" not in t.inside


def test_kernels_are_found_under_jit_vmap_and_scan():
    kernel = kernels.two_blocks()
    assert trace(jax.jit(kernel), X).kernels == 1
    assert trace(jax.vmap(kernel), jax.ShapeDtypeStruct((3, 128, 128), jnp.float32)).kernels == 1
    scanned = lambda x: jax.lax.scan(lambda c, _: (kernel(c), None), x, length=2)[0]  # noqa: E731
    assert trace(scanned, X).kernels == 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda k: lambda x: k(x), True),
        (lambda k: lambda x: k(x).reshape(-1), True),
        (lambda k: jax.jit(lambda x: k(x).T), True),
        (lambda k: lambda x: k(x) * 2, False),
        (lambda k: lambda x: (k(x), x)[1], False),
        (lambda k: lambda x: (k(x), x + 1), False),
        (lambda k: lambda x: jnp.sin(x), False),
    ],
)
def test_whether_the_answer_comes_out_of_the_kernel(function, expected):
    assert trace(function(kernels.two_blocks()), X).from_kernel is expected


def test_grid_threads_and_shared_memory_are_read():
    assert trace(kernels.two_blocks(), X).grids == ((2,),)
    assert trace(kernels.two_threads(), X).threads == (2,)
    assert trace(kernels.through_smem(), X).smem_bytes == 128 * 128 * 4


@pytest.mark.parametrize("closed", [True, False])
def test_copies_out_that_leave_their_group_open_are_counted(closed):
    def body(x_gmem, y_gmem, x_smem):
        x_smem[...] = x_gmem[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(x_smem, y_gmem, commit_group=closed)
        plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0)

    scratch = {"x_smem": plgpu.SMEM(X.shape, X.dtype)}
    inside = trace(plgpu.kernel(body, out_type=X, scratch_types=scratch), X).inside
    assert inside["copy_smem_to_gmem"] == 1
    assert inside["commit_group=False"] == (0 if closed else 1)


def test_no_kernel_is_no_kernel():
    t = trace(jnp.sin, X)
    assert (t.kernels, t.from_kernel, t.inside) == (0, False, {})


def test_scratch_in_tensor_memory_needs_blackwell():
    """Also where nothing loads from it or stores to it."""

    def body(x_gmem, y_gmem, scratch):
        y_gmem[...] = x_gmem[...] + 1

    x = jax.ShapeDtypeStruct((128, 64), jnp.float32)
    for space, arch in ((plgpu.TMEM, "sm_100a"), (plgpu.SMEM, "sm_90a")):
        kernel = plgpu.kernel(body, out_type=x, scratch_types=[space((128, 64), jnp.float32)])
        assert arch_for(trace(kernel, x)) == arch


@pytest.mark.parametrize(
    ("axes", "of_all"), [(("a", "b"), 0), (("a",), 0), ((("a", "b"),), 1), ((("a",), "b"), 0)]
)
def test_a_cluster_barrier_over_all_blocks_is_counted(axes: Any, of_all: int) -> None:
    def body(y: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    kernel = plgpu.kernel(
        body,
        out_type=X,
        cluster=(2, 2),
        cluster_names=("a", "b"),
        scratch_types=[plgpu.ClusterBarrier(collective_axes=axes)],
    )
    assert trace(kernel).inside[BARRIER_OF_ALL] == of_all


@pytest.mark.parametrize(("slots", "in_turn"), [((0,), 0), ((1, 1), 0), ((0, 1), 2), ((None,), 1)])
def test_slots_that_answers_are_read_from(slots: tuple[int | None, ...], in_turn: int) -> None:
    """A slot that the program computes is None here."""

    def body(y: Any, answers: Any, answered: Any) -> None:
        computed = jax.lax.rem(jax.lax.axis_index("i"), 2)
        for slot in (computed if s is None else s for s in slots):
            plgpu.try_cluster_cancel(answers.at[slot], answered.at[slot])
            plgpu.barrier_wait(answered.at[slot])
            plgpu.query_cluster_cancel(answers.at[slot], ("i",))

    kernel = plgpu.kernel(
        body,
        out_type=X,
        grid=(4,),
        grid_names=("i",),
        scratch_types=[plgpu.TryClusterCancelResult(2), plgpu.Barrier(num_barriers=2)],
    )
    assert trace(kernel).inside[SLOTS_IN_TURN] == in_turn
