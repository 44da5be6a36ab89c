"""Statements of the reference page that no other test holds, tried on the installed JAX.

tests/coverage.toml says which statement each of them is for.
"""

import functools
import importlib.util
from pathlib import Path

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from course_lib.authoring import Course
from course_lib.figures import sm
from course_lib.model import execute

pytestmark = pytest.mark.two_jax


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng().standard_normal((2, 128)).astype(np.float32)


def _value(kernel, *args):
    outcome = execute(kernel, args)
    assert outcome.findings == ()
    return outcome.value


def test_an_sm_has_four_quadrants_and_their_units() -> None:
    said = sm.one_sm().get_label()
    assert "four quadrants" in said
    for unit in ("a warp scheduler", "a TensorCore", "an ALU", "an SFU", "(LSU)", "(SMEM)"):
        assert unit in said
    assert "Three Pallas threads are bands of four warps, one warp in each quadrant" in said


def test_one_thread_alone_leaves_a_unit_idle() -> None:
    one, two = sm.ping_pong().get_label().split("With two")
    assert "one of the units always idles" in one
    assert "both are busy" in two


def test_a_pallas_thread_is_128_lanes_in_four_warps() -> None:
    """JAX's own tiled layout for the TensorCore deals its rows out to four warps of 32 lanes."""
    from jax.experimental.mosaic.gpu import WGMMA_LAYOUT

    tiled = WGMMA_LAYOUT.tiled_tiling_shape
    warps = [tiled[d] for d in WGMMA_LAYOUT.partitioned_warp_dims]
    lanes = [tiled[d] for d in WGMMA_LAYOUT.partitioned_lane_dims]
    assert np.prod(warps) == 4
    assert np.prod(lanes) == 32


def test_pallas_has_both_gpu_backends() -> None:
    for backend in ("mosaic_gpu", "triton"):
        assert importlib.util.find_spec(f"jax.experimental.pallas.{backend}") is not None


def test_chapter_00_links_the_paper_on_scheduling() -> None:
    source = (Course().solutions / "00_start_here.md").read_text()
    assert "[Analyzing Modern NVIDIA GPU Cores](https://arxiv.org/abs/2503.20481)" in source


def test_there_is_no_memory_space_for_l2() -> None:
    assert all(hasattr(plgpu, space) for space in ("GMEM", "SMEM", "TMEM"))
    assert not hasattr(plgpu, "L2")


def test_each_block_has_shared_memory_of_its_own(x: np.ndarray) -> None:
    """Both blocks fill "the same" buffer; neither finds the other's numbers in it."""

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(2,),
        grid_names=("block",),
        scratch_types={"x_smem": plgpu.SMEM((128,), jnp.float32)},
    )
    def kernel(x_gmem, y_gmem, x_smem):
        block = jax.lax.axis_index("block")
        x_smem[...] = x_gmem[block]
        y_gmem[block] = x_smem[...]

    np.testing.assert_array_equal(_value(kernel, x), x)


def test_a_read_after_a_write_sees_it(x: np.ndarray) -> None:
    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((128,), x.dtype),
        scratch_types={"x_smem": plgpu.SMEM((128,), jnp.float32)},
    )
    def kernel(x_gmem, y_gmem, x_smem):
        x_smem[...] = x_gmem[0]
        x_smem[...] = x_smem[...] + x_gmem[1]
        y_gmem[...] = x_smem[...]

    np.testing.assert_array_equal(_value(kernel, x), x[0] + x[1])


def test_threads_must_allocate_together(x: np.ndarray) -> None:
    """With collective_axes it works; without, JAX refuses it."""

    def kernel(*, together: bool):
        @functools.partial(
            plgpu.kernel,
            out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            num_threads=2,
            thread_name="thread",
        )
        def both(x_gmem, y_gmem):
            thread = jax.lax.axis_index("thread")

            def scope(x_smem):
                x_smem[thread] = x_gmem[thread]
                y_gmem[thread] = x_smem[thread]

            buffer = plgpu.SMEM((2, 128), jnp.float32)
            axes = {"collective_axes": "thread"} if together else {}
            pl.run_scoped(scope, buffer, **axes)

        return both

    np.testing.assert_array_equal(_value(kernel(together=True), x), x)
    lower = functools.partial(
        jax.jit(kernel(together=False)).trace(x).lower, lowering_platforms=("cuda",)
    )
    with pytest.raises(Exception, match="collective"):
        lower()


def test_jaxlib_knows_the_variable_that_shows_ptxas() -> None:
    folder = Path(jaxlib.__file__).parent
    libraries = [p for p in folder.rglob("*.so") if b"MOSAIC_GPU_DUMP_PTXAS" in p.read_bytes()]
    assert libraries


def test_nd_loop_carries_a_value() -> None:
    """Each of two blocks counts its own tiles and writes down the count at each."""

    @functools.partial(
        plgpu.kernel,
        out_type=jax.ShapeDtypeStruct((5,), jnp.int32),
        grid=(2,),
        grid_names=("sm",),
    )
    def kernel(count_gmem):
        @plgpu.nd_loop((5,), collective_axes="sm", init_carry=jnp.int32(0))
        def _tile(info, carry):
            count_gmem[info.index] = carry
            return carry + 1

    np.testing.assert_array_equal(_value(lambda: kernel()), [0, 0, 1, 1, 2])
